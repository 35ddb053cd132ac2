package citest_test

import (
	"fmt"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// ended keeps how a test would end.
type ended struct {
	testing.TB

	how string
}

func (*ended) Helper() {}

func (e *ended) Fatalf(format string, args ...any) { e.end("failed", fmt.Sprintf(format, args...)) }
func (e *ended) Skip(args ...any)                  { e.end("skipped", fmt.Sprint(args...)) }

func (e *ended) end(how, text string) {
	if e.how == "" { // Fatalf of testing does not return
		e.how = how + ": " + text
	}
}

func TestATestThatCannotRunFailsInCIAndIsSkippedElsewhere(t *testing.T) {
	for ci, want := range map[string]string{"": "skipped: there is no jq", "true": "failed: there is no jq, and this test has to run in CI"} {
		t.Setenv("CI", ci)
		e := &ended{TB: t}
		if citest.Lacks(e, "there is no jq"); e.how != want {
			t.Errorf("CI=%q: %s, want %s", ci, e.how, want)
		}
	}
}
