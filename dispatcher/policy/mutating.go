package policy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// MutatingKind is the kind of a [Mutating].
const MutatingKind = "MutatingAdmissionPolicy"

// MutatingDefinition is a compiled MutatingAdmissionPolicy. It is immutable.
type MutatingDefinition struct {
	compiled

	policy      *admissionregistrationv1.MutatingAdmissionPolicy
	constraints *admissionregistrationv1.MatchResources
	mutations   []mutation
}

// mutation is an expression whose value is a change of the object.
type mutation struct {
	program

	patchType admissionregistrationv1.PatchType
}

// CompileMutating compiles a policy that is valid and has its defaults. It keeps the policy, which must not change afterwards. An expression that does
// not compile fails whenever it is evaluated, as in kube-apiserver (compilePolicy of its mutating plugin).
func (c *Compiler) CompileMutating(p *admissionregistrationv1.MutatingAdmissionPolicy) *MutatingDefinition {
	c.mu.Lock()
	defer c.mu.Unlock()
	common, declared := c.begin(p.Spec.ParamKind, p.Spec.Variables, p.Spec.MatchConditions)
	d := &MutatingDefinition{compiled: common, policy: p, constraints: withoutDelete(p.Spec.MatchConstraints)}
	if d.err != nil {
		return d
	}
	declared.HasPatchTypes = true
	for i := range p.Spec.Mutations {
		switch m := &p.Spec.Mutations[i]; {
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			d.ask(m.JSONPatch.Expression, ".mutations[%d].jsonPatch.expression", i)
			d.mutations = append(d.mutations, mutation{c.compile(m.JSONPatch.Expression, declared, d.types(jsonPatches)...), m.PatchType})
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			d.ask(m.ApplyConfiguration.Expression, ".mutations[%d].applyConfiguration.expression", i)
			d.mutations = append(d.mutations, mutation{c.compile(m.ApplyConfiguration.Expression, declared, d.types(applyConfiguration)...), m.PatchType})
		}
	}
	d.bound(d.programs()...)
	return d
}

// programs are the programs of all expressions but variables.
func (d *MutatingDefinition) programs() [][]program {
	mutations := make([]program, len(d.mutations))
	for i, m := range d.mutations {
		mutations[i] = m.program
	}
	return [][]program{d.conditions, mutations}
}

// withoutDelete returns constraints without DELETE, which has no object to change and never reaches a mutating policy (NewPlugin of kube-apiserver's
// mutating plugin). Validation lets no rule name it, but the rule of all operations has it.
func withoutDelete(m *admissionregistrationv1.MatchResources) *admissionregistrationv1.MatchResources {
	m = m.DeepCopy()
	for i := range m.ResourceRules {
		for _, operation := range m.ResourceRules[i].Operations {
			if operation == admissionregistrationv1.OperationAll {
				m.ResourceRules[i].Operations = []admissionregistrationv1.OperationType{
					admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Connect,
				}
				break
			}
		}
	}
	return m
}

// Mutating is a policy with the bindings that put it into force. It is immutable, and may be used concurrently.
type Mutating struct {
	*MutatingDefinition

	bindings   []mutatingBinding
	namespaces *metav1.LabelSelector // BindingNamespaces
	short      bool                  // BindShort
	own        []string              // BindShort
}

var _ match.Policy = (*Mutating)(nil)

// mutatingBinding is a MutatingAdmissionPolicyBinding.
type mutatingBinding struct {
	name     string
	criteria *match.Criteria
	paramRef *paramRef // nil without params
}

// Bind returns the policy with its bindings, which are valid, have their defaults, and must not change afterwards.
func (d *MutatingDefinition) Bind(bindings []*admissionregistrationv1.MutatingAdmissionPolicyBinding) *Mutating {
	m := &Mutating{MutatingDefinition: d}
	var all []*match.Criteria
	for _, b := range bindings {
		criteria := match.NewCriteria(fmt.Sprintf("binding %q", b.Name), b.Spec.MatchResources)
		m.bindings, all = append(m.bindings, mutatingBinding{b.Name, criteria, newParamRef(b.Spec.ParamRef)}), append(all, criteria)
	}
	m.namespaces = sharedNamespaces(all)
	return m
}

// ID implements [match.Policy].
func (m *Mutating) ID() string {
	if m.short {
		return ShortKind + "/" + m.policy.Name
	}
	return MutatingKind + "/" + m.policy.Name
}

// Stage implements [match.Policy].
func (m *Mutating) Stage() admissionv1.Stage { return admissionv1.Stage_STAGE_MUTATE }

// Reinvocation implements [match.Policy].
func (m *Mutating) Reinvocation() admissionregistrationv1.ReinvocationPolicyType {
	return m.policy.Spec.ReinvocationPolicy
}

// Constraints implements [match.Policy].
func (m *Mutating) Constraints() *admissionregistrationv1.MatchResources { return m.constraints }

// BindingNamespaces implements [match.Policy].
func (m *Mutating) BindingNamespaces() *metav1.LabelSelector { return m.namespaces }

// FailurePolicy implements [match.Policy].
func (m *Mutating) FailurePolicy() admissionregistrationv1.FailurePolicyType {
	if p := m.policy.Spec.FailurePolicy; p != nil {
		return *p
	}
	return admissionregistrationv1.Fail
}

// Judge implements [match.Policy], as Dispatch of kube-apiserver's mutating plugin does for one policy. Each binding that the request meets has the
// policy change the object once more, for each of its params. A mutation that fails is left out; the changes of the others stay if failurePolicy is Ignore.
func (m *Mutating) Judge(ctx context.Context, a *match.Attributes, as *conversion.ResourceKind, unmatched error) (match.Judgement, error) {
	t := &mutating{Mutating: m, attributes: a, as: as, codec: codecOf(ctx)}
	defer t.release()
	of := observe(ctx, m)
	of.policyIs(Begun)
	defer of.policyIs(Ended)
	if unmatched != nil {
		t.fail(nil, fmt.Errorf("failed to configure policy: %w", unmatched), "")
		return t.response(ctx)
	}
	source, err := m.paramsFor(a)
	if err != nil {
		t.fail(nil, fmt.Errorf("failed to configure policy: %w", err), "")
		return t.response(ctx)
	}
	all := t.match(ctx, &source, of)
	if len(all) == 0 {
		return t.response(ctx)
	}
	if err := t.read(ctx); err != nil {
		t.fail(nil, fmt.Errorf("failed to configure binding: failed to convert object version: %w", err), "")
		return t.response(ctx)
	}
	if m.readsNamespace {
		refused, err := t.in.lookUpNamespace(ctx, a)
		if refused != nil {
			return noVerdict(refused)
		}
		if err != nil {
			t.fail(nil, fmt.Errorf("failed to configure policy: %w", err), "")
			return t.response(ctx)
		}
	}
	invocations := invocationsOf(ctx, m)
	for _, one := range all {
		if refused := t.invoke(ctx, one.mutatingBinding, one.param, invocations); refused != nil {
			return noVerdict(refused)
		}
	}
	return t.response(ctx)
}

// matched is a binding that a request meets, and a param of the binding.
type matched struct {
	*mutatingBinding

	param
}

// match returns the bindings that the object meets as it came.
func (t *mutating) match(ctx context.Context, source *paramSource, of observed) (all []matched) {
	for i := range t.bindings {
		b := &t.bindings[i]
		_, skip, unmatched := b.criteria.Match(ctx, t.attributes)
		if skip != "" {
			of.binding(Unbound, b.name)
			continue
		}
		if unmatched != nil {
			t.fail(b, fmt.Errorf("failed to configure binding: %w", unmatched), "")
			continue
		}
		of.binding(Bound, b.name)
		t.reach = max(t.reach, bound)
		params, err := source.collect(ctx, b.paramRef)
		if err != nil {
			t.fail(b, fmt.Errorf("failed to configure binding: %w", err), "")
		}
		for _, p := range params {
			all = append(all, matched{b, p})
		}
	}
	return all
}

// mutating is a policy that changes the object of one request.
type mutating struct {
	*Mutating

	attributes *match.Attributes
	as         *conversion.ResourceKind
	codec      Codec
	in         *input
	original   []byte
	object     []byte // as changed so far; nil without an object
	booked     func() // gives back the memory of the object in in; nil if it is not the policy's own
	patches    [][]byte
	failures   []mutationFailure
	reach      reach
}

// mutationFailure is a failure of the policy for a binding.
type mutationFailure struct {
	message string
	reason  metav1.StatusReason // empty for Forbidden
}

// read reads the request in the version that the policy takes.
func (t *mutating) read(ctx context.Context) (err error) {
	if t.in, err = inputOf(ctx, t.attributes, t.as); err != nil {
		return err
	}
	t.original, _, err = t.attributes.In(ctx, t.as)
	if t.in.object != nil {
		t.object = t.original
	}
	return err //nolint:wrapcheck // the caller adds the words of kube-apiserver
}

// release gives back the memory of the object that the policy has made.
func (t *mutating) release() {
	if t.booked != nil {
		t.booked()
	}
}

// fail records a failure for a binding, or for all of them.
func (t *mutating) fail(b *mutatingBinding, err error, reason metav1.StatusReason) {
	t.reach = decided
	message := fmt.Sprintf("policy %q denied request: %s", t.policy.Name, err)
	switch {
	case t.short:
		message = fmt.Sprintf("Policy '%s' failed: %s", t.policy.Name, err)
	case b != nil:
		message = fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", t.policy.Name, b.name, err)
	}
	t.failures = append(t.failures, mutationFailure{message, reason})
}

// invoke evaluates the mutations for one binding and param, as dispatchInvocations of kube-apiserver does. A result refuses the request whatever failurePolicy.
func (t *mutating) invoke(ctx context.Context, b *mutatingBinding, p param, invocations *invocations) (refused *admissionv1.AdmissionResponse) {
	if t.err != nil {
		t.fail(b, t.err, metav1.StatusReasonInvalid)
		return nil
	}
	t.in = t.in.withParam(p)
	of := observe(ctx, t.Mutating)
	switch matches, err := t.matches(ctx, t.in, of); {
	case err != nil:
		t.fail(b, err, metav1.StatusReasonInvalid)
		return nil
	case !matches:
		t.reach = max(t.reach, excluded)
		return nil
	}
	if t.reach = decided; !invocations.begin(b, p) {
		return nil
	}
	for i := range t.mutations {
		if t.object == nil {
			return nil
		}
		patches := len(t.patches)
		err := t.mutate(ctx, of, &t.mutations[i])
		of.mutation(err, len(t.patches) > patches, i)
		var unreadable *unreadableError
		switch {
		case errors.As(err, &unreadable):
			return unreadable.response()
		case err != nil:
			t.fail(b, err, metav1.StatusReasonInvalid)
		}
	}
	return nil
}

// mutate evaluates one mutation and makes its result the object, with the defaults of its kind.
func (t *mutating) mutate(ctx context.Context, of observed, m *mutation) error {
	if m.Error != nil {
		return m.Error
	}
	a := t.activate(ctx, t.in, t.in.seen, of.budget(celconfig.RuntimeCELCostBudget), true)
	value, failure, err := a.evaluate(ctx, &m.program)
	if err := cmp.Or(err, failure); err != nil {
		return err
	}
	var patch []byte
	if m.patchType == admissionregistrationv1.PatchTypeJSONPatch {
		patch, err = jsonPatchOf(value)
	} else {
		patch, err = t.applied(value)
	}
	if err != nil {
		return err
	}
	return t.apply(ctx, patch)
}

// apply applies a JSON patch. A failed test operation leaves the object as it is.
func (t *mutating) apply(ctx context.Context, patch []byte) error {
	object, changed, err := t.codec.Apply(t.object, patch)
	switch {
	case errors.Is(err, conversion.ErrTestFailed):
		return nil
	case errors.Is(err, conversion.ErrInapplicable), errors.Is(err, conversion.ErrUndecodable), errors.Is(err, conversion.ErrStopped):
		return fmt.Errorf("JSON Patch: %w", err)
	case err != nil:
		return &unreadableError{err}
	case !changed && bytes.Equal(object, t.object):
		return nil
	}
	kind := t.attributes.Seen(t.as).Kind
	if object, err = t.attributes.Cluster().Default(ctx, kind, object, nil); err != nil {
		return fmt.Errorf("the defaults of %s: %w", kind.Kind, err)
	}
	book, err := t.attributes.Book(conversion.ExtentOf(object).Untyped())
	if err != nil {
		return err //nolint:wrapcheck // a status
	}
	in, err := t.in.with(object)
	if err != nil {
		book()
		return &unreadableError{err}
	}
	if made := in.versioned.VersionedObject.GetObjectKind().GroupVersionKind(); made != kind {
		book()
		return &unreadableError{fmt.Errorf("an object of %s cannot become one of %s", kind, made)}
	}
	t.release()
	t.in, t.object, t.booked = in, object, book
	if changed {
		t.patches = append(t.patches, patch)
	}
	return nil
}

// applied returns the patch that an apply configuration is for the object.
func (t *mutating) applied(value any) ([]byte, error) {
	var booked []func()
	defer func() {
		for _, release := range booked {
			release()
		}
	}()
	book := func(bytes int64) error {
		release, err := t.attributes.Book(bytes)
		if err == nil {
			booked = append(booked, release)
		}
		return err //nolint:wrapcheck // a status
	}
	if err := book(mergeFactor * conversion.ExtentOf(t.object).Untyped()); err != nil {
		return nil, err
	}
	object := match.Unstructured(t.in.versioned.VersionedObject)
	types, err := typeConverter(t.attributes.Cluster(), t.in.versioned.VersionedKind, book)
	if err != nil {
		return nil, err
	}
	merged, err := applyConfigurationTo(object, value, types)
	if err != nil {
		return nil, err
	}
	patch, err := t.codec.Diff(t.object, merged)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return patch, nil
}

// response is the verdict. Failures refuse the request unless failurePolicy ignores them.
func (t *mutating) response(ctx context.Context) (v match.Judgement, err error) {
	v = match.Judgement{AdmissionResponse: &admissionv1.AdmissionResponse{Allowed: true}, Why: t.reach.skip()}
	if len(t.failures) > 0 && !t.attributes.FailsOpen() && t.FailurePolicy() != admissionregistrationv1.Ignore {
		v.Allowed, v.Status = false, t.status(ctx)
		return v, errors.New(t.failures[0].message)
	}
	switch len(t.patches) {
	case 0:
		if len(t.failures) > 0 {
			return match.Judgement{}, errors.New(t.failures[0].message)
		}
		return v, nil
	case 1:
		v.Patch = t.patches[0]
	default:
		if v.Patch, err = t.codec.Diff(t.original, t.object); err != nil {
			return match.Judgement{}, fmt.Errorf("its changes cannot be expressed as one patch: %w", err)
		}
	}
	if len(v.GetPatch()) > 0 {
		v.PatchType = string(admissionregistrationv1.PatchTypeJSONPatch)
	}
	if len(t.failures) > 0 {
		v.Warnings = []string{fmt.Sprintf("policy %q failed in part, which its failure policy ignores: %s", t.policy.Name, t.failures[0].message)}
	}
	return v, nil
}

// status has the first failure as its message, and all as its causes (Dispatch of kube-apiserver's policyDispatcher).
func (t *mutating) status(ctx context.Context) *admissionv1.Status {
	resource := t.attributes.Requested().Resource
	var name string
	if t.in == nil {
		name = nameOf(ctx, t.attributes)
	} else { // as changed so far
		name = nameIn(t.in.versioned)
	}
	s := &admissionv1.Status{
		Status: metav1.StatusFailure, Code: codeForbidden, Reason: string(cmp.Or(t.failures[0].reason, metav1.StatusReasonForbidden)),
		Message: t.failures[0].message,
		Details: &admissionv1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: name},
	}
	for _, f := range t.failures {
		s.Details.Causes = append(s.Details.Causes, &admissionv1.StatusCause{Message: f.message})
	}
	return s
}

// mergeFactor times the size of the decoded object is the memory of an apply configuration while it is merged.
const mergeFactor = 2

const (
	codeForbidden = 403
	codeInternal  = 500
)

// unreadableError: a patch has made something of the object that is no object of its kind. It refuses the request.
type unreadableError struct{ error }

func (e *unreadableError) response() *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
		Status: metav1.StatusFailure, Code: codeInternal, Reason: string(metav1.StatusReasonInternalError), Message: "Internal error occurred: " + e.Error(),
	}}
}
