package chain_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

var _ chain.Codec = conversion.Raw{}

// TestScenarios plays the stories in testdata: each line of input is an event, the output lists the machine's actions. Run with -rewrite to write
// down new behaviour, and read the difference before it is committed.
func TestScenarios(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		var w world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			switch d.Cmd {
			case "mutate", "validate":
				return w.begin(t, d)
			case "deliver":
				w.deliver(t, d)
				return w.next()
			case "also":
				w.deliver(t, d)
				return ""
			case "time":
				var to string
				d.ScanArgs(t, "to", &to)
				w.now = epoch.Add(duration(t, to))
				return w.next()
			}
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

// epoch is when every story begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a machine and the state of its story.
type world struct {
	machine chain.Machine
	now     time.Time
	rules   map[*match.Hook]rule
	ahead   map[*match.Hook]int // behind how many others hooks may be asked ahead of their turn
}

// rule is when a hook of a story matches.
type rule struct {
	contains string
	err      *apierrors.StatusError
	as       *conversion.ResourceKind
}

// begin makes a machine. Arguments: budget, dryrun, delete, explain, failopen (the request always fails open), reinvoke (of a chain that mutates: the
// API server calls it again), defaults (objects are given a field "d" after each patch, and those in another version a field "e"). Input: "object
// JSON" (default {}), and a hook a line, its name followed by words: ignore, ifneeded, timeout=1s, effects=Some, if=TEXT (matches objects that
// contain "TEXT"), missing (matching fails with 404), ahead=N (it may be asked ahead of its turn, behind N others at most), initializer (=N: it acts
// at the same time as those next to it with the same number), shadow, pending, all (it asks for all denials), as=VERSION (the hook takes another
// version, in which "name" is "title"; nothing converts to "broken").
func (w *world) begin(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	stage := admissionv1.Stage_STAGE_VALIDATE
	if d.Cmd == "mutate" {
		stage = admissionv1.Stage_STAGE_MUTATE
	}
	budget := "10s"
	d.MaybeScanArgs(t, "budget", &budget)
	dryRun := d.HasArg("dryrun")
	if d.HasArg("reinvoke") {
		stage = admissionv1.Stage_STAGE_REINVOKE
	}
	request := &admissionv1.AdmissionRequest{
		Uid: "u1", Operation: "CREATE", Object: &admissionv1.Object{Raw: []byte(`{}`)}, DryRun: &dryRun,
	}
	if d.HasArg("delete") {
		request.Operation, request.Object = "DELETE", nil
	}
	w.rules, w.ahead = make(map[*match.Hook]rule), make(map[*match.Hook]int)
	o := chain.Options{
		Request:  &review.Request{Stage: stage, Admission: request, Explain: d.HasArg("explain")},
		Revision: "r1",
		Subject:  subject{matches: w.match, defaults: d.HasArg("defaults")},
		Codec:    conversion.Raw{},
		Deadline: epoch.Add(duration(t, budget)),
		FailOpen: d.HasArg("failopen"),
	}
	for line := range strings.Lines(d.Input) {
		if raw, ok := strings.CutPrefix(line, "object "); ok {
			request.Object.Raw = []byte(strings.TrimSpace(raw))
			continue
		}
		o.Hooks = append(o.Hooks, w.hook(t, stage, strings.Fields(line)))
	}
	if len(w.ahead) > 0 {
		o.Speculate = func(h *match.Hook, behind []*match.Hook) bool { return len(behind) <= w.ahead[h] }
	}
	w.now = epoch
	if d.Cmd == "mutate" {
		w.machine = chain.NewMutate(o)
	} else {
		w.machine = chain.NewValidate(o)
	}
	return w.next()
}

func (w *world) hook(t *testing.T, stage admissionv1.Stage, words []string) *match.Hook {
	t.Helper()
	h := &match.Hook{
		ID:            match.HookID{Stage: stage, Configuration: "c", Name: words[0]},
		FailurePolicy: admissionregistrationv1.Fail,
		Timeout:       5 * time.Second,
		SideEffects:   admissionregistrationv1.SideEffectClassNone,
		Reinvocation:  admissionregistrationv1.NeverReinvocationPolicy,
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ignore":
			h.FailurePolicy = admissionregistrationv1.Ignore
		case "ifneeded":
			h.Reinvocation = admissionregistrationv1.IfNeededReinvocationPolicy
		case "timeout":
			h.Timeout = duration(t, value)
		case "effects":
			h.SideEffects = admissionregistrationv1.SideEffectClass(value)
		case "if":
			w.rules[h] = rule{contains: `"` + value + `"`}
		case "as":
			w.rules[h] = rule{as: &conversion.ResourceKind{Kind: schema.GroupVersionKind{Version: value, Kind: "Thing"}}}
		case "ahead":
			if w.ahead[h] = 100; value != "" {
				w.ahead[h], _ = strconv.Atoi(value)
			}
		case "shadow":
			h.Route.Shadow = true
		case "pending":
			h.Pending = true
		case "initializer":
			h.ID.Stage = admissionv1.Stage_STAGE_INITIALIZE
			h.Batch, _ = strconv.Atoi(value)
		case "all":
			h.Route.AllDenials = true
		case "missing":
			w.rules[h] = rule{err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "gone")}
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return h
}

func (w *world) match(h *match.Hook, o chain.Object) match.Decision {
	r := w.rules[h]
	switch {
	case h.Pending:
		return match.Decision{Skip: match.SkipPending}
	case r.err != nil:
		return match.Decision{Err: r.err}
	case bytes.Contains(o.Raw, []byte(r.contains)):
		return match.Decision{Match: true, As: r.as}
	}
	return match.Decision{Skip: match.SkipObjectSelector}
}

// subject matches hooks with a function, or all if it is nil. With defaults, it gives objects a field "d" after each patch, and
// those in another version a field "e". In other versions "name" is "title".
type subject struct {
	matches  func(h *match.Hook, o chain.Object) match.Decision
	defaults bool
}

func (s subject) Match(h *match.Hook, o chain.Object) match.Decision {
	if s.matches == nil {
		return match.Decision{Match: true}
	}
	return s.matches(h, o)
}

func (s subject) Default(patched []byte, v *chain.View) ([]byte, error) {
	field := `"d":`
	if v != nil {
		field = `"e":`
	}
	if !s.defaults || bytes.Contains(patched, []byte(field)) {
		return patched, nil
	}
	return bytes.Replace(patched, []byte("}"), []byte(","+field+"0}"), 1), nil
}

func (subject) View(o chain.Object, as conversion.ResourceKind) (*chain.View, error) {
	if as.Kind.Version == "broken" {
		return nil, errors.New("no such version")
	}
	return &chain.View{As: as, Object: bytes.ReplaceAll(o.Raw, []byte(`"name"`), []byte(`"title"`))}, nil
}

func (subject) Rebase(_ chain.Object, _, changed []byte) ([]byte, error) {
	if bytes.Contains(changed, []byte(`"onewa`)) {
		return nil, errors.New("no way back")
	}
	return bytes.ReplaceAll(changed, []byte(`"title"`), []byte(`"name"`)), nil
}

// deliver reports a result: deliver ID allow|deny|patch|fail, with code=, message=, reason=, cause=, warning=, audit=KEY, type=; the patch is the
// input. "also ID ..." reports a result that comes at the same moment as the next.
func (w *world) deliver(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	id, err := strconv.Atoi(d.CmdArgs[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	v := &admissionv1.AdmissionResponse{Allowed: true}
	r := review.Result{Verdict: v}
	switch how := d.CmdArgs[1].Key; how {
	case "allow":
	case "deny":
		v.Allowed = false
	case "patch":
		v.PatchType = "JSONPatch"
	case "fail":
		r = review.Result{Failure: &review.Failure{Kind: review.FailureHandler, Err: errors.New("broken")}}
	default:
		t.Fatalf("unknown result %q", how)
	}
	for _, a := range d.CmdArgs[2:] {
		value := strings.Join(a.Vals, ",")
		switch a.Key {
		case "code":
			code, _ := strconv.Atoi(value)
			status(v).Code = int32(code)
		case "message":
			status(v).Message = value
		case "reason":
			status(v).Reason = value
		case "cause":
			status(v).Details = &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{Field: value}}}
		case "warning":
			v.Warnings = append(v.Warnings, value)
		case "audit":
			v.AuditAnnotations = map[string]string{value: "yes"}
		case "type":
			v.PatchType = value
		}
	}
	if d.Input != "" {
		v.Patch = []byte(d.Input)
	}
	w.machine.Deliver(id, r)
}

// status is the status of a verdict in the making.
func status(v *admissionv1.AdmissionResponse) *admissionv1.Status {
	if v.Status == nil {
		v.Status = &admissionv1.Status{}
	}
	return v.GetStatus()
}

// next lists the machine's actions now.
func (w *world) next() string {
	var out strings.Builder
	start, cancel := w.machine.Next(w.now)
	for _, c := range start {
		seen, as := c.Object.Raw, ""
		if c.View != nil {
			seen, as = c.View.Object, " as="+c.View.As.Kind.Version
		}
		mode := map[review.Mode]string{review.Speculative: " ahead", review.Shadow: " in shadow"}[c.Mode]
		fmt.Fprintf(&out, "start %d %s round=%d revision=%d object=%s%s by=%s%s\n",
			c.ID, c.Hook.ID.Name, c.Round, c.Object.Revision, seen, as, c.Deadline.Sub(epoch), mode)
	}
	for _, c := range cancel {
		fmt.Fprintf(&out, "cancel %d\n", c)
	}
	if a, ok := w.machine.Answer(); ok {
		describe(&out, a)
		for o := range w.machine.Outcomes().All {
			if o.Effect == chain.Discarded {
				fmt.Fprintf(&out, "%s %d %s round=%d\n", o.Effect, o.ID, o.Hook.ID.Name, o.Round)
			}
		}
	} else {
		fmt.Fprintf(&out, "wake at %s\n", w.machine.Wake().Sub(epoch))
	}
	return out.String()
}

func describe(out *strings.Builder, a review.Answer) {
	r := a.Response
	switch refused := "denied"; {
	case r.GetAllowed():
		fmt.Fprintf(out, "allowed\n")
	case a.Failed:
		refused = "failed"
		fallthrough
	default:
		fmt.Fprintf(out, "%s %d %s %q\n", refused, r.GetStatus().GetCode(), r.GetStatus().GetReason(), r.GetStatus().GetMessage())
	}
	for _, c := range r.GetStatus().GetDetails().GetCauses() {
		fmt.Fprintf(out, "cause %s\n", c.GetField())
	}
	if len(r.GetPatch()) > 0 {
		fmt.Fprintf(out, "patch %s %s\n", r.GetPatchType(), r.GetPatch())
	}
	for _, text := range r.GetWarnings() {
		fmt.Fprintf(out, "warning %q\n", text)
	}
	var keys []string
	for k := range r.GetAuditAnnotations() {
		// Every answer names its revision; TestAudit checks the annotations of patches.
		if k != "revision" && !strings.HasPrefix(k, "patch.") {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(out, "audit %s=%s\n", k, r.GetAuditAnnotations()[k])
	}
	for _, o := range a.Outcomes {
		fmt.Fprintf(out, "outcome %s round=%d %s %q\n", o.GetHook(), o.GetRound(), o.GetOutcome(), o.GetReason())
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
