package discovery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/cluster/discovery"
)

// apiServer answers discovery.
type apiServer struct {
	api, apis  string           // the answers to /api and /apis; empty for the core alone, and for no group
	aggregated bool             // that they are all in one answer
	version    http.HandlerFunc // answers the requests for one version; nil refuses them

	mu    sync.Mutex
	asked []string // paths
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if s.aggregated {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	}
	switch {
	case r.URL.Path == "/api" && s.api != "":
		_, _ = io.WriteString(w, s.api)
	case r.URL.Path == "/api":
		http.NotFound(w, r)
	case r.URL.Path == "/apis":
		_, _ = io.WriteString(w, s.apis)
	case s.version == nil:
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		s.version(w, r)
	}
}

// ask discovers over the transport of dispatchers and commands.
func ask(t *testing.T, s *apiServer) (*discovery.Served, error) {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	connections := &http.Transport{}
	defer connections.CloseIdleConnections()
	return discovery.Ask(t.Context(), &rest.Config{Host: server.URL, QPS: -1}, answers.Transport{RoundTripper: connections})
}

// versionAt is the name of a version in the order of an answer, which is no order of the alphabet.
func versionAt(i int) string { return fmt.Sprintf("v%dbeta%d", 1+i*7%11, i) }

// groupAt is the name of a group.
func groupAt(i int) string { return fmt.Sprintf("g%d-%d.example.com", i*7%11, i) }

// groups is the legacy answer to /apis: so many groups of so many versions.
func groups(t *testing.T, count, versions int) string {
	t.Helper()
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for g := range count {
		name := groupAt(g)
		group := metav1.APIGroup{Name: name}
		for v := range versions {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + versionAt(v), Version: versionAt(v)})
		}
		list.Groups = append(list.Groups, group)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNoVersionIsAskedForIfThereAreTooMany(t *testing.T) {
	for name, test := range map[string]struct{ groups, versions int }{
		"one group of many versions": {1, 20_000},
		"many groups of one":         {20_000, 1},
		"one more than there may be": {1, discovery.MaxVersions + 1},
	} {
		s := &apiServer{apis: groups(t, test.groups, test.versions)}
		_, err := ask(t, s)
		if want := fmt.Sprint(test.groups*test.versions, " versions"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "2000") {
			t.Errorf("%s: %.200v; want %q and the bound", name, err, want)
		}
		if want := []string{"/api", "/apis"}; !slices.Equal(s.asked, want) {
			t.Errorf("%s: %d requests, want %q", name, len(s.asked), want)
		}
	}
}

// TestVersionsAreAskedForEightAtATime holds each request until as many others wait as there may be.
func TestVersionsAreAskedForEightAtATime(t *testing.T) {
	const count, versions = 4, 26
	var mu sync.Mutex
	inFlight, most := 0, 0
	full := make(chan struct{})
	s := &apiServer{apis: groups(t, count, versions), version: func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		inFlight++
		if most = max(most, inFlight); most == discovery.MaxInFlight && inFlight == most {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			inFlight--
			mu.Unlock()
		}()
		<-full
		gv := strings.TrimPrefix(r.URL.Path, "/apis/")
		if strings.HasSuffix(gv, "beta13") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[{"name":"things","kind":"Thing"}]}`, gv)
	}}
	served, err := ask(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if most != discovery.MaxInFlight {
		t.Errorf("%d requests were in flight, want %d", most, discovery.MaxInFlight)
	}
	var got, want []string
	for _, l := range served.Lists {
		got = append(got, l.GroupVersion)
	}
	for g := range count {
		for v := range versions {
			gv := schema.GroupVersion{Group: groupAt(g), Version: versionAt(v)}
			if v != 13 {
				want = append(want, gv.String())
			} else if served.Failed[gv] == nil {
				t.Errorf("%s has not failed", gv)
			}
		}
	}
	if !slices.Equal(got, want) || len(served.Failed) != count {
		t.Errorf("the versions are %q, want %q; %d have failed", got, want, len(served.Failed))
	}
	if err := served.Err(); err == nil || !strings.Contains(err.Error(), groupAt(0)+"/"+versionAt(13)) {
		t.Errorf("the error is %v", err)
	}
}

// TestAnswersOfDiscoveryAreBoundedBeforeTheyGrow has answers that are small, and large when they are expanded.
func TestAnswersOfDiscoveryAreBoundedBeforeTheyGrow(t *testing.T) {
	resource := func(name, more string) string {
		return fmt.Sprintf(`{"resource":%q,"responseKind":{"group":"g","version":"v1","kind":"Thing"}%s}`, name, more)
	}
	group := func(versions string) string {
		return `{"items":[{"metadata":{"name":"g"},"versions":[` + versions + `]}]}`
	}
	version := func(resources string) string { return `{"version":"v1","resources":[` + resources + `]}` }
	subresources := func(count int) string {
		return `,"subresources":[` + strings.TrimSuffix(strings.Repeat(`{"subresource":"s","responseKind":{"kind":"Thing"}},`, count), ",") + "]"
	}
	long := strings.Repeat("x", discovery.MaxTextBytes)
	many := strings.TrimSuffix(strings.Repeat(resource("things", "")+",", 100), ",")
	for name, test := range map[string]struct {
		apis string
		want int    // resources
		err  string // part of it
	}{
		"a name as long as it may be":           {group(version(resource(long, ""))), 1, ""},
		"a longer name":                         {group(version(resource(long+"x", ""))), 0, "more than 512 bytes"},
		"escapes count as they are written":     {group(version(resource("things", `,"singularResource":"`+strings.Repeat(`\"`, discovery.MaxTextBytes/2)+`"`))), 1, ""},
		"and hide no end":                       {group(version(resource("things", `,"singularResource":"`+strings.Repeat(`\"`, discovery.MaxTextBytes/2)+`x"`))), 0, "more than 512 bytes"},
		"a long name of many subresources":      {group(version(resource(strings.Repeat("x", 1<<20), subresources(1000)))), 0, "more than 512 bytes"},
		"subresources":                          {group(version(resource("things", subresources(3)))), 4, ""},
		"a version that is named 100,000 times": {group(strings.Repeat(`{"version":"v1"},`, 100_000) + version(many)), 100, ""},
	} {
		s := &apiServer{aggregated: true, apis: test.apis}
		served, err := ask(t, s)
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: %.200v, want %q", name, err, test.err)
			continue
		}
		got := 0
		if served != nil {
			for _, l := range served.Lists {
				got += len(l.APIResources)
			}
		}
		if got != test.want {
			t.Errorf("%s: %d resources, want %d", name, got, test.want)
		}
	}
}

// TestTheAnswersOfOneDiscoveryAreBoundedTogether: each of them is within the bounds of an answer.
func TestTheAnswersOfOneDiscoveryAreBoundedTogether(t *testing.T) {
	const versions = 20
	for name, test := range map[string]struct {
		bytes, resources int // of an answer
		want             string
	}{
		"bytes":               {answers.MaxBytes / 4, 1, fmt.Sprint("more than ", answers.MaxBytes, " bytes")},
		"objects and arrays":  {0, answers.MaxParts / 4, fmt.Sprint("more than ", answers.MaxParts, " objects")},
		"as they usually are": {0, 100, ""},
	} {
		s := &apiServer{apis: groups(t, 1, versions), version: func(w http.ResponseWriter, r *http.Request) {
			text := `"` + strings.Repeat("x", discovery.MaxTextBytes) + `"`
			_, _ = io.WriteString(w, `{"more":[`+strings.Repeat(text+",", test.bytes/len(text))+`0],"resources":[{"name":"things","kind":"Thing"}`)
			_, _ = io.WriteString(w, strings.Repeat(`,{"name":"a","kind":"A"}`, test.resources-1)+"]}")
		}}
		served, err := ask(t, s)
		if test.want == "" && (err != nil || len(served.Lists) != versions) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %.300v, want %q", name, err, test.want)
		}
		if test.want != "" && len(s.asked) > 2+4+discovery.MaxInFlight {
			t.Errorf("%s: %d requests", name, len(s.asked))
		}
	}
}

func TestDiscoveryEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &apiServer{apis: groups(t, 1, 100), version: func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}}
	server := httptest.NewServer(s)
	defer server.Close()
	connections := &http.Transport{}
	defer connections.CloseIdleConnections()
	if _, err := discovery.Ask(ctx, &rest.Config{Host: server.URL, QPS: -1}, answers.Transport{RoundTripper: connections}); err == nil || !strings.Contains(err.Error(), "of 100 versions") {
		t.Errorf("%v", err)
	}
	server.Close() // which waits for its handlers
	if len(s.asked) > 2+discovery.MaxInFlight {
		t.Errorf("%d requests", len(s.asked))
	}
}

func TestAnAPIServerThatServesNothingIsNone(t *testing.T) {
	if _, err := ask(t, &apiServer{apis: "{}"}); err == nil || !strings.Contains(err.Error(), "is there an API server behind the address?") {
		t.Errorf("%v", err)
	}
}
