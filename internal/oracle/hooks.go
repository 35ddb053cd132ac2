package oracle

import (
	"context"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// hooks are the scripts of an oracle behind their server, and who was called in the review that is on.
type hooks struct {
	options Options
	server  *Webhooks

	mu     sync.Mutex
	called []string
}

func newHooks(t testing.TB, o Options) *hooks {
	t.Helper()
	h := &hooks{options: o}
	h.server = NewWebhooks(t, h.play)
	return h
}

// point makes c lead to the script of a hook, if it has one.
func (h *hooks) point(key string, c *admissionregistrationv1.WebhookClientConfig) {
	if h.script(key) != nil {
		*c = h.server.ClientConfig(key)
	}
}

func (h *hooks) script(key string) Script {
	if script, ok := h.options.Scripts[key]; ok {
		return script
	}
	return h.options.Default
}

func (h *hooks) play(ctx context.Context, key string, r *admissionv1.AdmissionRequest) Answer {
	h.mu.Lock()
	h.called = append(h.called, key)
	h.mu.Unlock()
	return h.script(key)(ctx, r)
}

// begin forgets the calls of the review before.
func (h *hooks) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.called = nil
}

// end returns the hooks that were called since begin, in the order in which the calls arrived, as often as the caller
// came. It waits for the scripts that are still running: their callers have given up, so they end.
func (h *hooks) end() []string {
	h.server.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.called
}
