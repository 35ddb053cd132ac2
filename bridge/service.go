package bridge

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/identity"
)

// judge asks the Reviewer, and checks that what comes back answers the review. Without an answer it says why: the Reviewer
// may not judge now, or is broken.
func (b *Bridge) judge(ctx context.Context, r *review.Request) (review.Answer, *refusal) {
	uid := r.Admission.GetUid()
	answer, err := b.options.Reviewer.Review(ctx, r)
	if err != nil {
		b.options.Logger.Debug("nothing may judge", slog.String("uid", uid), slog.Any("error", err))
		return review.Answer{}, unjudged(err)
	}
	if answer.Response.GetUid() != uid {
		b.options.Logger.Error("the answer is not one to its review",
			slog.String("uid", uid), slog.String("answered", answer.Response.GetUid()))
		return review.Answer{}, broken()
	}
	return answer, nil
}

// outcomeOf sorts an answer of the Reviewer.
func outcomeOf(answer review.Answer) outcome {
	switch {
	case answer.Response.GetAllowed():
		return outcomeAllowed
	case answer.Failed:
		return outcomeFailed
	}
	return outcomeDenied
}

// service is the AdmissionService on a gRPC listener. Callers are known by the certificate of their channel; the cluster
// in the request is what they claim to speak for, and is used only once Authorize has said so. Facts are dropped: no
// identity is a bridge's yet.
type service struct {
	admissionv1.UnimplementedAdmissionServiceServer
	bridge *Bridge
}

// Review is the RPC.
func (s *service) Review(ctx context.Context, request *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
	started := time.Now()
	response, how, err := s.contained(ctx, request)
	code := http.StatusOK
	if refused, ok := err.(*refusal); ok { //nolint:errorlint // made in this file, never wrapped
		how, code = refused.outcome, refused.code
		err = status.Error(grpcCode(refused.code), refused.message)
	}
	s.bridge.instruments.observe(measured{
		edge: edgeGRPC, stage: request.GetStage(), outcome: how, code: code, bytes: proto.Size(request), took: time.Since(started),
	})
	return response, err
}

// contained keeps a panic from ending the process: grpc does not. It is a denial when the caller may ask.
func (s *service) contained(ctx context.Context, request *admissionv1.ReviewRequest) (response *admissionv1.ReviewResponse, how outcome, err error) {
	admitted := false
	uid, apiVersion := request.GetRequest().GetUid(), request.GetApiVersion()
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		s.bridge.panicked(uid, cause)
		response, how, err = nil, outcomeBroken, broken()
		if admitted {
			response, err = broken().denial(uid, apiVersion), nil
		}
	}()
	if refused := s.admit(ctx, request); refused != nil {
		return nil, refused.outcome, refused
	}
	admitted = true
	return s.review(ctx, request)
}

// review judges a review whose caller may ask.
func (s *service) review(ctx context.Context, request *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, outcome, error) {
	admission := request.GetRequest()
	size := int64(proto.Size(request))
	if limit := s.bridge.options.MaxBodyBytes; size > limit {
		return tooLarge(limit).denial(admission.GetUid(), request.GetApiVersion()), outcomeRejected, nil
	}
	// The message is there by now: what bounds those that are not is grpc's own limit on streams and on their size.
	lease, err := s.bridge.options.Memory.Reserve(admission.GetCluster(), takes(request.GetStage(), size))
	if err != nil {
		return nil, outcomeUnjudged, overloaded(err)
	}
	defer lease.Release()
	if refused := checkObjects(admission, lease); refused != nil {
		return nil, refused.outcome, refused
	}

	ctx, cancel := context.WithTimeout(ctx, s.bridge.callTime(ctx))
	defer cancel()
	answer, refused := s.bridge.judge(ctx, &review.Request{
		Stage: request.GetStage(), Entry: request.GetEntry(), Admission: admission, Reservation: lease, Explain: request.GetExplain(),
	})
	switch {
	case refused == nil:
		return &admissionv1.ReviewResponse{
			Response: answer.Response, Revision: answer.Revision, Outcomes: answer.Outcomes, ApiVersion: request.GetApiVersion(),
			Failed: answer.Failed,
		}, outcomeOf(answer), nil
	case refused.outcome == outcomeBroken:
		return refused.denial(admission.GetUid(), request.GetApiVersion()), outcomeBroken, nil
	}
	return nil, refused.outcome, refused
}

// admit checks who calls and what is asked.
func (s *service) admit(ctx context.Context, request *admissionv1.ReviewRequest) *refusal {
	caller, err := callerOf(ctx)
	if err != nil {
		return unauthenticated(err)
	}
	admission := request.GetRequest()
	if err := s.bridge.options.Authorize(caller, admission.GetCluster()); err != nil {
		return forbidden(caller.Name(), admission.GetCluster())
	}
	switch {
	case admission.GetUid() == "":
		return badRequest("the request has no uid")
	case stageName(request.GetStage()) == stageNone:
		return badRequest("stage %v is none that hooks are called for", request.GetStage())
	case admission.GetObjectRevision() != 0 || admission.GetProjection() > admissionv1.Projection_PROJECTION_FULL:
		return badRequest("a request that hooks have changed or that is not whole cannot be judged: send it as the API server did")
	}
	return nil
}

// checkObjects refuses a request whose object, oldObject or options is not one JSON object, or has a duplicate field. Callers that
// are no API server may pass on bytes of their users. These are written into the AdmissionReview of JSON webhooks as they are: bytes
// that go on behind the object would be read as other fields of the request. Of two values of one field the selectors, each hook
// and whoever keeps the object may each take another one: a hook could be passed over for what nobody keeps.
func checkObjects(r *admissionv1.AdmissionRequest, lease *memory.Reservation) *refusal {
	for _, field := range []struct {
		name   string
		object *admissionv1.Object
	}{{"object", r.GetObject()}, {"oldObject", r.GetOldObject()}, {"options", r.GetOptions()}} {
		if field.object == nil {
			continue
		}
		if media := field.object.GetContentType(); media != "" && media != jsonType {
			return badRequest("request.%s cannot be judged: its content type is %q, send %s", field.name, media, jsonType)
		}
		n := conversion.ExtentOf(field.object.GetRaw()).Names()
		if err := lease.Grow(n); err != nil {
			return overloaded(err)
		}
		err := conversion.CheckObject(field.object.GetRaw())
		lease.Shrink(n)
		if err != nil {
			return badRequest("request.%s cannot be judged: %v", field.name, err)
		}
	}
	return nil
}

// callTime is how long a call may take: up to its own deadline less a reserve for the way back.
func (b *Bridge) callTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return b.options.DefaultTimeout
	}
	remaining := min(time.Until(deadline), MaxTimeout)
	return reviewTime(remaining, remaining) // a gRPC deadline is not rounded
}

// callerOf is who is at the other end of the channel that a call came over.
func callerOf(ctx context.Context) (identity.Peer, error) {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return identity.Peer{}, identity.ErrNone
	}
	switch info := caller.AuthInfo.(type) {
	case identity.Channel:
		return info.Identity()
	case credentials.TLSInfo:
		known, _ := identity.FromTLS(&info.State)
		return known.Identity()
	}
	return identity.Peer{}, identity.ErrNone
}

func grpcCode(httpCode int) codes.Code {
	switch httpCode {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	default:
		return codes.Internal
	}
}
