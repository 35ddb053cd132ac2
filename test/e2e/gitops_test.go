package e2e

import (
	"fmt"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// argoCD is the part of Argo CD that says how healthy objects are: its ConfigMap, patched as docs/configuration-store.md says.
type argoCD struct{ settings map[string]string }

func newArgoCD(t *testing.T) argoCD {
	t.Helper()
	maps := cluster.Client().CoreV1().ConfigMaps(cluster.Namespace(t, nil))
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "argocd-cm"}, Data: map[string]string{"url": "https://argocd.example.com"}}
	made, err := maps.Create(t.Context(), before, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if said, err := runKubectl(t, "-n", made.Namespace, "patch", "configmap", made.Name, "--patch-file=../../deploy/gitops/argocd-health.yaml"); err != nil {
		t.Fatal(err, said)
	}
	now, err := maps.Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return argoCD{now.Data}
}

// health runs the script for the kind of an object as Argo CD does, with no more of Lua than Argo CD offers.
func (a argoCD) health(t *testing.T, u *unstructured.Unstructured) (health, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	if err := l.CallByParam(lua.P{Fn: l.NewFunction(lua.OpenBase), Protect: true}, lua.LString(lua.BaseLibName)); err != nil {
		t.Fatal(err)
	}
	l.SetGlobal("obj", luaValue(u.Object))
	if err := l.DoString(a.settings["resource.customizations.health.portcullis.dev_"+u.GetKind()]); err != nil {
		t.Fatalf("the script for a %s: %v", u.GetKind(), err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script for a %s returns %v", u.GetKind(), l.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

// luaValue is a value of an object for Lua.
func luaValue(v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := &lua.LTable{Metatable: lua.LNil}
		for key, item := range v {
			table.RawSetString(key, luaValue(item))
		}
		return table
	case []any:
		table := &lua.LTable{Metatable: lua.LNil}
		for i, item := range v {
			table.RawSetInt(i+1, luaValue(item))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}

// sees waits until Flux, and whatever else uses kstatus, and Argo CD say so of an object.
func (a argoCD) sees(t *testing.T, document string, flux status.Status, health, message string) {
	t.Helper()
	want := custom(t, document)
	eventually(t, fmt.Sprintf("%s is %s and %s", want.GetName(), flux, health), func() error {
		u, err := cluster.Dynamic(t).Resource(customResource(want)).Get(t.Context(), want.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		result, err := status.Compute(u)
		if err != nil {
			return err
		}
		gotHealth, gotMessage := a.health(t, u)
		if result.Status != flux || gotHealth != health || !strings.Contains(gotMessage, message) {
			return fmt.Errorf("it is %s (%s) and %s (%s), with the status %v", result.Status, result.Message, gotHealth, gotMessage, u.Object["status"])
		}
		return nil
	})
}

// TestGitOpsToolsSeeWhetherADocumentIsInForce asks kstatus, which Flux decides by, and the script for Argo CD at each turn of a document.
func TestGitOpsToolsSeeWhetherADocumentIsInForce(t *testing.T) {
	citest.Gate(t, "covers tools of GitOps: 12 s")
	c, argo := newCustomizedPair(t), newArgoCD(t)
	hooks := kube.Validating("policies", onNothing(policyHook))
	first := inOurGroup(t, hooks)
	c.apply(t, first)
	argo.sees(t, first, status.CurrentStatus, "Healthy", "on 2 of 2 dispatchers")

	c.withdrawOther(t.Context(), t)
	hooks.Webhooks[0].Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	second := inOurGroup(t, hooks)
	c.apply(t, second)
	argo.sees(t, second, status.InProgressStatus, "Progressing", "on 1 of 2 dispatchers")
	c.grantOther(t)
	argo.sees(t, second, status.CurrentStatus, "Healthy", "on 2 of 2 dispatchers")

	hooks.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "none", Expression: "object.none("}} // no schema can say it
	c.apply(t, inOurGroup(t, hooks))
	argo.sees(t, second, status.FailedStatus, "Degraded", "webhooks[0].matchConditions[0].expression")
	c.apply(t, second)
	argo.sees(t, second, status.CurrentStatus, "Healthy", "on 2 of 2 dispatchers")
}

// TestGitOpsToolsDoNotTakeSilenceForSuccess creates and changes objects while no dispatcher runs.
func TestGitOpsToolsDoNotTakeSilenceForSuccess(t *testing.T) {
	citest.Gate(t, "covers tools of GitOps: 3 s")
	c, argo := newCustomized(t), newArgoCD(t)
	hooks := inOurGroup(t, kube.Validating("policies", onNothing(policyHook)))
	c.apply(t, hooks)
	argo.sees(t, hooks, status.CurrentStatus, "Healthy", "")
	c.dispatcher.Stop(t)

	changed := inOurGroup(t, kube.Validating("policies", onPods(policyHook)))
	c.apply(t, changed)
	argo.sees(t, changed, status.InProgressStatus, "Progressing", "")
	for _, document := range []string{
		mesh.Route("policies", hostName), inOurGroup(t, kube.Mutating("defaults", onNothing("defaults.example.com"))), elsewhere, readers,
	} {
		c.apply(t, document)
		argo.sees(t, document, status.InProgressStatus, "Progressing", "")
	}
}
