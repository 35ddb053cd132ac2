package gateway_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
	"github.com/portcullis-mesh/portcullis/internal/initializer/gateway"
)

// client is one with the certificate of a name.
func (m *mesh) client(who string) *http.Client {
	m.t.Helper()
	transport := &http.Transport{TLSClientConfig: m.tls(who)}
	m.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request below the staged objects of prod-1.
func (d *dispatcher) ask(t *testing.T, c *http.Client, method, path, media, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+d.http+initializers.Path("prod-1")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

const web = "/api/v1/namespaces/shop/pods/web"

func TestErrorsAreStatuses(t *testing.T) {
	m := newMesh(t)
	d := m.dispatcher()
	o := m.stage(d, "web", first, second)
	const json1 = "application/json"
	put := func(metadata string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop",` + metadata + `}}`
	}
	version := `"resourceVersion":"` + o.GetResourceVersion() + `"`
	for name, tt := range map[string]struct {
		who, method, path, media, body string
		code                           int
		reason                         metav1.StatusReason
	}{
		"no such path":                        {"one", "GET", "/version", "", "", 404, "NotFound"},
		"a subresource":                       {"one", "GET", web + "/status", "", "", 404, "NotFound"},
		"no such object":                      {"one", "GET", "/api/v1/namespaces/shop/pods/other", "", "", 404, "NotFound"},
		"the object in another version":       {"one", "GET", "/api/v2/namespaces/shop/pods/web", "", "", 404, "NotFound"},
		"not an object of who reads":          {"stranger", "GET", web, "", "", 403, "Forbidden"},
		"reserved":                            {"one", "GET", web, "", "", 202, "Uninitialized"},
		"a query that is none":                {"one", "GET", web + "?watch=maybe", "", "", 400, "BadRequest"},
		"a creation":                          {"one", "POST", "/api/v1/namespaces/shop/pods", json1, "{}", 405, "MethodNotAllowed"},
		"a deletion of all":                   {"one", "DELETE", "/api/v1/namespaces/shop/pods", json1, "{}", 405, "MethodNotAllowed"},
		"a dry run":                           {"one", "PUT", web + "?dryRun=All", json1, "{}", 400, "BadRequest"},
		"a dry run of a deletion":             {"one", "DELETE", web, json1, `{"dryRun":["All"]}`, 400, "BadRequest"},
		"another type of body":                {"one", "PUT", web, "application/yaml", "a: b", 415, "UnsupportedMediaType"},
		"no type of body":                     {"one", "PUT", web, "", "{}", 415, "UnsupportedMediaType"},
		"a body that is no object":            {"one", "PUT", web, json1, "[]", 400, "BadRequest"},
		"a body that is too large":            {"one", "PUT", web, json1, strings.Repeat(" ", gateway.MaxBodyBytes+1), 413, "RequestEntityTooLarge"},
		"no version":                          {"one", "PUT", web, json1, put(`"uid":""`), 422, "Invalid"},
		"an older version":                    {"one", "PUT", web, json1, put(`"resourceVersion":"1","initializers":{"pending":[{"name":"second.example.com"}]}`), 409, "Conflict"},
		"another object of this name":         {"one", "PUT", web, json1, put(version + `,"uid":"x"`), 409, "Conflict"},
		"both names removed":                  {"one", "PUT", web, json1, put(version), 422, "Invalid"},
		"another name":                        {"one", "PUT", web, json1, strings.Replace(put(version), `"web"`, `"x"`, 1), 400, "BadRequest"},
		"a patch that is none":                {"one", "PATCH", web, "application/merge-patch+json", "x", 422, "Invalid"},
		"a strategic merge patch":             {"one", "PATCH", web, "application/strategic-merge-patch+json", "{}", 415, "UnsupportedMediaType"},
		"a patch of an older version":         {"one", "PATCH", web, "application/merge-patch+json", `{"metadata":{"resourceVersion":"1"}}`, 409, "Conflict"},
		"a change of a viewer":                {"viewer", "PATCH", web, "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`, 403, "Forbidden"},
		"a deletion of a viewer":              {"viewer", "DELETE", web, "", "", 403, "Forbidden"},
		"a deletion of an older version":      {"root", "DELETE", web, json1, `{"preconditions":{"resourceVersion":"1"}}`, 409, "Conflict"},
		"a deletion with something else":      {"root", "DELETE", web, json1, `[]`, 400, "BadRequest"},
		"a watch of a version that is none":   {"one", "GET", "/api/v1/pods?watch=1&resourceVersion=x", "", "", 400, "BadRequest"},
		"a selector of something else":        {"one", "GET", "/api/v1/pods?fieldSelector=spec.nodeName=a", "", "", 400, "BadRequest"},
		"somebody without grants, whatever":   {"stranger", "PUT", web, json1, "[]", 403, "Forbidden"},
		"a resource of nobody, which is none": {"root", "GET", "/apis/apps/v1/namespaces/shop/deployments/x", "", "", 404, "NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := d.ask(t, m.client(tt.who), tt.method, tt.path, tt.media, tt.body)
			var status metav1.Status
			if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != tt.code || status.Kind != "Status" || status.Status != "Failure" || status.Reason != tt.reason || int(status.Code) != tt.code || status.Message == "" {
				t.Errorf("%d %+v, want %d %s", answer.StatusCode, status, tt.code, tt.reason)
			}
		})
	}
	after, err := d.store.Get(t.Context(), podKey("web"))
	if err != nil || after.GetResourceVersion() != o.GetResourceVersion() {
		t.Errorf("the object was changed: %v, %v", after, err)
	}
}

// watchEvent is an event as a reader gets it.
type watchEvent struct {
	Type   string                    `json:"type"`
	Object unstructured.Unstructured `json:"object"`
}

// next is the next event, which has to be of a type about an object.
func next(t *testing.T, lines *bufio.Reader, kind, name string) watchEvent {
	t.Helper()
	var e watchEvent
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &e)
	}
	if err != nil || e.Type != kind || e.Object.GetName() != name {
		t.Fatalf("%s: %v, want %s of %q", line, err, kind, name)
	}
	return e
}

// TestASelectorOfAWatch: an object comes when its labels are selected, and goes when they are not any more.
func TestASelectorOfAWatch(t *testing.T) {
	m := newMesh(t)
	d := m.dispatcher()
	c := m.client("one")
	m.stage(d, "web", first)
	m.stage(d, "other", first)
	lines := bufio.NewReader(d.ask(t, c, "GET", "/api/v1/namespaces/shop/pods?watch=true&includeUninitialized=true&labelSelector=app%3Dweb&sendInitialEvents=true"+
		"&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "", "").Body)
	label := func(name, value string) {
		t.Helper()
		patch := `{"metadata":{"labels":{"app":"` + value + `"}}}`
		if answer := d.ask(t, c, "PATCH", "/api/v1/namespaces/shop/pods/"+name, "application/merge-patch+json", patch); answer.StatusCode != http.StatusOK {
			t.Fatalf("a patch: %s", answer.Status)
		}
	}
	next(t, lines, "ADDED", "web")
	if end := next(t, lines, "BOOKMARK", ""); end.Object.GetAnnotations()["k8s.io/initial-events-end"] != "true" || end.Object.GetResourceVersion() == "" || end.Object.GetKind() == "" {
		t.Errorf("%+v", end)
	}
	label("other", "web")
	next(t, lines, "ADDED", "other")
	label("other", "web2")
	next(t, lines, "DELETED", "other")
	label("web", "web")
	next(t, lines, "MODIFIED", "web")
	label("other", "web3")
	label("other", "web")
	next(t, lines, "ADDED", "other")
}

// TestAWatchThatIsOverEnds: its reader goes on where it was.
func TestAWatchThatIsOverEnds(t *testing.T) {
	m := newMesh(t)
	d := m.dispatcher()
	m.stage(d, "web", first)
	open := func(query string) *bufio.Reader {
		return bufio.NewReader(d.ask(t, m.client("one"), "GET", "/api/v1/pods?watch=true&includeUninitialized=true"+query, "", "").Body)
	}
	lines := open("&timeoutSeconds=1")
	next(t, lines, "ADDED", "web")
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after its time: %q, %v", rest, err)
	}
	late := open("&sendInitialEvents=false")
	lines = open("")
	next(t, lines, "ADDED", "web")
	d.service.Drain()
	for name, lines := range map[string]*bufio.Reader{"a stop": lines, "a stop, without events before": late} {
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("after %s: %q, %v", name, rest, err)
		}
	}
	// A grant that changes is an error that sends the reader back to a list.
	d = m.dispatcher()
	lines = open("")
	next(t, lines, "ADDED", "web")
	m.grant("one", m.grants.of["two"])
	if e := next(t, lines, "ERROR", ""); e.Object.Object["code"] != int64(http.StatusGone) {
		t.Errorf("%+v", e)
	}
}
