package e2e

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

var updateFailures = flag.Bool("update-failures", false, "write docs/failures.md as seen")

// failuresPage is the page that the test writes, below the line with failuresMark.
const (
	failuresPage = "../../docs/failures.md"
	failuresMark = "<!-- below: written by TestWhatUsersSeeOfEachFailure, with -update-failures -->\n"
	failureLabel = "e2e.portcullis.dev/failure"
	// failureTimeout is the timeout of each hook, and failureEntry the timeout of its entry.
	failureTimeout = 2 * time.Second
	failureEntry   = failureTimeout + time.Second
)

// failureCell is a hook of one policy and stage for one resource, in a namespace of its own: so each has its own entry.
type failureCell struct {
	name      string // as in the page
	hook      string
	stage     admissionv1.Stage
	policy    admissionregistrationv1.FailurePolicyType
	byObject  bool // the hook selects objects, and not namespaces
	namespace string
	group     string
	resource  string
}

// mutates is whether the hook is a mutating one.
func (c failureCell) mutates() bool { return c.stage == admissionv1.Stage_STAGE_MUTATE }

// label is the value of failureLabel by which the hook selects.
func (c failureCell) label() string { return strings.TrimSuffix(c.hook, ".example.com") }

// failureRow has the answers to the users of all cells in one failure.
type failureRow struct {
	what, todo string
	saw        []sight
}

// failures collects the answers to the users of the cells.
type failures struct {
	*road
	store *mesh.Link // between the dispatchers and etcd
	apply func(want string)
	cells []failureCell
	rows  []failureRow
	mode  atomic.Pointer[string] // of the host
	done  chan struct{}          // ends handlers that hang
	held  atomic.Int64           // calls of handlers that hold them
	end   chan struct{}          // ends these
	// unlike is a pattern of answers that a busy machine gives in place of the row's.
	unlike string
	// late is a part of the answer to users of hooks that select namespaces, in a row of answers just before the deadline; empty for others.
	late string
}

// TestWhatUsersSeeOfEachFailure breaks one part after the other, and compares the answers to users with the page.
func TestWhatUsersSeeOfEachFailure(t *testing.T) {
	citest.Soak(t, "causes each failure of docs/failures.md: 64 s")
	var page strings.Builder
	for name, section := range failureSections() {
		if !t.Run(name, func(t *testing.T) { page.WriteString(section(t).written(t)) }) {
			t.Fatal("the page is not compared")
		}
	}
	compareFailures(t, page.String())
}

// failureSections are the parts of the page in their order. Each has a mesh of its own, and returns the answers to its users.
func failureSections() iter.Seq2[string, func(*testing.T) *failures] {
	return func(yield func(string, func(*testing.T) *failures) bool) {
		_ = yield("a mesh", ofAMesh) && yield("a cluster", ofACluster) && yield("always fail open", ofOpenResources) && yield("a bridge", ofABridge)
	}
}

// ofAMesh are the rows of one mesh and its hosts.
func ofAMesh(t *testing.T) *failures {
	f := newFailures(t)
	f.row(t, "No host serves the hook", "Start a host; `portcullis get hooks` shows which hooks have none.", f.expect("timeout"))
	f.strangeHosts(t)
	t.Run("host", func(t *testing.T) {
		f.host(t, f.hooks()...)
		f.hosts(t)
		f.parts(t)
	})
	f.row(t, "The certificate of the host has expired", "Renew it, and look for why that was not done: the log of the dispatcher names it.", f.expireHosts)
	f.row(t, "The certificate of the mesh has expired", "Renew it. Connections that are open stay so: only new ones fail.", f.expireMesh)
	f.row(t, "The client certificate of the API server has expired", "Renew it on its machine: see [certificates](certificates.md#the-client-certificate-of-an-api-server).", f.expireCaller)
	f.row(t, "The mesh is dead", "Start it, or open the cluster by [one line](operations.md#break-glass).", func(t *testing.T) func() { f.dispatcher.Stop(t); return nil })
	return f
}

// expect breaks nothing, and sets the pattern of answers that do not count in the row.
func (f *failures) expect(unlike string) func(*testing.T) func() {
	return func(*testing.T) func() { f.unlike = unlike; return nil }
}

// hosts are the rows of a host that runs.
func (f *failures) hosts(t *testing.T) {
	t.Helper()
	f.row(t, "The hook denies", "Read the message: it is the hook's.", f.behaveAs("deny"))
	f.row(t, "The host does not answer in time", "Look at the host: `portcullis review --explain` shows where the time goes.", f.behaveAs("hang"))
	f.row(t, "The entry has less time than the hook", "Apply the entries again, as `portcullis cluster register` makes them.", f.hurry)
	close(f.done)
	f.row(t, "The handler panics", "Read the host's log: it has the stack.", f.behaveAs("panic"))
	f.row(t, "The patch does not fit the object", "Mend the mutating hook. Kubernetes answers so too, whatever the failurePolicy.", f.behaveAs("bad patch"))
}

// parts are the rows of a mesh that lacks something.
func (f *failures) parts(t *testing.T) {
	t.Helper()
	f.loseDispatcher(t)
	f.row(t, "The review is larger than `--max-body-bytes`", "Make the object smaller, or the limit larger.", f.behaveAs("large"))
	f.row(t, "Reviews hold all memory of `--memory-budget`", "Look at `portcullis_memory_used_bytes`; raise the budget, or find out why reviews take so long.", f.fillMemory)
	f.row(t, "The API server of the cluster is away from the mesh", "Look at `portcullis_cluster_context_fresh`, and at the network and the kubeconfig.", f.loseCluster)
	f.row(t, "etcd is away for longer than the configuration may be old", "Bring it back, or permit the dispatchers to [serve stale](operations.md#serve-stale).", f.loseStore)
}

func newFailures(t *testing.T) *failures {
	t.Helper()
	f := &failures{store: mesh.NewLink(t, cluster.EtcdAddress())}
	f.plainCells(t)
	f.start(t, mesh.Options{Documents: []string{clusterDocument(t)}, Args: []string{
		"--max-body-bytes=65536", fmt.Sprintf("--memory-budget=%d", failureMemory),
		"--etcd=http://" + f.store.Address, "--etcd-create", "--etcd-prefix=/" + rand.Text() + "/",
	}})
	f.apply(" created")
	eventually(t, "the entries and the configuration are in force", func() error { return f.all(t, "unavailable") })
	return f
}

// plainCells are the cells of each stage and policy.
func (f *failures) plainCells(t *testing.T) {
	t.Helper()
	for i, name := range []string{"validate, Fail", "validate, Ignore", "mutate, Fail", "mutate, Ignore"} {
		stage, policy, _ := strings.Cut(name, ", ")
		f.cells = append(f.cells, newFailureCell(t, name, failureCell{
			hook: strings.ToLower(policy) + "." + stage + ".example.com", policy: admissionregistrationv1.FailurePolicyType(policy),
			resource: []string{"configmaps", "secrets", "serviceaccounts", "limitranges"}[i],
		}))
	}
}

// newFailureCell completes a cell, whose name begins with its stage.
func newFailureCell(t *testing.T, name string, c failureCell) failureCell {
	t.Helper()
	c.name, c.stage = name, admissionv1.Stage_STAGE_VALIDATE
	if strings.HasPrefix(name, "mutate") {
		c.stage = admissionv1.Stage_STAGE_MUTATE
	}
	c.namespace = cluster.Namespace(t, map[string]string{failureLabel: c.label()})
	return c
}

// start starts a mesh with the hooks of the cells.
func (f *failures) start(t *testing.T, options mesh.Options) {
	t.Helper()
	f.done, f.end = make(chan struct{}), make(chan struct{})
	var validating, mutating []kube.Hook
	for _, c := range f.cells {
		hook := onPods(c.hook)
		hook.Group, hook.Resources, hook.Timeout, hook.FailurePolicy = c.group, []string{c.resource}, failureTimeout, c.policy
		selected := &metav1.LabelSelector{MatchLabels: map[string]string{failureLabel: c.label()}}
		if hook.NamespaceSelector = selected; c.byObject {
			hook.NamespaceSelector, hook.ObjectSelector = nil, selected
		}
		if c.mutates() {
			mutating = append(mutating, hook)
		} else {
			validating = append(validating, hook)
		}
	}
	options.Args = append(options.Args, "--ready-timeout=1ns")
	m := newMesh(t, options, kube.Validating("checks", validating...), kube.Mutating("changes", mutating...))
	f.road = newRoadOn(t, m, m.Serve(t))
	f.apply = f.entries(t)
}

// hooks are the hooks of a host.
func (f *failures) hooks() (all []hostsdk.Hook) {
	for _, c := range f.cells {
		hook := hostsdk.Validate
		if c.mutates() {
			hook = hostsdk.Mutate
		}
		all = append(all, hook(c.hook, f.behave))
	}
	return all
}

// behave is the handler of all hooks.
func (f *failures) behave(_ context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
	switch *f.mode.Load() {
	case "deny":
		return hostsdk.Deny("images are named by digest here"), nil
	case "hang":
		<-f.done // also past the deadline
	case "hold":
		f.held.Add(1)
		<-f.end
	case "panic":
		panic("out of cheese")
	case "bad patch":
		return hostsdk.Patch([]byte(`[{"op":"remove","path":"/nothing"}]`)), nil
	}
	return hostsdk.Allow(), nil
}

func (f *failures) behaveAs(mode string) func(*testing.T) func() {
	return func(*testing.T) func() {
		if f.mode.Store(&mode); mode == "hang" {
			f.unlike = "unavailable"
		}
		return nil
	}
}

// row breaks a part, records the answers to the users of each cell, and mends the part.
func (f *failures) row(t *testing.T, what, todo string, breaks func(*testing.T) (mend func())) {
	t.Helper()
	t.Run(what, func(t *testing.T) {
		f.unlike, f.late = "timeout|unavailable", ""
		if mend := breaks(t); mend != nil {
			defer mend()
		}
		f.rows = append(f.rows, failureRow{what: what, todo: todo, saw: f.sights(t)})
	})
}

// sights are the answers to the users of all cells at the same time.
func (f *failures) sights(t *testing.T) []sight {
	t.Helper()
	saw := make([]sight, len(f.cells))
	var all sync.WaitGroup
	for i, c := range f.cells {
		all.Go(func() { saw[i] = f.see(t, c) })
	}
	all.Wait()
	return saw
}

// all is an error unless the answers to the users of all cells have a text of texts.
func (f *failures) all(t *testing.T, texts ...string) error {
	t.Helper()
	for i, saw := range f.sights(t) {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(saw.text, text) }) {
			return fmt.Errorf("%s: %s", f.cells[i].name, saw.text)
		}
	}
	return nil
}

// refuses is an error unless a write to each fail-closed hook is refused with a text.
func (f *failures) refuses(t *testing.T, text string) error {
	t.Helper()
	for i, saw := range f.sights(t) {
		if c := f.cells[i]; c.policy == admissionregistrationv1.Fail && !strings.Contains(saw.text, text) {
			return fmt.Errorf("%s: %s", c.name, saw.text)
		}
	}
	return nil
}

// passes is an error unless everything is allowed, without a warning.
func (f *failures) passes(t *testing.T) error {
	t.Helper()
	for i, saw := range f.sights(t) {
		if saw.text != allowed {
			return fmt.Errorf("%s: %s", f.cells[i].name, saw.text)
		}
	}
	return nil
}
