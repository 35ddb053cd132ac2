package config

import (
	"context"
	"io"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Applier applies and removes objects for another command, as "apply --wait" and "delete --wait" do.
type Applier struct {
	// DryRun is as that flag of apply.
	DryRun cli.DryRun
	// Acknowledge has codes of dangers.
	Acknowledge []string
	// Timeout is the timeout of the context, for messages.
	Timeout time.Duration
	// Progress is the value of --progress.
	Progress string
	// Out and Notes are standard output and error.
	Out, Notes io.Writer
}

// Apply makes one object be as it is, unless it has another version than expected ("0" for an object that is not there; empty for any).
// It prints the result, and returns when every live dispatcher judges by it.
func (c Applier) Apply(ctx context.Context, client configv1.ConfigServiceClient, object config.Object, expected string) error {
	versions := map[string]string{}
	if expected != "" {
		versions[object.Key.String()] = expected
	}
	tell := printer.NewProgress(c.Notes, c.Progress)
	defer tell.Done()
	apply := applyCommand{dryRun: c.DryRun, wait: true, timeout: c.Timeout, acknowledge: c.Acknowledge}
	return apply.apply(ctx, client, []config.Object{object}, versions, outputs{c.Out, c.Notes, tell})
}

// Remove removes an object if it is there, and returns when no review is judged by it any more.
func (c Applier) Remove(ctx context.Context, client configv1.ConfigServiceClient, kind, name string) error {
	removal := deleteCommand{
		wait: true, ignoreNotFound: true, dryRun: c.DryRun, progress: c.Progress, timeout: c.Timeout, out: c.Out, notes: c.Notes,
	}
	return removal.remove(ctx, client, []*configv1.ConfigKey{{Kind: kind, Name: name}})
}
