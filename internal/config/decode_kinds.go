package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// readKinds is where the kinds are that are read, for messages.
const readKinds = "docs/configuration-reference.md has the kinds that are read"

// read reads a document of a kind of portcullis.dev/v1.
func (d *document) read(h head) {
	if d.count++; d.count > MaxDocuments {
		if d.count == MaxDocuments+1 {
			d.report(Problem{Code: CodeLimit, Message: fmt.Sprintf("the file has more than %d documents: split it", MaxDocuments)})
		}
		return
	}
	if d.fromServer {
		d.dropServerFields(h)
	}
	o := Object{Key: d.key, APIVersion: h.APIVersion, File: d.file, Line: d.lineOf(strings.TrimSuffix(d.prefix, ".")), Manifest: d.json}
	var ok bool
	switch as := h.asKubernetes(); as.APIVersion + " " + as.Kind {
	case admissionregistrationV1 + " " + validatingKind:
		o.Validating, ok = readAs(d, readV1[admissionregistrationv1.ValidatingWebhookConfiguration](d.validator))
	case admissionregistrationV1 + " " + mutatingKind:
		o.Mutating, ok = readAs(d, readV1[admissionregistrationv1.MutatingWebhookConfiguration](d.validator))
	case admissionregistrationV1beta1 + " " + validatingKind:
		o.Validating, ok = readAs(d, readV1beta1[admissionregistrationv1.ValidatingWebhookConfiguration](d.validator))
	case admissionregistrationV1beta1 + " " + mutatingKind:
		o.Mutating, ok = readAs(d, readV1beta1[admissionregistrationv1.MutatingWebhookConfiguration](d.validator))
	case admissionregistrationV1alpha1 + " " + externalHooksKind:
		o.Validating, ok = readThrough(d, readExternalHooks)
	case admissionregistrationV1alpha1 + " " + kinds.InitializersKind, kinds.APIVersion + " " + kinds.InitializersKind:
		o.Mutating, ok = readThrough(d, readInitializers)
	case kinds.APIVersion + " " + kinds.HookRouteKind:
		o.Route, ok = readAs(d, (*kinds.HookRoute).Validate)
	case kinds.APIVersion + " " + kinds.ClusterKind:
		o.Cluster, ok = readAs(d, (*kinds.Cluster).Validate)
	case kinds.APIVersion + " " + kinds.RoleKind:
		o.Role, ok = readAs(d, (*kinds.Role).Validate)
	case kinds.APIVersion + " " + kinds.PolicyKind:
		o.Short, ok = d.readShort()
	case kinds.APIVersion + " " + kinds.PolicyParamsKind:
		o.Params, ok = d.readParams(&o)
	default:
		ok = d.readPolicyKind(as, &o)
	}
	if d.unstaged && o.Initializes() {
		d.fault(CodeNoStore, "kind", "objects are staged for initializers in etcd, and this dispatcher has none: "+
			"start it with --data-dir or --etcd, or remove the document")
		return
	}
	d.warnClosed(&o)
	if !d.conditions(&o) || !ok {
		return
	}
	if err := o.seal(); err != nil {
		d.fault(CodeInternal, "", err.Error())
		return
	}
	if !o.IsPolicy() {
		o.hookLines = d.hookLines(&o)
	}
	if o.Route != nil || o.IsPolicy() || o.binds() != "" {
		o.specLines = d.fieldLines(d.prefix + "spec")
	}
	d.objects = append(d.objects, o)
}

// readPolicyKind reads a policy or a binding of Kubernetes, whose versions have the same fields. A document of another kind is a fault.
func (d *document) readPolicyKind(h head, o *Object) (ok bool) {
	kind := h.Kind
	switch h.APIVersion {
	case admissionregistrationV1, admissionregistrationV1beta1, admissionregistrationV1alpha1:
	default:
		kind = ""
	}
	switch kind {
	case validatingPolicyKind:
		if d.kind == kinds.ValidatingHookPolicyKind {
			o.Policy, ok = readThrough(d, readHookPolicy)
			break
		}
		o.Policy, ok = readAs(d, readPolicy)
	case validatingBindingKind:
		o.Binding, ok = readThrough(d, readBinding(kind,
			func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.MatchResources {
				return b.Spec.MatchResources
			}))
	case mutatingPolicyKind:
		o.MutatingPolicy, ok = readAs(d, readMutatingPolicy)
	case mutatingBindingKind:
		o.MutatingBinding, ok = readThrough(d, readBinding(kind,
			func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) *admissionregistrationv1.MatchResources {
				return b.Spec.MatchResources
			}))
	default:
		d.fault(CodeKind, "apiVersion", unread(h))
	}
	return ok
}

// hookLines are the lines of the webhooks of an object, or of its params.
func (d *document) hookLines(o *Object) []int {
	lines, list := make([]int, max(len(o.Webhooks()), len(o.params.objects))), o.hooksField()
	if o.Params != nil {
		list = "spec.objects"
	}
	for i := range lines {
		lines[i] = d.lineOf(fmt.Sprintf("%s%s[%d]", d.prefix, list, i))
	}
	return lines
}

// readAs reads the document as a T; complete sets defaults and returns the errors.
func readAs[T any](d *document, complete func(*T) field.ErrorList) (*T, bool) {
	return readThrough(d, func(into *T, _ Validator) (*T, field.ErrorList) { return into, complete(into) })
}

// readThrough reads the document as a T and returns the result of complete, if complete finds no error.
func readThrough[T, U any](d *document, complete func(*T, Validator) (*U, field.ErrorList)) (*U, bool) {
	into := new(T)
	if !d.decode(into) {
		return nil, false
	}
	completed, errs := complete(into, d.validator)
	for _, err := range errs {
		d.invalid(err)
	}
	return completed, len(errs) == 0
}

// asKubernetes is the head of the same document with the name that Kubernetes has for its kind.
func (h head) asKubernetes() head {
	if h.APIVersion != kinds.APIVersion {
		return h
	}
	for _, r := range kinds.Resources() {
		if h.Kind == r.Kind && r.Kubernetes != "" {
			h.APIVersion, h.Kind = admissionregistrationV1, r.Kubernetes
			break
		}
	}
	return h
}

// keyOf is the object that the document is. An ExternalAdmissionHookConfiguration is the ValidatingWebhookConfiguration of
// its name: no API server had both kinds, hooks and routes name them alike, and who rewrites one as the other has one
// object all the time. The same goes for the kinds of our group that Kubernetes has under other names.
func keyOf(h head) Key {
	h = h.asKubernetes()
	if h.APIVersion == admissionregistrationV1alpha1 && h.Kind == externalHooksKind {
		h.Kind = validatingKind
	}
	return Key{Kind: h.Kind, Name: h.Metadata.Name}
}

// KeyOfKind is the object that a document of a version and kind is.
func KeyOfKind(apiVersion, kind, name string) Key {
	h := head{APIVersion: apiVersion, Kind: kind}
	h.Metadata.Name = name
	return keyOf(h)
}

// listSuffix ends the kinds of lists of one kind, in which API servers answer.
const listSuffix = "List"

// isList reports whether the document holds others: a List of v1, or a list of webhook configurations.
func (h head) isList() bool {
	return h.APIVersion == "v1" && h.Kind == "List" || h.item().Kind != ""
}

// item is the head of list items that have none of their own; empty if each needs one.
func (h head) item() head {
	kind, _ := strings.CutSuffix(h.Kind, listSuffix)
	switch h.APIVersion + " " + kind {
	case admissionregistrationV1 + " " + validatingKind, admissionregistrationV1 + " " + mutatingKind,
		admissionregistrationV1beta1 + " " + validatingKind, admissionregistrationV1beta1 + " " + mutatingKind,
		admissionregistrationV1alpha1 + " " + externalHooksKind, admissionregistrationV1alpha1 + " " + kinds.InitializersKind,
		admissionregistrationV1 + " " + validatingPolicyKind, admissionregistrationV1 + " " + validatingBindingKind,
		admissionregistrationV1 + " " + mutatingPolicyKind, admissionregistrationV1 + " " + mutatingBindingKind:
		if kind != h.Kind {
			return head{APIVersion: h.APIVersion, Kind: kind}
		}
	}
	return head{}
}

// unread says why a kind is not read.
func unread(h head) string {
	if said := foreign(h); said != "" {
		return said
	}
	text := h.Kind + " of " + h.APIVersion + " is not read"
	if meant := suggestKind(h); meant != "" {
		return text + meant
	}
	switch group, _, _ := strings.Cut(h.APIVersion, "/"); group {
	case kinds.Group, admissionregistrationv1.GroupName:
		return text + ": " + readKinds
	}
	return text + ": it is a manifest, and no policy or other configuration: `portcullis review -f PATH` judges manifests"
}

// suggestKind ends the error of an unknown kind: it names a kind with a similar name, or the version in which the kind is read.
func suggestKind(h head) string {
	if r := kinds.ResourceOf(h.Kind); r.Kubernetes != "" && h.APIVersion == kinds.APIVersion {
		return "; did you mean " + strconv.Quote(r.Kind) + "?"
	}
	var ours []string
	for _, r := range kinds.Resources() {
		ours = append(ours, r.Kind)
	}
	webhooks := []string{validatingKind, mutatingKind, validatingPolicyKind, validatingBindingKind, mutatingPolicyKind, mutatingBindingKind}
	for _, version := range []struct {
		name  string
		kinds []string
	}{{kinds.APIVersion, ours}, {admissionregistrationV1, webhooks}, {admissionregistrationV1alpha1, []string{externalHooksKind}}} {
		if slices.Contains(version.kinds, h.Kind) { // but a Role of another group is a Role of RBAC
			group, _, _ := strings.Cut(version.name, "/")
			if !strings.HasPrefix(h.APIVersion, group+"/") && len(suggest.Nearest(h.APIVersion, []string{version.name})) == 0 {
				return ""
			}
			return "; did you mean " + strconv.Quote(h.Kind+" of "+version.name) + "?"
		}
	}
	return suggest.DidYouMean(h.Kind, append(append(ours, webhooks...), externalHooksKind))
}

// warnClosed warns about hooks that fail closed and may not begin so: Kubernetes 1.7 let none (spec of its dynamic
// configuration), and a file cannot tell whether it is a beginning. It does nothing when o could not be read.
func (d *document) warnClosed(o *Object) {
	for _, path := range o.ClosedAtFirst() {
		d.say(match.SeverityWarning, CodeFailClosed, path,
			"the hook fails closed, which Kubernetes 1.7 refused: begin with Ignore, and close it when it is known to work")
	}
}
