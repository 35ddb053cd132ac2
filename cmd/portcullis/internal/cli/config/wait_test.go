package config

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// waits is a service whose Wait ends in different ways, one call after the other.
type waits struct {
	configv1.ConfigServiceClient

	calls []func() (*configv1.WaitResponse, error)
}

func (w *waits) Wait(context.Context, *configv1.WaitRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[configv1.WaitResponse], error) {
	return &waitStream{w: w}, nil
}

type waitStream struct {
	grpc.ServerStreamingClient[configv1.WaitResponse]

	w *waits
}

func (s *waitStream) Recv() (*configv1.WaitResponse, error) {
	next := s.w.calls[0]
	s.w.calls = s.w.calls[1:]
	return next()
}

func fails(err error) func() (*configv1.WaitResponse, error) {
	return func() (*configv1.WaitResponse, error) { return nil, err }
}

func says(r *configv1.WaitResponse) func() (*configv1.WaitResponse, error) {
	return func() (*configv1.WaitResponse, error) { return r, nil }
}

// three are dispatchers of which two are behind.
var three = &configv1.WaitResponse{
	Dispatchers: []*configv1.DispatcherStatus{
		{DispatcherId: "a", Applied: &configv1.Revision{Sources: map[string]string{"etcd": "57"}}, Judging: true},
		{DispatcherId: "b", Applied: &configv1.Revision{Sources: map[string]string{"etcd": "41"}}, Judging: true, Diverging: []string{"HookRoute/x"}, Held: "39"},
		{DispatcherId: "c"},
	},
	Behind: []string{"b", "c"},
}

func TestAWaitGoesOnWhenTheDispatcherThatIsAskedStops(t *testing.T) {
	var notes bytes.Buffer
	w := wait{timeout: time.Hour, done: "judge by it", tell: printer.NewProgress(&notes, printer.ProgressLines)}
	client := &waits{calls: []func() (*configv1.WaitResponse, error){
		says(three), fails(status.Error(codes.Unavailable, "stopping")), says(three), fails(status.Error(codes.Aborted, "slow")),
		says(&configv1.WaitResponse{Dispatchers: three.GetDispatchers(), Done: true}), fails(io.EOF),
	}}
	if err := w.until(t.Context(), client); err != nil {
		t.Error(err)
	}
	if want := "1 of 3 dispatchers judge by it, waiting for b, c\n3 of 3 dispatchers judge by it\n"; notes.String() != want {
		t.Errorf("said %q, want %q", &notes, want)
	}
}

func TestAWaitThatIsOverdueSaysWhoIsBehindAndHowFar(t *testing.T) {
	for name, tc := range map[string]struct {
		calls []func() (*configv1.WaitResponse, error)
		code  int
		want  string
	}{
		"some are behind": {
			[]func() (*configv1.WaitResponse, error){says(three), fails(status.Error(codes.DeadlineExceeded, ""))}, cli.ExitBehind,
			"it is stored, but after 1m0s only 1 of 3 dispatchers judge by it, waiting for b, c:\n" +
				"  b: judges new reviews by revision 41, and still some by 39, keeps older versions of HookRoute/x\n" +
				"  c: judges nothing, its configuration is too old (revision -)\n" +
				"`portcullis get dispatchers` shows how far they are now",
		},
		"there is none": {
			[]func() (*configv1.WaitResponse, error){says(&configv1.WaitResponse{}), fails(status.Error(codes.DeadlineExceeded, ""))}, cli.ExitBehind,
			"it is stored, but after 1m0s no dispatcher says that it lives: look whether any runs and reaches the store",
		},
		"nobody has said anything": {
			[]func() (*configv1.WaitResponse, error){fails(status.Error(codes.DeadlineExceeded, ""))}, cli.ExitBehind,
			"it is stored, but after 1m0s the progress of the dispatchers is unknown: `portcullis get dispatchers` shows it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := wait{timeout: time.Minute, done: "judge by it", tell: printer.NewProgress(io.Discard, "")}
			err := w.until(t.Context(), &waits{calls: tc.calls})
			coded := (*cli.CodedError)(nil)
			if !errors.As(err, &coded) || coded.Code != tc.code || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
