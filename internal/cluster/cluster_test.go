package cluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func pemOf(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

func document(name string, namespaces *kinds.NamespaceSource, identities ...string) *kinds.Cluster {
	return &kinds.Cluster{Metadata: kinds.Metadata{Name: name}, Spec: kinds.ClusterSpec{Identities: identities, Namespaces: namespaces}}
}

func remoteDocument(name, kubeconfig string) *kinds.Cluster {
	return document(name, &kinds.NamespaceSource{Kubeconfig: kubeconfig}, "kube-apiserver")
}

// running is a registry that runs until the test ends.
func running(t *testing.T) *Registry {
	t.Helper()
	return runningWith(t, Options{})
}

func runningWith(t *testing.T, o Options) *Registry {
	t.Helper()
	r := New(o)
	r.reload = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("Run:", err)
		}
	})
	return r
}

func TestAuthorizeDeniesByDefault(t *testing.T) {
	r := New(Options{})
	r.Update([]*kinds.Cluster{document("prod-1", nil, "kube-apiserver", "spiffe://prod-1/apiserver"), document("closed", nil)})
	for _, tc := range []struct {
		identity, cluster string
		want              error
	}{
		{"kube-apiserver", "prod-1", nil},
		{"spiffe://prod-1/apiserver", "prod-1", nil},
		{"kube-apiserve", "prod-1", ErrNotAllowed},
		{"KUBE-APISERVER", "prod-1", ErrNotAllowed},
		{"", "prod-1", ErrNotAllowed},
		{"kube-apiserver", "closed", ErrNotAllowed},
		{"", "closed", ErrNotAllowed},
		{"kube-apiserver", "prod-2", ErrUnknownCluster},
		{"kube-apiserver", "", ErrUnknownCluster},
		{"", "", ErrUnknownCluster},
	} {
		err := r.Authorize(identity.Named(tc.identity), tc.cluster)
		if !errors.Is(err, tc.want) {
			t.Errorf("%q for %q: %v, want %v", tc.identity, tc.cluster, err, tc.want)
		}
		if want := fmt.Sprintf("identity %q may not send reviews of cluster %q", tc.identity, tc.cluster); err != nil && err.Error() != want {
			t.Errorf("the text tells the reason: %s", err)
		}
	}
	r.Update(nil)
	if err := r.Authorize(identity.Named("kube-apiserver"), "prod-1"); !errors.Is(err, ErrUnknownCluster) {
		t.Errorf("after the cluster was removed: %v", err)
	}
}

// TestNothingIsKnownOfCallersBeforeTheFirstConfiguration: a refusal would tell operators to add an identity that is configured already.
func TestNothingIsKnownOfCallersBeforeTheFirstConfiguration(t *testing.T) {
	r := New(Options{})
	for name, authorize := range map[string]func() error{
		"certificate": func() error { return r.Authorize(identity.Named("kube-apiserver"), "prod-1") },
		"bridge":      func() error { return r.AuthorizeBridge(identity.Named("kube-apiserver"), "prod-1") },
		"capability":  func() error { return r.AuthorizeCapability(identity.NewCapability(), "prod-1") },
	} {
		r.current.Store(New(Options{}).current.Load())
		if err := authorize(); !errors.Is(err, review.ErrNoConfiguration) {
			t.Errorf("%s, before the first configuration: %v", name, err)
		}
		r.Update(nil)
		if err := authorize(); !errors.Is(err, ErrUnknownCluster) {
			t.Errorf("%s, after one without clusters: %v", name, err)
		}
	}
}

func TestAuthorizeCountsTheAuthorityOfACaller(t *testing.T) {
	r := New(Options{})
	bound := document("prod-1", nil, "kube-apiserver")
	bound.Spec.Authorities = []string{"sha256:1", "spiffe://prod-1"}
	r.Update([]*kinds.Cluster{bound})
	for _, tc := range []struct {
		caller identity.Peer
		want   error
	}{
		{identity.Named("kube-apiserver", "sha256:1"), nil},
		{identity.Named("kube-apiserver", "sha256:0", "spiffe://prod-1"), nil},
		{identity.Named("kube-apiserver", "sha256:2", "spiffe://prod-2"), ErrNotAllowed},
		{identity.Named("kube-apiserver"), ErrNotAllowed},
		{identity.Named("stranger", "sha256:1"), ErrNotAllowed},
	} {
		if err := r.Authorize(tc.caller, "prod-1"); !errors.Is(err, tc.want) {
			t.Errorf("%v: %v, want %v", tc.caller, err, tc.want)
		}
	}
}

func TestStaticNamespaces(t *testing.T) {
	r := New(Options{})
	r.Update([]*kinds.Cluster{
		document("dev", &kinds.NamespaceSource{Static: map[string]map[string]string{
			"default": {"env": "dev"}, "bare": nil, "odd": {"kubernetes.io/metadata.name": "other"},
		}}),
		document("unknown", nil),
	})
	for name, want := range map[string]map[string]string{
		"default": {"env": "dev", "kubernetes.io/metadata.name": "default"},
		"bare":    {"kubernetes.io/metadata.name": "bare"},
		"odd":     {"kubernetes.io/metadata.name": "other"},
	} {
		got, err := r.NamespaceLabels(t.Context(), "dev", name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := r.NamespaceLabels(t.Context(), "dev", "missing"); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace that is not listed: %v", err)
	}
	if _, err := r.NamespaceLabels(t.Context(), "unknown", "default"); err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "spec.namespaces") {
		t.Errorf("a cluster without a source: %v", err)
	}
	if _, err := r.NamespaceLabels(t.Context(), "no", "default"); !errors.Is(err, ErrUnknownCluster) {
		t.Errorf("an unknown cluster: %v", err)
	}
	none := []Part{{Name: PartNamespaces, Source: SourceUnknown}, {Name: PartResources, Source: SourceUnknown}, {Name: PartCustomResources, Source: SourceUnknown}}
	listed := slices.Concat([]Part{{Name: PartNamespaces, Source: SourceStatic, Fresh: true}}, none[1:])
	if diff := cmp.Diff([]Status{{Cluster: "dev", Parts: listed}, {Cluster: "unknown", Parts: none}}, r.Status()); diff != "" {
		t.Error("status (-want +got):\n" + diff)
	}
}

func TestNamespacesAreThoseOfTheCluster(t *testing.T) {
	s := newAPIServer(t)
	s.set("default", map[string]string{"env": "dev"}, false)
	r := running(t)
	r.Update([]*kinds.Cluster{remoteDocument("dev", s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))})
	labels := func(name string) map[string]string {
		t.Helper()
		got, err := r.NamespaceLabels(t.Context(), "dev", name)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := labels("default")["env"]; got != "dev" {
		t.Errorf("before the first list: %q", got)
	}
	eventually(t, "the watch has begun", func() bool { return r.Status()[0].Parts[0].Fresh })
	reads := s.liveReads()
	if got := labels("default")["env"]; got != "dev" || s.liveReads() != reads {
		t.Errorf("from memory: %q, %d reads", got, s.liveReads()-reads)
	}
	s.set("default", map[string]string{"env": "prod"}, true)
	eventually(t, "a change is seen", func() bool { return labels("default")["env"] == "prod" })
	s.set("new", map[string]string{"a": "b"}, false)
	if got := labels("new")["a"]; got != "b" || s.liveReads() != reads+1 {
		t.Errorf("a namespace that the watch has not told: %q, %d reads", got, s.liveReads()-reads)
	}
	s.set("default", nil, true)
	eventually(t, "a removal is seen", func() bool {
		_, err := r.NamespaceLabels(t.Context(), "dev", "default")
		return apierrors.IsNotFound(err)
	})
	if s.liveReads() < reads+2 {
		t.Error("a missing namespace is not confirmed")
	}
}

func TestANotFoundThatNoAPIServerSaidIsAnError(t *testing.T) {
	s := newAPIServer(t)
	s.breakDown("no such host here")
	r := running(t)
	r.Update([]*kinds.Cluster{remoteDocument("dev", s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))})
	if _, err := r.NamespaceLabels(t.Context(), "dev", "default"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestAClusterThatCannotBeReachedConcernsItselfAlone(t *testing.T) {
	s := newAPIServer(t)
	s.set("default", map[string]string{"env": "dev"}, false)
	dead := newAPIServer(t)
	deadConfig := dead.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig"))
	dead.Close()
	later := filepath.Join(t.TempDir(), "kubeconfig")
	r := running(t)
	r.Update([]*kinds.Cluster{
		remoteDocument("dead", deadConfig), remoteDocument("later", later),
		remoteDocument("alive", s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig"))),
	})
	if got, err := r.NamespaceLabels(t.Context(), "alive", "default"); err != nil || got["env"] != "dev" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := r.NamespaceLabels(t.Context(), "dead", "default"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("a dead cluster: %v", err)
	}
	if _, err := r.NamespaceLabels(t.Context(), "later", "default"); err == nil || !strings.Contains(err.Error(), later) {
		t.Errorf("a missing kubeconfig: %v", err)
	}
	if status := r.Status(); status[2].Parts[0].Err == nil || len(r.Stale()) < 2 {
		t.Errorf("status %+v", status)
	}
	s.kubeconfig(t, later)
	eventually(t, "the kubeconfig is read", func() bool {
		got, err := r.NamespaceLabels(t.Context(), "later", "default")
		return err == nil && got["env"] == "dev"
	})
}

func TestAKubeconfigThatChangesIsFollowed(t *testing.T) {
	blue, green := newAPIServer(t), newAPIServer(t)
	blue.set("default", map[string]string{"is": "blue"}, false)
	green.set("default", map[string]string{"is": "green"}, false)
	file := blue.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig"))
	r := running(t)
	r.Update([]*kinds.Cluster{remoteDocument("dev", file)})
	is := func(want string) func() bool {
		return func() bool {
			got, err := r.NamespaceLabels(t.Context(), "dev", "default")
			return err == nil && got["is"] == want
		}
	}
	eventually(t, "it is blue", is("blue"))
	writeFile(t, file, "not: [a kubeconfig")
	r.Update([]*kinds.Cluster{remoteDocument("dev", file), document("other", nil)}) // keeps the link
	if !is("blue")() {
		t.Error("a kubeconfig that is being written breaks the link")
	}
	green.kubeconfig(t, file)
	eventually(t, "it is green", is("green"))
	eventually(t, "blue is left alone", func() bool { return blue.watched() == 0 })
}

func TestKubeconfigsThatSayNothingAreErrors(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{
		"empty": "", "no cluster": "apiVersion: v1\nkind: Config\n", "no yaml": "a: [", "no such file of certificates": `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: missing.pem}}]
`,
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		writeFile(t, file, data)
		if _, err := loadKubeconfig(file, true); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAKubeconfigOfTheOwnerOfAClusterRunsNothing writes a kubeconfig as the owner of a cluster might, and has the mesh connect by it.
func TestAKubeconfigOfTheOwnerOfAClusterRunsNothing(t *testing.T) {
	s := newAPIServer(t)
	s.set("default", map[string]string{"env": "dev"}, false)
	dir := t.TempDir()
	ran, secret := filepath.Join(dir, "ran"), filepath.Join(dir, "secret")
	writeFile(t, secret, "token-of-the-mesh")
	file := s.kubeconfig(t, filepath.Join(dir, "kubeconfig"))
	for name, tt := range map[string]struct {
		change  func(*api.Config)
		want    string
		trusted bool // whether it is accepted where the operator trusts the file
	}{
		"nothing":                      {func(*api.Config) {}, "", true},
		"a program":                    {func(c *api.Config) { currentUser(c).Exec = program(ran) }, "has a program run", true},
		"an old provider":              {func(c *api.Config) { currentUser(c).AuthProvider = &api.AuthProviderConfig{Name: "oidc"} }, "has a program run", true},
		"a file as token":              {func(c *api.Config) { currentUser(c).TokenFile = secret }, "has the content of " + secret + " sent", true},
		"a relative file":              {func(c *api.Config) { currentUser(c).TokenFile = "secret" }, "has the content of " + secret + " sent", true},
		"a user that no context names": {func(c *api.Config) { c.AuthInfos["other"] = &api.AuthInfo{Exec: program(ran)} }, "has a program run", true},
		"certificates without an end":  {func(c *api.Config) { c.Clusters["extra"] = &api.Cluster{CertificateAuthority: "/dev/zero"} }, "no regular file", false},
		"a key without an end":         {func(c *api.Config) { c.AuthInfos["extra"] = &api.AuthInfo{ClientKey: "/dev/zero"} }, "no regular file", false},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tt.change(loaded)
			changed := filepath.Join(dir, "changed")
			if err := clientcmd.WriteToFile(*loaded, changed); err != nil {
				t.Fatal(err)
			}
			if _, err := loadKubeconfig(changed, false); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if _, err := loadKubeconfig(changed, true); tt.trusted != (err == nil) {
				t.Errorf("trusted: %v", err)
			}
			r := running(t)
			r.Update([]*kinds.Cluster{remoteDocument("dev", changed)})
			if _, err := r.NamespaceLabels(t.Context(), "dev", "default"); (err == nil) != (tt.want == "") {
				t.Errorf("a registry: %v", err)
			}
		})
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program ran")
	}
	writeFile(t, file, strings.Repeat("#", MaxKubeconfigBytes+1))
	if _, err := loadKubeconfig(file, true); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a kubeconfig past its bound: %v", err)
	}
}

// currentUser is the user of the current context.
func currentUser(c *api.Config) *api.AuthInfo {
	return c.AuthInfos[c.Contexts[c.CurrentContext].AuthInfo]
}

// program makes a file.
func program(file string) *api.ExecConfig {
	return &api.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "touch", Args: []string{file}, InteractiveMode: api.NeverExecInteractiveMode}
}

func TestLookingUpEndsWithItsContext(t *testing.T) {
	r := New(Options{}) // nothing runs: the first attempt is never made
	r.Update([]*kinds.Cluster{remoteDocument("dev", "/nowhere")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.NamespaceLabels(ctx, "dev", "default"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAHundredClustersComeAndGoAndLeaveNothing(t *testing.T) {
	s := newAPIServer(t)
	s.set("default", map[string]string{"env": "dev"}, false)
	file := s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig"))
	r := running(t)
	r.Update([]*kinds.Cluster{remoteDocument("stays", file)})
	eventually(t, "the first cluster is watched", func() bool { return s.watched() == 1 && r.Status()[0].Parts[0].Fresh })
	before := runtime.NumGoroutine()
	all := []*kinds.Cluster{remoteDocument("stays", file)}
	for i := range 100 {
		all = append(all, remoteDocument(fmt.Sprint("c", i), file))
	}
	r.Update(all)
	eventually(t, "all are watched", func() bool { return s.watched() == 101 })
	if got, err := r.NamespaceLabels(t.Context(), "c42", "default"); err != nil || got["env"] != "dev" {
		t.Errorf("%v, %v", got, err)
	}
	r.Update(all[:1])
	eventually(t, "all but one are left alone", func() bool { return s.watched() == 1 })
	// A connection of the cluster that stays may be there that was not there before; a hundred clusters have more than that.
	eventually(t, fmt.Sprintf("the goroutines are %d again", before), func() bool { return runtime.NumGoroutine() < before+20 })
	if len(*r.current.Load()) != 1 {
		t.Error("clusters are left behind")
	}
}

// scripted is a cluster whose watch sends the events that the test lets it send.
type scripted struct {
	mu     sync.Mutex
	labels map[string]string
	err    error
	hang   bool
	gets   int
	watch  *watch.RaceFreeFakeWatcher
}

func (s *scripted) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	s.mu.Lock()
	s.gets++
	hang, err, o := s.hang, s.err, object(name, s.labels, 1)
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return o, err
}

func (s *scripted) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{*object("default", s.labels, 1)}}, s.err
}

func (s *scripted) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opts.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("lists are not streamed")
	}
	s.watch = watch.NewRaceFreeFake()
	return s.watch, s.err
}

func (s *scripted) change(edit func(*scripted)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
}

func (s *scripted) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.Action(watch.Bookmark, object("", nil, 2))
}

func (s *scripted) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

// linked runs a test with the namespaces of a scripted cluster in a bubble of fake time.
func linked(t *testing.T, test func(t *testing.T, s *scripted, n *watchedNamespaces)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{labels: map[string]string{"env": "dev"}}
		n := newWatchedNamespaces(s, func(*objectCache[*metav1.PartialObjectMetadata, map[string]string]) collection[*metav1.PartialObjectMetadataList] {
			return s
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.watch(ctx)
		}()
		synctest.Wait()
		test(t, s, n)
		cancel()
		<-done
	})
}

// pass lets fake time pass and everything due in it happen.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}

func TestBookmarksKeepTheMemoryFresh(t *testing.T) {
	linked(t, func(t *testing.T, s *scripted, n *watchedNamespaces) {
		for range 10 {
			pass(time.Minute)
			s.bookmark()
			synctest.Wait()
		}
		if got, err := n.labels(t.Context(), "default"); err != nil || got["env"] != "dev" || s.reads() != 0 {
			t.Errorf("%v, %v, %d reads", got, err, s.reads())
		}
	})
}

func TestAfterASilentWatchTheClusterIsAsked(t *testing.T) {
	linked(t, func(t *testing.T, s *scripted, n *watchedNamespaces) {
		pass(FreshFor)
		if got, err := n.labels(t.Context(), "default"); err != nil || got["env"] != "dev" || s.reads() != 0 {
			t.Errorf("at the bound: %v, %v, %d reads", got, err, s.reads())
		}
		s.change(func(s *scripted) { s.labels = map[string]string{"env": "prod"} })
		pass(time.Millisecond)
		if got, err := n.labels(t.Context(), "default"); err != nil || got["env"] != "prod" || s.reads() != 1 {
			t.Errorf("past the bound: %v, %v, %d reads", got, err, s.reads())
		}
		s.change(func(s *scripted) { s.err = errors.New("connection refused") })
		if got, err := n.labels(t.Context(), "default"); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("past the bound and unreachable: %v, %v", got, err)
		}
	})
}

func TestLiveReadsAreBoundedAndEndWithTheirContext(t *testing.T) {
	linked(t, func(t *testing.T, s *scripted, n *watchedNamespaces) {
		s.change(func(s *scripted) { s.hang = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range MaxLiveReads + 10 {
			wg.Go(func() {
				if _, err := n.labels(ctx, "missing"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		if got := s.reads(); got != MaxLiveReads {
			t.Errorf("%d reads at the same time", got)
		}
		wg.Wait()
		s.change(func(s *scripted) { s.hang = false })
		if _, err := n.labels(t.Context(), "missing"); err != nil {
			t.Errorf("after the hung reads: %v", err)
		}
	})
}

func TestTheCacheRefusesWhatIsNoNamespace(t *testing.T) {
	n := &watchedNamespaces{}
	n.cache.read = readLabels
	m := &n.cache
	for name, err := range map[string]error{
		"add": m.Add(1), "update": m.Update(1), "delete": m.Delete(1), "replace": m.Replace([]any{1}, ""),
		"an object of another kind": m.Add(&metav1.PartialObjectMetadataList{}), "a pod": m.Add(&corev1.Pod{}),
	} {
		if err == nil {
			t.Error(name)
		}
	}
	if m.Bookmark("1") != nil || m.freshness.fresh() {
		t.Error("a bookmark before the first list makes an empty cache fresh")
	}
}

func BenchmarkNamespaceLabels(b *testing.B) {
	r := New(Options{})
	r.Update([]*kinds.Cluster{document("dev", &kinds.NamespaceSource{Static: map[string]map[string]string{"default": nil}})})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.NamespaceLabels(b.Context(), "dev", "default"); err != nil {
			b.Fatal(err)
		}
	}
}
