package shadow

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

var midday = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// example has a hook with cases, and a hook that was not called.
func example() *Report {
	seen := analysis.ShadowSeen{FirstSeen: midday, LastSeen: midday.Add(time.Hour)}
	return &Report{
		Since: midday, Dispatchers: []Dispatcher{{"d1", midday.Add(-time.Hour)}, {"d2", midday.Add(30 * time.Minute)}},
		Hooks: []analysis.Shadow{
			{
				Cluster: "prod", Stage: "validate", Configuration: "policy", Name: "policy.example.com", State: "shadow",
				ShadowCounts: analysis.ShadowCounts{Calls: 10, Allowed: 7, WouldDeny: 3}, P50: analysis.Duration(time.Millisecond), ShadowSeen: seen,
				IncompleteBefore: midday,
				Subjects: []analysis.ShadowSubject{
					{Namespace: "shop", User: "jane", ShadowCounts: analysis.ShadowCounts{Calls: 3, WouldDeny: 2}, ShadowSeen: seen},
					{Others: true, ShadowCounts: analysis.ShadowCounts{Calls: 1, WouldDeny: 1}, ShadowSeen: seen},
					{Namespace: "quiet", User: "joe", ShadowCounts: analysis.ShadowCounts{Calls: 6, Allowed: 6}, ShadowSeen: seen},
				},
				Cases: []analysis.ShadowCase{
					{Outcome: "denied", Namespace: "shop", User: "jane", Message: "no *tag* |\n<b>", Calls: 2, ShadowSeen: seen, Operation: "CREATE", Resource: "pods", Name: "web"},
					{Outcome: "failed", User: "joe", Calls: 1, ShadowSeen: seen, Operation: "DELETE", Resource: "nodes", Name: "n1"},
				},
			},
			{Stage: "mutate", Configuration: "labels", Name: "labels.example.com", State: "shadow"},
		},
	}
}

func TestAReportIsWrittenForPeople(t *testing.T) {
	var terminal, page bytes.Buffer
	r := example()
	if err := r.write(printer.NewPage(&terminal, ""), 1); err != nil {
		t.Fatal(err)
	}
	if err := r.write(printer.NewPage(&page, printer.Markdown), 20); err != nil {
		t.Fatal(err)
	}
	const wantTerminal = `Requests since 2026-11-23 12:00 UTC, by 2 dispatchers. Of them d2 records since 2026-11-23 12:30.

HOOK                CLUSTER  REQUESTS  ALLOWED  WOULD DENY  WOULD CHANGE  FAILED  DROPPED  P50  P99  LAST SEEN (UTC)   NOW
policy.example.com  prod     10        7        3           0             0       0        1ms  -    2026-11-23 13:00  shadow
labels.example.com  -        0         0        0           0             0       0        -    -    -                 shadow

policy.example.com in cluster prod
Records from before 2026-11-23 12:00 UTC were dropped for memory: the counts are too low.

NAMESPACE  USER  REQUESTS  WOULD DENY  WOULD CHANGE  FAILED  FIRST SEEN (UTC)  LAST SEEN (UTC)
shop       jane  3         2           0             0       2026-11-23 12:00  2026-11-23 13:00
And 1 more users: use --limit.

LAST SEEN (UTC)   WOULD  REQUESTS  NAMESPACE  USER  OBJECT           MESSAGE
2026-11-23 13:00  deny   2         shop       jane  CREATE pods web  no *tag* | <b>
And 1 more cases: use --limit.
`
	if diff := cmp.Diff(wantTerminal, terminal.String()); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		"# Hooks in shadow\n\nRequests since", "\n## policy.example.com in cluster prod\n",
		"\n| policy.example.com | prod | 10 | 7 | 3 |", "| NOW | STAGE | CONFIGURATION | FIRST SEEN (UTC) |\n| --- | --- |",
		`| CREATE pods web | no \*tag\* \| \<b\> |`, "| (others) | (others) | 1 |", "| DELETE nodes n1 | - |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, page.String())
		}
	}
}

func TestAReportSaysThatNoHookIsInShadow(t *testing.T) {
	var out bytes.Buffer
	if err := (&Report{}).write(printer.NewPage(&out, ""), 1); err != nil || !strings.Contains(out.String(), "No hook is in shadow") {
		t.Errorf("%s, %v", out.String(), err)
	}
}

// hookOf is the hook of the example in a state.
func hookOf(name string, state configv1.Hook_State) *configv1.Hook {
	return &configv1.Hook{
		Hook:  &configv1.HookRef{Object: &configv1.ConfigKey{Kind: "ValidatingWebhookConfiguration", Name: "policy"}, Name: name},
		Stage: "validate", State: state,
	}
}

func TestAReportSaysWhetherHooksAreStillInShadow(t *testing.T) {
	const h = "policy.example.com"
	for name, c := range map[string]struct {
		hooks []*configv1.Hook
		want  string
	}{
		"in shadow":                    {[]*configv1.Hook{hookOf(h, configv1.Hook_STATE_SHADOW)}, "shadow"},
		"in shadow on one dispatcher":  {[]*configv1.Hook{hookOf(h, configv1.Hook_STATE_SHADOW), hookOf(h, configv1.Hook_STATE_IN_ROTATION)}, "shadow"},
		"it decides":                   {[]*configv1.Hook{hookOf(h, configv1.Hook_STATE_IN_ROTATION)}, "decides"},
		"removed":                      {[]*configv1.Hook{hookOf(h, configv1.Hook_STATE_REMOVED)}, "gone"},
		"no hook of this name":         {nil, "gone"},
		"another one that decides too": {[]*configv1.Hook{hookOf("other", configv1.Hook_STATE_IN_ROTATION)}, "gone"},
	} {
		got := withStates([]analysis.Shadow{{Cluster: "prod", Stage: "validate", Configuration: "policy", Name: h}}, c.hooks)
		if len(got) != 1 || got[0].State != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := withStates(nil, []*configv1.Hook{hookOf(h, configv1.Hook_STATE_SHADOW)}); len(got) != 1 || got[0].Name != h || got[0].Cluster != "" {
		t.Errorf("a hook that was not called: %+v", got)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, c := range [][2]string{{"--since", "168h1s"}, {"--since", "0"}, {"--limit", "0"}} {
		got := clitest.Execute(t, NewCommand(), strings.NewReader(""), "report", c[0], c[1])
		if got.Code != cli.ExitError || !strings.Contains(got.Notes, c[0]+": use") {
			t.Errorf("%v: exit code %d, %s", c, got.Code, got.Notes)
		}
	}
}
