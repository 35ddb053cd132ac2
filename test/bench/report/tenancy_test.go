package report

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
)

// tenancyOf is a cell with the p99 of its rounds.
func tenancyOf(r Road, f Flood, p99 ...float64) Tenancy {
	t := Tenancy{TenancyCell: TenancyCell{Road: r, Flood: f}, Flooding: NewFigure([]float64{1536})}
	for _, x := range p99 {
		t.Rounds = append(t.Rounds, measure.Sample{Throughput: 200, P50: x / 2, P99: x})
	}
	return t
}

func TestAFloodIsHeldToTheRoundsInQuiet(t *testing.T) {
	run := &Run{
		Tenancies: []Tenancy{
			tenancyOf(Webhook, Quiet, 100, 200, 400), tenancyOf(Webhook, SlowWebhook, 140, 280, 560),
			tenancyOf(Webhook, NoConnection, 200, 400, 800),
		},
		Failures: []Failure{{Name: "tenancy/webhook/slow handlers", Why: "a review failed"}},
	}
	want := map[string]string{"(slow webhook)": "PASS", "(webhook that does not connect)": "MISSED, 1.33 times the bound", "(slow handlers)": "FAILED"}
	judged := run.Judge()
	if len(judged) != len(want) {
		t.Errorf("%d targets: %+v", len(judged), judged)
	}
	for _, j := range judged {
		for flood, verdict := range want {
			if strings.Contains(j.Title, flood) && !strings.HasPrefix(j.Verdict, verdict) {
				t.Errorf("%s: %s, want %s", j.Title, j.Verdict, verdict)
			}
		}
	}
	var page strings.Builder
	if err := run.Tables(&page); err != nil {
		t.Fatal(err)
	}
	if row := "| webhook | slow webhook | 1536 | 200 | 140 (1.40) | 280 (1.40) |"; !strings.Contains(page.String(), row) {
		t.Errorf("no row %q in:\n%s", row, page.String())
	}
}
