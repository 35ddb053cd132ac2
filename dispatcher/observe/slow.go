package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// DefaultSlow is how long a review takes that counts as slow, for processes that say nothing else.
const DefaultSlow = 500 * time.Millisecond

// AuditSlow and the name of the stage are the key of the annotation of a slow review.
const AuditSlow = "slow."

const (
	// maxSlowHooks is how many calls of a slow review are named: those that it waited for longest.
	maxSlowHooks = 3
	// maxSlowBytes is the most bytes of the annotation: the calls that it waited for least are left out past that.
	maxSlowBytes = chain.ReservedAuditBytes - 1<<10 // the rest is for the other annotations of the dispatcher
	// maxSlowInstance is the most bytes of the name of an instance.
	maxSlowInstance = 64
)

// slowReview is where the time of a slow review went. Times are written as Go and the annotations of kube-apiserver write them.
type slowReview struct {
	Duration string     `json:"duration"` // since the request came in
	Timeout  string     `json:"timeout"`  // that the caller gave it
	Edge     string     `json:"edge,omitempty"`
	Held     string     `json:"held,omitempty"`
	Hooks    []slowCall `json:"hooks,omitempty"`
	More     int        `json:"more,omitempty"` // calls that are not in Hooks
	TraceID  string     `json:"traceID,omitempty"`
}

// slowCall is where the time of a call went.
type slowCall struct {
	Configuration string `json:"configuration"`
	Hook          string `json:"hook"`
	Stage         string `json:"stage,omitempty"` // of an initializer; other hooks have the stage of the review
	Round         uint32 `json:"round,omitempty"`
	Outcome       string `json:"outcome"`
	Duration      string `json:"duration"`
	Queued        string `json:"queued,omitempty"`
	Wire          string `json:"wire,omitempty"`
	Host          string `json:"host,omitempty"`
	Controller    string `json:"controller,omitempty"` // until the controller of an initializer has acted
	Webhook       string `json:"webhook,omitempty"`    // wire and host of a webhook over HTTPS
	Applied       string `json:"applied,omitempty"`
	Instance      string `json:"instance,omitempty"`
}

// String is the call in a log of text.
func (c slowCall) String() string {
	var phases []string
	for _, p := range []struct{ name, spent string }{
		{"queued", c.Queued}, {"wire", c.Wire}, {"host", c.Host}, {"controller", c.Controller}, {"webhook", c.Webhook}, {"applied", c.Applied},
	} {
		if p.spent != "" {
			phases = append(phases, p.name+" "+p.spent)
		}
	}
	text := fmt.Sprintf("%s %s %s (%s)", strings.TrimSpace(c.Stage+" "+c.Hook), c.Outcome, c.Duration, strings.Join(phases, ", "))
	if c.Instance != "" {
		text += " on " + c.Instance
	}
	return text
}

func slowReviewOf(v *latency.ReviewRecord, deadline time.Time) slowReview {
	s := slowReview{
		Duration: spell(v.Edge + v.Took), Timeout: spell(deadline.Sub(v.Begun) + v.Edge), Edge: spell(v.Edge), Held: spell(v.Held),
		More: max(0, len(v.Calls)-maxSlowHooks),
	}
	if v.TraceID.IsValid() {
		s.TraceID = v.TraceID.String()
	}
	calls := slices.SortedStableFunc(slices.Values(v.Calls), func(a, b latency.CallRecord) int {
		return cmp.Or(cmp.Compare(b.Alone, a.Alone), cmp.Compare(b.Took(), a.Took()))
	})
	for i := range calls[:len(calls)-s.More] {
		s.Hooks = append(s.Hooks, slowCallOf(&calls[i]))
	}
	return s
}

func slowCallOf(c *latency.CallRecord) slowCall {
	s := slowCall{
		Configuration: c.Hook.Configuration, Hook: c.Hook.Name, Round: c.Round, Outcome: c.Outcome, Duration: spell(c.Took()),
		Queued: spell(c.Queued), Host: spell(c.Host), Applied: spell(c.Applied), Instance: Cut(c.Instance, maxSlowInstance),
	}
	if s.Wire = spell(c.Wire); !c.Streamed {
		s.Wire, s.Webhook = "", s.Wire
	}
	if c.Hook.Stage == admissionv1.Stage_STAGE_INITIALIZE {
		s.Stage = match.StageName(c.Hook.Stage)
	}
	if c.ByController() {
		s.Host, s.Controller = "", s.Host
	}
	return s
}

// spell writes a time for people; none is empty.
func spell(d time.Duration) string {
	if d = d.Round(time.Microsecond); d <= 0 {
		return ""
	}
	return d.String()
}

// annotation is the value of the audit annotation.
func (s *slowReview) annotation() string {
	for {
		value, _ := json.Marshal(s) //nolint:errchkjson // strings and numbers never fail
		if len(value) <= maxSlowBytes || len(s.Hooks) == 0 {
			return string(value)
		}
		s.More++
		s.Hooks = s.Hooks[:len(s.Hooks)-1]
	}
}

// noteSlow logs a review that took too long, within the rate limit of its cluster, and returns its annotation.
func (x *Observer) noteSlow(ctx context.Context, v *latency.ReviewRecord) (annotation string) {
	if x.options.Slow <= 0 || v.Edge+v.Took < x.options.Slow {
		return ""
	}
	deadline, _ := ctx.Deadline()
	s := slowReviewOf(v, deadline)
	annotation = s.annotation()
	x.logSlow(ctx, v, &s)
	return annotation
}

func (x *Observer) logSlow(ctx context.Context, v *latency.ReviewRecord, s *slowReview) {
	more, ok := x.slow.allow(v.Cluster, v.Begun.Add(v.Took))
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("uid", Cut(v.UID, maxLogged)), slog.String("cluster", v.Cluster), slog.String("stage", stageLabel(v.Stage)),
		slog.String("operation", Cut(v.Operation, maxLogged)), slog.String("resource", Cut(v.Resource, maxLogged)),
		slog.String("outcome", v.Outcome), slog.String("duration", s.Duration), slog.String("timeout", s.Timeout),
	}
	for _, named := range []struct{ key, value string }{
		{"namespace", v.Namespace}, {"name", v.Name}, {"edge", s.Edge}, {"held", s.Held}, {"trace_id", s.TraceID},
	} {
		if named.value != "" {
			attrs = append(attrs, slog.String(named.key, Cut(named.value, maxLogged)))
		}
	}
	if len(s.Hooks) > 0 {
		attrs = append(attrs, slog.Any("hooks", s.Hooks))
	}
	for _, counted := range []struct {
		key string
		n   int
	}{{"more_hooks", s.More}, {"more", more}} {
		if counted.n > 0 {
			attrs = append(attrs, slog.Int(counted.key, counted.n))
		}
	}
	x.options.Logger.LogAttrs(ctx, slog.LevelWarn, "the review was slow", attrs...)
}
