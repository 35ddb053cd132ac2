package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
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

// Hosts are hosts that run, and carry calls to their hooks.
type Hosts interface {
	review.Backend
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
