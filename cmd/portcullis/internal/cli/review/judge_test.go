package review

import (
	"regexp"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

const (
	// policies has one in each mode, one about a namespace, and a hook, which is left out.
	policies = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: label-team}
spec:
  resources: [pods]
  podControllers: true
  mode: enforce
  modeByCluster: {trial: warn}
  validations: [{expression: "'team' in labels", message: set the label team, field: metadata.labels.team}]
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: no-latest-images}
spec:
  resources: [pods]
  podControllers: true
  mode: shadow
  validations: [{expression: "images.all(image, image.tag != 'latest')", message: give each image a tag}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {env: prod}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}]
  validations: [{expression: "object.spec.replicas <= oldObject.spec.replicas", reason: Forbidden}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few}
spec: {policyName: few, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  clientConfig: {url: "https://images.example.com"}
  sideEffects: None
  admissionReviewVersions: [v1]
`
	// shop is a namespace with the label env, and a Deployment in it.
	shop = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {env: prod}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {team: web}}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web, team: web}}, spec: {containers: [{name: web, image: "nginx:latest"}]}}
---
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels:
    app: web
spec: {containers: [{name: web, image: "nginx:1"}]}
`
)

// TestFilesJudge with no mesh: the policies of --config decide.
func TestFilesJudge(t *testing.T) {
	config := clitest.Write(t, "policies.yaml", policies)
	for name, tt := range map[string]struct {
		args []string
		code int
		want []string // lines, without the spaces between columns
	}{
		"creations": {nil, cli.ExitDenied, []string{
			"standard input:1 Namespace/shop allowed - no policy or hook matched",
			"standard input:5 Deployment/web shadow: denied no-latest-images give each image a tag",
			"standard input:5 Deployment/web allowed -",
			"standard input:17 Pod/web denied label-team metadata.labels.team: set the label team",
			"3 reviewed: 2 allowed, 1 denied, 0 failed, 0 warnings; policies and hooks in shadow would refuse 1; 1 matched no policy or hook",
		}},
		"all policies enforced": {[]string{"--enforce"}, cli.ExitDenied, []string{
			"standard input:5 Deployment/web denied no-latest-images give each image a tag",
		}},
		"the mode in another cluster": {[]string{"--cluster", "trial"}, 0, []string{
			"standard input:17 Pod/web warning label-team metadata.labels.team: set the label team",
			"3 reviewed: 3 allowed, 0 denied, 0 failed, 1 warnings; policies and hooks in shadow would refuse 1; 1 matched no policy or hook",
		}},
		"an update, in a namespace among the documents": {[]string{"--old", clitest.Write(t, "old.yaml", strings.ReplaceAll(shop, "replicas: 5", "replicas: 4"))}, cli.ExitDenied, []string{
			"standard input:5 Deployment/web denied few failed expression: object.spec.replicas <= oldObject.spec.replicas",
		}},
		"a deletion": {[]string{"--operation", "DELETE"}, 0, []string{
			"3 reviewed: 3 allowed, 0 denied, 0 failed, 0 warnings; 3 matched no policy or hook",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := clitest.Execute(t, NewCommand(), strings.NewReader(shop), append([]string{"-f", "-", "--config", config}, tt.args...)...)
			if r.Code != tt.code || !strings.Contains(r.Notes, `policies.yaml:34: ValidatingWebhookConfiguration "images" is left out: it needs a mesh`) {
				t.Errorf("exit code %d, want %d: %s", r.Code, tt.code, r.Notes)
			}
			lines := map[string]bool{}
			for line := range strings.Lines(r.Out) {
				lines[strings.Join(strings.Fields(line), " ")] = true
			}
			for _, want := range tt.want {
				if !lines[want] {
					t.Errorf("no line %q in:\n%s", want, r.Out)
				}
			}
		})
	}
}

// TestAPolicyWithoutABindingForTheRequestDoesNotMatch: its rules cover the Pod, and the selector of its binding does not.
func TestAPolicyWithoutABindingForTheRequestDoesNotMatch(t *testing.T) {
	config := clitest.Write(t, "policies.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: never}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: never}
spec: {policyName: never, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {team: other}}}}
`)
	for flag, want := range map[string][]string{
		"-o=github": {"1 reviewed: 1 allowed, 0 denied, 0 failed, 0 warnings; 1 matched no policy or hook"},
		"-o=wide":   {"validate: allowed\n", "\nno policy or hook matched\n"},
		"--explain": {"never ValidatingAdmissionPolicy/never 0 skipped - -", " - bindings\n"},
	} {
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
		r := clitest.Execute(t, NewCommand(), strings.NewReader(pod), "-f", "-", "--config", config, flag)
		out := regexp.MustCompile(" +").ReplaceAllString(r.Out+r.Notes, " ")
		for _, part := range want {
			if r.Code != 0 || !strings.Contains(out, part) {
				t.Errorf("%s: exit code %d, no %q in:\n%s", flag, r.Code, part, out)
			}
		}
	}
}

// TestAMistakenKindIsAWarning: no policy is about it. A custom resource may have any kind.
func TestAMistakenKindIsAWarning(t *testing.T) {
	const documents = "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: web}\n---\napiVersion: apps.example.com/v1\nkind: Deploymnt\nmetadata: {name: web}\n"
	const warning = `Kubernetes 1.36 has no kind Deploymnt in apps/v1; did you mean "Deployment"?`
	config := clitest.Write(t, "policies.yaml", policies)
	for form, want := range map[string]string{
		"": "standard input:2 Deploymnt/web warning - " + warning + "\n" +
			"standard input:1 Deploymnt/web allowed - no policy or hook matched\n" +
			"standard input:5 Deploymnt/web allowed - no policy or hook matched\n" +
			"2 reviewed: 2 allowed, 0 denied, 0 failed, 1 warnings; 2 matched no policy or hook\n",
		"wide":   "warning: " + warning + "\n",
		"json":   `"message": "Kubernetes 1.36 has no kind Deploymnt in apps/v1;`,
		"github": "::warning file=standard input,line=2,title=Deploymnt/web warning::" + warning + "\n",
	} {
		args := []string{"-f", "-", "--config", config}
		if form != "" {
			args = append(args, "-o", form)
		}
		r := clitest.Execute(t, NewCommand(), strings.NewReader(documents), args...)
		if got := regexp.MustCompile(` +`).ReplaceAllString(r.Out, " "); r.Code != 0 || !strings.Contains(got, want) {
			t.Errorf("-o %s: exit code %d, no %q in:\n%s%s", form, r.Code, want, got, r.Notes)
		}
	}
}

// TestLabelsOfNamespacesAreGiven for the namespaces that are not among the documents.
func TestLabelsOfNamespacesAreGiven(t *testing.T) {
	_, web, _ := strings.Cut(shop, "---\n")
	web, _, _ = strings.Cut(web, "---\n")
	flags := []string{"--config", clitest.Write(t, "policies.yaml", policies), "-f", clitest.Write(t, "web.yaml", web), "--old", "-", "--stage", "validate"}
	old := strings.ReplaceAll(web, "replicas: 5", "replicas: 4")
	for labels, code := range map[string]int{"env=prod": cli.ExitDenied, "env=trial,tier=a": 0} {
		r := clitest.Execute(t, NewCommand(), strings.NewReader(old), append(flags, "--namespace-labels", labels)...)
		if r.Code != code || strings.Contains(r.Out, "trace: ") {
			t.Errorf("%s: exit code %d, want %d: %s%s", labels, r.Code, code, r.Out, r.Notes)
		}
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	hook := policies[strings.LastIndex(policies, "---\n"):]
	for name, tt := range map[string]struct{ config, want string }{
		"a document that is invalid": {strings.ReplaceAll(policies, "labels\"", "labelz\""), `policies.yaml:9: Policy "label-team": spec.validations[0].expression`},
		"no policy":                  {hook, "there is no policy in it"},
		"two of a name":              {policies + "---\n" + policies, "is in "},
	} {
		t.Run(name, func(t *testing.T) {
			clitest.Execute(t, NewCommand(), strings.NewReader(shop), "-f", "-", "--config", clitest.Write(t, "policies.yaml", tt.config)).Fails(t, "--config", tt.want)
		})
	}
	clitest.Execute(t, NewCommand(), strings.NewReader(shop), "-f", "-", "--config", "/nowhere").Fails(t, "--config: ", "/nowhere")
	clitest.Execute(t, NewCommand(), strings.NewReader(shop), "-f", "-", "--enforce").Fails(t, "--enforce is for --config")
	clitest.Execute(t, NewCommand(), strings.NewReader(shop), "-f", "-", "--namespace-labels", "a=b").Fails(t, "--namespace-labels is for --config")
}

// TestAnExplanationHasTheValuesOfExpressions also of a policy in shadow, with the names that a Policy has for variables.
func TestAnExplanationHasTheValuesOfExpressions(t *testing.T) {
	flags := []string{"--config", clitest.Write(t, "policies.yaml", policies), "-f", "-", "--explain"}
	r := clitest.Execute(t, NewCommand(), strings.NewReader(shop), flags...)
	for _, want := range []string{
		"  Policy/label-team: validations[0] is false:\n    \"team\" in labels = false\n      labels = {\"app\":\"web\"}\n",
		"  Policy/no-latest-images: validations[0] is false:\n    images.all(image, image.tag != \"latest\") = false\n",
		"      image.tag != \"latest\" = false\n        image.tag = \"latest\"\n",
	} {
		if strings.Count(r.Out, want) != 1 {
			t.Errorf("not once %q in:\n%s", want, r.Out)
		}
	}
	r = clitest.Execute(t, NewCommand(), strings.NewReader(shop), append(flags, "-o", "json")...)
	if want := `"text": "\"team\" in labels",`; strings.Count(r.Out, want) != 1 {
		t.Errorf("not once %q in:\n%s", want, r.Out)
	}
}

// TestMistakesOfADocumentAreNamed where its verdict would mislead.
func TestMistakesOfADocumentAreNamed(t *testing.T) {
	config := clitest.Write(t, "policies.yaml", policies)
	const image = "image: 'a:1'"
	policy, _, _ := strings.Cut(policies, "---")
	pod := func(metadata, container string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {" + metadata + ", labels: {team: a}}\nspec:\n  containers:\n  - {name: a, " + container + "}\n"
	}
	for name, of := range map[string]struct {
		document string
		args     []string
		code     int
		want     string
	}{
		"a field that Kubernetes does not have": {
			pod("name: a", image+", securityContext: {priviledged: true}"), nil, 0,
			"warning: Kubernetes 1.36 has no field spec.containers[0].securityContext.priviledged in Pod",
		},
		"a field, with its line": {
			pod("name: a", image+", imagePullPolcy: Always"), []string{"-o", "github"}, 0, "line=6,title=Pod/a warning::Kubernetes 1.36 has no field spec.containers[0].imagePullPolcy",
		},
		"a namespace that YAML reads as a boolean": {
			pod("name: a, namespace: on", image), nil, cli.ExitError, "metadata.namespace: it is read as true, and must be a text: quote it",
		},
		"a name that YAML reads as a number": {
			pod("name: 1.5", image), nil, cli.ExitError, "metadata.name: it is read as 1.5, and must be a text: quote it",
		},
		"a policy among the objects": {
			policy, nil, 0, "warning: Policy is configuration of Portcullis, which --config judges by",
		},
		"labels that are none": {pod("name: a", image), []string{"--namespace-labels", "env=prod,team"}, cli.ExitError, "write labels as env=prod,tier=a"},
		"a document that cannot be read": {
			"kind: [", []string{"-o", "json"}, cli.ExitError, `"error": "not valid YAML`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := clitest.Execute(t, NewCommand(), strings.NewReader(of.document), append([]string{"-f", "-", "--config", config}, of.args...)...)
			if r.Code != of.code || !strings.Contains(r.Out+r.Notes, of.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s%s", r.Code, of.code, of.want, r.Out, r.Notes)
			}
		})
	}
}
