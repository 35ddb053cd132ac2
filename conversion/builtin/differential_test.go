package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// hooks is how many mutating hooks the API server of the comparison has.
const hooks = 3

// world is kube-apiserver's mutating plugin with hooks whose patches are set before each review.
type world struct {
	oracle  *oracle.Oracle
	patches [hooks]string
	seen    [][]byte // by the hooks, in order
}

// newWorld is the API server with hooks for one rule, for a resource that is served in these kinds.
func newWorld(t *testing.T, rule admissionregistrationv1.Rule, kinds ...schema.GroupVersionKind) *world {
	t.Helper()
	w := &world{}
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	none := admissionregistrationv1.SideEffectClassNone
	scripts := map[string]oracle.Script{}
	for i := range hooks {
		name := fmt.Sprintf("hook%d.example.com", i)
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: name, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       rule,
			}},
		})
		scripts[oracle.Key("c", name, 0)] = func(_ context.Context, r *k8sadmissionv1.AdmissionRequest) oracle.Answer {
			w.seen = append(w.seen, slices.Clone(r.Object.Raw))
			return oracle.Patch("%s", w.patches[i])
		}
	}
	equivalents := runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string { return r.Resource })
	for _, kind := range kinds {
		equivalents.RegisterKindFor(kind.GroupVersion().WithResource(plural(kind)), "", kind)
	}
	w.oracle = oracle.New(t, oracle.Options{
		Mutating:   []*admissionregistrationv1.MutatingWebhookConfiguration{c},
		Namespaces: map[string]map[string]string{"default": nil},
		Scripts:    scripts, Equivalents: equivalents,
	})
	return w
}

// admit sends an object through the API server, with hooks that answer with the patches.
func (w *world) admit(t *testing.T, object []byte) oracle.Outcome {
	t.Helper()
	w.seen = nil
	kind := kindIn(t, object)
	req := &admissionv1.AdmissionRequest{
		Uid: "u", Name: "n", Namespace: "default", Operation: "CREATE", UserInfo: &admissionv1.UserInfo{Username: "jane"},
		Kind:     &admissionv1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		Resource: &admissionv1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: plural(kind)},
		Object:   &admissionv1.Object{Raw: object},
	}
	out, err := w.oracle.Run(t.Context(), admissionv1.Stage_STAGE_MUTATE, req)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// plural is the name of a resource.
func plural(kind schema.GroupVersionKind) string {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource.Resource
}

// everything is a rule that covers all there is.
func everything() admissionregistrationv1.Rule {
	return admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}
}

// mutated says whether the API server found that the hook changed the object.
func mutated(t *testing.T, out oracle.Outcome, hook int) bool {
	t.Helper()
	var said struct {
		Mutated bool `json:"mutated"`
	}
	key := fmt.Sprintf("mutation.webhook.admission.k8s.io/round_0_index_%d", hook)
	if err := json.Unmarshal([]byte(out.Audit[key]), &said); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return said.Mutated
}

// TestTheCodecDoesToObjectsWhatTheAPIServerDoes sends random patches of three hooks through kube-apiserver's mutating
// plugin and through the codec: the hooks see the same bytes, the same patches are found to change something, the same
// are refused, and the patch that the codec makes of all leads to the same object.
//
// Where a hook adds a field that nobody knows, the API server drops it and the codec takes it along, since it cannot know
// that the cluster is not newer than its types: then the hooks see the same but for these fields.
func TestTheCodecDoesToObjectsWhatTheAPIServerDoes(t *testing.T) {
	w := newWorld(t, everything())
	r := rand.New(rand.NewPCG(3, 4))
	kinds := []string{"apps/v1 Deployment", "autoscaling/v2 HorizontalPodAutoscaler", "batch/v1 CronJob", "networking.k8s.io/v1 Ingress", "apps/v1 StatefulSet", "extensions/v1beta1 Deployment"}
	seeds := [][]byte{asServed(t, pod), asServed(t, service), asServed(t, role)}
	for _, kind := range kinds {
		seeds = append(seeds, asServed(t, string(inVersionOf(t, kind))))
	}
	var admitted, refused, kept int
	for i := range 1500 {
		object := seeds[i%len(seeds)]
		for h := range hooks {
			w.patches[h] = patchOf(t, r, object)
			if h == hooks-1 && r.IntN(10) == 0 { // the codec gives the next hook an object that says its kind, Kubernetes does not
				w.patches[h] = []string{
					`[{"op":"remove","path":"/kind"}]`, `[{"op":"remove","path":"/apiVersion"}]`, `[{"op":"replace","path":"/kind","value":"Node"}]`,
					`[{"op":"replace","path":"/apiVersion","value":"apps/v1beta2"}]`, `[{"op":"replace","path":"/apiVersion","value":"v3"}]`,
				}[r.IntN(5)]
			}
		}
		switch compare(t, w, object) {
		case "admitted":
			admitted++
		case "refused":
			refused++
		case "kept":
			kept++
		}
		if t.Failed() {
			t.Fatalf("case %d: %s\npatches %s", i, object, strings.Join(w.patches[:], "\n        "))
		}
	}
	t.Logf("admitted %d, refused %d, with unknown fields %d", admitted, refused, kept)
	if admitted < 300 || refused < 300 || kept < 100 {
		t.Errorf("a lopsided comparison: admitted %d, refused %d, with unknown fields %d", admitted, refused, kept)
	}
}

// TestAPatchThatChangesNothingReplacesTheObjectAsInTheAPIServer shows it where an object lacks defaults: in a version that
// its client did not send it in.
func TestAPatchThatChangesNothingReplacesTheObjectAsInTheAPIServer(t *testing.T) {
	extensions := schema.GroupVersion{Group: "extensions", Version: "v1beta1"}
	w := newWorld(t, admissionregistrationv1.Rule{APIGroups: []string{"extensions"}, APIVersions: []string{"v1beta1"}, Resources: []string{"ingresses"}},
		schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}.WithKind("Ingress"), extensions.WithKind("Ingress"))
	object := asServed(t, `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"i"},"spec":{"rules":[{"http":{"paths":[{"backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}`)
	for name, patch := range map[string]string{
		"the same JSON":              `[{"op":"replace","path":"/metadata/name","value":"i"}]`,
		"a test alone":               `[{"op":"test","path":"/kind","value":"Ingress"}]`,
		"there and back":             `[{"op":"add","path":"/metadata/labels","value":{}},{"op":"remove","path":"/metadata/labels"}]`,
		"the same in another way":    `[{"op":"add","path":"/spec/tls","value":[]}]`,
		"no operations":              `[]`,
		"null instead of a pathType": `[{"op":"add","path":"/spec/rules/0/http/paths/0/pathType","value":null}]`,
	} {
		t.Run(name, func(t *testing.T) {
			w.patches = [hooks]string{patch, `[]`, `[]`}
			want := w.admit(t, object)
			if !want.Allowed || len(w.seen) != hooks {
				t.Fatalf("%d hooks called: %+v", len(w.seen), want)
			}
			view := convert(t, object, extensions.WithKind("Ingress"))
			result, changed, err := builtin.New(builtin.Options{}).Apply(view, []byte(patch))
			if err != nil || changed || patch != `[]` && mutated(t, want, 0) {
				t.Fatalf("changed %v, error %v, in Kubernetes %v", changed, err, want.Audit)
			}
			if string(view) != string(w.seen[0]) || string(result) != string(w.seen[1]) {
				t.Errorf("hooks see %s\nand %s\nin Kubernetes %s\nand %s", view, result, w.seen[0], w.seen[1])
			}
			if defaulted := bytes.Contains(result, []byte(`"pathType":"ImplementationSpecific"`)); defaulted != (patch != `[]`) {
				t.Errorf("defaulted is %v: %s", defaulted, result)
			}
			got, err := conversion.Rebase(object, convert(t, view, kindIn(t, object)), convert(t, result, kindIn(t, object)))
			if err != nil {
				t.Fatal(err)
			}
			equalJSON(t, want.FinalObject, got)
		})
	}
}

// compare sends one review both ways.
func compare(t *testing.T, w *world, object []byte) string {
	t.Helper()
	want := w.admit(t, object)
	unknown := false
	s := builtin.New(builtin.Options{NotKnown: func(string) { unknown = true }}).NewPatchSession(nil)
	now := object
	for h := range hooks {
		if h >= len(w.seen) || !sees(t, w.seen[h], now, unknown) {
			t.Errorf("hook %d sees %s\nand in Kubernetes %s", h, now, w.seen[min(h, len(w.seen)-1)])
			return ""
		}
		result, changed, err := s.Apply(now, []byte(w.patches[h]))
		if err != nil {
			if want.Allowed || want.Code != http.StatusInternalServerError {
				t.Errorf("hook %d: %v, and in Kubernetes %+v", h, err, want)
			}
			return "refused"
		}
		if !unknown && h+1 < len(want.Called) && changed != mutated(t, want, h) {
			t.Errorf("hook %d: changed is %v", h, changed)
		}
		now = result
	}
	return finish(t, s, want, object, now, unknown)
}

// sees says whether a hook sees the wanted object, apart from unknown fields.
func sees(t *testing.T, want, got []byte, unknown bool) bool {
	t.Helper()
	if !unknown {
		return string(want) == string(got)
	}
	return cmp.Equal(tree(t, asServed(t, string(want))), tree(t, asServed(t, string(got))))
}

// finish compares the end of a review that the codec got through.
func finish(t *testing.T, s *builtin.PatchSession, want oracle.Outcome, object, now []byte, unknown bool) string {
	t.Helper()
	patch, err := s.Diff(object, now)
	if err != nil {
		t.Error(err)
		return ""
	}
	if !want.Allowed {
		t.Errorf("Kubernetes refuses: %+v", want)
		return ""
	}
	got := object
	if patch != nil {
		got = apply(t, object, patch)
	}
	end := servedAs(t, got, kindIn(t, object))
	if cmp.Equal(tree(t, want.FinalObject), tree(t, end)) {
		return verdict(unknown)
	}
	// Read once more: in Kubernetes' memory an empty list is still told from an absent one, in the JSON of the next review
	// it is not.
	equalJSON(t, asServed(t, string(want.FinalObject)), end)
	return verdict(unknown)
}

func verdict(unknown bool) string {
	if unknown {
		return "kept"
	}
	return "admitted"
}

// patchOf is a random patch, which often fits.
func patchOf(t *testing.T, r *rand.Rand, object []byte) string {
	fitting := []string{
		`[]`, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"add","path":"/metadata/annotations","value":{}}]`,
		`[{"op":"add","path":"/metadata/labels","value":null}]`, `[{"op":"add","path":"/metadata/ownerReferences","value":[]}]`,
		`[{"op":"add","path":"/metadata/turbo","value":1}]`, `[{"op":"add","path":"/metadata/creationTimestamp","value":"2024-01-02T03:04:05+02:00"}]`,
	}
	if n := r.IntN(3 * len(fitting)); n < len(fitting) {
		return fitting[n]
	}
	if r.IntN(4) == 0 {
		return metadataPatch(r, object)
	}
	if r.IntN(8) > 0 {
		return gentle(r, tree(t, object))
	}
	return mutation(r, tree(t, object))
}

// metadataPatch is a random patch of single labels and annotations, which nearly always fits.
func metadataPatch(r *rand.Rand, object []byte) string {
	var o struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	_ = json.Unmarshal(object, &o) // a patch may have made anything of it
	name := []string{"labels", "annotations"}[r.IntN(2)]
	var held map[string]any
	_ = json.Unmarshal(o.Metadata[name], &held)
	if held == nil && r.IntN(8) > 0 {
		return fmt.Sprintf(`[{"op":"add","path":"/metadata/%s","value":{"a":"b","k/v":"","c":null}}]`, name)
	}
	var operations []string
	for range 1 + r.IntN(2) {
		key := append(slices.Sorted(maps.Keys(held)), "x")[r.IntN(len(held)+1)]
		path := fmt.Sprintf(`"path":"/metadata/%s/%s"`, name, strings.ReplaceAll(key, "/", "~1"))
		_, known := held[key]
		switch n := r.IntN(12); {
		case n == 0:
			operations = append(operations, `{"op":"test",`+path+`,"value":"b"}`)
		case n == 1:
			operations = append(operations, `{"op":"add",`+path+`,"value":1}`)
		case n < 4 && known:
			operations = append(operations, `{"op":"remove",`+path+`}`)
			delete(held, key)
		case n < 8 && known:
			operations = append(operations, `{"op":"replace",`+path+`,"value":"é"}`)
		default:
			operations = append(operations, `{"op":"add",`+path+`,"value":"`+[]string{"", "d", "<e>", "\\n"}[r.IntN(4)]+`"}`)
		}
	}
	return "[" + strings.Join(operations, ",") + "]"
}

const (
	service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"selector":{"a":"b"},"ports":[{"name":"http","port":80}]}}`
	role    = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`
)

// inVersionOf is the sample of a kind in any of its versions.
func inVersionOf(t *testing.T, kind string) []byte {
	t.Helper()
	for _, family := range families() {
		if slices.Contains(family, kind) {
			return convert(t, inVersion(t, at(t, family[0])), at(t, kind))
		}
	}
	t.Fatalf("no sample of %s", kind)
	return nil
}
