package tenancy_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/tenancy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryReviewIsJudgedWhileAnotherClusterFloods: a refused or skipped review would be a failure.
func TestEveryReviewIsJudgedWhileAnotherClusterFloods(t *testing.T) {
	got, failed, err := tenancy.Measure(t.Context(), tenancy.Options{Rounds: 1, Reviews: 20, FloodReviews: 600, Progress: io.Discard})
	if err != nil || len(failed) > 0 {
		t.Fatalf("failed: %v, error %v", failed, err)
	}
	if want := len(report.Roads()) * (1 + len(report.Floods())); len(got) != want {
		t.Errorf("%d cells, want %d", len(got), want)
	}
	for _, c := range got {
		if len(c.Rounds) != 1 || c.Rounds[0].Reviews != 20 || (c.Flooding.Median > 0) == (c.Flood == report.Quiet) {
			t.Errorf("%s: %+v", c.TenancyCell, c)
		}
	}
}

func TestOnlyWhatIsWantedIsMeasured(t *testing.T) {
	wanted := report.TenancyCell{Road: report.Stream, Flood: report.Quiet}
	got, failed, err := tenancy.Measure(t.Context(), tenancy.Options{
		Rounds: 2, Reviews: 3, Progress: io.Discard, Wanted: func(c report.TenancyCell) bool { return c == wanted },
	})
	if err != nil || len(failed) > 0 || len(got) != 1 || got[0].TenancyCell != wanted || len(got[0].Rounds) != 2 {
		t.Errorf("got %+v, failed %v, error %v", got, failed, err)
	}
}

func TestTheEndOfTheContextIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := tenancy.Measure(ctx, tenancy.Options{Rounds: 1, Reviews: 1, Progress: io.Discard}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
