package analysis

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

func TestWhatGotWorseComesFirst(t *testing.T) {
	const ms = time.Millisecond
	failing := calls("failing", 0, "", ms)
	failing.Failed = 5
	reviews := calls("", 0, "", 50*ms)
	before := Reported([]*analysisv1.Latency{
		reviews, calls("same", 0, "", 5*ms), calls("slower", 0, "", 5*ms), calls("faster", 0, "", 40*ms), calls("failing", 0, "", ms), calls("gone", 0, "", 9*ms),
	})
	after := Reported([]*analysisv1.Latency{
		reviews, calls("same", 0, "", 5*ms), calls("slower", 0, "", 30*ms), calls("faster", 0, "", 10*ms), failing, calls("new", 0, "", 2*ms),
	})
	got := Compared(before, after)
	var names []string
	for _, h := range got.Hooks {
		names = append(names, h.After.Name)
	}
	if want := []string{"failing", "slower", "new", "same", "gone", "faster"}; !slices.Equal(names, want) {
		t.Fatalf("order %v, want %v", names, want)
	}
	if h := got.Hooks[1]; h.Added != Duration(25*ms) || h.Phase != "host" || h.Grown != Duration(25*ms) || h.Before.Calls != 10 {
		t.Errorf("slower: %+v", h)
	}
	if h := got.Hooks[2]; h.Before.Name != "new" || h.Before.Calls != 0 || h.Added != Duration(2*ms) {
		t.Errorf("new: %+v", h)
	}
	if h := got.Hooks[5]; h.Phase != "" || h.Added != Duration(-30*ms) {
		t.Errorf("faster: %+v", h)
	}
}

func TestDurationsAreReadAsTheyAreWritten(t *testing.T) {
	in := Figures{P50: Duration(1500 * time.Microsecond), Failed: 3}
	data, err := json.Marshal(in)
	var out Figures
	if err != nil || json.Unmarshal(data, &out) != nil || in != out || json.Unmarshal([]byte(`{"p50":"soon"}`), &out) == nil {
		t.Errorf("%s is read as %+v", data, out)
	}
}
