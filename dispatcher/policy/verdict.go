package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// AuditFailure is the key of the audit annotation with the failed validations of bindings that have the action Audit: a JSON list of [FailedValidation].
const AuditFailure = "validation_failure"

// FailedValidation is an item of that list, as kube-apiserver writes it (ValidationFailureValue of its validating plugin).
type FailedValidation struct {
	// Message is the message of the validation.
	Message string `json:"message"`
	// Policy and Binding are the names of the documents.
	Policy  string `json:"policy"`
	Binding string `json:"binding"`
	// ExpressionIndex is the index of the validation in the policy.
	ExpressionIndex int `json:"expressionIndex"`
	// ValidationActions are the actions of the binding.
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// maxAuditValue is the most bytes of an audit annotation of a policy (maxAuditAnnotationValueLength of kube-apiserver's dispatcher).
const maxAuditValue = 10 << 10

// maxStated is the most denials, warnings and audited failures, each, of a policy in one answer: an author chooses how many validations and bindings
// there are. An answer has room for fewer (package chain).
const maxStated = 64

// verdict collects the decisions of a policy about one request.
type verdict struct {
	policy   *admissionregistrationv1.ValidatingAdmissionPolicy
	short    bool                 // messages name the Policy that the policy and its binding stand for
	ignores  bool                 // failures do not refuse the request
	plain    *decisions           // without a param
	judged   map[param]*decisions // by param
	reach    reach
	denials  []denial
	denying  []bool // by validation: whether it is false and denies; empty if all denials are failures
	failure  error  // the first that may not refuse the request
	warnings []string
	audited  []FailedValidation
	values   map[string][]string // of audit annotations
}

// decisionsFor are the decisions for a param, which may be nil; nil before it is judged.
func (r *verdict) decisionsFor(p param) *decisions {
	if p == nil {
		return r.plain
	}
	return r.judged[p]
}

// keep keeps the decisions for a param.
func (r *verdict) keep(p param, d *decisions) {
	switch {
	case p == nil:
		r.plain = d
	case r.judged == nil:
		r.judged = map[param]*decisions{p: d}
	default:
		r.judged[p] = d
	}
}

// denial is one reason to refuse the request.
type denial struct {
	binding string // empty if the policy itself is at fault
	message string
	reason  metav1.StatusReason
}

// misconfigured counts a failure before any expression could be evaluated. It is no matter of validationActions.
func (r *verdict) misconfigured(document string, b *binding, err error) {
	r.reach = decided
	err = fmt.Errorf("failed to configure %s: %w", document, err)
	if r.ignores {
		r.failure = cmp.Or(r.failure, err)
		return
	}
	r.deny(b, err.Error(), "")
}

// deny adds a denial unless another binding has led to the same.
func (r *verdict) deny(b *binding, message string, reason metav1.StatusReason) {
	if len(r.denials) == maxStated || slices.ContainsFunc(r.denials, func(d denial) bool { return d.message == message }) {
		return
	}
	d := denial{message: message, reason: reason}
	if b != nil {
		d.binding = b.Name
	}
	r.denials = append(r.denials, d)
}

// count counts the decisions for a binding.
func (r *verdict) count(b *binding, all *decisions) {
	r.reach = max(r.reach, all.reach())
	for i := range all.validations {
		d := &all.validations[i]
		if d.failed && r.failure == nil {
			r.failure = errors.New(d.message)
		}
		if d.denied || d.failed && !r.ignores {
			r.act(b, i, d)
		}
	}
	for _, a := range all.annotations {
		switch {
		case a.err != "" && a.ignorable && r.ignores:
		case a.err != "":
			r.deny(b, a.err, "")
		case a.value != "":
			r.publish(a.key, a.value)
		}
	}
}

// act takes the actions of a binding for a validation that is false or failed.
func (r *verdict) act(b *binding, index int, d *decision) {
	for _, action := range b.Spec.ValidationActions {
		switch action {
		case admissionregistrationv1.Deny:
			r.deny(b, d.message, d.reason)
			if d.denied {
				r.denying = append(r.denying, make([]bool, max(0, index+1-len(r.denying)))...)
				r.denying[index] = true
			}
		case admissionregistrationv1.Warn:
			if len(r.warnings) < maxStated {
				r.warnings = append(r.warnings, fmt.Sprintf("Validation failed for %s: %s", r.subject(b.Name), d.message))
			}
		case admissionregistrationv1.Audit:
			if len(r.audited) < maxStated {
				r.audited = append(r.audited, FailedValidation{
					Message: d.message, Policy: r.policy.Name, Binding: b.Name, ExpressionIndex: index, ValidationActions: b.Spec.ValidationActions,
				})
			}
		}
	}
}

func (r *verdict) publish(key, value string) {
	value = strings.ToValidUTF8(value[:min(len(value), maxAuditValue)], "") // in whole characters
	if slices.Contains(r.values[key], value) {
		return
	}
	if r.values == nil {
		r.values = map[string][]string{}
	}
	r.values[key] = append(r.values[key], value)
}

// response is the verdict. A failure that does not refuse the request counts only if nothing denies, and a refusal is a failure unless a validation is
// false.
func (r *verdict) response(ctx context.Context, a *match.Attributes) (match.Judgement, error) {
	v := &admissionv1.AdmissionResponse{Allowed: len(r.denials) == 0, Warnings: r.warnings, AuditAnnotations: r.annotations()}
	if !v.GetAllowed() {
		if v.Status = r.status(ctx, a); len(r.denying) > 0 {
			return match.Judgement{AdmissionResponse: v, Why: r.why()}, nil
		}
		return match.Judgement{AdmissionResponse: v}, errors.New(r.denials[0].message)
	}
	return match.Judgement{AdmissionResponse: v, Why: r.reach.skip(), Acted: r.failure != nil && !r.ignores}, r.failure
}

// why names the validations that are false, as many as a record shows.
func (r *verdict) why() string {
	var named []string
	more := 0
	for index, denies := range r.denying {
		switch {
		case !denies:
		case len(named) < maxNamed:
			named = append(named, fmt.Sprintf("validations[%d]", index))
		default:
			more++
		}
	}
	text := strings.Join(named, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + " false"
}

// maxNamed is the most validations that a denial names for records.
const maxNamed = 4

// noVerdict is the judgement of a policy that cannot judge, and has a request refused whatever its failurePolicy.
func noVerdict(refused *admissionv1.AdmissionResponse) (match.Judgement, error) {
	return match.Judgement{AdmissionResponse: refused}, errors.New(refused.GetStatus().GetMessage())
}

func (r *verdict) annotations() map[string]string {
	if len(r.audited)+len(r.values) == 0 {
		return nil
	}
	all := make(map[string]string, len(r.values)+1)
	for key, values := range r.values {
		all[key] = strings.Join(values, ", ")
	}
	if len(r.audited) > 0 {
		if raw, err := utiljson.Marshal(r.audited); err == nil { // strings and numbers never fail
			all[AuditFailure] = string(raw)
		}
	}
	return all
}

// status has all denials, and code, reason and details of the first (NewForbidden of k8s.io/apiserver/pkg/admission). kube-apiserver has the first
// denial alone.
func (r *verdict) status(ctx context.Context, a *match.Attributes) *admissionv1.Status {
	reason := cmp.Or(r.denials[0].reason, metav1.StatusReasonInvalid)
	texts, causes := make([]string, 0, len(r.denials)), make([]*admissionv1.StatusCause, 0, len(r.denials))
	for i, d := range r.denials {
		text := r.text(d)
		causes = append(causes, &admissionv1.StatusCause{Message: text})
		if i > 0 && d.binding == r.denials[i-1].binding {
			text = d.message
		}
		texts = append(texts, text)
	}
	resource := a.Requested().Resource
	return &admissionv1.Status{
		Status: metav1.StatusFailure, Code: codeOf(reason), Reason: string(reason), Message: strings.Join(texts, "; "),
		Details: &admissionv1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: nameOf(ctx, a), Causes: causes},
	}
}

// nameOf is the name of the object, or the beginning of a name that is yet to be generated (extractResourceName of k8s.io/apiserver/pkg/admission).
func nameOf(ctx context.Context, a *match.Attributes) string {
	if name := a.Name(); name != "" {
		return name
	}
	versioned, _, err := a.Versioned(ctx, nil)
	if err != nil {
		return unknownName
	}
	return nameIn(versioned)
}

// nameIn is the name of an object of a request, as nameOf.
func nameIn(versioned *admission.VersionedAttributes) string {
	if name := versioned.GetName(); name != "" {
		return name
	}
	switch u := match.Unstructured(versioned.VersionedObject); {
	case u == nil:
		return unknownName
	case u.Object["metadata"] == nil && versioned.GetOperation() == admission.Connect: // the options of a CONNECT have no metadata
		return unknownName + "/errorGettingName"
	default:
		return cmp.Or(u.GetName(), u.GetGenerateName(), unknownName)
	}
}

// unknownName stands for the name of an object that has none.
const unknownName = "Unknown"

// text is a denial in the words of kube-apiserver.
func (r *verdict) text(d denial) string {
	return fmt.Sprintf("%s denied request: %s", r.subject(d.binding), d.message)
}

// subject names the policy and a binding, which may be empty.
func (r *verdict) subject(binding string) string {
	switch {
	case r.short:
		return fmt.Sprintf("Policy '%s'", r.policy.Name)
	case binding == "":
		return fmt.Sprintf("ValidatingAdmissionPolicy '%s'", r.policy.Name)
	}
	return fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s'", r.policy.Name, binding)
}

// subjectOfMessage is the beginning of a denial or a warning.
var subjectOfMessage = regexp.MustCompile(`^(?:Validation failed for )?(?:Policy|ValidatingAdmissionPolicy) '([^']*)'` +
	`(?: with binding '[^']*')?(?: denied request)?: `)

// CutSubject cuts the name of the policy off the beginning of a denial or a warning. Of another text it is empty.
func CutSubject(message string) (name, rest string) {
	if named := subjectOfMessage.FindStringSubmatch(message); named != nil {
		return named[1], message[len(named[0]):]
	}
	return "", message
}

// codeOf is reasonToCode of kube-apiserver's validating plugin.
func codeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonForbidden:
		return 403
	case metav1.StatusReasonUnauthorized:
		return 401
	case metav1.StatusReasonRequestEntityTooLarge:
		return 413
	default:
		return 422
	}
}
