package bridge

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// judge asks the Reviewer, and checks that the answer is one to the review.
func (b *Bridge) judge(ctx context.Context, r *review.Request) (review.Answer, *refusal) {
	uid := r.Admission.GetUid()
	answer, err := b.options.Reviewer.Review(ctx, r)
	if err != nil {
		b.options.Logger.Debug("nothing may judge", slog.String("uid", uid), slog.Any("error", err))
		return review.Answer{}, b.unjudged(err)
	}
	if answer.Response.GetUid() != uid {
		b.options.Logger.Error("the answer is not one to its review",
			slog.String("uid", uid), slog.String("answered", answer.Response.GetUid()))
		return review.Answer{}, broken()
	}
	return answer, nil
}

// service is the AdmissionService on a gRPC listener. The certificate of the channel identifies the caller; the cluster in the
// request is a claim, and is used only after Authorize. The facts of a request are dropped: no bridge authenticates itself yet.
type service struct {
	admissionv1.UnimplementedAdmissionServiceServer
	bridge *Bridge
}

// UnjudgedTrailer is in the trailer of a review that no hook was asked about, since nothing may judge it here now: another
// dispatcher may take it, whatever the side effects of hooks. With the code UNAUTHENTICATED the identity of the caller does not hold
// any more on its connection: another connection may, also to the same dispatcher.
const UnjudgedTrailer = "portcullis-unjudged"

// Review is the RPC.
func (s *service) Review(ctx context.Context, request *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
	m := measured{edge: edgeGRPC, stage: request.GetStage(), bytes: proto.Size(request), code: http.StatusOK, started: time.Now()}
	response, refused := s.contained(ctx, request, &m)
	var err error
	if refused != nil {
		if refused.temporary() {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(UnjudgedTrailer, "true")) // fails outside of gRPC alone
		}
		m.outcome, m.code = refused.outcome, refused.code
		err = status.Error(grpcCode(refused.code), refused.message)
	}
	s.bridge.instruments.observe(m)
	return response, err
}

// contained keeps a panic from ending the process, which grpc does not. It is a denial if the caller is authorized. It sets the cluster
// and the outcome of m.
func (s *service) contained(
	ctx context.Context, request *admissionv1.ReviewRequest, m *measured,
) (response *admissionv1.ReviewResponse, refused *refusal) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		s.bridge.panicked(request.GetRequest().GetUid(), cause)
		response, m.outcome, refused = nil, review.OutcomeFailed, broken()
		if m.cluster != "" {
			response, refused = deny(request, broken()), nil
		}
	}()
	if refused = s.admit(ctx, request); refused != nil {
		return nil, refused
	}
	m.cluster = request.GetRequest().GetCluster()
	entry := match.ParseEntry(request.GetEntry())
	ctx, span := s.startSpan(ctx, request, entry.Name, m)
	defer func() { s.endSpan(span, m, response, refused) }()
	m.outcome = review.OutcomeFailed // unless it returns
	response, m.outcome, refused = s.review(ctx, request, entry)
	return response, refused
}

// deny makes a refusal the answer to a review.
func deny(request *admissionv1.ReviewRequest, r *refusal) *admissionv1.ReviewResponse {
	return r.denial(request.GetRequest().GetUid(), request.GetApiVersion())
}

// review judges a review of an authorized caller.
func (s *service) review(
	ctx context.Context, request *admissionv1.ReviewRequest, entry match.Entry,
) (*admissionv1.ReviewResponse, review.Outcome, *refusal) {
	admission := request.GetRequest()
	size := int64(proto.Size(request))
	if limit := s.bridge.options.MaxBodyBytes; size > limit {
		return deny(request, tooLarge(limit)), review.OutcomeRefused, nil
	}
	// The message is in memory by now. grpc's own limits on streams and on their size bound the messages before.
	reservation, err := s.bridge.options.Memory.Reserve(admission.GetCluster(), reviewBytes(request.GetStage(), size))
	if err != nil {
		return nil, review.OutcomeRefused, overloaded(err)
	}
	defer reservation.Release()
	if refused := checkObjects(admission, reservation); refused != nil {
		return nil, refused.outcome, refused
	}

	answer, refused := s.bridge.judge(ctx, &review.Request{
		Stage: request.GetStage(), Entry: entry, Admission: admission, Reservation: reservation, Explain: request.GetExplain(),
		AwaitShadows: request.GetAwaitShadows(), Expressions: request.GetExpressions(), Deadline: time.Now().Add(callTime(ctx)),
	})
	switch {
	case refused == nil:
		return &admissionv1.ReviewResponse{
			Response: answer.Response, Revision: answer.Revision, Outcomes: answer.Outcomes, ApiVersion: request.GetApiVersion(),
			Failed: answer.Failed, Outcome: string(answer.Outcome()),
		}, answer.Outcome(), nil
	case refused.outcome == review.OutcomeFailed:
		return deny(request, refused), refused.outcome, nil
	}
	return nil, refused.outcome, refused
}

// admit authorizes the caller and checks the request.
func (s *service) admit(ctx context.Context, request *admissionv1.ReviewRequest) *refusal {
	caller, err := callerOf(ctx)
	if err != nil {
		return unauthenticated(err)
	}
	admission := request.GetRequest()
	if err := s.bridge.options.Authorize(caller, admission.GetCluster()); err != nil {
		return s.bridge.forbidden(err, caller.Name(), admission.GetCluster())
	}
	switch {
	case admission.GetUid() == "":
		return badRequest("the request has no uid")
	case stageName(request.GetStage()) == stageNone, request.GetStage() == admissionv1.Stage_STAGE_INITIALIZE:
		return badRequest("stage %v is none that hooks are called for", request.GetStage())
	case admission.GetObjectRevision() != 0 || admission.GetProjection() > admissionv1.Projection_PROJECTION_FULL:
		return badRequest("a request that hooks have changed or that is not whole cannot be judged: send it as the API server did")
	}
	return nil
}

// checkObjects refuses a request whose object, oldObject or options is not one JSON object, or has a duplicate field. Direct callers
// may pass on bytes of their users, and these are written into the AdmissionReview of JSON webhooks as they are: bytes behind the
// object would be read as other fields of the request. Of two values of one field the selectors, each hook and the storage may each
// take another one: a selector could pass over a hook because of a value that is not stored.
func checkObjects(r *admissionv1.AdmissionRequest, reservation *memory.Reservation) *refusal {
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
		if err := reservation.Grow(n); err != nil {
			return overloaded(err)
		}
		err := conversion.CheckObject(field.object.GetRaw())
		reservation.Shrink(n)
		if err != nil {
			return badRequest("request.%s cannot be judged: %v", field.name, err)
		}
	}
	return nil
}

// callTime is the time of a call: up to its own deadline less a reserve for the way back.
func callTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultTimeout
	}
	remaining := min(time.Until(deadline), MaxTimeout)
	usable, _ := reviewTime(remaining, remaining) // a gRPC deadline is not rounded
	return usable
}

// callerOf is the peer of the channel of a call.
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
