package dispatcher

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
	phaseHeld      = "held"      // for a fresh configuration
	phaseLookedUp  = "looked up" // the namespace, in the cluster
	phaseConverted = "converted" // an object, into the version of a hook or back
	phaseMatched   = "matched"
	phaseEncoded   = "encoded" // the request, for hosts
	phaseApplied   = "applied" // the patch of a hook
	phaseDefaulted = "defaulted"
	phaseCompared  = "compared" // the object before and after all hooks
	phaseSent      = "sent"
	phaseReceived  = "received"
	phaseStaged    = "staged"
)

// phases adds the phases of a review to its span. The zero value adds nothing.
type phases struct{ span trace.Span }

// phasesOf returns the phases of a review by its span, if that is recorded.
func phasesOf(span trace.Span) phases {
	if span.IsRecording() {
		return phases{span}
	}
	return phases{}
}

// end adds the end of a phase.
func (p phases) end(phase string) {
	if p.span != nil {
		p.span.AddEvent(phase)
	}
}

// tracedCodec adds the phases in which the object is patched.
type tracedCodec struct {
	chain.Codec

	phases phases
}

// Apply implements [chain.Codec].
func (c tracedCodec) Apply(object, patch []byte) (after []byte, changed bool, err error) {
	defer c.phases.end(phaseApplied)
	return c.Codec.Apply(object, patch)
}

// Diff implements [chain.Codec].
func (c tracedCodec) Diff(before, after []byte) ([]byte, error) {
	defer c.phases.end(phaseCompared)
	return c.Codec.Diff(before, after)
}

// traced returns a codec that adds phases, or the codec itself if there is nothing to add to.
func (p phases) traced(c chain.Codec) chain.Codec {
	if p.span == nil {
		return c
	}
	return tracedCodec{c, p}
}

// beginReview starts the span of a review. Below a span of this process that its sampler has left out there is none: the one in ctx is returned.
func (i *instrumentation) beginReview(ctx context.Context, r *review.Request) (context.Context, trace.Span) {
	if above := trace.SpanFromContext(ctx); leftOut(above) {
		return ctx, above
	}
	ctx, span := i.tracer.Start(ctx, reviewSpan(r.Stage))
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
		semconv.K8SClusterName(cut(a.GetCluster(), maxAttribute)),
		attrStage.String(stageLabel(r.Stage)),
		attrUID.String(cut(a.GetUid(), maxAttribute)),
		attribute.String("portcullis.operation", cut(a.GetOperation(), maxAttribute)),
		attribute.String("portcullis.resource", cut(resourceOf(a), maxAttribute)),
		attribute.String("k8s.object.kind", cut(a.GetKind().GetKind(), maxAttribute)),
	}
	if a.GetNamespace() != "" {
		attributes = append(attributes, semconv.K8SNamespaceName(cut(a.GetNamespace(), maxAttribute)))
	}
	if name := objectName(a); name != "" {
		attributes = append(attributes, attribute.String("k8s.object.name", cut(name, maxAttribute)))
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

// beginCall starts the span of a call, unless the span of the review is not recorded.
func (i *instrumentation) beginCall(ctx context.Context, parent trace.Span, r *review.Request, c review.Call) trace.Span {
	if !parent.IsRecording() {
		return noop.Span{}
	}
	return startCall(ctx, i.tracer, r, c, time.Now())
}

func startCall(ctx context.Context, tracer trace.Tracer, r *review.Request, c review.Call, begun time.Time) trace.Span {
	attributes := []attribute.KeyValue{
		semconv.K8SClusterName(cut(r.Admission.GetCluster(), maxAttribute)),
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

// endCall ends the span of a call, if it is recorded, with its outcome and its phases.
func (i *instrumentation) endCall(c *callState, o chain.Outcome) {
	if !c.span.IsRecording() {
		return
	}
	attributes := append(make([]attribute.KeyValue, 0, endAttributes), attribute.String(attrOutcome, spanOutcome(o)))
	switch {
	case o.Timing.Instance != "":
		sent := c.begun.Add(o.Timing.Queued)
		c.span.AddEvent(phaseSent, trace.WithTimestamp(sent))
		c.span.AddEvent(phaseReceived, trace.WithTimestamp(sent.Add(o.Timing.Wire+o.Timing.Host)))
		attributes = appendTiming(attributes, o)
	case o.Hook.Initializes() && o.Timing.Host > 0:
		c.span.AddEvent(phaseStaged, trace.WithTimestamp(c.begun.Add(o.Timing.Queued)))
		attributes = append(attributes, seconds("queue", o.Timing.Queued), seconds("controller", o.Timing.Host))
	}
	if o.Failure != nil || o.Effect == chain.Refused {
		c.span.SetStatus(codes.Error, o.Reason)
	}
	if o.Failure != nil {
		attributes = append(attributes, semconv.ErrorTypeKey.String(o.Failure.Kind.String()))
	}
	c.span.SetAttributes(attributes...) // once: the span doubles its room each time
	c.span.End(trace.WithTimestamp(c.ended))
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
