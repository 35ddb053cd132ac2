package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
	"github.com/portcullis-mesh/portcullis/test/bench/bare"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// maxOutstanding is more than the callers there are at a time times the hooks of a host.
const maxOutstanding = 1 << 15

// place is which host one is, and which of its replicas.
type place struct{ host, replica int }

// instance is the name of its process.
func (p place) instance() string { return fmt.Sprintf("host-%02d-%d", p.host, p.replica) }

// host starts a host with its hooks, which lives as long as life, and waits until they are in rotation.
func (m *Mesh) host(ctx, life context.Context, kind Hosts, at place) error {
	run, ready := m.bareHost(at)
	if kind == SDK || kind == Adapted {
		var err error
		if run, ready, err = m.sdkHost(at); err != nil {
			return err
		}
	}
	ended := make(chan struct{})
	m.hosts.Go(func() error {
		defer close(ended)
		return run(life)
	})
	select {
	case <-ready:
		return nil
	case <-ended:
		return errors.New("a host ended before its hooks were in rotation")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sdkHost makes a host with the SDK.
func (m *Mesh) sdkHost(at place) (run func(context.Context) error, ready <-chan struct{}, err error) {
	o := hostsdk.Options{
		Name: "bench", Instance: at.instance(), Dispatchers: []string{m.address},
		TLS: hostsdk.TLSConfig(m.keys.Client()), MaxOutstanding: maxOutstanding, Logger: slog.New(slog.DiscardHandler),
	}
	if m.traces != nil {
		o.TracerProvider = m.traces.sampled
	}
	var hooks []hostsdk.Hook
	for _, i := range m.hooks(at) {
		hooks = append(hooks, m.hook(i, at.replica))
	}
	h, err := hostsdk.New(o, hooks...)
	if err != nil {
		return nil, nil, err
	}
	return h.Run, h.Ready(), nil
}

// bareHost makes a bare host.
func (m *Mesh) bareHost(at place) (run func(context.Context) error, ready <-chan struct{}) {
	inRotation := make(chan struct{})
	o := bare.Options{
		Address: m.address, TLS: m.keys.Client(), Instance: at.instance(), Stage: m.stage(),
		Ready: sync.OnceFunc(func() { close(inRotation) }), Called: func(calls int) { m.calls.Add(int64(calls)) },
	}
	for _, i := range m.hooks(at) {
		o.Hooks = append(o.Hooks, scenario.Hook(i))
	}
	return func(ctx context.Context) error { return bare.Run(ctx, o) }, inRotation
}

// hooks are the numbers of those that a host serves.
func (m *Mesh) hooks(at place) []int {
	var mine []int
	for i := range m.scenario.Hooks {
		if m.scenario.Host(i) == at.host {
			mine = append(mine, i)
		}
	}
	return mine
}

// hook is a hook of the scenario's stage, which allows everything.
func (m *Mesh) hook(hook, replica int) hostsdk.Hook {
	if m.webhooks != nil {
		return hostsdk.Validate(scenario.Hook(hook), m.webhooks.adapted(scenario.Hook(hook)))
	}
	wait, patch := m.scenario.Wait(replica), m.scenario.Patch(hook)
	handler := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		m.calls.Add(1)
		if wait > 0 {
			<-time.After(wait)
		}
		return hostsdk.Patch(patch), nil
	}
	if m.scenario.Checks {
		handler = m.checked
	}
	if m.scenario.Stage == scenario.Mutate {
		return hostsdk.Mutate(scenario.Hook(hook), handler, hostsdk.Speculate())
	}
	return hostsdk.Validate(scenario.Hook(hook), handler)
}

// checked is the handler of a hook that checks the images of a Pod.
func (m *Mesh) checked(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	m.calls.Add(1)
	pod, err := kube.Object[corev1.Pod](r)
	if err != nil {
		return nil, err
	}
	if err := scenario.NamedByDigest(pod); err != nil {
		return hostsdk.Deny(err.Error()), nil
	}
	return hostsdk.Allow(), nil
}
