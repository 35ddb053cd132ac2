package registration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// labelled are the labels of namespaces, by name.
type labelled struct {
	serving
	of map[string]map[string]string
}

// versions are the resources that the cluster serves in several versions.
func versions() families {
	return familiesOf("apps/v1,apps/v1beta1 pods", "apps/v1beta1,apps/v1 pods/status", "apps/v1,apps/v1beta1 namespaces", "apps/v1,apps/v1beta1 namespaces/status",
		"apps/v1,apps/v1beta1 nodes", "apps/v1,apps/v1beta1 nodes/status", "v1 pods", "v1 namespaces", "v1 nodes")
}

func (l labelled) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	set := map[string]string{corev1.LabelMetadataName: name}
	maps.Copy(set, l.of[name])
	return set, nil
}

// selectors are namespaceSelectors; empty selects all.
func selectors() []string {
	const name = corev1.LabelMetadataName
	return []string{
		"", "", name + " notin (kube-system)", name + " notin (kube-system)", name + " notin (kube-system,dev)", name + "=prod", name + " in (prod,dev)", "env=prod", "env=prod",
		"env notin (prod)", "env", "!env", "env=prod,tier=web", name + " notin (kube-system),env=prod", "tier notin (web,db),env",
		name + " notin (a),env=prod,tier,zone=x,rack=y,row notin (z)",
	}
}

// divided are random hooks of which some select namespaces in other ways than others.
func (g generator) divided() (all []hook) {
	same, shareAll := g.pick(selectors()...), g.IntN(2) == 0
	for i := range 1 + g.IntN(5) {
		h := hook{
			name: fmt.Sprintf("h%d", i), kind: g.pick("mutating", "mutating", "initializing", "validating"), policy: g.pick("Fail", "Ignore"),
			reinvocation: g.pick("Never", "IfNeeded"), exact: g.IntN(2) == 0, namespaces: g.pick(selectors()...), objects: g.pick("", "", "", "", "app=x"),
		}
		if shareAll && h.policy == "Fail" {
			h.namespaces = same
		}
		for range 1 + g.IntN(2) {
			h.rules += " " + fmt.Sprintf("%s:%s:%s:%s", g.pick("*", "CREATE", "CREATE,UPDATE"), g.pick("*:*", ":v1", ",apps:v1", "apps:v1beta1", "apps:*"),
				g.pick("*", "*/*", "pods", "pods/*", "namespaces", "pods,namespaces", "nodes", "namespaces/status"), g.pick("*", "*", "Cluster", "Namespaced"))
		}
		all = append(all, h)
	}
	return all
}

func (g generator) labels() map[string]string {
	set := map[string]string{}
	for key, values := range map[string][]string{"env": {"prod", "dev", ""}, "tier": {"web", "db", ""}, "app": {"x", ""}, "zone": {"x", ""}, "rack": {"y", ""}} {
		if v := g.pick(values...); v != "" {
			set[key] = v
		}
	}
	return set
}

// write is a random request on a Pod, a Namespace or a Node.
func (g generator) write() *admissionv1.AdmissionRequest {
	r := &admissionv1.AdmissionRequest{
		Uid: "u", Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Thing"}, Operation: g.pick("CREATE", "UPDATE"), Name: "n", UserInfo: &admissionv1.UserInfo{},
		Resource:    &admissionv1.GroupVersionResource{Version: "v1", Resource: g.pick("pods", "pods", "namespaces", "nodes")},
		SubResource: g.pick("", "", "", "status"),
	}
	if g.IntN(3) == 0 {
		r.Resource.Group, r.Resource.Version = "apps", g.pick("v1", "v1beta1")
	}
	switch name := g.pick("prod", "dev", "kube-system", "other"); r.GetResource().GetResource() {
	case "pods":
		r.Namespace = name
	case "namespaces":
		r.Namespace, r.Name = name, name
	}
	r.Object = objectWith(r, g.labels())
	return r
}

// objectWith is an object with labels; of a Namespace its name is one.
func objectWith(r *admissionv1.AdmissionRequest, labels map[string]string) *admissionv1.Object {
	if r.GetResource().GetResource() == "namespaces" {
		labels[corev1.LabelMetadataName] = r.GetName()
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": r.GetName(), "labels": labels}})
	if err != nil {
		panic(err)
	}
	return &admissionv1.Object{Raw: raw}
}

// dead is a cluster whose hooks, and the entries made of them, do not answer.
type dead struct {
	t              *testing.T
	g              generator
	hooks, entries *match.Snapshot
	cluster        labelled
	wider          map[string]int // refused though no fail-closed hook selects the request, by reason

}

// native are the hooks of a stage that the API server alone would call for a request.
func (d dead) native(stage admissionv1.Stage, r *admissionv1.AdmissionRequest) []*match.Hook {
	a := match.NewAttributes(r, d.cluster)
	return slices.DeleteFunc(d.hooks.Candidates("prod-1", stage, a), func(h *match.Hook) bool { return !h.ShouldCall(d.t.Context(), a).Match })
}

// brings are the entries of a stage that bring a request, in order. As soon as one has, hooks have changed the labels of the object.
func (d dead) brings(stage admissionv1.Stage, r *admissionv1.AdmissionRequest, change bool) (entries []*match.Hook) {
	infix := "." + stageNames[stage]
	configured := stage
	if stage == reinvoke {
		configured = mutate
	}
	for _, e := range d.entries.Hooks() {
		if e.ID.Stage != configured || !strings.Contains(e.ID.Name, infix) {
			continue
		}
		a := match.NewAttributes(r, d.cluster)
		if slices.Contains(d.entries.Candidates("prod-1", configured, a), e) && e.ShouldCall(d.t.Context(), a).Match {
			entries = append(entries, e)
			if change && (r.GetResource().GetGroup() == "" || r.GetResource().GetResource() != "namespaces") { // Kubernetes takes those for Namespaces
				r = proto.CloneOf(r)
				r.Object = objectWith(r, d.g.labels())
			}
		}
	}
	return entries
}

// check compares the handling of a request with the API server's alone.
func (d dead) check(stage admissionv1.Stage, r *admissionv1.AdmissionRequest) {
	native := d.native(stage, r)
	entries := d.brings(stage, r, false)
	if stage == validate {
		d.checkRefused(stage, r, native, entries)
		return
	}
	if len(entries) > 1 || len(native) > 0 && len(entries) == 0 {
		d.t.Errorf("%v: hooks %v are called by entries %v\n%v", stage, names(native), names(entries), r)
	}
	if changed := d.brings(stage, r, true); len(changed) > 1 {
		d.t.Errorf("%v: after a hook has changed labels, entries %v bring it\n%v", stage, names(changed), r)
	}
	d.checkRefused(stage, r, native, entries)
}

// checkRefused: the request is refused if a fail-closed hook selects it, and else for a reason.
func (d dead) checkRefused(stage admissionv1.Stage, r *admissionv1.AdmissionRequest, native, entries []*match.Hook) {
	want, got := slices.ContainsFunc(native, failsClosed), slices.ContainsFunc(entries, failsClosed)
	switch why := d.why(stage, r); {
	case want && got:
		d.wider["no reason: a hook selects it"]++
	case want:
		d.t.Errorf("%v: no entry refuses the request, which hooks %v would\n%v", stage, names(native), r)
	case got && why == "":
		d.t.Errorf("%v: entries %v refuse the request, which no fail-closed hook selects\n%v", stage, names(entries), r)
	case got:
		d.wider[why]++
	}
}

// why is the reason for which an entry may refuse more than its hooks; empty if there is none.
func (d dead) why(stage admissionv1.Stage, r *admissionv1.AdmissionRequest) string {
	together := d.together(stage, r)
	for _, h := range together[:max(len(together)-1, 0)] {
		if other := together[len(together)-1]; h.NamespaceSelector().String() != other.NamespaceSelector().String() ||
			h.ObjectSelector().String() != other.ObjectSelector().String() {
			return "fail-closed hooks on one resource that differ"
		}
	}
	for _, h := range together {
		s := h.NamespaceSelector()
		_, byName := s.MatchLabels[corev1.LabelMetadataName]
		switch {
		case len(h.ObjectSelector().MatchLabels) > 0 && stage != validate:
			return "an objectSelector that fail-open hooks do not have"
		case len(s.MatchLabels)+len(s.MatchExpressions) > 4 && stage != validate:
			return "many requirements"
		case r.GetResource().GetResource() == "namespaces" && stage != validate && (len(s.MatchLabels) > 0 && !byName ||
			slices.ContainsFunc(s.MatchExpressions, func(x metav1.LabelSelectorRequirement) bool { return x.Key != corev1.LabelMetadataName })):
			return "labels of a Namespace"
		}
	}
	return ""
}

// point is a request as far as it decides which fail-closed hooks have to share an entry.
type point struct{ operation, resource, sub, scope string }

// names reports whether a rule names such a request, in some group and version.
func (p point) namedBy(h *match.Hook) bool {
	return slices.ContainsFunc(h.Rules(), func(r admissionregistrationv1.RuleWithOperations) bool {
		return (r.Operations[0] == "*" || slices.Contains(r.Operations, admissionregistrationv1.OperationType(p.operation))) &&
			(*r.Scope == "*" || string(*r.Scope) == p.scope) && slices.ContainsFunc(r.Resources, func(name string) bool {
			resource, sub, _ := strings.Cut(name, "/")
			return (resource == "*" || resource == p.resource) && (sub == "*" || sub == p.sub)
		})
	})
}

// together are the fail-closed hooks of a stage that share an entry: the hooks that name the request, and, step by step, the hooks
// that name something which a hook so far names.
func (d dead) together(stage admissionv1.Stage, r *admissionv1.AdmissionRequest) (all []*match.Hook) {
	var reached []point
	for _, scope := range []string{"Cluster", "Namespaced"} {
		reached = append(reached, point{r.GetOperation(), r.GetResource().GetResource(), r.GetSubResource(), scope})
	}
	for i := 0; i < len(reached); i++ {
		for _, h := range d.hooks.Hooks() {
			inStage := h.EntryStage() == stage || stage == reinvoke && h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy
			if !inStage || !h.FailsClosed() || slices.Contains(all, h) || !reached[i].namedBy(h) {
				continue
			}
			all = append(all, h)
			for _, operation := range []string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
				for _, resource := range []string{"pods", "namespaces", "nodes", "others"} {
					for _, sub := range []string{"", "status", "other"} {
						for _, scope := range []string{"Cluster", "Namespaced"} {
							if p := (point{operation, resource, sub, scope}); p.namedBy(h) && !slices.Contains(reached, p) {
								reached = append(reached, p)
							}
						}
					}
				}
			}
		}
	}
	return all
}

// TestADeadMeshRefusesWhatFailClosedHooksSelect compares entries of random hooks with the hooks alone.
func TestADeadMeshRefusesWhatFailClosedHooksSelect(t *testing.T) {
	wider := map[string]int{}
	for seed := range uint64(citest.Rounds(60, 600, 6000)) {
		g := generator{rand.New(rand.NewPCG(seed, 26))}
		var list []string
		in := match.Input{}
		for _, h := range g.divided() {
			in.Objects = append(in.Objects, *h.document())
			list = append(list, fmt.Sprintf("%+v", h))
		}
		o := options()
		o.OwnNamespace, o.Equivalents = "", versions()
		s := compile(t, in)
		r := plan(t, s, o)
		d := dead{t: t, g: g, hooks: s, entries: asHooks(t, r), wider: wider, cluster: labelled{serving: serving{families: versions()}, of: map[string]map[string]string{
			"prod": g.labels(), "dev": g.labels(), "kube-system": g.labels(), "other": g.labels(),
		}}}
		for range 40 {
			request := g.write()
			for stage := range stageNames {
				d.check(stage, request)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s\n%s", seed, strings.Join(list, "\n"), text(t, r))
		}
	}
	t.Logf("refused requests: %v", wider)
	if wider["no reason: a hook selects it"] == 0 {
		t.Error("no request is refused")
	}
}
