package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// MaxHosts bounds the hosts of a case file.
const MaxHosts = 16

// Host is a program that serves hooks.
type Host struct {
	// Command is the program with its arguments. It runs in the directory of the case file.
	Command Command `json:"command"`
	// Identity is the identity in its certificate. Empty means the only identity that HookRoutes name.
	Identity string `json:"identity,omitempty"`
}

// Command is a program with its arguments. In a case file it is a list of words, or a text for the shell.
type Command struct {
	// Words are the program and its arguments; nil with Text.
	Words []string
	// Text is the program and its arguments as the shell reads them.
	Text string
}

// Arguments are the program and its arguments, with further ones.
func (c *Command) Arguments(more ...string) []string {
	if c.Text != "" {
		return append([]string{"sh", "-c", "exec " + c.Text + ` "$@"`, "sh"}, more...)
	}
	return slices.Concat(c.Words, more)
}

// String is the command for people.
func (c *Command) String() string {
	if c.Text != "" {
		return c.Text
	}
	return strings.Join(c.Words, " ")
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Command) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &c.Text) != nil && json.Unmarshal(raw, &c.Words) != nil {
		return errors.New("must be a text or a list of words")
	}
	if c.Text == "" && (len(c.Words) == 0 || c.Words[0] == "") {
		return errors.New("must name a program")
	}
	return nil
}

// Hosts are hosts that run. They carry calls to their hooks, and stage objects for their initializers.
type Hosts interface {
	review.Backend
	dispatcher.Stager
	// Log is the end of the output of the hosts.
	Log() string
	// Close ends the hosts.
	Close() error
}

// StartHosts starts hosts whose commands run in a directory, and returns when they serve all hooks of a configuration that are served over streams.
type StartHosts func(ctx context.Context, snapshot *match.Snapshot, dir string, hosts []Host) (Hosts, error)

// serve starts the hosts of a suite for its policies.
func (p *policies) serve(ctx context.Context, s *Suite, hosts []Host, start StartHosts) error {
	p.hooks = true
	m, err := p.compile(p.objects)
	if err != nil {
		return fmt.Errorf("%s: %w", s.File, err)
	}
	if p.hosts, err = start(ctx, m.Snapshot(), filepath.Dir(s.File), hosts); err != nil {
		return fmt.Errorf("%s: hosts: %w", s.File, err)
	}
	return nil
}

// NotCalled are the initializers beside a suite that no host of it serves, in the order of their names: objects are judged without them.
func (r *Runner) NotCalled(s *Suite) (names []string) {
	p := r.loaded[r.key(s)]
	if p == nil || !slices.ContainsFunc(p.objects, isInitializers) {
		return nil
	}
	by, err := p.judgedBy(&Case{})
	if err != nil {
		return nil // the cases have the error
	}
	for i := range p.objects {
		o := &p.objects[i]
		if !o.Initializes() {
			continue
		}
		for _, w := range o.Webhooks() {
			called := func(h *match.Hook) bool {
				return h.Initializes() && h.ID.Configuration == o.Name && h.ID.Name == w.Name
			}
			if !slices.ContainsFunc(by.mesh.Hooks(), called) {
				names = append(names, w.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isInitializers(o config.Object) bool { return o.Initializes() }
