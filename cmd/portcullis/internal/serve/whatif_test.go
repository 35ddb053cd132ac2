package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// slowHooks are two hooks in series, and two at the same time of which the slow one fails open.
const slowHooks = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: slow}
webhooks:
- {name: first.example.com, clientConfig: {}, RULES}
- {name: second.example.com, clientConfig: {}, RULES}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: slow}
webhooks:
- {name: quick.example.com, clientConfig: {}, RULES}
- {name: scan.example.com, clientConfig: {}, failurePolicy: Ignore, RULES}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: slow}
spec: {configuration: slow, stream: {}, rotation: Immediate, hosts: [HOST]}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: scan}
spec: {configuration: slow, hook: scan.example.com, stream: {}, rotation: Immediate, hosts: [HOST], timeout: 10s}
`

// slowTimes is how long the handlers take.
func slowTimes() map[string]time.Duration {
	return map[string]time.Duration{
		"first.example.com": 20 * time.Millisecond, "second.example.com": 60 * time.Millisecond,
		"quick.example.com": 5 * time.Millisecond, "scan.example.com": 250 * time.Millisecond,
	}
}

// slowHost is an instance of a host of the slow hooks.
type slowHost struct {
	instance string
	slots    int                      // how many calls it takes at a time
	times    map[string]time.Duration // how long handlers take
	quick    atomic.Bool              // while it is set, they take no time
}

// run runs the host until the end of the test. It offers the mutating hooks as validating ones too.
func (s *slowHost) run(r *rotated) {
	r.Helper()
	var hooks []hostsdk.Hook
	for name, took := range s.times {
		handler := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			if !s.quick.Load() {
				select {
				case <-time.After(took):
				case <-r.Context().Done():
				}
			}
			return hostsdk.Allow(), nil
		}
		if strings.HasPrefix(name, "first") || strings.HasPrefix(name, "second") {
			hooks = append(hooks, hostsdk.Mutate(name, handler, hostsdk.Speculate()))
		}
		hooks = append(hooks, hostsdk.Validate(name, handler))
	}
	h, err := hostsdk.New(hostsdk.Options{
		Name: "slow", Instance: s.instance, Dispatchers: []string{r.info.Hosts}, Logger: slog.New(slog.DiscardHandler), MaxOutstanding: s.slots,
		TLS: hostsdk.TLSFiles(r.dev.path("certs/host.crt"), r.dev.path("certs/host.key"), r.dev.path("certs/ca.crt")),
	}, hooks...)
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	r.Cleanup(func() { cancel(); running.Wait() })
}

// slowHost runs an instance of a host of the slow hooks that takes so many calls at a time, each for as long as times say.
func (r *rotated) slowHost(instance string, slots int, times map[string]time.Duration) *slowHost {
	r.Helper()
	s := &slowHost{instance: instance, slots: slots, times: times}
	s.run(r)
	return s
}

// applySlow applies the slow hooks with changes: old and new texts.
func (r *rotated) applySlow(changes ...string) {
	r.Helper()
	documents := strings.NewReplacer("RULES",
		"rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}], sideEffects: None, admissionReviewVersions: [v1]",
		"HOST", `"`+devHost+`"`).Replace(strings.NewReplacer(changes...).Replace(slowHooks))
	if got := r.run(configcli.NewApply(), documents, "-f", "-", "--wait"); got.Code != 0 {
		r.Fatal(got.Out, got.Notes)
	}
}

// written collects the answers to reviews of one stage, as a client sees them.
type written struct {
	took       []time.Duration
	failedOpen int
}

// write sends so many reviews of a stage at the same time, some times.
func (r *rotated) write(stage string, atOnce, times int) (w written) {
	r.Helper()
	client, address := apiServer(r.T, r.dev), r.info.Bridge+"/v1/clusters/dev/"+stage
	request := strings.NewReplacer(`"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment").Replace(clitest.Review)
	var mu sync.Mutex
	for range times {
		var sent sync.WaitGroup
		for range atOnce {
			sent.Go(func() {
				begun := time.Now()
				response, err := client.Post(address, "application/json", strings.NewReader(strings.Replace(request, "u1", rand.Text(), 1)))
				if err != nil {
					r.Error(err)
					return
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if err != nil || !strings.Contains(string(body), `"allowed":true`) {
					r.Error(err, string(body))
				}
				mu.Lock()
				defer mu.Unlock()
				w.took = append(w.took, time.Since(begun))
				if strings.Contains(string(body), "failed-open.") {
					w.failedOpen++
				}
			})
		}
		sent.Wait()
	}
	slices.Sort(w.took)
	return w
}

// p50 is the time of the review in the middle.
func (w *written) p50() time.Duration { return w.took[(len(w.took)-1)/2] }

// decode runs analyze, and decodes its output.
func (r *rotated) decode(into any, args ...string) {
	r.Helper()
	got := r.run(analyze.NewCommand(), "", append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(got.Out), into); err != nil {
		r.Fatalf("%v: exit code %d: %s%s", err, got.Code, got.Out, got.Notes)
	}
}

// tried is a change of the slow hooks that is predicted, and then made.
type tried struct {
	whatIf        string
	stage         string
	then          string // the stage afterwards, if it is another
	atOnce, slots int
	times         map[string]time.Duration // of handlers, in the place of slowTimes
	change        []string                 // texts of the documents
	hosts         int                      // more of them
	failedOpen    bool
	speculates    bool          // it begins behind some reviews
	saves         time.Duration // of each review, at least, as the handlers take their times
	least         time.Duration // that a review takes afterwards
}

// mutating are the mutating hooks in the documents.
const mutating = "- {name: first.example.com, clientConfig: {}, RULES}\n- {name: second.example.com, clientConfig: {}, RULES}\n"

// triedChanges are the changes that can be predicted. A busy machine makes handlers slower and never quicker, so that their times bound a prediction.
func triedChanges() map[string]tried {
	const quick = "- {name: quick.example.com, clientConfig: {}, RULES}\n"
	const took = 300 * time.Millisecond
	alike := map[string]time.Duration{"first.example.com": took, "second.example.com": took, "quick.example.com": 0, "scan.example.com": 0}
	return map[string]tried{
		"a hook is removed": {
			whatIf: "without=second.example.com", stage: "mutate", atOnce: 1, slots: 64, times: alike, saves: took, least: took,
			change: []string{"- {name: second.example.com, clientConfig: {}, RULES}\n", ""},
		},
		"a deadline is lowered": {
			whatIf: "deadline=scan.example.com:200ms", stage: "validate", atOnce: 1, slots: 64, change: []string{"timeout: 10s", "timeout: 200ms"}, failedOpen: true,
			saves: 400 * time.Millisecond, least: 200 * time.Millisecond,
			times: map[string]time.Duration{"first.example.com": 0, "second.example.com": 0, "quick.example.com": 0, "scan.example.com": 600 * time.Millisecond},
		},
		"there is one more replica": {
			whatIf: "replicas=second.example.com:+1", stage: "mutate", atOnce: 6, slots: 1, hosts: 1,
			least: 200 * time.Millisecond, // the wait that kept reviews do not explain shrinks by the least that it can, which may be nothing
			times: map[string]time.Duration{"first.example.com": 0, "second.example.com": 200 * time.Millisecond, "quick.example.com": 0, "scan.example.com": 0},
		},
		"mutating hooks validate instead": {
			whatIf: "validate=first.example.com,second.example.com", stage: "mutate", then: "validate", atOnce: 1, slots: 64, times: alike, saves: took, least: took,
			change: []string{"webhooks:\n" + mutating, "webhooks: []\n", quick, quick + mutating},
		},
		"a mutating hook is called before its turn": {
			whatIf: "parallel=second.example.com", stage: "mutate", atOnce: 1, slots: 64, times: alike, speculates: true, saves: took, least: took,
			change: []string{"configuration: slow, stream: {}, rotation", "configuration: slow, stream: {}, speculate: true, rotation"},
		},
	}
}

// TestAPredictionStandsBesideWhatHappens makes each change, and logs by how much the prediction differs from the reviews afterwards, which depends on the
// other work of the machine.
func TestAPredictionStandsBesideWhatHappens(t *testing.T) {
	citest.Gate(t, "makes changes that were predicted: 30 s")
	t.Parallel()
	for name, test := range triedChanges() {
		t.Run(name, func(t *testing.T) {
			newRotated(t).try(&test)
		})
	}
}

// try predicts a change and makes it.
func (r *rotated) try(test *tried) {
	r.Helper()
	const times = 5
	r.applySlow()
	host := r.slowHost("slow-1", test.slots, test.times)
	r.shows([]string{"hooks", "-o", "wide"}, `second\.example\.com mutate .* 1 host .*InRotation`)
	was := r.write(test.stage, test.atOnce, times)
	var all analysis.WhatIf
	r.decodePrediction(&all, test.whatIf)
	r.applySlow(test.change...)
	for range test.hosts {
		r.slowHost("slow-2", test.slots, test.times)
		r.shows([]string{"hooks"}, `second\.example\.com .* 2 hosts InRotation`)
	}
	if test.then != "" {
		r.shows([]string{"hooks", "-o", "wide"}, `second\.example\.com validate .* InRotation`)
	}
	if test.speculates {
		r.untilSpeculation(host)
	}
	is := r.write(cmp.Or(test.then, test.stage), test.atOnce, times)
	p := all.Predictions[slices.IndexFunc(all.Predictions, func(p analysis.Prediction) bool { return p.Stage == test.stage })]
	if p.Kept == 0 || p.Replayed < p.Kept*9/10 || p.Reviews != uint64(times*test.atOnce) || p.After.Failed != 0 || p.Refused != 0 {
		r.Errorf("predicted %+v", p)
	}
	if (p.After.FailedOpen == p.Reviews) != test.failedOpen || (is.failedOpen == times) != test.failedOpen {
		r.Errorf("%d reviews were predicted to fail open, and %d did", p.After.FailedOpen, is.failedOpen)
	}
	before, predicted, happened := time.Duration(p.Before.P50), time.Duration(p.After.P50), is.p50()
	if predicted > before-test.saves || min(predicted, happened) < test.least {
		r.Errorf("the median was %s, was predicted as %s and became %s: want %s less, and %s at least", before, predicted, happened, test.saves, test.least)
	}
	r.Logf("p50 was %s, predicted %s, became %s for the client: error %+.1f %%; slowest was %s, predicted %s, became %s", was.p50(), predicted, happened,
		100*(float64(predicted)/float64(happened)-1), slices.Max(was.took), time.Duration(p.After.Slowest), slices.Max(is.took))
}

// untilSpeculation sends quick reviews until the dispatcher has seen that hooks rarely change the object, and calls one before its turn.
func (r *rotated) untilSpeculation(host *slowHost) {
	r.Helper()
	host.quick.Store(true)
	defer host.quick.Store(false)
	for range 100 {
		r.write("mutate", 1, 20)
		if regexp.MustCompile(`portcullis_hook_speculation_total\{.*name="second\.example\.com",outcome="(used|counted)".* [1-9]`).MatchString(r.app.metrics(r.T)) {
			return
		}
	}
	r.Fatal("no call before its turn")
}

// decodePrediction runs analyze for a hypothetical change.
func (r *rotated) decodePrediction(into *analysis.WhatIf, whatIf string) {
	r.Helper()
	got := r.run(analyze.NewCommand(), "", "--what-if", whatIf)
	r.Log("\n" + got.Out + got.Notes)
	r.decode(into, "--what-if", whatIf)
}

func TestChangesThatAreNotPredicted(t *testing.T) {
	r := newRotated(t)
	command := analyze.NewCommand
	r.prints(0, command(), "", []string{"--what-if", "without=pinned-images.portcullis.dev"}, `no review is kept of the last 15m0s`)
	r.prints(1, command(), "", []string{"--what-if", "without=none"}, `--what-if without=none: no such hook is in force`)
	r.prints(2, command(), "", []string{"--what-if", "faster"}, `--what-if "faster": use without=HOOK`)
	r.prints(2, command(), "", []string{"--what-if", "without=none", "--slowest", "3"}, `use one of REVIEW, --slowest, --compare and --what-if`)
	r.prints(2, command(), "", []string{"--what-if", "without=none", "--hook", "none"}, `--what-if is about whole reviews`)
	r.prints(2, command(), "", []string{"--compare", "50m..60m"}, `--compare: write from how long to how long ago`)
	r.prints(2, command(), "", []string{"--compare", "60m..50m"}, fmt.Sprintf("no review was judged from %s to %s ago", time.Hour, 50*time.Minute))
}
