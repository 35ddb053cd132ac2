package serve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/internal/cli/config"
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

// slowHost runs a host of the slow hooks that takes so many calls at a time, each for as long as times say.
func (r *rotated) slowHost(slots int, times map[string]time.Duration) {
	r.Helper()
	h, err := hostsdk.New(hostsdk.Options{
		Name: "slow", Dispatchers: []string{r.info.Hosts}, Logger: slog.New(slog.DiscardHandler), MaxOutstanding: slots,
		TLS: hostsdk.TLSFiles(r.dev.path("certs/host.crt"), r.dev.path("certs/host.key"), r.dev.path("certs/ca.crt")),
	})
	if err != nil {
		r.Fatal(err)
	}
	for name, took := range times {
		handler := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			<-time.After(took)
			return hostsdk.Allow(), nil
		}
		if strings.HasPrefix(name, "first") || strings.HasPrefix(name, "second") {
			h.Mutate(name, handler)
		} else {
			h.Validate(name, handler)
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	r.Cleanup(func() { cancel(); running.Wait() })
}

// applySlow applies the slow hooks with changes: old and new texts.
func (r *rotated) applySlow(changes ...string) {
	r.Helper()
	documents := strings.NewReplacer(append(changes, "RULES",
		"rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}], sideEffects: None, admissionReviewVersions: [v1]",
		"HOST", `"`+devHost+`"`)...).Replace(slowHooks)
	if got := r.run(configcli.NewApply(), documents, "-f", "-", "--wait"); got.Code != 0 {
		r.Fatal(got.Out, got.Notes)
	}
}

// written is what a client sees of reviews of one stage.
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

// decode runs analyze, and decodes what it prints.
func (r *rotated) decode(into any, args ...string) {
	r.Helper()
	got := r.run(analyze.NewCommand(), "", append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(got.Out), into); err != nil {
		r.Fatalf("%v: exit code %d: %s%s", err, got.Code, got.Out, got.Notes)
	}
}

// TestAPredictionStandsBesideWhatHappens makes each change, and logs by how much its prediction was wrong.
func TestAPredictionStandsBesideWhatHappens(t *testing.T) {
	for name, test := range map[string]struct {
		whatIf     string
		stage      string
		atOnce     int
		slots      int
		change     []string // texts of the documents
		hosts      int      // more of them
		failedOpen bool
	}{
		"a hook is removed": {whatIf: "without=second.example.com", stage: "mutate", atOnce: 1, slots: 64, change: []string{"- {name: second.example.com, clientConfig: {}, RULES}\n", ""}},
		"a deadline is lowered": {
			whatIf: "deadline=scan.example.com:50ms", stage: "validate", atOnce: 1, slots: 64, change: []string{"timeout: 10s", "timeout: 50ms"}, failedOpen: true,
		},
		"there is one more replica": {whatIf: "replicas=second.example.com:+1", stage: "mutate", atOnce: 6, slots: 1, hosts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotated(t)
			r.applySlow()
			r.slowHost(test.slots, slowTimes())
			r.shows([]string{"hooks"}, `second\.example\.com .* 1 host InRotation`)
			was := r.write(test.stage, test.atOnce, 5)
			var predicted analyze.WhatIf
			r.decodePrediction(&predicted, test.whatIf)
			r.applySlow(test.change...)
			for range test.hosts {
				r.slowHost(test.slots, slowTimes())
				r.shows([]string{"hooks"}, `second\.example\.com .* 2 hosts InRotation`)
			}
			is := r.write(test.stage, test.atOnce, 5)
			p := predicted.Predictions[slices.IndexFunc(predicted.Predictions, func(p analyze.Prediction) bool { return p.Stage == test.stage })]
			if p.Kept == 0 || p.Replayed < p.Kept*9/10 || p.Reviews != uint64(5*test.atOnce) || p.After.Failed != 0 || p.Refused != 0 {
				t.Errorf("predicted %+v", p)
			}
			if (p.After.FailedOpen == p.Reviews) != test.failedOpen || (is.failedOpen == 5) != test.failedOpen {
				t.Errorf("%d reviews were predicted to fail open, and %d did", p.After.FailedOpen, is.failedOpen)
			}
			after := time.Duration(p.After.P50)
			t.Logf("p50 was %s, predicted %s, became %s for the client: error %+.1f %%; slowest was %s, predicted %s, became %s",
				was.p50(), after, is.p50(), 100*(float64(after)/float64(is.p50())-1), slices.Max(was.took), time.Duration(p.After.Slowest), slices.Max(is.took))
		})
	}
}

// decodePrediction runs analyze --what-if.
func (r *rotated) decodePrediction(into *analyze.WhatIf, whatIf string) {
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
