package match

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// requestVariable is the variable request of expressions.
type requestVariable struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	value    map[string]any
	longest  conversion.Longest
}

// RequestVariable is the variable request of expressions, with a resource and the kind of the objects. longest bounds its values. All hooks and policies of
// a review share the value, which must not be changed.
func (a *Attributes) RequestVariable(
	resource schema.GroupVersionResource, kind schema.GroupVersionKind,
) (value map[string]any, longest conversion.Longest, err error) {
	attributes, err := a.record.get(a.request)
	if err != nil {
		return nil, longest, err
	}
	r := &a.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.requests {
		if known := &r.requests[i]; known.resource == resource && known.kind == kind {
			return known.value, known.longest, nil
		}
	}
	if r.user == nil {
		r.user = userVariable(attributes)
	}
	value = newRequestVariable(attributes, resource, kind, r.user)
	longest = conversion.LongestOf(value)
	r.requests = append(r.requests, requestVariable{resource, kind, value, longest})
	return value, longest, nil
}

// newRequestVariable is the content of CreateAdmissionRequest of k8s.io/apiserver's plugin/cel, without reflection: it is there for speed.
func newRequestVariable(
	a admission.Attributes, resource schema.GroupVersionResource, kind schema.GroupVersionKind, user map[string]any,
) map[string]any {
	value := map[string]any{
		"uid": "", "object": nil, "oldObject": nil, "operation": string(a.GetOperation()), "dryRun": a.IsDryRun(), "options": Content(a.GetOperationOptions()),
		"kind": kindVariable(kind), "requestKind": kindVariable(a.GetKind()),
		"resource": resourceVariable(resource), "requestResource": resourceVariable(a.GetResource()),
		"userInfo": user,
	}
	setText(value, "subResource", a.GetSubresource())
	setText(value, "requestSubResource", a.GetSubresource())
	setText(value, "name", a.GetName())
	setText(value, "namespace", a.GetNamespace())
	return value
}

func kindVariable(k schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

func resourceVariable(r schema.GroupVersionResource) map[string]any {
	return map[string]any{"group": r.Group, "version": r.Version, "resource": r.Resource}
}

func userVariable(a admission.Attributes) map[string]any {
	user, value := a.GetUserInfo(), map[string]any{}
	setText(value, "username", user.GetName())
	setText(value, "uid", user.GetUID())
	if groups := user.GetGroups(); len(groups) > 0 {
		value["groups"] = textsVariable(groups)
	}
	if all := user.GetExtra(); len(all) > 0 {
		extra := make(map[string]any, len(all))
		for key, values := range all {
			extra[key] = textsVariable(values)
		}
		value["extra"] = extra
	}
	return value
}

// userItem is the memory of a group of the user, or of a key or value of its extra, in expressions, in bytes.
const userItem = 128

// userExtent is the memory of a user in expressions, in bytes.
func userExtent(u *admissionv1.UserInfo) int64 {
	items := len(u.GetGroups()) + len(u.GetExtra())
	for _, values := range u.GetExtra() {
		items += len(values.GetItems())
	}
	return userItem * int64(items)
}

// textsVariable is null for nil.
func textsVariable(texts []string) any {
	if texts == nil {
		return nil
	}
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}

// setText sets a field that is left out where the text is empty.
func setText(value map[string]any, field, text string) {
	if text != "" {
		value[field] = text
	}
}
