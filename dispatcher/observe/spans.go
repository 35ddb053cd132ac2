package observe

import (
	"context"
	"net"
	"strconv"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/portcullis-mesh/portcullis/dispatcher"

const (
	attrHook    = attribute.Key("portcullis.hook")
	attrStage   = attribute.Key("portcullis.stage")
	attrUID     = attribute.Key("portcullis.uid")
	attrOutcome = "portcullis.outcome"
	// maxAttribute bounds a text of the caller in a span, in bytes: names in Kubernetes have at most 253.
	maxAttribute = 256
	// endAttributes is how many attributes the span of a call gets at its end, at most.
	endAttributes = 7
)

// Phases of a review and of a call, as events of their spans. An event is at the end of its phase.
const (
	PhaseHeld      = "held"      // for a fresh configuration
	PhaseLookedUp  = "looked up" // the namespace, or objects that policies read, in the cluster
	PhaseConverted = "converted" // an object, into the version of a hook or back
	PhaseMatched   = "matched"
	PhaseEncoded   = "encoded" // the request, for hosts
	phaseApplied   = "applied" // the patch of a hook
	PhaseDefaulted = "defaulted"
	phaseCompared  = "compared" // the object before and after all hooks
	phaseSent      = "sent"
	phaseReceived  = "received"
	phaseStaged    = "staged"
)

// Phases adds the ends of phases to the span of a review. The zero value adds nothing.
type Phases struct{ span trace.Span }

// PhasesOf returns the phases of a review by its span, if that is recorded.
func PhasesOf(span trace.Span) Phases {
	if span.IsRecording() {
		return Phases{span}
	}
	return Phases{}
}

// End adds the end of a phase.
func (p Phases) End(phase string) {
	if p.span != nil {
		p.span.AddEvent(phase)
	}
}

// tracedCodec adds the phases in which the object is patched.
type tracedCodec struct {
	chain.Codec

	phases Phases
}

// Apply implements [chain.Codec].
func (c tracedCodec) Apply(object, patch []byte) (after []byte, changed bool, err error) {
	defer c.phases.End(phaseApplied)
	return c.Codec.Apply(object, patch)
}

// Diff implements [chain.Codec].
func (c tracedCodec) Diff(before, after []byte) ([]byte, error) {
	defer c.phases.End(phaseCompared)
	return c.Codec.Diff(before, after)
}

// Traced returns a codec that adds phases, or the codec itself if there is nothing to add to.
func (p Phases) Traced(c chain.Codec) chain.Codec {
	if p.span == nil {
		return c
	}
	return tracedCodec{c, p}
}

// Begin starts the span of a review. Below a span of this process that its sampler has left out there is none: the one in ctx is returned.
func (x *Observer) Begin(ctx context.Context, r *review.Request) (context.Context, trace.Span) {
	if above := trace.SpanFromContext(ctx); leftOut(above) {
		return ctx, above
	}
	ctx, span := x.tracer.Start(ctx, reviewSpan(r.Stage))
	if span.IsRecording() {
		span.SetAttributes(reviewAttributes(r)...)
	}
	return ctx, span
}

// leftOut reports whether the sampler of this process has decided against a span.
func leftOut(span trace.Span) bool {
	if span.IsRecording() {
		return false
	}
	c := span.SpanContext()
	return c.IsValid() && !c.IsSampled() && !c.IsRemote()
}

// reviewSpan is the name of the span of a review.
func reviewSpan(s admissionv1.Stage) string {
	switch s {
	case admissionv1.Stage_STAGE_MUTATE:
		return "review mutate"
	case admissionv1.Stage_STAGE_REINVOKE:
		return "review reinvoke"
	case admissionv1.Stage_STAGE_VALIDATE:
		return "review validate"
	case admissionv1.Stage_STAGE_ADMIT:
		return "review admit"
	default:
		return "review"
	}
}

// reviewAttributes describe a review. Names of Secrets are left out.
func reviewAttributes(r *review.Request) []attribute.KeyValue {
	a := r.Admission
	attributes := []attribute.KeyValue{
		semconv.K8SClusterName(Cut(a.GetCluster(), maxAttribute)),
		attrStage.String(stageLabel(r.Stage)),
		attrUID.String(Cut(a.GetUid(), maxAttribute)),
		attribute.String("portcullis.operation", Cut(a.GetOperation(), maxAttribute)),
		attribute.String("portcullis.resource", Cut(resourceOf(a), maxAttribute)),
		attribute.String("k8s.object.kind", Cut(a.GetKind().GetKind(), maxAttribute)),
	}
	if a.GetNamespace() != "" {
		attributes = append(attributes, semconv.K8SNamespaceName(Cut(a.GetNamespace(), maxAttribute)))
	}
	if name := objectName(a); name != "" {
		attributes = append(attributes, attribute.String("k8s.object.name", Cut(name, maxAttribute)))
	}
	return attributes
}

// resourceOf is the resource of a request with group and subresource, as RBAC has it: "deployments.apps/scale".
func resourceOf(a *admissionv1.AdmissionRequest) string {
	resource := a.GetResource().GetResource()
	if group := a.GetResource().GetGroup(); group != "" {
		resource += "." + group
	}
	if sub := a.GetSubResource(); sub != "" {
		resource += "/" + sub
	}
	return resource
}

// BeginCall starts the span of a call, unless the span of the review is not recorded. A policy has an event of that span instead.
func (x *Observer) BeginCall(ctx context.Context, parent trace.Span, r *review.Request, c review.Call) trace.Span {
	if !parent.IsRecording() || c.Hook.Policy != nil {
		return noop.Span{}
	}
	return startCall(ctx, x.tracer, r, c, time.Now())
}

func startCall(ctx context.Context, tracer trace.Tracer, r *review.Request, c review.Call, begun time.Time) trace.Span {
	attributes := []attribute.KeyValue{
		semconv.K8SClusterName(Cut(r.Admission.GetCluster(), maxAttribute)),
		attrHook.String(c.Hook.ID.Name),
		attribute.String("portcullis.configuration", c.Hook.ID.Configuration),
		attribute.Int("portcullis.round", int(c.Round)),
	}
	if stage := chain.OwnStage(c.Hook); stage != "" {
		attributes = append(attributes, attribute.String("portcullis.stage", stage))
	}
	_, span := tracer.Start(ctx, "call "+c.Hook.ID.Name, //nolint:spancheck // endCall ends it
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(begun), trace.WithAttributes(attributes...))
	return span //nolint:spancheck // endCall ends it
}

// notePolicy adds the event of a policy to the span of its review.
func notePolicy(review trace.Span, c *FinishedHook) {
	if !review.IsRecording() {
		return
	}
	review.AddEvent("policy "+c.Hook.ID.Name, trace.WithTimestamp(c.Begun), trace.WithAttributes(
		attribute.String(attrOutcome, spanOutcome(c.Outcome)), seconds("policy", c.Timing.Host)))
}

// endCall ends the span of a call, if it is recorded, with its outcome and its phases.
func endCall(c *FinishedHook) {
	if !c.Recorded.IsRecording() {
		return
	}
	attributes := append(make([]attribute.KeyValue, 0, endAttributes), attribute.String(attrOutcome, spanOutcome(c.Outcome)))
	switch {
	case c.Timing.Instance != "":
		sent := c.Begun.Add(c.Timing.Queued)
		c.Recorded.AddEvent(phaseSent, trace.WithTimestamp(sent))
		c.Recorded.AddEvent(phaseReceived, trace.WithTimestamp(sent.Add(c.Timing.Wire+c.Timing.Host)))
		attributes = appendTiming(attributes, c.Outcome)
	case c.Hook.Initializes() && c.Timing.Host > 0:
		c.Recorded.AddEvent(phaseStaged, trace.WithTimestamp(c.Begun.Add(c.Timing.Queued)))
		attributes = append(attributes, seconds("queue", c.Timing.Queued), seconds("controller", c.Timing.Host))
	}
	if c.Failure != nil || c.Effect == chain.Refused {
		c.Recorded.SetStatus(codes.Error, c.Reason)
	}
	if c.Failure != nil {
		attributes = append(attributes, semconv.ErrorTypeKey.String(c.Failure.Kind.String()))
	}
	c.Recorded.SetAttributes(attributes...) // once: the span doubles its room each time
	c.Recorded.End(trace.WithTimestamp(c.Ended))
}

// appendTiming appends which instance answered a call, and the parts of its time, in seconds. Of a webhook over HTTPS it is not known which part
// of the time it took itself.
func appendTiming(attributes []attribute.KeyValue, o chain.Outcome) []attribute.KeyValue {
	t := o.Timing
	attributes = append(attributes, seconds("queue", t.Queued))
	if o.Applying > 0 {
		attributes = append(attributes, seconds("apply", o.Applying))
	}
	if o.Hook.HasHosts() {
		return append(attributes, attribute.String("portcullis.host.instance", t.Instance), seconds("wire", t.Wire), seconds("host", t.Host))
	}
	attributes = append(attributes, seconds("webhook", t.Wire))
	return append(attributes, serverAttributes(t.Instance)...)
}

func seconds(phase string, took time.Duration) attribute.KeyValue {
	return attribute.Float64("portcullis."+phase+".duration", took.Seconds())
}

// serverAttributes name the host and the port of a webhook.
func serverAttributes(address string) []attribute.KeyValue {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(address)}
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(host)}
	}
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(port)}
}

// spanOutcome is the effect of a call on its review, in the words of [review.Outcome] where these have one.
func spanOutcome(o chain.Outcome) string {
	if o.Effect == chain.Undecided {
		return review.FailureCancelled.String()
	}
	return o.Effect.String()
}
