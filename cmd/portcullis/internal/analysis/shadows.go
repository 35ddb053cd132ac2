package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// Shadow has the effects that one hook in shadow would have had in one cluster, on all dispatchers.
type Shadow struct {
	// Cluster sent the reviews; empty if the hook was not called at all.
	Cluster string `json:"cluster"`
	// Stage, Configuration and Name name the hook.
	Stage         string `json:"stage"`
	Configuration string `json:"configuration"`
	Name          string `json:"name"`
	// State is whether the hook is still in shadow: "shadow", "decides" or "gone". It is empty where that is not known.
	State string `json:"state,omitempty"`
	ShadowCounts
	// P50 and P99 are quantiles of the time of a call.
	P50 Duration `json:"p50"`
	P99 Duration `json:"p99"`
	ShadowSeen
	// IncompleteBefore is set if records of the cluster from before that time were dropped for memory.
	IncompleteBefore time.Time `json:"incompleteBefore,omitzero"`
	// Subjects are the namespaces and users of the requests, sorted by denials, the most first.
	Subjects []ShadowSubject `json:"subjects"`
	// Cases are the latest requests that the hook would have denied or changed, or gave no verdict for, the latest first.
	Cases []ShadowCase `json:"cases"`
}

// ShadowCounts counts calls by the hook's would-be decision.
type ShadowCounts struct {
	// Calls is the sum of all but Dropped.
	Calls uint64 `json:"calls"`
	// Allowed requests would have passed as they are.
	Allowed uint64 `json:"allowed"`
	// WouldDeny and WouldPatch are requests that would have been refused or changed.
	WouldDeny  uint64 `json:"wouldDeny"`
	WouldPatch uint64 `json:"wouldPatch"`
	// Failed is without a verdict: the failurePolicy would have decided.
	Failed uint64 `json:"failed"`
	// Dropped requests were not shown to the hook, since a limit of calls in shadow was reached.
	Dropped uint64 `json:"dropped"`
}

func (c *ShadowCounts) add(n *analysisv1.ShadowCounts) {
	c.Allowed, c.WouldDeny = c.Allowed+uint64(n.GetAllowed()), c.WouldDeny+uint64(n.GetDenied())
	c.WouldPatch, c.Failed = c.WouldPatch+uint64(n.GetPatched()), c.Failed+uint64(n.GetFailed())
	c.Dropped += uint64(n.GetDropped())
	c.Calls = c.Allowed + c.WouldDeny + c.WouldPatch + c.Failed
}

// ShadowSeen is the time of the first and the last call.
type ShadowSeen struct {
	FirstSeen time.Time `json:"firstSeen,omitzero"`
	LastSeen  time.Time `json:"lastSeen,omitzero"`
}

func (s *ShadowSeen) add(first, last time.Time) {
	if s.FirstSeen.IsZero() || first.Before(s.FirstSeen) {
		s.FirstSeen = first
	}
	if last.After(s.LastSeen) {
		s.LastSeen = last
	}
}

// ShadowSubject is the calls for the requests of one user in one namespace.
type ShadowSubject struct {
	Namespace string `json:"namespace"`
	User      string `json:"user"`
	// Others is true of all namespaces and users past the limit of an hour, together.
	Others bool `json:"others,omitempty"`
	ShadowCounts
	ShadowSeen
}

// ShadowCase is requests with the same outcome, namespace, user and message.
type ShadowCase struct {
	// Outcome is "denied", "patched" or "failed".
	Outcome   string `json:"outcome"`
	Namespace string `json:"namespace"`
	User      string `json:"user"`
	Message   string `json:"message"`
	Calls     uint64 `json:"calls"`
	ShadowSeen
	// The fields below are of the last case.
	UID         string `json:"uid"`
	TraceID     string `json:"traceId,omitempty"`
	Operation   string `json:"operation"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Name        string `json:"name"`
	Instance    string `json:"instance,omitempty"`
	Dispatcher  string `json:"dispatcher"`
}

// Object names the request and its object in a few words.
func (c *ShadowCase) Object() string {
	resource := c.Resource
	if c.Group != "" {
		resource += "." + c.Group
	}
	if c.Subresource != "" {
		resource += "/" + c.Subresource
	}
	return strings.TrimSpace(c.Operation + " " + resource + " " + c.Name)
}

// Word is the verb for the outcome: the hook would deny, change or fail the requests.
func (c *ShadowCase) Word() string {
	switch c.Outcome {
	case "denied":
		return "deny"
	case "patched":
		return "change"
	}
	return "fail"
}

// Summary describes the hook's would-be decisions in a sentence.
func (s *Shadow) Summary() string {
	if s.Calls+s.Dropped == 0 {
		return "it was not called"
	}
	text := fmt.Sprintf("of %d requests it would have denied %d and changed %d", s.Calls, s.WouldDeny, s.WouldPatch)
	if s.Failed > 0 {
		text += fmt.Sprintf(", and %d got no verdict", s.Failed)
	}
	if s.Dropped > 0 {
		text += fmt.Sprintf("; %d more were not shown to it", s.Dropped)
	}
	if s.P99 > 0 {
		text += fmt.Sprintf("; p99 %s", s.P99.Rounded())
	}
	return text
}

// shadowSums are the records of one key.
type shadowSums struct {
	Shadow

	took     latency.Histogram
	subjects map[ShadowSubject]*ShadowSubject // by namespace, user and others
	cases    map[ShadowCase]*ShadowCase       // by outcome, namespace, user and message
}

// Shadows merges the records of dispatchers, by name and cluster.
func Shadows(answers []*analysisv1.ListShadowsResponse) []Shadow {
	by := map[key]*shadowSums{}
	for _, a := range answers {
		for _, h := range a.GetShadows() {
			k := key{h.GetCluster(), h.GetHook().GetStage(), h.GetHook().GetConfiguration(), h.GetHook().GetName()}
			if by[k] == nil {
				by[k] = &shadowSums{
					Shadow:   Shadow{Cluster: k.cluster, Stage: k.stage, Configuration: k.configuration, Name: k.name},
					subjects: map[ShadowSubject]*ShadowSubject{}, cases: map[ShadowCase]*ShadowCase{},
				}
			}
			by[k].add(h, a.GetDispatcherId())
			if until, dropped := a.GetDroppedUntil()[k.cluster]; dropped && until.AsTime().After(by[k].IncompleteBefore) {
				by[k].IncompleteBefore = until.AsTime()
			}
		}
	}
	out := make([]Shadow, 0, len(by))
	for _, k := range slices.SortedFunc(maps.Keys(by), func(a, b key) int { return cmp.Or(cmp.Compare(a.name, b.name), compareKeys(a, b)) }) {
		out = append(out, by[k].shadow())
	}
	return out
}

func (s *shadowSums) add(h *analysisv1.Shadow, dispatcher string) {
	s.ShadowCounts.add(h.GetCounts())
	s.ShadowSeen.add(h.GetFirstSeen().AsTime(), h.GetLastSeen().AsTime())
	s.took.Merge(h.GetTook())
	for _, u := range h.GetSubjects() {
		k := ShadowSubject{Namespace: u.GetNamespace(), User: u.GetUser(), Others: u.GetOthers()}
		if s.subjects[k] == nil {
			n := k
			s.subjects[k] = &n
		}
		s.subjects[k].ShadowCounts.add(u.GetCounts())
		s.subjects[k].ShadowSeen.add(u.GetFirstSeen().AsTime(), u.GetLastSeen().AsTime())
	}
	for _, c := range h.GetCases() {
		s.addCase(c, dispatcher)
	}
}

func (s *shadowSums) addCase(c *analysisv1.ShadowCase, dispatcher string) {
	k := ShadowCase{Outcome: c.GetOutcome(), Namespace: c.GetNamespace(), User: c.GetUser(), Message: c.GetMessage()}
	n := s.cases[k]
	if n == nil {
		first := k
		n = &first
		s.cases[k] = n
	}
	n.Calls += uint64(c.GetCalls())
	if last := c.GetLastSeen().AsTime(); last.After(n.LastSeen) {
		n.UID, n.TraceID, n.Instance, n.Dispatcher = c.GetUid(), c.GetTraceId(), c.GetInstance(), dispatcher
		n.Operation, n.Group, n.Resource, n.Subresource, n.Name = c.GetOperation(), c.GetGroup(), c.GetResource(), c.GetSubresource(), c.GetName()
	}
	n.ShadowSeen.add(c.GetFirstSeen().AsTime(), c.GetLastSeen().AsTime())
}

func (s *shadowSums) shadow() Shadow {
	out := s.Shadow
	out.P50, out.P99 = Duration(s.took.Quantile(.5)), Duration(s.took.Quantile(.99))
	out.Subjects, out.Cases = []ShadowSubject{}, []ShadowCase{}
	for _, u := range s.subjects {
		out.Subjects = append(out.Subjects, *u)
	}
	slices.SortFunc(out.Subjects, func(a, b ShadowSubject) int {
		return cmp.Or(cmp.Compare(b.WouldDeny, a.WouldDeny), cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.WouldPatch, a.WouldPatch),
			cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.User, b.User))
	})
	for _, c := range s.cases {
		out.Cases = append(out.Cases, *c)
	}
	slices.SortFunc(out.Cases, func(a, b ShadowCase) int {
		return cmp.Or(b.LastSeen.Compare(a.LastSeen), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.User, b.User))
	})
	return out
}
