package evaluation

import (
	"fmt"
	"testing"
)

func TestSoManyNamesOfHooksHaveMetricsOfConditions(t *testing.T) {
	var m meteredNames
	for i := range maxMeteredNames {
		if name := fmt.Sprint("h", i); m.name(name) != name {
			t.Fatalf("hook %d has no metrics of its own", i)
		}
	}
	if got := m.name("one more"); got != "(other)" {
		t.Errorf("one more hook has the metrics of %q", got)
	}
	if m.name("h0") != "h0" || len(m.known) != maxMeteredNames {
		t.Errorf("%d names are known, and the first is %q", len(m.known), m.name("h0"))
	}
}
