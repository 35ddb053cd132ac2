package dispatcher_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// maxShrinks bounds how many smaller cases are tried for one report.
const maxShrinks = 300

// shrink looks for a smaller experiment that still differs: it takes things away, one at a time, while that helps.
func shrink(t *testing.T, e *experiment, j judgement) (*experiment, judgement) {
	t.Helper()
	attempts := 0
	for smaller := true; smaller; {
		smaller = false
		for candidate := range e.smaller() {
			if attempts++; attempts > maxShrinks {
				return e, j
			}
			var tried judgement
			t.Run(fmt.Sprintf("smaller-%d", attempts), func(t *testing.T) {
				tried = newLaboratory(t, candidate.world).judge(candidate)
			})
			if tried.difference != "" {
				e, j, smaller = candidate, tried, true
				break
			}
		}
	}
	return e, j
}

// smaller are the experiments with one thing less.
func (e *experiment) smaller() iter.Seq[*experiment] {
	return func(yield func(*experiment) bool) {
		_ = e.fewerHooks(yield) && e.plainerHooks(yield) && e.plainerScripts(yield) && e.plainerRequest(yield)
	}
}

// fewerHooks leaves out one configuration, or one hook. It reports whether to go on.
func (e *experiment) fewerHooks(yield func(*experiment) bool) bool {
	for i, c := range e.world.Configurations {
		without := e.clone()
		without.world.Configurations = slices.Delete(without.world.Configurations, i, i+1)
		if !yield(without) {
			return false
		}
		for j := range c.Webhooks {
			without := e.clone()
			hooks := &without.world.Configurations[i].Webhooks
			*hooks = slices.Delete(*hooks, j, j+1)
			if !yield(without) {
				return false
			}
		}
	}
	return true
}

// plainerHooks gives one field of one hook its usual value.
func (e *experiment) plainerHooks(yield func(*experiment) bool) bool {
	for i, c := range e.world.Configurations {
		if c.Speculate {
			plainer := e.clone()
			if plainer.world.Configurations[i].Speculate = false; !yield(plainer) {
				return false
			}
		}
		for j := range c.Webhooks {
			for _, plain := range plainFields() {
				plainer := e.clone()
				if plain(&plainer.world.Configurations[i].Webhooks[j]) && !yield(plainer) {
					return false
				}
			}
		}
	}
	return true
}

// plainFields make one field plain each, and report whether it was not.
func plainFields() []func(h *admissionregistrationv1.MutatingWebhook) bool {
	none := admissionregistrationv1.SideEffectClassNone
	return []func(h *admissionregistrationv1.MutatingWebhook) bool{
		func(h *admissionregistrationv1.MutatingWebhook) bool { return clearField(&h.NamespaceSelector) },
		func(h *admissionregistrationv1.MutatingWebhook) bool { return clearField(&h.ObjectSelector) },
		func(h *admissionregistrationv1.MutatingWebhook) bool { return clearField(&h.FailurePolicy) },
		func(h *admissionregistrationv1.MutatingWebhook) bool { return clearField(&h.MatchPolicy) },
		func(h *admissionregistrationv1.MutatingWebhook) bool { return clearField(&h.TimeoutSeconds) },
		func(h *admissionregistrationv1.MutatingWebhook) bool { return clearField(&h.ReinvocationPolicy) },
		func(h *admissionregistrationv1.MutatingWebhook) bool { return cut(&h.MatchConditions, 0) },
		func(h *admissionregistrationv1.MutatingWebhook) bool { return cut(&h.Rules, 1) },
		func(h *admissionregistrationv1.MutatingWebhook) bool {
			was := h.SideEffects
			h.SideEffects = &none
			return was == nil || *was != none
		},
	}
}

// clearField clears a field; it reports whether that changed anything.
func clearField[T any](field **T) bool {
	changed := *field != nil
	*field = nil
	return changed
}

// cut makes a list shorter; it reports whether that changed anything.
func cut[T any](list *[]T, to int) bool {
	if len(*list) <= to {
		return false
	}
	*list = (*list)[:to]
	return true
}

// plainerScripts makes one hook allow, or leaves out one step of its script.
func (e *experiment) plainerScripts(yield func(*experiment) bool) bool {
	for _, h := range e.world.hooks(e.Stage) {
		script := e.Scripts[h.key]
		for i := range script {
			c := e.clone()
			c.Scripts[h.key] = slices.Delete(slices.Clone(script), i, i+1)
			if !yield(c) {
				return false
			}
		}
	}
	return true
}

// plainerRequest takes away optional fields of a request.
func (e *experiment) plainerRequest(yield func(*experiment) bool) bool {
	c := e.clone()
	if e.Request.DryRun != nil {
		c.Request = inEarnest(e.Request)
		if !yield(c) {
			return false
		}
	}
	if e.Explain {
		c = e.clone()
		c.Explain = false
		if !yield(c) {
			return false
		}
	}
	if e.world.Streams {
		c = e.clone()
		c.world.Streams = false
		if !yield(c) {
			return false
		}
	}
	return e.fewerWebhooks(yield)
}

// fewerWebhooks carries the hooks of one configuration otherwise, if that can carry their answers.
func (e *experiment) fewerWebhooks(yield func(*experiment) bool) bool {
	for i, c := range e.world.Configurations {
		if !c.HTTPS || !e.carriesAll(c) {
			continue
		}
		other := e.clone()
		other.world.Configurations[i].HTTPS = false
		for j := range c.Webhooks {
			h := &other.world.Configurations[i].Webhooks[j]
			h.ClientConfig, h.AdmissionReviewVersions = admissionregistrationv1.WebhookClientConfig{}, []string{"v1"}
		}
		if !yield(other) {
			return false
		}
	}
	return true
}

// carriesAll reports whether the hooks of a configuration say nothing that only HTTPS can carry.
func (e *experiment) carriesAll(c configuration) bool {
	for _, h := range e.world.hooks(c.Stage) {
		for _, s := range e.Scripts[h.key] {
			a := s.act.say(nil)
			if strings.HasPrefix(h.key, c.Name+"/") && (a.Before != nil || a.Cut > 0 || a.Code != 0 || a.Header != nil || a.Body != nil || a.Edit != nil) {
				return false
			}
		}
	}
	return true
}

func cloneRequest(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	return proto.CloneOf(r)
}
