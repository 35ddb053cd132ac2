package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// shared knows the conditions that fail-closed entries have, since all of their hooks share them. All mutating hooks or initializers of a cluster
// count as hooks of the entry, also if no request meets both. So it may miss a condition, and never assumes one.
type shared struct {
	stages map[admissionv1.Stage]*holders
	env    *cel.Env // nil until needed
	known  map[decision]bool
}

// holders are the hooks of a stage, by cluster, and the hooks with each condition.
type holders struct {
	everywhere tally // hooks for every cluster
	in         map[string]*tally
	elsewhere  tally // the sum of in
}

type tally struct {
	hooks int
	with  map[string]int
}

func (t *tally) add(h *match.Hook) {
	if t.hooks++; t.with == nil {
		t.with = map[string]int{}
	}
	for _, condition := range h.EntryConditions() {
		t.with[condition]++
	}
}

// have is whether all hooks have a condition.
func (t *tally) have(condition string) bool { return t == nil || t.hooks == t.with[condition] }

// decision is a condition about a sample write.
type decision struct {
	condition string
	write     *write
}

func newShared(hooks []*match.Hook) *shared {
	s := &shared{stages: map[admissionv1.Stage]*holders{}, known: map[decision]bool{}}
	for _, h := range hooks {
		if h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE && !h.FailsClosed() {
			continue
		}
		of := s.stages[h.EntryStage()]
		if of == nil {
			of = &holders{in: map[string]*tally{}}
			s.stages[h.EntryStage()] = of
		}
		if len(clustersOf(h)) == 0 {
			of.everywhere.add(h)
		}
		for _, cluster := range clustersOf(h) {
			if of.in[cluster] == nil {
				of.in[cluster] = &tally{}
			}
			of.in[cluster].add(h)
			of.elsewhere.add(h)
		}
	}
	return s
}

// clustersOf are the clusters whose reviews a hook sees; none for all.
func clustersOf(h *match.Hook) []string {
	if h.ID.Scope != "" {
		return []string{h.ID.Scope}
	}
	return h.Route.Clusters
}

// keepsOut reports whether the entries of a fail-closed hook, in each of its clusters, keep out a write by a shared condition.
func (s *shared) keepsOut(h *match.Hook, w *write) bool {
	if !registration.HasRoomFor(h.EntryConditions()) {
		return false
	}
	return slices.ContainsFunc(h.EntryConditions(), func(condition string) bool {
		return s.stages[h.EntryStage()].share(h, condition) && s.isFalse(condition, w)
	})
}

// share is whether all hooks have a condition that some cluster calls together with h.
func (o *holders) share(h *match.Hook, condition string) bool {
	if !o.everywhere.have(condition) {
		return false
	}
	if len(clustersOf(h)) == 0 {
		return o.elsewhere.have(condition)
	}
	return !slices.ContainsFunc(clustersOf(h), func(cluster string) bool { return !o.in[cluster].have(condition) })
}

// isFalse evaluates a condition about a write. An error counts as true: the entry brings the write.
func (s *shared) isFalse(condition string, w *write) bool {
	key := decision{condition, w}
	result, ok := s.known[key]
	if !ok {
		result = s.evaluate(condition, w) == types.False
		s.known[key] = result
	}
	return result
}

// evaluate needs nothing but CEL itself, whose functions are all that these conditions have; nil after an error.
func (s *shared) evaluate(condition string, w *write) any {
	if s.env == nil {
		env, err := cel.NewEnv()
		if err != nil {
			return nil
		}
		s.env = env
	}
	parsed, issues := s.env.Parse(condition)
	if issues.Err() != nil {
		return nil
	}
	program, err := s.env.Program(parsed, append(match.BoundCalls(s.env), cel.CostLimit(maxConstantCost))...)
	if err != nil {
		return nil
	}
	value, _, err := program.Eval(map[string]any{"request": w.request()})
	if err != nil {
		return nil
	}
	return value
}

// request has the fields of a write that conditions of entries read. The groups of its user are not known.
func (w *write) request() map[string]any {
	plural, subresource, _ := strings.Cut(w.resource, "/")
	r := map[string]any{
		"operation": w.operation, "name": w.name, "userInfo": map[string]any{"username": w.user},
		"resource": map[string]any{"group": w.group, "version": w.version, "resource": plural},
	}
	if w.namespace != "" {
		r["namespace"] = w.namespace
	}
	if subresource != "" {
		r["subResource"] = subresource
	}
	return r
}
