package policies

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// The names that expressions of a mutation have beside the names of the library.
const (
	// nameCurrent is the present value of the field, or null.
	nameCurrent = "current"
	// nameItem is the item of the list that the field leads through last, and nameIndex is its place. Lists before it have item1 and index1, and so on.
	nameItem, nameIndex = "item", "index"
)

// MaxCurrent bounds how often the expressions of a mutation name the present value of the field. An expansion has the way to it, up to 3 KB, each time.
const MaxCurrent = 16

// mutationNames are these names, for a field that leads through some lists.
func mutationNames(lists int) []string {
	names := []string{nameCurrent}
	if lists > 0 {
		names = append(names, nameItem, nameIndex)
	}
	for i := 1; i < lists; i++ {
		names = append(names, fmt.Sprint(nameItem, i), fmt.Sprint(nameIndex, i))
	}
	return names
}

// compileMutations expands each mutation into an expression for a JSON patch.
func (p *Policy) compileMutations(c *Compiler, x *expressions) {
	path := field.NewPath("spec", "mutations")
	for i := range p.document.Spec.Mutations {
		m, at := &p.document.Spec.Mutations[i], path.Index(i)
		steps, _ := kinds.ParsePolicyField(m.Field) // Validate has checked it
		if steps[0] == kinds.AllContainers {
			x.checkPod(nameContainers, at.Child("field"))
			x.used[namePod] = true
		} else if p.document.Spec.PodControllers {
			x.used[namePod] = true
		}
		lists := 0
		for _, step := range steps {
			if step == kinds.EachItem {
				lists++
			}
		}
		scope := c.mutations[lists]
		s := setter{lists: lists, overwrite: m.Overwrite, value: x.parse(scope, m.Value, nil, at.Child("value"))}
		if m.When != "" {
			when := x.parse(scope, m.When, cel.BoolType, at.Child("when"))
			s.when = &when
		}
		if n := s.readsCurrent(); n > MaxCurrent {
			x.errs = append(x.errs, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("names current %d times, and may at most %d times", n, MaxCurrent)))
			continue
		}
		patch := admissionregistrationv1.JSONPatch{Expression: p.set(&s, steps)}
		if size := len(patch.Expression); size > MaxExpansion {
			x.errs = append(x.errs, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("expands to %d bytes, and at most %d are read", size, MaxExpansion)))
		}
		p.mutations = append(p.mutations, admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &patch})
	}
}

// fieldsOf are the fields that a mutation sets, as steps. ofPod: they are fields of the Pod, and else of the object.
func (p *Policy) fieldsOf(steps []string) (all [][]string, ofPod bool) {
	if steps[0] != kinds.AllContainers {
		return [][]string{steps}, p.document.Spec.PodControllers
	}
	for _, name := range []string{"containers", "initContainers"} {
		all = append(all, append([]string{"spec", name}, steps[1:]...))
	}
	return all, true
}

// set is the expression for the patch of a mutation.
func (p *Policy) set(s *setter, steps []string) string {
	fields, ofPod := p.fieldsOf(steps)
	from := place{of: subject(&p.document.Spec)}
	if ofPod {
		from.of = variableOf(namePod)
		p.podPaths = len(p.resources) > 1
		if p.podPaths {
			from.prefix = variableOf(namePodPath) + " + "
		} else {
			path, _ := p.resources[0].PodTemplate()
			from.pointer = pointerOf(strings.FieldsFunc(path, isDot))
		}
	}
	s.unchangeable = p.unchangeable(fields[0], ofPod)
	var all []string
	for _, steps := range fields {
		all = append(all, s.set(from, steps))
	}
	return strings.Join(all, " + ")
}

func isDot(r rune) bool { return r == '.' }

// unchangeable are the kinds in which no update may change a field: the spec of a Pod, and the Pod template of a Job
// (ValidatePodUpdate and ValidateJobSpecUpdate of k8s.io/kubernetes).
func (p *Policy) unchangeable(steps []string, ofPod bool) (all []string) {
	if !slices.Contains(p.document.Spec.EffectiveOperations(), admissionregistrationv1.Update) {
		return nil
	}
	for _, r := range p.resources {
		full := steps
		if path, _ := r.PodTemplate(); ofPod && path != "" {
			full = append(strings.FieldsFunc(path, isDot), steps...)
		}
		switch {
		case r.Group == "" && r.Resource == "pods" && full[0] == "spec":
			all = append(all, "Pod")
		case r.Group == "batch" && r.Resource == "jobs" && full[0] == "spec" && (len(full) < 2 || full[1] == "template"):
			all = append(all, "Job")
		}
	}
	return all
}

// setter writes the operations of a JSON patch that set a field.
type setter struct {
	value        expression
	when         *expression // nil for always
	overwrite    bool
	lists        int // that the field leads through
	unchangeable []string
}

// readsCurrent is how often the expressions name nameCurrent.
func (s *setter) readsCurrent() (n int) {
	for _, e := range []*expression{&s.value, s.when} {
		if e == nil {
			continue
		}
		for _, u := range e.uses {
			if u.name == nameCurrent {
				n++
			}
		}
	}
	return n
}

// place is a value in the object.
type place struct {
	of      string // CEL for the value
	prefix  string // CEL that the pointer is added to; empty without any
	pointer string // RFC 6901
	depth   int    // lists on the way
}

// set is CEL for the operations that set a field of the value at a place.
func (s *setter) set(from place, steps []string) string {
	names, rest := steps, []string(nil)
	if i := slices.Index(steps, kinds.EachItem); i >= 0 {
		names, rest = steps[:i], steps[i+1:]
	}
	value := from.of
	for _, name := range names {
		value += selector(name)
	}
	there := present(from.of, names)
	if rest == nil {
		return s.leaf(from, names, fmt.Sprintf("(%s ? %s : null)", there, value))
	}
	item, index := nameItem, nameIndex
	if from.depth++; from.depth < s.lists {
		item, index = fmt.Sprint(nameItem, from.depth), fmt.Sprint(nameIndex, from.depth)
	}
	each := place{
		of: item, prefix: from.prefix + strconv.Quote(from.pointer+pointerOf(names)+"/") + " + string(" + index + ") + ", depth: from.depth,
	}
	return fmt.Sprintf("(%s ? %s.transformList(%s, %s, %s).flatten() : [])", there, value, index, item, s.set(each, rest))
}

// leaf is CEL for the operations that set the field names of the value at a place, with the objects around it that are not there.
func (s *setter) leaf(from place, names []string, current string) string {
	var conditions []string
	if len(s.unchangeable) > 0 {
		conditions = append(conditions, fmt.Sprintf("!(request.operation == 'UPDATE' && object.kind in %s)", literal(s.unchangeable)))
	}
	if !s.overwrite {
		conditions = append(conditions, current+" == null")
	}
	replaced := map[string]string{nameCurrent: current}
	if s.when != nil {
		conditions = append(conditions, "("+s.when.qualified(replaced)+"\n)") // the line ends a comment
	}
	add := func(names []string, value string) string {
		return fmt.Sprintf(`JSONPatch{op: "add", path: %s%s, value: %s}`, from.prefix, strconv.Quote(from.pointer+pointerOf(names)), value)
	}
	var operations []string
	for i := 1; i < len(names); i++ {
		operations = append(operations, fmt.Sprintf("(%s ? [] : [%s])", present(from.of, names[:i]), add(names[:i], "{}")))
	}
	operations = append(operations, fmt.Sprintf("[%s]", add(names, "("+s.value.qualified(replaced)+"\n)")))
	all := strings.Join(operations, " +\n  ")
	if len(conditions) == 0 {
		return "(" + all + ")"
	}
	return fmt.Sprintf("(%s\n? %s\n: [])", strings.Join(conditions, " && "), all)
}

// present is CEL for whether a value has a field that is not null, with all objects around it.
func present(of string, names []string) string {
	var all []string
	for _, name := range names {
		optional := ".?" + name
		if key := selector(name); key[0] == '[' {
			optional = "[?" + key[1:]
		}
		all = append(all, fmt.Sprintf("%s%s.orValue(null) != null", of, optional))
		of += selector(name)
	}
	if len(all) == 1 {
		return all[0]
	}
	return "(" + strings.Join(all, " && ") + ")"
}

// identifier is a name that CEL reads after a dot, besides its keywords.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// selector selects a field in CEL.
func selector(name string) string {
	if !identifier.MatchString(name) || slices.Contains([]string{"true", "false", "null", "in"}, name) {
		return "[" + strconv.Quote(name) + "]"
	}
	return "." + name
}

// pointerOf is the JSON pointer of names (RFC 6901).
func pointerOf(names []string) string {
	var text strings.Builder
	for _, name := range names {
		text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return text.String()
}
