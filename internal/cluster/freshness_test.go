package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// inMemory answers requests by the server's handler, without a network: fake time does not wait for one.
func (s *apiServer) inMemory() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		w := httptest.NewRecorder()
		s.serve(w, r)
		return w.Result(), nil
	})
}

// definitionsScript are CustomResourceDefinitions whose watch sends the events that the test lets it send.
type definitionsScript struct {
	mu    sync.Mutex
	err   error
	items []apiextensionsv1.CustomResourceDefinition
	watch *watch.RaceFreeFakeWatcher
	lasts int64 // seconds of the watch, as it was asked for
}

func (s *definitionsScript) List(context.Context, metav1.ListOptions) (*apiextensionsv1.CustomResourceDefinitionList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &apiextensionsv1.CustomResourceDefinitionList{Items: s.items}, s.err
}

func (s *definitionsScript) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	s.watch, s.lasts = watch.NewRaceFreeFake(), *opts.TimeoutSeconds
	if opts.SendInitialEvents != nil {
		for i := range s.items {
			s.watch.Add(&s.items[i])
		}
		s.watch.Action(watch.Bookmark, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	return s.watch, nil
}

// end ends the watch, as an API server does after its time.
func (s *definitionsScript) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.Stop()
}

func (s *definitionsScript) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.Action(watch.Bookmark, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}})
}

// aged is a connection whose discovery and definitions live in fake time, with their sources.
type aged struct {
	*clusterConn

	server      *apiServer
	definitions *definitionsScript
}

// age runs a test with a connection in a bubble of fake time, and a cluster that serves pods and widgets.
func age(t *testing.T, test func(t *testing.T, a *aged)) {
	t.Helper()
	ageUpTo(t, 0, test)
}

// ageUpTo is age with another bound than FreshFor.
func ageUpTo(t *testing.T, bound time.Duration, test func(t *testing.T, a *aged)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &aged{
			server:      &apiServer{groups: aCluster(), collections: map[string]*resource{}},
			definitions: &definitionsScript{items: []apiextensionsv1.CustomResourceDefinition{*widgets("v1", "v2")}},
		}
		config := &rest.Config{Host: "https://prod"}
		c, err := newClients(config, answers.Transport{RoundTripper: a.server.inMemory(), Cluster: "prod"})
		if err != nil {
			t.Fatal(err)
		}
		a.clusterConn = newConn(c, kubernetes{builtin.New(builtin.Options{})}, slog.New(slog.DiscardHandler), bound)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { a.discovery.run(ctx, config, c.transport) })
		wg.Go(func() {
			watchInto(ctx, "definitions", a.definitions, &apiextensionsv1.CustomResourceDefinition{}, &a.crds)
		})
		synctest.Wait()
		test(t, a)
		cancel()
		wg.Wait()
	})
}

// knows tells which of a built-in and a custom resource are known.
func (a *aged) knows() (pods, custom error) {
	r, sub := gvr("v1 pods")
	_, pods = a.equivalents(r, sub)
	r, sub = gvr("stable.example.com/v1 widgets")
	_, custom = a.equivalents(r, sub)
	return pods, custom
}

// TestAClusterInWhichNothingChangesStaysKnown has an API server that ends watches after the time that was asked for, and sends no
// bookmark.
func TestAClusterInWhichNothingChangesStaysKnown(t *testing.T) {
	age(t, func(t *testing.T, a *aged) {
		const step = 10 * time.Second
		left := time.Duration(a.definitions.lasts) * time.Second
		for range 60 {
			pass(step)
			if left -= step; left <= 0 {
				a.definitions.end()
				pass(time.Second) // until the reflector begins another one
				left = time.Duration(a.definitions.lasts) * time.Second
			}
			if _, custom := a.knows(); custom != nil {
				t.Fatalf("custom resources: %v", custom)
			}
		}
	})
}

func TestWhatTheClusterKeepsTellingStaysKnown(t *testing.T) {
	age(t, func(t *testing.T, a *aged) {
		before := a.server.discovered()
		for range 10 {
			pass(time.Minute)
			a.definitions.bookmark()
			synctest.Wait()
		}
		if pods, custom := a.knows(); pods != nil || custom != nil {
			t.Errorf("pods: %v, custom resources: %v", pods, custom)
		}
		if got := a.server.discovered() - before; got != int(10*time.Minute/DiscoverEvery) {
			t.Errorf("%d discoveries in ten minutes", got)
		}
	})
}

func TestPastItsBoundWhatTheClusterServedIsAnError(t *testing.T) {
	age(t, func(t *testing.T, a *aged) {
		a.server.change(func(s *apiServer) { s.broken = "no API server here" })
		a.definitions.bookmark()
		pass(FreshFor)
		if pods, _ := a.knows(); pods != nil {
			t.Errorf("at the bound: %v", pods)
		}
		pass(time.Millisecond)
		a.definitions.bookmark()
		synctest.Wait()
		pods, custom := a.knows()
		if pods == nil || !strings.Contains(pods.Error(), "count for 1m30s") || !strings.Contains(pods.Error(), "is there an API server") && !strings.Contains(pods.Error(), "discovery") {
			t.Errorf("past the bound: %v", pods)
		}
		if custom != nil {
			t.Errorf("custom resources, which are told: %v", custom)
		}
		a.server.change(func(s *apiServer) { s.broken = "" })
		pass(discoverRetry)
		if pods, _ := a.knows(); pods != nil {
			t.Errorf("after the cluster came back: %v", pods)
		}
	})
}

func TestAShorterBoundAsksMoreOftenAndHoldsAtItsEdge(t *testing.T) {
	ageUpTo(t, MinFreshFor, func(t *testing.T, a *aged) {
		before := a.server.discovered()
		for range 20 {
			pass(MinFreshFor / 3)
			a.definitions.end() // without an event
			synctest.Wait()
		}
		if pods, custom := a.knows(); pods != nil || custom != nil {
			t.Errorf("pods: %v, custom resources: %v", pods, custom)
		}
		if got := a.server.discovered() - before; got != 20 {
			t.Errorf("%d discoveries in 20 times five seconds", got)
		}
		if a.definitions.lasts != 5 {
			t.Errorf("a watch lasts %d s: the next one does not begin in time", a.definitions.lasts)
		}
		a.server.change(func(s *apiServer) { s.broken = "no API server here" })
		pass(MinFreshFor)
		if pods, custom := a.knows(); pods != nil || custom != nil {
			t.Errorf("at the bound: pods: %v, custom resources: %v", pods, custom)
		}
		pass(time.Millisecond)
		if pods, custom := a.knows(); pods == nil || custom == nil || !strings.Contains(pods.Error(), "count for 15s") {
			t.Errorf("past the bound: pods: %v, custom resources: %v", pods, custom)
		}
	})
}

func TestALongerBoundAsksAsOftenAsTheUsualOne(t *testing.T) {
	ageUpTo(t, MaxFreshFor, func(t *testing.T, a *aged) {
		before := a.server.discovered()
		pass(MaxFreshFor)
		if _, custom := a.knows(); custom != nil {
			t.Errorf("at the bound: %v", custom)
		}
		if got := a.server.discovered() - before; got != int(MaxFreshFor/DiscoverEvery) {
			t.Errorf("%d discoveries in %s", got, MaxFreshFor)
		}
		if a.definitions.lasts != 200 {
			t.Errorf("a watch lasts %d s", a.definitions.lasts)
		}
		pass(time.Millisecond)
		if _, custom := a.knows(); custom == nil {
			t.Error("past the bound custom resources are known")
		}
	})
}

func TestPastTheirBoundCustomResourcesAreAnError(t *testing.T) {
	age(t, func(t *testing.T, a *aged) {
		pass(FreshFor)
		if _, custom := a.knows(); custom != nil {
			t.Errorf("at the bound: %v", custom)
		}
		pass(time.Millisecond)
		pods, custom := a.knows()
		if custom == nil || !strings.Contains(custom.Error(), "CustomResourceDefinitions of the cluster were told 1m30s ago") {
			t.Errorf("past the bound: %v", custom)
		}
		if pods != nil {
			t.Errorf("built-in resources do not depend on them: %v", pods)
		}
		if _, err := a.clusterConn.definitions(); err == nil {
			t.Error("objects are still converted")
		}
	})
}

func TestDiscoveryIsNotRepeatedForEveryQuestion(t *testing.T) {
	age(t, func(t *testing.T, a *aged) {
		before := a.server.discovered()
		unknown, sub := gvr("apps/v7 deployments")
		for range 1000 {
			if _, err := a.equivalents(unknown, sub); err == nil {
				t.Fatal("known")
			}
			pass(10 * time.Millisecond)
		}
		if got := a.server.discovered() - before; got < 5 || got > 10 {
			t.Errorf("%d discoveries in ten seconds", got)
		}
	})
}

func TestAWatchThatBreaksIsTakenUpAgain(t *testing.T) {
	s := newAPIServer(t)
	s.define(widgets("v1"))
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	eventually(t, "all is watched", func() bool { return s.watched() == 1 && s.watchedAt(definitionsPath) == 1 })
	s.hangUp()
	s.define(widgets("v2", "v1"))
	eventually(t, "what changed in between is seen", func() bool { return len(ways(c, "stable.example.com/v1 widgets")) == 2 })
	eventually(t, "all is watched again", func() bool { return s.watched() == 1 && s.watchedAt(apiServicesPath) == 1 })
}

func TestPermissionsThatAreMissingAreNamed(t *testing.T) {
	s := newAPIServer(t)
	s.change(func(s *apiServer) { s.forbidden[definitionsPath] = true })
	r, c := asked(t, s, withKubernetes())
	eventually(t, "the rest is known", func() bool { return len(r.Stale()) == 1 && strings.Contains(r.Stale()[0], "forbidden") })
	if got := ways(c, "v1 pods"); !cmp.Equal(got, []string{"v1 Pod"}) {
		t.Errorf("built-in resources: %q", got)
	}
	if got := ways(c, "stable.example.com/v1 widgets"); !refused(got, "forbidden") {
		t.Errorf("custom resources: %q", got)
	}
	want := []Part{
		{Name: PartNamespaces, Source: SourceKubeconfig, Fresh: true}, {Name: PartResources, Source: SourceKubeconfig, Fresh: true},
		{Name: PartCustomResources, Source: SourceKubeconfig, Err: errors.New("any")},
	}
	anyError := cmp.Comparer(func(a, b error) bool { return (a == nil) == (b == nil) })
	moments := cmpopts.IgnoreFields(Part{}, "Confirmed")
	if diff := cmp.Diff([]Status{{Cluster: "prod", Parts: want}}, r.Status(), anyError, moments); diff != "" {
		t.Error("status (-want +got):\n" + diff)
	}
	if want := []string{"custom-resources 0", "namespaces 1", "resources 1"}; !cmp.Equal(metric(t, r), want) {
		t.Errorf("metric %q", metric(t, r))
	}
	for _, p := range r.Status()[0].Parts {
		if age := time.Since(p.Confirmed); p.Fresh == p.Confirmed.IsZero() || p.Fresh && (age < 0 || age > FreshFor) {
			t.Errorf("%s, fresh %t, was confirmed at %s", p.Name, p.Fresh, p.Confirmed)
		}
	}
	if n := testutil.CollectAndCount(r, confirmedMetric); n != 2 {
		t.Errorf("%d moments of confirmation, want those of two parts", n)
	}
}

// metric returns the metric of a registry with one cluster, by part.
func metric(t *testing.T, r *Registry) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r)
	families, err := registry.Gather()
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == freshMetric })
	if err != nil || i < 0 {
		t.Fatalf("%v, %v", families, err)
	}
	var values []string
	for _, m := range families[i].GetMetric() {
		value := " 0"
		if m.GetGauge().GetValue() == 1 {
			value = " 1"
		}
		values = append(values, m.GetLabel()[1].GetValue()+value)
	}
	slices.Sort(values)
	return values
}

func TestNamespacesOfAKubeconfigAreAllThatIsAskedFor(t *testing.T) {
	s := newAPIServer(t)
	r := runningWith(t, withKubernetes())
	r.Update([]*kinds.Cluster{remoteDocument("prod", s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))})
	known(t, r)
	eventually(t, "namespaces are watched", func() bool { return s.watched() == 1 })
	if s.watchedAt(definitionsPath)+s.watchedAt(apiServicesPath) != 0 || r.Cluster("prod").Authorizer() != nil {
		t.Error("more is asked for")
	}
	if got := ways(r.Cluster("prod"), "apps/v1 deployments"); len(got) != 4 {
		t.Errorf("deployments: %q", got)
	}
	sources := []string{}
	for _, p := range r.Status()[0].Parts {
		sources = append(sources, p.Source)
	}
	if want := []string{SourceKubeconfig, SourceUnknown, SourceUnknown}; !cmp.Equal(sources, want) {
		t.Errorf("sources %q", sources)
	}
}

// A token or a certificate that is renewed is another kubeconfig for the same cluster.
func TestARenewedKubeconfigForgetsNothing(t *testing.T) {
	s := newAPIServer(t)
	s.define(widgets("v1", "v2"))
	file := s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig"))
	r := runningWith(t, withKubernetes())
	r.Update([]*kinds.Cluster{wholeDocument(file)})
	known(t, r)
	s.breakDown("gone") // so that nothing new can be learnt
	remote := (*r.current.Load())["prod"].remote
	before := remote.current.Load()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, strings.Replace(string(data), "token: t", "token: another", 1))
	eventually(t, "there is a new connection", func() bool { return remote.current.Load() != before })
	c := r.Cluster("prod")
	if got := ways(c, "v1 pods"); !cmp.Equal(got, []string{"v1 Pod"}) {
		t.Errorf("pods: %q", got)
	}
	if got := ways(c, "stable.example.com/v1 widgets"); len(got) != 2 {
		t.Errorf("widgets: %q", got)
	}
	other := newAPIServer(t)
	other.breakDown("gone")
	other.kubeconfig(t, file)
	eventually(t, "another cluster is another one", func() bool { return refused(ways(c, "v1 pods"), "not known yet") })
}

func TestBeforeTheClusterWasAskedNothingIsKnown(t *testing.T) {
	r := New(withKubernetes()) // nothing runs
	r.Update([]*kinds.Cluster{wholeDocument("/nowhere")})
	c := r.Cluster("prod")
	if got := ways(c, "v1 pods"); !refused(got, "not connected yet") {
		t.Errorf("equivalents: %q", got)
	}
	if _, err := c.Convert(t.Context(), []byte(aWidget), widgetV2); err == nil {
		t.Error("converted")
	}
	if len(r.Stale()) != 3 {
		t.Errorf("stale: %q", r.Stale())
	}
}

// A registry ends although its cluster does not answer: client-go gives discovery no context.
func TestRunEndsWhileDiscoveryHangs(t *testing.T) {
	entered := make(chan struct{}, 100)
	hung := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hung.Close)
	s := &apiServer{Server: hung}
	r := New(withKubernetes())
	r.Update([]*kinds.Cluster{wholeDocument(s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for range 4 { // discovery and three lists
		<-entered
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
