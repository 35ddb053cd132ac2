package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// wait is a wait for all dispatchers (--wait).
type wait struct {
	request *configv1.WaitRequest
	timeout time.Duration // of the command, for messages
	done    string        // the predicate of the dispatchers that are not waited for any more, for messages
	tell    *printer.Progress
}

// until waits until every live dispatcher has the revision. It asks another dispatcher when the dispatcher at the other
// end stops.
func (w *wait) until(ctx context.Context, client configv1.ConfigServiceClient) error {
	defer w.tell.Done()
	var last *configv1.WaitResponse
	stream := func(ctx context.Context) error { return w.stream(ctx, client, &last) }
	err := connect.Retry(ctx, askAgainAfter, stream, func(err error) bool {
		code := status.Code(err)
		return code == codes.Unavailable || code == codes.Aborted
	})
	if err != nil && (ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded) {
		return &cli.CodedError{Err: errors.New(w.overdue(last)), Code: cli.ExitBehind}
	}
	return err
}

// stream is one stream. last is its last answer.
func (w *wait) stream(ctx context.Context, client configv1.ConfigServiceClient, last **configv1.WaitResponse) error {
	stream, err := client.Wait(ctx, w.request)
	if err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		*last = answer
		w.tell.Sayf("%s", w.progress(answer))
	}
}

func (w *wait) progress(r *configv1.WaitResponse) string {
	all := len(r.GetDispatchers())
	text := fmt.Sprintf("%d of %d dispatchers %s", all-len(r.GetBehind()), all, w.done)
	if len(r.GetBehind()) > 0 {
		text += ", waiting for " + strings.Join(r.GetBehind(), ", ")
	}
	return text
}

func (w *wait) overdue(last *configv1.WaitResponse) string {
	begin := fmt.Sprintf("it is stored, but after %v ", w.timeout)
	switch {
	case last == nil:
		return begin + "the progress of the dispatchers is unknown: `portcullis get dispatchers` shows it"
	case len(last.GetDispatchers()) == 0:
		return begin + "no dispatcher says that it lives: look whether any runs and reaches the store"
	}
	text := begin + "only " + w.progress(last) + ":"
	for _, d := range last.GetDispatchers() {
		if slices.Contains(last.GetBehind(), d.GetDispatcherId()) {
			text += "\n  " + d.GetDispatcherId() + ": " + mesh.Standing(d)
		}
	}
	return text + "\n`portcullis get dispatchers` shows how far they are now"
}
