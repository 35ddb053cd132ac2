package audit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/audit"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// reportOf is the report that an audit has printed as JSON.
func reportOf(t *testing.T, r clitest.Result) *audit.Report {
	t.Helper()
	report := &audit.Report{}
	if err := json.Unmarshal([]byte(r.Out), report); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	return report
}

// said are the findings of a report.
func said(r *audit.Report) (all []string) {
	for i := range r.Findings {
		f := &r.Findings[i]
		all = append(all, strings.TrimSpace(strings.Join([]string{string(f.Result), f.Policy, f.Namespace, f.Object(), f.Message}, " ")))
	}
	return all
}

func TestAuditNamesTheObjectsThatAPolicyDenies(t *testing.T) {
	got := files(t, shop(), policies).audit(t, "-o", "json")
	r := reportOf(t, got)
	want := []string{
		"denied Policy/label-team shop Pod/b metadata.labels.team: add the label team",
		"denied Policy/label-team prod Pod/c metadata.labels.team: add the label team",
		"denied Policy/no-passwords shop Secret/s",
	}
	if diff := cmp.Diff(want, said(r)); diff != "" || got.Code != cli.ExitDenied {
		t.Errorf("code %d (-want +got):\n%s", got.Code, diff)
	}
	if strings.Contains(got.Out+got.Notes, "hunter2") || strings.Contains(got.Out, "aHVudGVyMg") {
		t.Errorf("the data of a Secret is printed: %+v", got)
	}
	if r.Objects != 7 || r.Denied != 3 || r.Errors != 0 || !r.Complete || r.Cluster != "prod-1" {
		t.Errorf("counts: %+v", r)
	}
	if p := r.Policies[0]; p.Name != "Policy/label-team" || p.Mode != "shadow" || p.Counts != (audit.Counts{Passed: 3, Denied: 2}) {
		t.Errorf("policy: %+v", p)
	}
	if want := []audit.Unaudited{{Subject: "Policy/no-exec", Reason: "it is not about the creation of objects"}}; !slices.Equal(r.Unaudited, want) {
		t.Errorf("not audited: %+v", r.Unaudited)
	}
	lists := []string{}
	for _, of := range r.Resources {
		lists = append(lists, of.Name+" "+of.Version)
	}
	if want := []string{"deployments.apps apps/v1", "pods v1", "secrets v1"}; !slices.Equal(lists, want) {
		t.Errorf("the lists are %v", lists)
	}
}

func TestAuditInTheModesOfPolicies(t *testing.T) {
	got := files(t, shop(), policies).audit(t, "-o", "json", "--enforce=false", "--policy", "label-team")
	if r := reportOf(t, got); got.Code != 0 || r.Denied != 0 || !strings.HasPrefix(said(r)[0], "shadow Policy/label-team shop Pod/b") {
		t.Errorf("shadow: %+v", got)
	}
	warning := strings.Replace(policies, "  resources: [pods, deployments]", "  mode: warn\n  resources: [pods, deployments]", 1)
	got = files(t, shop(), warning).audit(t, "-o", "json", "--enforce=false", "--policy", "label-team")
	if r := reportOf(t, got); got.Code != 0 || r.Policies[0].Warned != 2 || said(r)[0] != "warned Policy/label-team shop Pod/b metadata.labels.team: add the label team" {
		t.Errorf("warn: %+v", got)
	}
}

func TestAuditOfAPart(t *testing.T) {
	f := files(t, shop(), policies)
	r := reportOf(t, f.audit(t, "-o", "json", "--namespace", "prod", "--resource", "pods"))
	if r.Objects != 2 || len(r.Findings) != 1 || r.Findings[0].Name != "c" || r.Resources[0].Namespace != "prod" {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"--resource pod":      "the cluster has no such resource; did you mean \"pods\"?",
		"--policy label-taem": "there is none of this name; did you mean \"label-team\"?",
		"--page-size 0":       "--page-size 0: use 1 to 5000",
		"--max-findings 0":    "--max-findings 0: use 1 to 10000",
		"--rate 0":            "--rate 0: must be more",
		"--policy no-exec":    "there is nothing to audit",
	} {
		f.audit(t, strings.Fields(args)...).Fails(t, want)
	}
	clitest.Execute(t, NewCommand(), nil).Fails(t, "name the policies")
}

func TestAuditAsksForPages(t *testing.T) {
	s := shop()
	r := reportOf(t, files(t, s, policies).audit(t, "-o", "json", "--page-size", "2", "--policy", "label-team", "--resource", "pods"))
	if want := []string{podsPath + "?2&", podsPath + "?2&2", podsPath + "?2&4"}; r.Objects != 5 || !slices.Equal(s.pages, want) {
		t.Errorf("%d objects by %q", r.Objects, s.pages)
	}
}

func TestAuditGoesOnWhereAListHasExpired(t *testing.T) {
	for name, test := range map[string]struct{ token, note string }{
		"with a newer state": {"new-2", "which went on with a newer one"},
		"from the beginning": {"", "which began again"},
	} {
		t.Run(name, func(t *testing.T) {
			s, expired := shop(), false
			s.before = func(w http.ResponseWriter, path, from string) bool {
				if path != podsPath || from != "2" || expired {
					return false
				}
				expired = true
				return refuse(w, http.StatusGone, "Expired", test.token)
			}
			r := reportOf(t, files(t, s, policies).audit(t, "-o", "json", "--page-size", "2"))
			if r.Objects != 7 || r.Denied != 3 || len(r.Findings) != 3 || !r.Complete || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], test.note) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestAuditGoesOnWithTheOtherLists(t *testing.T) {
	s := shop()
	s.before = func(w http.ResponseWriter, path, _ string) bool {
		return path == secretsPath && refuse(w, http.StatusForbidden, "Forbidden", "")
	}
	got := files(t, s, policies).audit(t, "-o", "json")
	r := reportOf(t, got)
	if got.Code != cli.ExitError || r.Complete || r.Objects != 6 || r.Denied != 2 || !strings.Contains(r.Resources[2].Error, "HTTP 403") ||
		!strings.Contains(r.Resources[2].Error, `a ClusterRole with the rule {apiGroups: [""], resources: [secrets], verbs: [list]}`) {
		t.Errorf("%+v", got)
	}
}

func TestAuditNamesThePermissionsThatItNeeds(t *testing.T) {
	s := shop()
	s.forbidden = namespacesPath
	files(t, s, policies).audit(t).Fails(t, `a ClusterRole with the rule {apiGroups: [""], resources: [namespaces], verbs: [list, watch]}`)
}

func TestAuditResumes(t *testing.T) {
	s, away := shop(), true
	s.before = func(w http.ResponseWriter, path, from string) bool {
		return path == podsPath && from == "2" && away && refuse(w, http.StatusUnauthorized, "Unauthorized", "")
	}
	f, state := files(t, s, policies), filepath.Join(t.TempDir(), "state")
	args := []string{"-o", "json", "--page-size", "2", "--resume", state}
	if got := f.audit(t, args...); got.Code != cli.ExitError || reportOf(t, got).Objects != 3 || !strings.Contains(got.Notes, "the same command goes on from here") {
		t.Fatalf("%+v", got)
	}
	f.audit(t, append(args, "--resource", "pods")...).Fails(t, "is the state of another audit")

	away, s.pages = false, nil
	r := reportOf(t, f.audit(t, args...))
	if r.Objects != 7 || r.Denied != 3 || len(r.Findings) != 3 || !r.Complete || s.pages[0] != podsPath+"?2&2" {
		t.Errorf("%+v by %v", r, s.pages)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state is still there: %v", err)
	}
	if err := os.WriteFile(state, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.audit(t, args...).Fails(t, "is no state of an audit")
}

func TestAuditAsksForLessWhereAPageIsLarge(t *testing.T) {
	citest.Sequential(t)
	large := strings.Repeat("x", 6<<20)
	s := &apiServer{lists: map[string]objects{namespacesPath: namespaces("shop"), podsPath: {count: 6, item: func(int) string {
		return strings.Replace(pod("kube-system", "a", ""), "nginx", large, 1)
	}}}}
	r := reportOf(t, files(t, s, policies).audit(t, "-o", "json", "--resource", "pods", "--page-size", "6"))
	if want := []string{podsPath + "?6&", podsPath + "?3&", podsPath + "?3&3"}; r.Objects != 6 || !slices.Equal(s.pages, want) {
		t.Errorf("%d objects by %v: %+v", r.Objects, s.pages, r)
	}
}

func TestAuditKeepsSomeFindingsAndCountsAll(t *testing.T) {
	s := shop()
	s.lists[podsPath] = objects{count: 250, item: func(int) string { return pod("shop", "p", "") }}
	got := files(t, s, policies).audit(t, "-o", "json", "--max-findings", "10", "--policy", "label-team")
	if r := reportOf(t, got); len(r.Findings) != 10 || r.Omitted != 240 || r.Policies[0].Denied != 250 || r.Denied != 250 {
		t.Errorf("%d findings, %d omitted, %+v", len(r.Findings), r.Omitted, r.Policies[0])
	}
}

// TestAuditTellsFailuresFromDenials: an expression fails, a param is missing, and an item of the list is no object.
func TestAuditTellsFailuresFromDenials(t *testing.T) {
	const failing = `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: fails}
spec:
  resources: [pods]
  validations: [{expression: "object.metadata.labels.team != ''", message: name a team}]
`
	s := shop()
	s.lists[podsPath] = of(pod("shop", "a", "web"), pod("shop", "b", ""), `{"spec": 5}`)
	got := files(t, s, failing).audit(t, "-o", "json")
	r := reportOf(t, got)
	if got.Code != cli.ExitError || r.Denied != 0 || r.Errors != 2 || !strings.Contains(said(r)[0], "error Policy/fails shop Pod/b") ||
		said(r)[1] != "error   Pod/ the API server has sent something that is no object" {
		t.Errorf("%+v", got)
	}
}

// TestAuditReadsParamsAndNamespacesInTheCluster also has a policy that asks for the user and for permissions.
func TestAuditReadsParamsAndNamespacesInTheCluster(t *testing.T) {
	const reading = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    namespaceSelector: {matchLabels: {env: shop}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  validations:
  - expression: "namespaceObject.metadata.labels.env == params.data.env && !authorizer.group('').resource('pods').check('create').allowed()"
    messageExpression: "request.userInfo.username + ' in ' + request.userInfo.groups.join(',') + ' may not: ' + params.data.env"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits}
spec: {policyName: limits, validationActions: [Deny], paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}}
`
	s := shop()
	s.lists["/api/v1/configmaps"] = of(`{"metadata":{"name":"limits","namespace":"default"},"data":{"env":"other"}}`)
	r := reportOf(t, files(t, s, reading).audit(t, "-o", "json"))
	const want = "denied ValidatingAdmissionPolicy/limits shop Pod/a portcullis-audit in system:authenticated may not: other"
	if len(r.Findings) != 2 || said(r)[0] != want || r.Errors != 0 {
		t.Errorf("%+v", said(r))
	}
	if listed := slices.DeleteFunc(slices.Clone(s.pages), func(p string) bool { return !strings.HasPrefix(p, namespacesPath+"?") }); len(listed) != 1 {
		t.Errorf("the namespaces are listed by %v", listed)
	}
}

// TestAuditReadsPolicyParams of the cluster that it is about, and no object of their kind in the cluster.
func TestAuditReadsPolicyParams(t *testing.T) {
	const reading = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  validations: [{expression: "object.metadata.?labels.team.orValue('') == params.data.team", messageExpression: "'not of ' + params.data.team"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits}
spec: {policyName: limits, validationActions: [Deny], paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}}
---
apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: limits}
spec: {clusters: [prod-1], objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: default}, data: {team: web}}]}
`
	for cluster, of := range map[string]struct {
		want   []string // the end of each finding, sorted
		listed bool
	}{
		"prod-1": {[]string{"b not of web", "c not of web", "d not of web"}, false},
		"prod-2": {[]string{"a not of db", "b not of db", "c not of db", "d not of db", "e not of db"}, true},
	} {
		s, listed := shop(), false
		const maps = "/api/v1/configmaps"
		s.lists[maps] = objects{1, func(int) string {
			listed = true
			return `{"metadata":{"name":"limits","namespace":"default"},"data":{"team":"db"}}`
		}}
		r := reportOf(t, files(t, s, reading).audit(t, "-o", "json", "--cluster", cluster))
		got := said(r)
		for i, finding := range got {
			_, got[i], _ = strings.Cut(finding, " Pod/")
		}
		slices.Sort(got)
		if !slices.Equal(got, of.want) || r.Errors != 0 || listed != of.listed {
			t.Errorf("%s: %q, ConfigMaps listed %t", cluster, got, listed)
		}
	}
}

func TestAuditWrites(t *testing.T) {
	for format, file := range map[string]string{"": "tables.txt", "markdown": "audit.md", "policyreport": "policyreport.yaml", "openreports": "openreports.yaml"} {
		args := []string{"--cluster", "prod-1"}
		if format != "" {
			args = append(args, "-o", format)
		}
		got := files(t, shop(), policies).audit(t, args...)
		clitest.Golden(t, file, stamps.ReplaceAllString(got.Out, "TIME"))
	}
}

func TestAuditOfAnAPIServerThatDoesNotAnswer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	f := files(t, shop(), policies)
	f.kubeconfig = clitest.Write(t, "kubeconfig", kubeconfig(server.URL))
	f.audit(t).Fails(t, "connection refused")
	f = files(t, &apiServer{refused: true}, policies)
	f.audit(t).Fails(t, "HTTP 401")
}

// TestReportsAreAsLargeAsKubectlAppliesThem has more findings than a report has room for.
func TestReportsAreAsLargeAsKubectlAppliesThem(t *testing.T) {
	s := shop()
	s.lists[podsPath] = objects{count: 1000, item: func(int) string { return pod("shop", strings.Repeat("p", 200), "") }}
	got := files(t, s, policies).audit(t, "-o", "policyreport", "--max-findings", "1000", "--policy", "label-team")
	results := strings.Count(got.Out, "result: fail")
	if len(got.Out) > 256<<10 || results < 200 || !strings.Contains(got.Out, fmt.Sprintf("portcullis.dev/results-left-out: %q", fmt.Sprint(1000-results))) ||
		!strings.Contains(got.Out, "fail: 1000\n") {
		t.Errorf("%d results in %d bytes: %.600s", results, len(got.Out), got.Out)
	}
}

// TestThePageShowsTheTables has the output of the first command of the page.
func TestThePageShowsTheTables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "audit.md"))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := os.ReadFile(filepath.Join("testdata", "tables.txt"))
	if err != nil {
		t.Fatal(err)
	}
	shown, _, _ := strings.Cut(string(tables), "\nNot audited")
	if !strings.Contains(stamps.ReplaceAllString(string(page), "TIME"), shown) {
		t.Errorf("docs/audit.md does not show:\n%s", shown)
	}
}

// stamps are times, and durations.
var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+Z|seconds: \d+|judged in [0-9.]+m?s`)
