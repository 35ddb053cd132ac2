package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/shadow"
	"github.com/portcullis-mesh/portcullis/internal/config/gateway"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

func TestEveryCommandShowsWhatAHookInShadowWouldHaveDone(t *testing.T) {
	r := newRotated(t)
	r.prints(0, shadow.NewCommand(), "", []string{"report"}, `No hook is in shadow`)
	documents := strings.Replace(r.documents(), "stream: {},", "stream: {}, shadow: true,", 1)
	if got := r.run(configcli.NewApply(), documents, "-f", "-"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	_, stop := r.host(func() error { return nil }) // denies everything
	defer stop()
	r.shows([]string{"hooks"}, `policy\.example\.com validate .* Shadow `)
	r.shows([]string{"vwc", "policy"}, `MODE SOURCE\nValidatingWebhookConfiguration/policy .* True Shadow etcd\n`)
	r.shows([]string{"hr", "policy"}, `HookRoute/policy .* Shadow etcd\n`)
	r.prints(0, shadow.NewCommand(), "", []string{"report"}, `\npolicy\.example\.com - 0 0 0 0 0 0 - - - shadow\n`)

	request := strings.NewReplacer(`"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment").Replace(clitest.Review)
	r.prints(0, reviewcli.NewCommand(), request, []string{"-f", "-", "--stage", "validate", "--explain"},
		`validate: allowed\n`, ` policy\.example\.com policy 0 shadow: denied \S+ \S+ \d+(\.\d+)?m?s \S+ nobody may\n`)
	r.prints(0, reviewcli.NewCommand(), request, []string{"-f", "-", "--stage", "validate", "--explain", "-o", "json"}, `"shadow": "denied"`)

	r.prints(0, shadow.NewCommand(), "", []string{"report"},
		`Requests since \S+ \S+ UTC, by 1 dispatchers\. Of them \S+ records since`,
		`\npolicy\.example\.com dev 2 0 2 0 0 0 \d\S*s \d\S*s \S+ \S+ shadow\n`, `\npolicy\.example\.com in cluster dev\n`,
		`\ndefault jane 2 2 0 0 `, ` deny 2 default jane CREATE deployments\.apps web nobody may\n`)
	r.prints(0, shadow.NewCommand(), "", []string{"report", "-o", "markdown", "--hook", "policy.example.com"}, `\| CREATE deployments\.apps web \| nobody may \|`)
	r.prints(0, shadow.NewCommand(), "", []string{"report", "-o", "json", "--cluster", "dev", "--since", "1h"},
		`"wouldDeny": 2`, `"state": "shadow"`, `"user": "jane"`, `"recordingSince": `)
	r.prints(cli.ExitDenied, shadow.NewCommand(), "", []string{"report", "--hook", "plicy.example.com"},
		`there is no hook "plicy\.example\.com" in force: .*; did you mean "policy\.example\.com"\?`)

	r.prints(0, configcli.NewExplain(), "", []string{"hook", "policy.example.com"}, `is in shadow, where it decides nothing`,
		`cluster dev of 2 requests it would have denied 2 and changed 0; p99 \d\S*s\n`, ` would deny CREATE deployments\.apps web default by jane \(2\): nobody may\n`)
	r.prints(0, configcli.NewExplain(), "", []string{"vwc", "policy"},
		`is in force everywhere; 1 of 1 hook in shadow: called, and they decide nothing: policy\.example\.com`, ` Deciding False Shadow `)
	r.prints(0, analyze.NewCommand(), "", nil,
		`\ncluster dev: hook policy\.example\.com decides nothing \(shadow\): of 2 requests it would have denied 2 and changed 0; .* see .portcullis shadow report`)

	decides := strings.Replace(documents, "shadow: true,", "", 1)
	if got := r.run(configcli.NewApply(), decides, "-f", "-"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	r.shows([]string{"vwc", "policy"}, `ValidatingWebhookConfiguration/policy .* True Deciding etcd\n`)
	r.shows([]string{"hooks"}, `policy\.example\.com validate .* InRotation `)
	r.prints(0, shadow.NewCommand(), "", []string{"report"}, `\npolicy\.example\.com dev 2 .* decides\n`)
}

// TestAReportOfHooksInShadowIsOfEveryDispatcher sends reviews to two, and asks one.
func TestAReportOfHooksInShadowIsOfEveryDispatcher(t *testing.T) {
	t.Parallel()
	o := etcdtest.Start(t).Options(etcdtest.User)
	may := func(c *serveConfig) {
		c.advertise, c.stores.operator.Names = []string{"127.0.0.1"}, []string{devAPIServer}
	}
	first := newReplica(t, "first", o, nil, may)
	second := newReplica(t, "second", o, first, may)
	info := first.info
	info.ClientCert, info.ClientKey = first.dev.path("certs/"+devClientName+".crt"), first.dev.path("certs/"+devClientName+".key")
	ready := readyFileOf(t, info)
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) { // apply does not wait for a dispatcher that has not yet registered
		got := clitest.Execute(t, configcli.NewGet(), nil, "dispatchers", "--ready-file", ready)
		if strings.Contains(got.Out, "second") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the second dispatcher is not known: %s%s", got.Out, got.Notes)
		}
	}
	if got := clitest.Execute(t, configcli.NewApply(), strings.NewReader(shadowedPods), "-f", "-", "--ready-file", ready, "--wait"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	client := apiServer(t, first.dev)
	for _, replica := range []*replica{first, second} {
		response, err := client.Post(replica.info.Bridge+"/v1/clusters/dev/validate", "application/json", strings.NewReader(clitest.Review))
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		response.Body.Close()
	}
	var report struct {
		Dispatchers []struct{} `json:"dispatchers"`
		Hooks       []struct {
			Cluster string `json:"cluster"`
			Calls   int    `json:"calls"`
			Dropped int    `json:"dropped"`
		} `json:"hooks"`
	}
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) { // calls in shadow may end after their reviews
		got := clitest.Execute(t, shadow.NewCommand(), strings.NewReader(""), "report", "--ready-file", ready, "--hook", "pods.example.com", "-o", "json")
		if err := json.Unmarshal([]byte(got.Out), &report); err != nil {
			t.Fatalf("%v: %s%s", err, got.Out, got.Notes)
		}
		if len(report.Hooks) == 1 && report.Hooks[0].Calls+report.Hooks[0].Dropped == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not the calls of both dispatchers: %s", got.Out)
		}
	}
	if len(report.Dispatchers) != 2 || report.Hooks[0].Cluster != "dev" {
		t.Errorf("report %+v", report)
	}

	response, err := client.Get(first.info.Bridge + gateway.AnalysisPrefix + "shadows?hook=pods.example.com")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Shadows []struct {
			Subjects []struct {
				User string `json:"user"`
			} `json:"subjects"`
		} `json:"shadows"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Shadows) != 1 || answer.Shadows[0].Subjects[0].User != "jane" {
		t.Errorf("as JSON: %+v, %v", answer, err)
	}
}

// shadowedPods is a hook in shadow that no host serves.
const shadowedPods = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: pods}
webhooks:
- name: pods.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  failurePolicy: Fail
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: pods}
spec: {configuration: pods, shadow: true}
`
