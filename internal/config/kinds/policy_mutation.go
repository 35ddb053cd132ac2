package kinds

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxPolicyMutations bounds PolicySpec.Mutations.
	MaxPolicyMutations = 16
	// MaxPolicyFieldSteps bounds the steps of PolicyMutation.Field.
	MaxPolicyFieldSteps = 12
	// MaxPolicyFieldLists bounds the steps of PolicyMutation.Field that are EachItem.
	MaxPolicyFieldLists = 3
	// EachItem is the step of a field that leads to each item of a list.
	EachItem = "[*]"
	// AllContainers is the first step of a field that leads to the containers and the initContainers of a Pod.
	AllContainers = "allContainers"
)

// PolicyMutation sets a field of the object.
type PolicyMutation struct {
	// Field is the field that is set: names with dots between them. [*] follows a list and leads to each of its items, and ['KEY'] is a key with other
	// characters than letters, digits and _, as in metadata.labels['example.com/team']. With podControllers it is a field of the Pod. It may begin with
	// allContainers[*]: the containers and initContainers of the Pod.
	Field string `json:"field"`
	// Value is CEL for the value. Beside the names that validations have, current is the present value, or null; after [*] in the field, item is the item of
	// the list and index its place.
	Value string `json:"value"`
	// When is CEL that is true if the field is to be set. It has the names of Value. Empty means always.
	When string `json:"when,omitempty"`
	// Overwrite sets a field that has a value already. Without it such a field stays as it is. A policy with a mutation that overwrites is invoked once: its
	// mutations do not see the changes of others after it.
	Overwrite bool `json:"overwrite,omitempty"`
}

// ParsePolicyField returns the steps of PolicyMutation.Field: names, keys, and EachItem.
func ParsePolicyField(text string) (steps []string, err error) {
	rest := text
	for rest != "" {
		var step string
		switch key, isKey := strings.CutPrefix(rest, "["); {
		case strings.HasPrefix(rest, EachItem) && len(steps) > 0 && steps[len(steps)-1] != EachItem:
			step, rest = EachItem, rest[len(EachItem):]
		case isKey && len(steps) > 0:
			if step, rest, err = cutKey(key); err != nil {
				return nil, err
			}
		default:
			name := rest
			if len(steps) > 0 {
				if name, isKey = strings.CutPrefix(rest, "."); !isKey {
					return nil, fmt.Errorf("at %q: write a dot between two names", rest)
				}
			}
			end := strings.IndexFunc(name, func(r rune) bool { return !isNameRune(r) })
			if end < 0 {
				end = len(name)
			}
			if step, rest = name[:end], name[end:]; step == "" {
				return nil, fmt.Errorf("at %q: write a name, [*] for each item of a list, or ['KEY']", name)
			}
		}
		if steps = append(steps, step); len(steps) > MaxPolicyFieldSteps {
			return nil, fmt.Errorf("has more than %d steps", MaxPolicyFieldSteps)
		}
	}
	return steps, checkSteps(steps)
}

func isNameRune(r rune) bool {
	return r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// cutKey reads a key after its bracket: 'KEY'] or "KEY"].
func cutKey(text string) (key, rest string, err error) {
	for _, quote := range []string{"'", `"`} {
		if key, quoted := strings.CutPrefix(text, quote); quoted {
			if key, rest, ok := strings.Cut(key, quote+"]"); ok && key != "" && !strings.ContainsAny(key, "'\"\\\r\n") {
				return key, rest, nil
			}
		}
	}
	return "", "", fmt.Errorf("at %q: write a key in quotes, as in ['example.com/team'], or [*] for each item of a list", "["+text)
}

// checkSteps refuses fields that a policy cannot set.
func checkSteps(steps []string) error {
	lists := 0
	for i, step := range steps {
		if step == EachItem {
			lists++
		}
		if step == AllContainers && i == 0 && (len(steps) < 2 || steps[1] != EachItem) {
			return errors.New("write allContainers[*] for each container")
		}
	}
	switch first := steps[0]; {
	case steps[len(steps)-1] == EachItem:
		return errors.New("names all items of a list: name a field of them, or set the list itself")
	case lists > MaxPolicyFieldLists:
		return fmt.Errorf("leads through more than %d lists", MaxPolicyFieldLists)
	case first == "apiVersion" || first == "kind" || first == "status":
		return fmt.Errorf("%s is not set by a policy", first)
	case first == "metadata" && (len(steps) < 2 || !slices.Contains([]string{"labels", "annotations", "finalizers", "ownerReferences"}, steps[1])):
		return errors.New("of metadata a policy sets labels, annotations, finalizers and ownerReferences")
	}
	return nil
}

func (s *PolicySpec) validateMutations(spec *field.Path) (errs field.ErrorList) {
	path := spec.Child("mutations")
	if len(s.Validations) > 0 {
		return field.ErrorList{field.Forbidden(path, "a Policy has validations or mutations: write the mutations into another Policy")}
	}
	if len(s.Mutations) > MaxPolicyMutations {
		return field.ErrorList{field.TooMany(path, len(s.Mutations), MaxPolicyMutations)}
	}
	for i := range s.Mutations {
		errs = append(errs, s.Mutations[i].validate(path.Index(i))...)
	}
	for i, operation := range s.Operations {
		if operation == admissionregistrationv1.Delete || operation == admissionregistrationv1.Connect {
			errs = append(errs, field.Forbidden(spec.Child("operations").Index(i), fmt.Sprintf("%s has no object that mutations could change", operation)))
		}
	}
	for i, text := range s.Resources {
		if r, err := ParsePolicyResource(text); err == nil && r.Subresource != "" {
			errs = append(errs, field.Forbidden(spec.Child("resources").Index(i), "mutations are of objects: name the resource without its subresource"))
		}
	}
	return errs
}

func (m *PolicyMutation) validate(path *field.Path) field.ErrorList {
	errs := validateTexts(path, []policyText{
		{"field", m.Field, "the field to set, for example metadata.labels.team", MaxPolicyField, false},
		{"value", m.Value, `CEL for the value, for example "'web'"`, MaxPolicyExpression, true},
		{"when", m.When, "", MaxPolicyExpression, true},
	})
	if len(errs) > 0 {
		return errs
	}
	if _, err := ParsePolicyField(m.Field); err != nil {
		errs = append(errs, field.Invalid(path.Child("field"), m.Field, err.Error()))
	}
	return errs
}
