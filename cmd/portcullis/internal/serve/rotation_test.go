package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	judging "github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// rotated is a dispatcher with a store, and a policy in it that one host may serve.
type rotated struct {
	*testing.T
	app   *app
	dev   *dev
	info  listen.ReadyInfo
	ready string // its ready file
}

func newRotated(t *testing.T) *rotated {
	t.Helper()
	a, d, info := appWithStore(t, func(*dev, *serveConfig) {})
	return &rotated{t, a, d, info, readyFileOf(t, info)}
}

// documents are the policy and its route.
func (r *rotated) documents() string {
	return strings.NewReplacer("GROUP", "apps", "hosts: [me]", `hosts: ["`+devHost+`"]`).Replace(appliedHooks)
}

// run runs a command.
func (r *rotated) run(cmd *cobra.Command, in string, args ...string) clitest.Result {
	r.Helper()
	return clitest.Execute(r.T, cmd, strings.NewReader(in), append(args, "--ready-file", r.ready)...)
}

// review sends a review that the policy is about, and returns how that ended.
func (r *rotated) review() clitest.Result {
	r.Helper()
	request := strings.NewReplacer(`"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment").Replace(clitest.Review)
	return r.run(reviewcli.NewCommand(), request, "-f", "-", "--stage", "validate", "--explain", "-o", "json")
}

// shown is the policy as the mesh shows it.
type shown struct {
	Generation int `json:"-"`
	Conditions []struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"conditions"`
}

// policy is the configuration as the mesh shows it.
func (r *rotated) policy() shown {
	r.Helper()
	got := r.run(configcli.NewGet(), "", "vwc/policy", "-o", "json")
	var o struct {
		Metadata struct {
			Generation int `json:"generation"`
		} `json:"metadata"`
		Status shown `json:"status"`
	}
	if err := json.Unmarshal([]byte(got.Out), &o); err != nil {
		r.Fatalf("%v: %s%s", err, got.Out, got.Notes)
	}
	o.Status.Generation = o.Metadata.Generation
	return o.Status
}

// until waits until conditions of the policy begin so: by type, status, reason and message.
func (r *rotated) until(want ...string) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		found, last := 0, r.policy().Conditions
		for _, c := range last {
			for _, w := range want {
				if strings.HasPrefix(fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message), w) {
					found++
				}
			}
		}
		if found == len(want) {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("waited in vain for %q: %v", want, last)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// host runs a host of the policy until it is stopped. It denies everything, once it is ready, and takes a while for it: whatever
// is done to the hook meets calls that are under way.
func (r *rotated) host(ready func() error) (*hostsdk.Host, func()) {
	r.Helper()
	h, err := hostsdk.New(hostsdk.Options{
		Name: "policy", Dispatchers: []string{r.info.Hosts}, Logger: slog.New(slog.DiscardHandler),
		TLS: hostsdk.TLSFiles(r.dev.path("certs/host.crt"), r.dev.path("certs/host.key"), r.dev.path("certs/ca.crt")),
	}, hostsdk.Validate("policy.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		<-time.After(10 * time.Millisecond)
		return hostsdk.Deny("nobody may"), nil
	}, hostsdk.ReadyWhen(func(context.Context) error { return ready() })))
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			r.Error(err)
		}
	})
	r.Cleanup(stop)
	return h, stop
}

func TestANewHookIsCalledOnceItsHostIsReadyAndThenForGood(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	applied := r.run(configcli.NewApply(), r.documents(), "-f", "-", "--wait")
	if applied.Code != 0 || !strings.Contains(applied.Out+applied.Notes, `hook "policy.example.com" is pending`) {
		t.Fatalf("apply: %d %s%s", applied.Code, applied.Out, applied.Notes)
	}
	skipped := func() {
		t.Helper()
		got := r.review()
		for _, want := range []string{`"reason": "pending"`, `"pending.validating.round_0_index_0"`} {
			if got.Code != 0 || !strings.Contains(got.Out, want) {
				t.Errorf("a pending hook: no %s in %d %s%s", want, got.Code, got.Out, got.Notes)
			}
		}
	}
	skipped()
	r.until(`InRotation False Pending hook "policy.example.com": HostsMissing`)
	if shown := r.run(configcli.NewGet(), "", "vwc/policy").Out; !strings.Contains(shown, "False (Pending)") {
		t.Errorf("get shows %s", shown)
	}

	var cold atomic.Bool
	cold.Store(true)
	_, stop := r.host(func() error {
		if cold.Load() {
			return hostsdk.NewError("the cache is cold", nil)
		}
		return nil
	})
	r.until(`InRotation False Pending hook "policy.example.com": HostNotReady: ` + devHost + " is not ready: the cache is cold")
	skipped()

	cold.Store(false)
	r.until("InRotation True NonePending", "Effective True")
	refused := func(code int, want string) {
		t.Helper()
		if got := r.review(); got.Code != code || !strings.Contains(got.Out, want) || strings.Contains(got.Out, "pending.validating") {
			t.Errorf("a hook in rotation: no %q in %d %s%s", want, got.Code, got.Out, got.Notes)
		}
	}
	refused(cli.ExitDenied, "nobody may")
	if n := r.policy().Generation; n != 1 {
		t.Errorf("its author has written it once, and it is generation %d", n)
	}
	if changes := r.run(configcli.NewGet(), "", "changes").Out; !strings.Contains(changes, `put hook "policy.example.com" of ValidatingWebhookConfiguration/policy in rotation: `+devHost) {
		t.Errorf("changes %s", changes)
	}

	stop()
	refused(cli.ExitError, "failed calling webhook")
	if again := r.run(configcli.NewApply(), r.documents()+"\n", "-f", "-"); again.Code != 0 {
		t.Errorf("apply: %s", again.Notes)
	}
	r.until("InRotation True NonePending", "Effective True")
	refused(cli.ExitError, "failed calling webhook")
}

func TestARouteOfAFileThatSaysImmediateEndsTheWait(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	hooks, route, _ := strings.Cut(r.documents(), "---\n")
	if got := r.run(configcli.NewApply(), hooks, "-f", "-"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	r.until(`InRotation False Pending hook "policy.example.com": NobodyGranted`)
	route = strings.Replace(route, "stream: {}", "stream: {}, rotation: Immediate", 1)
	if err := os.WriteFile(r.dev.path("config/route.yaml"), []byte(route), 0o600); err != nil {
		t.Fatal(err)
	}
	r.until("InRotation True NonePending", "Effective True")
	if got := r.review(); got.Code != cli.ExitError {
		t.Errorf("a hook that is in rotation is not called: %s%s", got.Out, got.Notes)
	}
}

// Where a review is in the life of the policy, when it begins and when it ends.
const (
	stageFree    = iota // anything but a failure
	stagePending        // the policy is in force, and pending
	stageIn             // it is in rotation
	stageGone           // it is not there any more
)

// load reviews a thousand times a second, and looks at every answer.
type load struct {
	*rotated
	stage atomic.Int32
	done  atomic.Int64
	seen  [stageGone + 1]atomic.Int64
	bad   atomic.Int64
}

// reviewsPerStage is how many reviews have to end in each stage, and mostReviews how many are under way at most.
const reviewsPerStage, mostReviews = 1000, 100

func TestAHookComesAndGoesUnderLoadAndNoReviewIsLost(t *testing.T) {
	t.Parallel()
	l := &load{rotated: newRotated(t)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx) })
	defer running.Wait()
	defer stop()

	l.stay(stageGone)
	l.stage.Store(stageFree)
	if got := l.rotated.run(configcli.NewApply(), l.documents(), "-f", "-", "--wait"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	l.stay(stagePending)
	l.stage.Store(stageFree)
	h, _ := l.host(func() error { return nil })
	l.until("InRotation True NonePending", "Effective True")
	l.stay(stageIn)
	l.stage.Store(stageFree)
	if got := l.rotated.run(configcli.NewDelete(), "", "vwc", "policy", "--wait"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	l.stay(stageGone)
	stop()
	running.Wait()
	t.Logf("%d reviews: %d while it was pending, %d in rotation, %d without it", l.done.Load(),
		l.seen[stagePending].Load(), l.seen[stageIn].Load(), l.seen[stageGone].Load())
	removing := func() bool {
		s := h.Status().Sessions
		return len(s) == 1 && s[0].Hooks[0].State == hostsdk.StateRemoving
	}
	for deadline := time.Now().Add(2 * time.Minute); !removing(); <-time.After(time.Millisecond) { // the host is told of it, and nobody waits for that
		if time.Now().After(deadline) {
			t.Fatalf("the host knows %+v", h.Status().Sessions)
		}
	}
}

// stay stays in a stage for so many reviews that begin and end in it.
func (l *load) stay(stage int32) {
	l.Helper()
	before := l.seen[stage].Load()
	l.stage.Store(stage)
	for deadline := time.Now().Add(2 * time.Minute); l.seen[stage].Load() < before+reviewsPerStage; {
		if l.bad.Load() > 0 || time.Now().After(deadline) {
			l.Fatalf("%d reviews in stage %d, %d bad", l.seen[stage].Load()-before, stage, l.bad.Load())
		}
		<-time.After(time.Millisecond)
	}
}

// run begins a review every millisecond until ctx ends, and waits for them. While mostReviews are under way it begins none: on a machine
// that is too busy for a thousand a second they would wait for longer and longer, until their time is over.
func (l *load) run(ctx context.Context) {
	var reviews sync.WaitGroup
	defer reviews.Wait()
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	places := make(chan struct{}, mostReviews)
	for ctx.Err() == nil {
		<-t.C
		places <- struct{}{}
		reviews.Go(func() {
			defer func() { <-places }()
			l.one()
		})
	}
}

// one sends one review. Its possible outcomes are known if nothing was done to the policy meanwhile.
func (l *load) one() {
	before := l.stage.Load()
	answer, err := l.app.judge.Review(l.Context(), &judging.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Admission: deployment()})
	after := l.stage.Load()
	l.done.Add(1)
	got := int32(stageFree)
	switch a := answer.Response; {
	case err != nil:
	case a.GetAllowed() && a.GetAuditAnnotations()["pending.validating.round_0_index_0"] != "":
		got = stagePending
	case a.GetAllowed():
		got = stageGone
	case strings.HasSuffix(a.GetStatus().GetMessage(), "denied the request: nobody may"):
		got = stageIn
	}
	switch {
	case got == stageFree, before == after && before != stageFree && got != before:
		if l.bad.Add(1) < 10 {
			l.Errorf("a review that began in stage %d and ended in %d: %v, %v", before, after, answer.Response, err)
		}
	case before == after:
		l.seen[got].Add(1)
	}
}

// deployment is a request that the policy is about.
func deployment() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "u", Cluster: devCluster, Name: "web", Namespace: "default", Operation: "CREATE",
		Kind:     &admissionv1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Resource: &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default"}}`)},
	}
}
