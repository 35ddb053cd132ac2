package lint

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// paramKinds are the params in the configuration, by kind.
type paramKinds map[schema.GroupVersionKind]*paramNames

// paramNames are the params of one kind, by namespace and name, and by name alone.
type paramNames struct {
	all   map[types.NamespacedName]bool
	about bool // a document with them is looked at
}

// paramFindings finds PolicyParams that no policy reads, and bindings that refuse each request since the configuration lacks their param.
func paramFindings(objects []config.Object, only func(config.Key) bool) []match.Finding {
	readers, known := map[config.Key]schema.GroupVersionKind{}, paramKinds{}
	var read []schema.GroupVersionKind // in the order of objects, so that messages stay
	for i := range objects {
		o := &objects[i]
		if o.IsPolicy() {
			readers[o.Key] = o.ParamKind()
			read = append(read, o.ParamKind())
		}
		for _, param := range o.ParamObjects() {
			kind := param.GroupVersionKind()
			if known[kind] == nil {
				known[kind] = &paramNames{all: map[types.NamespacedName]bool{}}
			}
			known[kind].about = known[kind].about || only(o.Key)
			known[kind].all[types.NamespacedName{Namespace: param.GetNamespace(), Name: param.GetName()}] = true
			known[kind].all[types.NamespacedName{Name: param.GetName()}] = true
		}
	}
	var findings []match.Finding
	for i := range objects {
		if o := &objects[i]; only(o.Key) {
			findings = append(findings, unreadParams(o, read)...)
		}
		findings = append(findings, missingParam(&objects[i], readers, known, only)...)
	}
	return findings
}

// unreadParams finds the first object of each kind in a document that is the kind of the params of no policy.
func unreadParams(o *config.Object, read []schema.GroupVersionKind) (findings []match.Finding) {
	seen := map[schema.GroupVersionKind]bool{}
	for i, param := range o.ParamObjects() {
		kind := param.GroupVersionKind()
		if seen[kind] || slices.Contains(read, kind) {
			continue
		}
		seen[kind] = true
		remedy := "mend the apiVersion or the kind, or remove the objects"
		if at := slices.IndexFunc(read, func(other schema.GroupVersionKind) bool { return other.GroupKind() == kind.GroupKind() }); at >= 0 {
			remedy = fmt.Sprintf("a policy has params of %s, and no version stands for another: write the objects so", read[at].GroupVersion())
		}
		finding := warning(CodeParamsUnused, fmt.Sprintf("%s spec.objects[%d]", o.Key, i),
			"no policy has params of kind %s of %s: %s", kind.Kind, kind.GroupVersion(), remedy)
		finding.Severity = match.SeverityInfo
		findings = append(findings, finding)
	}
	return findings
}

// missingParam finds that a binding names a param which the configuration lacks, though it has others of the kind, and that the binding denies then.
func missingParam(
	o *config.Object, readers map[config.Key]schema.GroupVersionKind, known paramKinds, only func(config.Key) bool,
) []match.Finding {
	var ref *admissionregistrationv1.ParamRef
	switch {
	case o.Binding != nil:
		ref = o.Binding.Spec.ParamRef
	case o.MutatingBinding != nil:
		ref = o.MutatingBinding.Spec.ParamRef
	}
	kind := readers[o.PolicyOf()]
	of := known[kind]
	if ref == nil || ref.Name == "" || of == nil || !only(o.Key) && !of.about || of.all[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] {
		return nil
	}
	if action := ref.ParameterNotFoundAction; action == nil || *action != admissionregistrationv1.DenyAction {
		return nil
	}
	return []match.Finding{warning(CodeParamsMissing, o.Key.String()+" spec.paramRef",
		"no PolicyParams have the %s %q, and they have others of its kind: where those count, the binding refuses each request that it meets; "+
			"add the object, or mend the name", kind.Kind, ref.Name)}
}
