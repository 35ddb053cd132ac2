package mesh

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// lookInterval is the pause between two calls for answers that have no stream.
const lookInterval = time.Second

// poll asks again and again until ctx ends. Once a dispatcher has answered, it also asks again after a call without an answer, since
// another one may answer; it notes that once.
func (s *Show) poll(ctx context.Context, ask func(context.Context) error) error {
	if s.Format != "" && s.Format != printer.Wide && s.Format != printer.JSON {
		return fmt.Errorf("-w and -o %s: dispatchers and changes are watched as a table; use -o json for tools", s.Format)
	}
	begun, silent := false, false
	looks := func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := s.within(ctx, ask); err != nil {
				return err
			}
			begun, silent = true, false
			clock.Sleep(ctx, lookInterval)
		}
		return nil
	}
	err := connect.Retry(ctx, lookInterval, looks, func(err error) bool {
		code := status.Code(err)
		if !begun || code != codes.Unavailable && code != codes.DeadlineExceeded {
			return false
		}
		if !silent {
			silent = true
			fmt.Fprintf(s.Notes, "there is no answer (%s): asking again\n", printer.Text(status.Convert(err).Message()))
		}
		return true
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupt is no error
	}
	return err
}

func (s *Show) within(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return ask(ctx)
}
