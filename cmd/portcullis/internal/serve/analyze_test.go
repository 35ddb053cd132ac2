package serve

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	shadowcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/shadow"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

func TestAnalyzeNamesTheHookTheHostAndThePhase(t *testing.T) {
	r := newRotated(t)
	if got := r.run(configcli.NewApply(), r.documents(), "-f", "-"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	command := analyze.NewCommand
	r.prints(0, command(), "", nil, `no review was judged in the last 15m0s`)
	_, stop := r.host(func() error { return nil })
	defer stop()
	r.shows([]string{"hosts"}, `policy\.example\.com Serving`)
	r.shows([]string{"hooks", "-o", "wide"}, `policy\.example\.com validate .* InRotation`)
	for range 6 {
		r.review() // denied by a handler that takes 10 ms
	}
	r.prints(0, command(), "", nil, `CLUSTER HOOK CALLS P50 P99 FAILED WAITED ADDED QUEUE WIRE HOST WEBHOOK APPLY\n`,
		`dev policy\.example\.com 6 \d\S*s \d\S*s 0 100% \d\S*s \S+ \S+ \d+(\.\d+)?m?s - -\n`)
	r.prints(cli.ExitDenied, command(), "", []string{"--cluster", "dve"}, `there is no Cluster/dve: .*; did you mean "dev"\?`)
	r.prints(cli.ExitDenied, command(), "", []string{"--slowest", "3", "--cluster", "prod-9"}, `there is no Cluster/prod-9`)
	r.prints(cli.ExitDenied, command(), "", []string{"--hook", "polcy.example.com"}, `there is no hook "polcy.example.com" .*; did you mean "policy.example.com"\?`)
	r.prints(cli.ExitDenied, shadowcli.NewCommand(), "", []string{"report", "--cluster", "dv"}, `did you mean "dev"\?`)
	r.prints(cli.ExitDenied, configcli.NewBypass(), "", []string{"off", "--cluster", "dve"}, `did you mean "dev"\?`)
	r.prints(cli.ExitDenied, configcli.NewDelete(), "", []string{"cluster", "devv"}, `did you mean "dev"\?`)
	r.prints(0, command(), "", []string{"-o", "json", "--hook", "policy.example.com"}, `"clusters": `, `"calls": 6`, `"host": "\d+\.\d+m?s"`, `"waited": 1`)
	r.prints(0, command(), "", []string{"--slowest", "2"},
		`BEGUN TOOK CLUSTER STAGE OPERATION RESOURCE NAMESPACE NAME OUTCOME SLOWEST HOOK UID\n`,
		`\S+ \d\S*s dev validate CREATE deployments default web denied policy\.example\.com \d\S*s u1\n`)
	r.prints(0, command(), "", []string{"u1"}, `CREATE deployments.apps default web of cluster dev: validate, denied\n`,
		` policy\.example\.com \|.*\| \d\S*s denied by `, ` host \|.*-.*\| \d\S*s\n`)
	r.prints(cli.ExitDenied, command(), "", []string{"none"}, `review "none" is not kept`)
	r.prints(2, command(), "", []string{"--since", "2h"}, `--since: use more than nothing and at most 1h`)

	response, err := apiServer(t, r.dev).Get(r.info.Bridge + "/v1/analysis/reviews?limit=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("as JSON: status %d", response.StatusCode)
	}
}

// TestAnalyzeNamesAHookThatHangs has a handler that does not return, and a hook with a timeout.
func TestAnalyzeNamesAHookThatHangs(t *testing.T) {
	t.Parallel()
	const timeout, reviews, hook, instance = 500 * time.Millisecond, 6, "scan.example.com", "slow-1"
	for name, test := range map[string]struct {
		policy string
		code   int // of review
	}{
		"failing closed": {"Fail", cli.ExitError},
		"failing open":   {"Ignore", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotated(t)
			r.applySlow("failurePolicy: Ignore", "failurePolicy: "+test.policy, "timeout: 10s", "timeout: "+timeout.String())
			times := slowTimes()
			times[hook] = time.Hour
			r.slowHost(instance, 64, times)
			r.shows([]string{"hooks"}, `scan\.example\.com .* 1 host InRotation`)
			for range reviews {
				if got := r.review(); got.Code != test.code {
					t.Fatalf("a review ended with exit code %d: %s%s", got.Code, got.Out, got.Notes)
				}
			}
			var report struct {
				Findings []shownFinding `json:"findings"`
			}
			r.decode(&report)
			var found []shownFinding
			for _, f := range report.Findings { // this machine may make others, of its own
				if slices.Contains(f.Hooks, hook) && f.Phase != "queue" {
					found = append(found, f)
				}
			}
			want := named{Code: string(analysis.CodeFailures), Phase: "handler", Hooks: hook, Clusters: "dev", Instances: instance}
			if len(found) != 1 || found[0].named() != want {
				t.Fatalf("found %+v, want %+v", report.Findings, want)
			}
			text := fmt.Sprintf("hook %s: %d of %d calls gave no verdict after ", hook, reviews, reviews)
			took, err := time.ParseDuration(found[0].Took)
			if err != nil || took < timeout*8/10 || !strings.HasPrefix(found[0].Text, text) || !strings.Contains(found[0].Text, " (handler), in cluster dev, by instance "+instance) {
				t.Errorf("after %v: %q", took, found[0].Text)
			}
		})
	}
}

func TestAnalyzeAsksEveryDispatcher(t *testing.T) {
	t.Parallel()
	o := etcdtest.Start(t).Options(etcdtest.User)
	may := func(c *serveConfig) {
		c.advertise, c.stores.operator.Names = []string{"127.0.0.1"}, []string{devAPIServer}
	}
	first := newReplica(t, "first", o, nil, may)
	second := newReplica(t, "second", o, first, may)
	client := apiServer(t, first.dev)
	for _, replica := range []*replica{first, second} {
		for status, deadline := 0, time.Now().Add(2*time.Minute); status != http.StatusOK; <-time.After(10 * time.Millisecond) {
			response, err := client.Post(replica.info.Bridge+"/v1/clusters/dev/validate", "application/json", strings.NewReader(clitest.Review))
			if err != nil || time.Now().After(deadline) {
				t.Fatal(status, err)
			}
			status = response.StatusCode // until the configuration is in force
			response.Body.Close()
		}
	}
	info := first.info
	info.ClientCert, info.ClientKey = first.dev.path("certs/"+devClientName+".crt"), first.dev.path("certs/"+devClientName+".key")
	ready := readyFileOf(t, info)
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) { // until the first has heard of the second
		got, missing := clitest.Execute(t, analyze.NewCommand(), strings.NewReader(""), "--ready-file", ready, "--slowest", "100", "-o", "wide"), ""
		for _, id := range []string{"first", "second"} {
			if !regexp.MustCompile(` ` + id + `\b`).MatchString(oneSpace(got.Out)) {
				missing = id
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("exit code %d, no review of dispatcher %s in %s%s", got.Code, missing, got.Out, got.Notes)
		}
	}
}
