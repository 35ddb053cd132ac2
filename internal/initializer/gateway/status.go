package gateway

import (
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReasonUninitialized is the reason in the Status of a GET without includeUninitialized: the name is taken, and the object is
// being initialized.
const ReasonUninitialized metav1.StatusReason = "Uninitialized"

// retryAfterSeconds is in answers of status 429.
const retryAfterSeconds = 1

// failure is an error that is answered with a Status.
func failure(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

func badRequest(format string, args ...any) error {
	return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

func conflict(format string, args ...any) error {
	return failure(http.StatusConflict, metav1.StatusReasonConflict, format, args...)
}

// outcome is the meaning of a code of gRPC in HTTP.
type outcome struct {
	code   int32
	reason metav1.StatusReason
}

// outcomeOf translates the codes of InitializerService.
func outcomeOf(code codes.Code) outcome {
	switch code { //nolint:exhaustive // the service sends no others
	case codes.Unauthenticated:
		return outcome{http.StatusUnauthorized, metav1.StatusReasonUnauthorized}
	case codes.PermissionDenied:
		return outcome{http.StatusForbidden, metav1.StatusReasonForbidden}
	case codes.NotFound:
		return outcome{http.StatusNotFound, metav1.StatusReasonNotFound}
	case codes.InvalidArgument:
		return outcome{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid}
	case codes.Aborted:
		return outcome{http.StatusConflict, metav1.StatusReasonConflict}
	case codes.OutOfRange:
		return outcome{http.StatusGone, metav1.StatusReasonExpired}
	case codes.ResourceExhausted:
		return outcome{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests}
	case codes.DeadlineExceeded, codes.Canceled:
		return outcome{http.StatusGatewayTimeout, metav1.StatusReasonTimeout}
	case codes.Unavailable, codes.FailedPrecondition:
		return outcome{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable}
	}
	return outcome{http.StatusInternalServerError, metav1.StatusReasonInternalError}
}

// statusOf is the Status that answers an error.
func statusOf(err error, t target) *metav1.Status {
	var answered apierrors.APIStatus
	if errors.As(err, &answered) {
		s := answered.Status()
		return detailed(&s, t)
	}
	s := grpcstatus.Convert(err)
	o := outcomeOf(s.Code())
	return detailed(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: o.code, Reason: o.reason, Message: s.Message(),
	}, t)
}

// detailed adds the object or resource of an answer, and when to try again.
func detailed(s *metav1.Status, t target) *metav1.Status {
	if s.Details == nil && t.resource != nil {
		s.Details = t.details()
	}
	if s.Code == http.StatusTooManyRequests && s.Details != nil {
		s.Details.RetryAfterSeconds = retryAfterSeconds
	}
	return s
}
