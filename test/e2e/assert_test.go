package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const (
	// patience is how long a condition that must come true may take. Only a
	// hang takes so long.
	patience = 2 * time.Minute
	// interval is the pause between two looks at it.
	interval = 20 * time.Millisecond
)

// eventually fails the test unless check returns nil within patience.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	within(t, patience, what, check)
}

// within is eventually with another patience.
func within(t *testing.T, patience time.Duration, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// statusCode is the HTTP status of an API server's error, 0 for any other.
func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// auditHas is an error unless an event in the audit log matches.
func auditHas(match func(*auditv1.Event) bool) error {
	events, err := cluster.AuditEvents(match)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return errors.New("no event matches")
	}
	return nil
}
