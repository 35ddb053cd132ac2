package serve

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

// getter is a mesh with the applied hooks, and gets from it.
func getter(t *testing.T) func(args ...string) clitest.Result {
	t.Helper()
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := readyFileOf(t, info)
	documents := strings.NewReplacer(
		"GROUP", "apps", "sideEffects: None\n", "sideEffects: None\n  matchConditions: [{name: c, expression: '1 < 2 && true'}]\n",
	).Replace(appliedHooks)
	if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	return func(args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, configcli.NewGet(), nil, append(args, "--ready-file", ready)...)
	}
}

func TestGetPrintsAKubernetesList(t *testing.T) {
	get := getter(t)
	for _, args := range [][]string{{}, {"all"}, {"vwc,hr"}, {"hookroutes,vwc"}, {"vwc/policy", "hr/policy"}, {"vwc,hr", "policy"}} {
		list := &unstructured.UnstructuredList{}
		r := get(append(args, "-o", "json")...)
		if err := list.UnmarshalJSON([]byte(r.Out)); err != nil || list.GetKind() != "List" || list.GetAPIVersion() != "v1" || len(list.Items) != 2 {
			t.Fatalf("%v: %v: %s%s", args, err, r.Out, r.Notes)
		}
		if !strings.Contains(r.Out, `"1 < 2 && true"`) {
			t.Errorf("%v: characters are escaped: %s", args, r.Out)
		}
		for i := range list.Items {
			o := &list.Items[i]
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			if o.GetName() != "policy" || o.GetResourceVersion() == "" || o.GetGeneration() != 1 || len(conditions) == 0 {
				t.Errorf("%v: %v", args, o.Object)
			}
		}
	}
	one := &unstructured.Unstructured{}
	if err := one.UnmarshalJSON([]byte(get("vwc", "policy", "-o", "json").Out)); err != nil || one.GetKind() != "ValidatingWebhookConfiguration" {
		t.Errorf("one: %v, %v", err, one.Object)
	}
	empty := &metav1.List{}
	if err := json.Unmarshal([]byte(get("roles", "-o", "json").Out), empty); err != nil || empty.Kind != "List" || empty.Items == nil {
		t.Errorf("none: %v, %+v", err, empty)
	}
}

func TestGetPrintsWhatTemplatesAskFor(t *testing.T) {
	get := getter(t)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"names":                   {[]string{"-o", "name"}, "hookroute.portcullis.dev/policy\nvalidatingwebhookconfiguration.admissionregistration.k8s.io/policy\n"},
		"the name of one":         {[]string{"hr", "policy", "-o", "name"}, "hookroute.portcullis.dev/policy\n"},
		"a name as it prints it":  {[]string{"hookroute.portcullis.dev/policy", "-o", "name"}, "hookroute.portcullis.dev/policy\n"},
		"a JSONPath of several":   {[]string{"vwc,hr", "-o", "jsonpath={.items[*].kind}"}, "HookRoute ValidatingWebhookConfiguration"},
		"a JSONPath of one":       {[]string{"vwc", "policy", "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].status}{"\n"}`}, "True\n"},
		"a JSONPath as JSON":      {[]string{"vwc", "policy", "-o", "jsonpath-as-json={.metadata.name}"}, "[\n    \"policy\"\n]\n"},
		"a template of Go":        {[]string{"vwc", "-o", `go-template={{range .items}}{{.metadata.name}} {{.status.source}}{{"\n"}}{{end}}`}, "policy etcd\n"},
		"custom columns":          {[]string{"-o", "custom-columns=NAME:.metadata.name,ACCEPTED:{.status.conditions[?(@.type==\"Accepted\")].status},NO:metadata.labels.no"}, "NAME    ACCEPTED  NO\npolicy  True      <none>\npolicy  True      <none>\n"},
		"custom columns of one":   {[]string{"vwc", "policy", "-o", "custom-columns=HOOKS:.webhooks[*].name"}, "HOOKS\npolicy.example.com\n"},
		"custom columns of hooks": {[]string{"hooks", "-o", "custom-columns=HOOK:.metadata.name,STAGE:.status.stage"}, "HOOK                STAGE\npolicy.example.com  validate\n"},
		"hooks":                   {[]string{"hooks", "-o", "jsonpath={.items[*].metadata.name}"}, "policy.example.com"},
		"dispatchers":             {[]string{"dispatchers", "-o", "jsonpath={.dispatchers[*].dispatcherId}"}, "test"},
		"names of dispatchers":    {[]string{"dispatchers", "-o", "name"}, "dispatcher/test\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := get(tc.args...)
			if r.Code != 0 || r.Out != tc.want {
				t.Errorf("exit code %d, %q, want %q; %s", r.Code, r.Out, tc.want, r.Notes)
			}
		})
	}
	get("-o", "jsonpath=").Fails(t, "it needs a template")
	get("-o", "jsonpath={.items").Fails(t, "unclosed action")
	get("-o", "custom-columns=").Fails(t, "custom-columns=NAME:.metadata.name")
	get("-o", "custom-columns=NAME").Fails(t, `column "NAME": give HEADER:PATH`)
	get("-o", "custom-columns=NAME:.a,:.b").Fails(t, `column ":.b": give HEADER:PATH`)
	get("-o", "custom-columns=NAME:.a[").Fails(t, `column "NAME:.a["`)
	get("-o", "xml").Fails(t, "use json or yaml or wide or name or jsonpath= or")
	get("vwc", "a/b").Fails(t, "is no name")
	get("all", "policy").Fails(t, `"all" names no kind`)
	get("vwc,vmc").Fails(t, `there is no kind "vmc"`)
}

func TestGetShowsTheNamedObjectsThatAreThere(t *testing.T) {
	get := getter(t)
	r := get("vwc", "nothing", "policy")
	r.Ends(t, cli.ExitDenied, "Error: there is no ValidatingWebhookConfiguration/nothing")
	if !strings.Contains(r.Out, "ValidatingWebhookConfiguration/policy ") {
		t.Errorf("it shows %s", r.Out)
	}
}

func TestGetPrintsHostsAndHooksAsAKubernetesList(t *testing.T) {
	get := getter(t)
	for noun, kind := range map[string]string{"hooks": "Hook", "hosts": "Host"} {
		list := &unstructured.UnstructuredList{}
		r := get(noun, "-o", "json")
		if err := list.UnmarshalJSON([]byte(r.Out)); err != nil || list.GetKind() != "List" || list.GetAPIVersion() != "v1" {
			t.Fatalf("%s: %v: %s%s", noun, err, r.Out, r.Notes)
		}
		if kind == "Host" {
			if len(list.Items) != 0 || !strings.Contains(r.Out, `"items": []`) {
				t.Errorf("without a host: %s", r.Out)
			}
			continue
		}
		if len(list.Items) != 1 {
			t.Fatal(r.Out)
		}
		o := list.Items[0]
		id, _, _ := unstructured.NestedString(o.Object, "status", "dispatcherId")
		if o.GetKind() != kind || o.GetAPIVersion() != "portcullis.dev/v1" || o.GetName() != "policy.example.com" || id != "test" {
			t.Errorf("%s: %v", noun, o.Object)
		}
	}
}
