package stream

import (
	"errors"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrStopping ends the sessions of a dispatcher that stops.
var ErrStopping = errors.New("session: dispatcher is stopping")

// Other reasons for which a session ends by our doing.
var (
	errSilent    = errors.New("session: silent for too long")
	errStuck     = errors.New("session: a write does not end")
	errReplaced  = errors.New("session: replaced by a newer one of the same instance")
	errStrays    = errors.New("session: too many frames without use")
	errSecond    = errors.New("session: a second hello")
	errGarbage   = errors.New("session: a frame that cannot be read")
	errLeaks     = errors.New("session: at least half of the slots belong to cancelled calls that the host never answered")
	errUngranted = errors.New("no HookRoute lists the identity of the host in spec.hosts; such sessions end after a minute, and the host may dial again")
	errLapsed    = errors.New("session: the identity of the host does not hold any more")
)

// causeOther is the label of all causes without one.
const causeOther = "stream"

// causes are the causes for which a session ended, by their label.
func causes() map[string]error {
	return map[string]error{
		"silent": errSilent, "stuck": errStuck, "replaced": errReplaced, "strays": errStrays, "drained": ErrStopping, "lapsed": errLapsed,
		"protocol": errSecond, "leaks": errLeaks, "ungranted": errUngranted,
	}
}

// CauseLabel is the cause for which a session ended, as a label of metrics, from CauseLabels.
func CauseLabel(err error) string {
	for label, cause := range causes() {
		if errors.Is(err, cause) {
			return label
		}
	}
	return causeOther
}

// CauseLabels are all values of CauseLabel, in any order.
func CauseLabels() []string {
	return slices.AppendSeq([]string{causeOther}, maps.Keys(causes()))
}

// StatusOf is the end of a session as the host sees it: an error of package status, or nil.
func StatusOf(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, ErrStopping):
		return nil
	case errors.Is(err, errUngranted):
		return status.Error(codes.PermissionDenied, err.Error())
	case errors.Is(err, errLeaks):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, errReplaced):
		return status.Error(codes.Aborted, "a newer session of the same instance has taken over")
	case errors.Is(err, errLapsed):
		return status.Error(codes.Unauthenticated, err.Error())
	case errors.Is(err, errStrays), errors.Is(err, errSecond), errors.Is(err, errGarbage):
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return status.Error(codes.Unavailable, "the session has ended")
}
