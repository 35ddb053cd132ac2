package main

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

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// askAgainAfter is the pause after a dispatcher that answered has stopped to: another one does, or it does again.
const askAgainAfter = 500 * time.Millisecond

// wait is what a command with --wait waits for.
type wait struct {
	request *configv1.WaitRequest
	timeout time.Duration // of the command, for messages
	done    string        // what dispatchers have done that are not waited for any more
	tell    *progress
}

// until waits until every live dispatcher has it. It goes on when the one that is asked stops.
func (w *wait) until(ctx context.Context, client configv1.ConfigServiceClient) error {
	defer w.tell.done()
	var last *configv1.WaitResponse
	for {
		err := w.once(ctx, client, &last)
		switch code := status.Code(err); {
		case err == nil:
			return nil
		case ctx.Err() != nil || code == codes.DeadlineExceeded:
			return &codedError{errors.New(w.overdue(last)), exitBehind}
		case code != codes.Unavailable && code != codes.Aborted:
			return err
		}
		pause(ctx, askAgainAfter)
	}
}

// once is one stream. last is what it was told last.
func (w *wait) once(ctx context.Context, client configv1.ConfigServiceClient, last **configv1.WaitResponse) error {
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
		w.tell.sayf("%s", w.progress(answer))
	}
}

// progress is how far it is, in a line.
func (w *wait) progress(r *configv1.WaitResponse) string {
	all := len(r.GetDispatchers())
	text := fmt.Sprintf("%d of %d dispatchers %s", all-len(r.GetBehind()), all, w.done)
	if len(r.GetBehind()) > 0 {
		text += ", waiting for " + strings.Join(r.GetBehind(), ", ")
	}
	return text
}

// overdue says what was not reached in time, and who is in the way.
func (w *wait) overdue(last *configv1.WaitResponse) string {
	begin := fmt.Sprintf("it is stored, but after %v ", w.timeout)
	switch {
	case last == nil:
		return begin + "nobody has said how far the dispatchers are: `portcullis get dispatchers` shows it"
	case len(last.GetDispatchers()) == 0:
		return begin + "no dispatcher says that it lives: look whether any runs and reaches the store"
	}
	text := begin + "only " + w.progress(last) + ":"
	for _, d := range last.GetDispatchers() {
		if slices.Contains(last.GetBehind(), d.GetDispatcherId()) {
			text += "\n  " + d.GetDispatcherId() + ": " + standing(d)
		}
	}
	return text + "\n`portcullis get dispatchers` shows how far they are now"
}

// standing is what a dispatcher says of itself, for people.
func standing(d *configv1.DispatcherStatus) string {
	parts := []string{"judges new reviews by revision " + etcdOf(d)}
	if !d.GetJudging() {
		parts[0] = "judges nothing, its configuration is too old (revision " + etcdOf(d) + ")"
	}
	if held := d.GetHeld(); held != "" && held != "0" && held != etcdOf(d) {
		parts = append(parts, "and still some by "+held)
	}
	if until := d.GetServesStaleUntil(); until != nil {
		parts = append(parts, "serves stale until "+until.AsTime().Format(time.RFC3339))
	}
	if len(d.GetDiverging()) > 0 {
		parts = append(parts, "keeps older versions of "+strings.Join(d.GetDiverging(), ", "))
	}
	return strings.Join(parts, ", ")
}

// etcdOf is the revision of etcd that a dispatcher has applied.
func etcdOf(d *configv1.DispatcherStatus) string {
	if revision := d.GetApplied().GetSources()["etcd"]; revision != "" {
		return revision
	}
	return "-"
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
