package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/portcullis-mesh/portcullis/bench/scenario"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// maxOutstanding is more than the callers there are at a time times the hooks of a host.
const maxOutstanding = 1 << 15

// host starts a host with its hooks, which lives as long as life, and waits until they are in rotation.
func (m *Mesh) host(ctx, life context.Context, number int, dispatcher string) error {
	h, err := hostsdk.New(hostsdk.Options{
		Name: "bench", Instance: fmt.Sprintf("host-%02d", number), Dispatchers: []string{dispatcher},
		TLS: hostsdk.TLSConfig(m.keys.Client()), MaxOutstanding: maxOutstanding, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	for i := range m.scenario.Hooks {
		if m.scenario.Host(i) == number {
			m.register(h, scenario.Hook(i))
		}
	}
	ended := make(chan struct{})
	m.hosts.Go(func() error {
		defer close(ended)
		return h.Run(life)
	})
	select {
	case <-h.Ready():
		return nil
	case <-ended:
		return errors.New("a host ended before its hooks were in rotation")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// register adds a hook of the scenario's stage that allows everything.
func (m *Mesh) register(h *hostsdk.Host, name string) {
	allow := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		m.calls.Add(1)
		return hostsdk.Allow(), nil
	}
	if m.scenario.Stage == scenario.Mutate {
		h.Mutate(name, allow)
		return
	}
	h.Validate(name, allow)
}
