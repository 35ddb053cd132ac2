package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kyaml "sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

const (
	// maxPairs bounds the pairs of policies that are judged in both orders, of one case.
	maxPairs = 45
	// maxFields bounds the fields that a failure names, and maxValue the bytes of their values.
	maxFields = 5
	maxValue  = 200
)

// repeat applies the mutations of an allowed case to their own result, and in the opposite order. API servers apply them again when an object has changed
// after them, and the order is by name. A policy, and a pair of policies, is reported once in a run.
func (r *Runner) repeat(ctx context.Context, p *policies, ready *prepared, answer *review.Answer) (failures []string, err error) {
	changers := patched(answer)
	if len(changers) == 0 || !answer.Response.GetAllowed() {
		return nil, nil
	}
	if r.told == nil {
		r.told = map[string]bool{}
	}
	again, err := r.again(ctx, p, ready, answer.Object)
	if err != nil {
		return nil, err
	}
	order, err := r.order(ctx, p, ready, changers, answer)
	return append(again, order...), err
}

// patched are the configurations that changed the object, in the order in which they did it.
func patched(answer *review.Answer) (all []string) {
	for _, o := range answer.Outcomes {
		if o.GetOutcome() == "patched" && !slices.Contains(all, o.GetConfiguration()) {
			all = append(all, o.GetConfiguration())
		}
	}
	return all
}

// tell is a failure, once in a run.
func (r *Runner) tell(by []string, format string, args ...any) []string {
	key := format + strings.Join(by, "\n")
	if r.told[key] {
		return nil
	}
	r.told[key] = true
	return []string{fmt.Sprintf(format, args...)}
}

// again has the failures of mutations that change their own result.
func (r *Runner) again(ctx context.Context, p *policies, ready *prepared, object []byte) (failures []string, err error) {
	second := withObject(ready.request, object)
	if ready.again == nil {
		if ready.again, err = p.compile(slices.DeleteFunc(slices.Clone(ready.objects), isInitializers)); err != nil {
			return nil, err
		}
	}
	answer, err := ready.mutateBy(ctx, ready.again, second)
	if err != nil {
		return nil, err
	}
	by := patched(&answer)
	const refused, changed = "repetition: %s refuses its own result: %s", "repetition: %s changes its own result again (- first, + second time):\n%s"
	if !answer.Response.GetAllowed() {
		return r.tell(nil, refused, "a policy", answer.Response.GetStatus().GetMessage()), nil
	}
	difference, err := objectsDiffer(object, answer.Object)
	if difference == "" || err != nil {
		return nil, err
	}
	guilty := false
	for _, one := range by {
		alone, ok, err := p.only(ready.objects, one)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		answer, err := ready.mutateBy(ctx, alone, second)
		if err != nil {
			return nil, err
		}
		difference, err := objectsDiffer(object, answer.Object)
		if err != nil {
			return nil, err
		}
		if difference != "" {
			failures, guilty = append(failures, r.tell([]string{one}, changed, one, difference)...), true
		}
	}
	if !guilty {
		failures = r.tell(by, changed, strings.Join(by, ", "), difference)
	}
	return failures, nil
}

// order has the failures of pairs of policies whose result depends on their order. Both have changed the object, in either order.
func (r *Runner) order(
	ctx context.Context, p *policies, ready *prepared, changers []string, answer *review.Answer,
) (failures []string, err error) {
	if ready.backwards == nil {
		ready.backwards = ready.mesh.Backwards()
	}
	whole, others, err := ready.orders(ctx, ready.mesh, answer, ready.backwards)
	if len(whole) == 0 || err != nil {
		return nil, err
	}
	for _, other := range others {
		if !slices.Contains(changers, other) {
			changers = append(changers, other)
		}
	}
	const depends = "order: the result of %s depends on their order:\n%s"
	for _, pair := range pairsOf(changers) {
		both, ok, err := p.only(ready.objects, pair...)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		answer, err := ready.mutateBy(ctx, both, ready.request)
		if err != nil {
			return nil, err
		}
		fields, _, err := ready.orders(ctx, both, &answer, both.Backwards())
		if err != nil {
			return nil, err
		}
		if len(fields) > 0 {
			whole = nil
			failures = append(failures, r.tell(pair, depends, strings.Join(pair, " and "), inOrders(fields))...)
		}
	}
	if whole != nil {
		failures = r.tell(changers, depends, strings.Join(changers, ", "), inOrders(whole))
	}
	return failures, nil
}

// pairsOf are the first pairs of policies.
func pairsOf(names []string) (pairs [][]string) {
	for i, a := range names {
		for _, b := range names[i+1:] {
			if pairs = append(pairs, []string{a, b}); len(pairs) == maxPairs {
				return pairs
			}
		}
	}
	return pairs
}

// inOrders are the lines of fields that differ.
func inOrders(fields []fieldDifference) string {
	lines := make([]string, 0, len(fields))
	for _, f := range fields {
		lines = append(lines, fmt.Sprintf("%s: %s in the order of their names, %s in the opposite order", f.path, valueOf(f.a), valueOf(f.b)))
	}
	return strings.Join(lines, "\n")
}

// orders judges the case in the opposite order, and returns the fields that differ from the first answer, and the policies that changed the object.
func (p *prepared) orders(
	ctx context.Context, m *offline.Mesh, first *review.Answer, backwards *offline.Mesh,
) (fields []fieldDifference, changers []string, err error) {
	mutating := 0
	for _, h := range m.Hooks() {
		if h.ID.Stage == admissionv1.Stage_STAGE_MUTATE {
			mutating++
		}
	}
	if mutating < 2 {
		return nil, nil, nil
	}
	second, err := p.mutateBy(ctx, backwards, p.request)
	if err != nil {
		return nil, nil, err
	}
	var objects, refusals [2]any
	for i, answer := range []*review.Answer{first, &second} {
		if refusals[i] = (nothing{}); !answer.Response.GetAllowed() {
			refusals[i] = answer.Response.GetStatus().GetMessage()
			continue
		}
		if err := utiljson.Unmarshal(answer.Object, &objects[i]); err != nil {
			return nil, nil, err
		}
	}
	if objects[0] == nil || objects[1] == nil {
		return differing(refusals[0], refusals[1], "refused", nil), patched(&second), nil
	}
	return differing(objects[0], objects[1], "", nil), patched(&second), nil
}

// mutateBy is the answer of a mesh after the mutating policies.
func (p *prepared) mutateBy(ctx context.Context, m *offline.Mesh, request *admissionv1.AdmissionRequest) (review.Answer, error) {
	judge, err := m.With(p.facts)
	if err != nil {
		return review.Answer{}, err
	}
	defer judge.Close(ctx)
	return judge.Judge(ctx, &review.Request{Stage: admissionv1.Stage_STAGE_MUTATE, Admission: request, Explain: true})
}

// withObject is a request with another object.
func withObject(request *admissionv1.AdmissionRequest, object []byte) *admissionv1.AdmissionRequest {
	other := proto.CloneOf(request)
	other.Object.Raw = object
	return other
}

// only judges by the policies of these names alone among documents. It reports whether all are policies.
func (p *policies) only(objects []config.Object, names ...string) (*offline.Mesh, bool, error) {
	var kept []config.Object
	found := 0
	for i := range objects {
		o := &objects[i]
		bound := o.PolicyOf()
		switch {
		case o.IsPolicy() && slices.Contains(names, o.Key.String()):
			found++
		case bound != config.Key{} && slices.Contains(names, bound.String()), o.Cluster != nil, o.Params != nil:
		default:
			continue
		}
		kept = append(kept, *o)
	}
	if found < len(names) {
		return nil, false, nil
	}
	m, err := p.compile(kept)
	return m, err == nil, err
}

// objectsDiffer is the difference of two objects in JSON as YAML; empty if they are equal.
func objectsDiffer(before, after []byte) (string, error) {
	var texts [2]string
	for i, raw := range [][]byte{before, after} {
		text, err := kyaml.JSONToYAML(raw)
		if err != nil {
			return "", err
		}
		texts[i] = string(text)
	}
	return unified(texts[0], texts[1]), nil
}

// fieldDifference is a field of two objects. A value that is absent is nothing.
type fieldDifference struct {
	path string
	a, b any
}

// nothing is the value of a field that is not there.
type nothing struct{}

// differing appends the first fields in which two values differ.
func differing(a, b any, path string, all []fieldDifference) []fieldDifference {
	if len(all) == maxFields {
		return all
	}
	fields, isObject := a.(map[string]any)
	others, areObjects := b.(map[string]any)
	if isObject && areObjects {
		keys := maps.Clone(fields)
		maps.Copy(keys, others)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			all = differing(valueAt(fields, key), valueAt(others, key), below(path, key), all)
		}
		return all
	}
	items, isList := a.([]any)
	otherItems, areLists := b.([]any)
	if isList && areLists {
		for i := range max(len(items), len(otherItems)) {
			all = differing(itemAt(items, i), itemAt(otherItems, i), fmt.Sprintf("%s[%d]", path, i), all)
		}
		return all
	}
	if !reflect.DeepEqual(a, b) {
		all = append(all, fieldDifference{path, a, b})
	}
	return all
}

func valueAt(fields map[string]any, key string) any {
	if value, ok := fields[key]; ok {
		return value
	}
	return nothing{}
}

func itemAt(items []any, i int) any {
	if i < len(items) {
		return items[i]
	}
	return nothing{}
}

// below is the path of a field, as cases write it.
func below(path, name string) string {
	switch {
	case strings.ContainsAny(name, ".[]"):
		return fmt.Sprintf("%s[%q]", path, name)
	case path == "":
		return name
	}
	return path + "." + name
}

// valueOf is a value for people.
func valueOf(value any) string {
	if _, ok := value.(nothing); ok {
		return "nothing"
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err.Error()
	}
	raw := bytes.TrimSpace(text.Bytes())
	if len(raw) > maxValue {
		return strings.ToValidUTF8(string(raw[:maxValue]), "") + "..."
	}
	return string(raw)
}
