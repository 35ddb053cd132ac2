package citest_test

import (
	"flag"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func TestATestRunsInItsCircleAndTheLargerOnes(t *testing.T) {
	tests := []struct {
		short, soak string
		gate, last  string // how tests of the gate and of the soak end; empty: they run
		rounds      int
	}{
		{short: "true", gate: "skipped: left to the gate: it is slow", last: "skipped: left to the soak: it is slow", rounds: 1},
		{short: "false", last: "skipped: left to the soak: it is slow", rounds: 2},
		{short: "false", soak: "1", rounds: 3},
	}
	for _, tt := range tests {
		setShort(t, tt.short)
		t.Setenv(citest.SoakVariable, tt.soak)
		ofTheGate, ofTheSoak := &ended{TB: t}, &ended{TB: t}
		citest.Gate(ofTheGate, "it is slow")
		citest.Soak(ofTheSoak, "it is slow")
		if ofTheGate.how != tt.gate || ofTheSoak.how != tt.last {
			t.Errorf("-short=%s, soak %q: a test of the gate %q, of the soak %q; want %q, %q", tt.short, tt.soak, ofTheGate.how, ofTheSoak.how, tt.gate, tt.last)
		}
		if got := citest.Rounds(1, 2, 3); got != tt.rounds {
			t.Errorf("-short=%s, soak %q: %d rounds, want %d", tt.short, tt.soak, got, tt.rounds)
		}
	}
}

// setShort sets -short for the rest of the test.
func setShort(t *testing.T, value string) {
	t.Helper()
	before := flag.Lookup("test.short").Value.String()
	if err := flag.Set("test.short", value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := flag.Set("test.short", before); err != nil {
			t.Error(err)
		}
	})
}

func TestTheSoakHasAllCasesUnderTheRaceDetectorToo(t *testing.T) {
	setShort(t, "false")
	t.Setenv(citest.SoakVariable, "")
	t.Setenv("PORTCULLIS_CASES", "")
	if got := citest.Cases(1, 2, 3); got != 1 && got != 2 {
		t.Errorf("%d cases in the gate, want 2, and 1 under the race detector", got)
	}
	t.Setenv(citest.SoakVariable, "1")
	if got := citest.Cases(1, 2, 3); got != 3 {
		t.Errorf("%d cases in the soak, want 3", got)
	}
	inTheSoak := &ended{TB: t}
	if citest.Sequential(inTheSoak); inTheSoak.how != "" {
		t.Errorf("a test of one goroutine is %s in the soak", inTheSoak.how)
	}
	t.Setenv("PORTCULLIS_CASES", "7")
	t.Setenv("PORTCULLIS_SEED", "5")
	if got, first := citest.Cases(1, 2, 3), citest.Seed(); got != 7 || first != 5 {
		t.Errorf("%d cases from seed %d, want 7 from 5", got, first)
	}
}
