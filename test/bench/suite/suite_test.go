package suite_test

import (
	"bytes"
	"io"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/test/bench/languages"
	"github.com/portcullis-mesh/portcullis/test/bench/limits"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/mesh"
	"github.com/portcullis-mesh/portcullis/test/bench/native"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
	"github.com/portcullis-mesh/portcullis/test/bench/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reviews is how many reviews everyone gets here.
const reviews = 3

// root is the root of the repository.
const root = "../../.."

func TestEveryCellRuns(t *testing.T) {
	citest.Soak(t, "starts every combination, with the hosts of all languages: a minute")
	built, missing := languages.Built(root)
	for _, m := range missing {
		t.Log(m)
	}
	allRun(t, suite.All(built...))
}

func TestEveryCellOfAShortRunRuns(t *testing.T) {
	citest.Gate(t, "starts every target: 5 s")
	allRun(t, suite.Short())
}

// allRun fails unless each cell has a result.
func allRun(t *testing.T, groups []suite.Group) {
	t.Helper()
	var progress bytes.Buffer
	results, failed, err := suite.Run(t.Context(), suite.Options{
		Groups: groups, Duration: time.Millisecond, Rounds: 1, Callers: 1, Least: 1, Root: root, Progress: &progress,
	})
	if err != nil || len(failed) > 0 {
		t.Fatalf("%v, %v\n%s", err, failed, progress.String())
	}
	cells := map[report.Cell]bool{}
	for _, g := range groups {
		for _, c := range g {
			if cells[c] {
				t.Errorf("%s is measured twice", c)
			}
			cells[c] = true
		}
	}
	if len(results) != len(cells) || bytes.Count(progress.Bytes(), []byte("\n")) != len(cells)+len(groups) {
		t.Errorf("%d results, want %d:\n%s", len(results), len(cells), progress.String())
	}
}

func TestAShortRunHasEveryTargetOfOneSize(t *testing.T) {
	whole := map[report.Cell]bool{}
	for _, g := range suite.All(scenario.Languages()...) {
		for _, c := range g {
			whole[c] = true
		}
	}
	some := 0
	for _, g := range suite.Short(scenario.Languages()...) {
		for _, c := range g {
			if some++; !whole[c] {
				t.Errorf("%s is in no whole run", c)
			}
		}
	}
	if some == 0 || some >= len(whole)/2 {
		t.Errorf("%d cells of %d", some, len(whole))
	}
}

func TestCellsAreSelectedByTheirNames(t *testing.T) {
	got := suite.Select(suite.All(), regexp.MustCompile(`^validate/2kB/8 hooks/8 hosts/(dispatcher|stream limit)/full$`))
	if len(got) != 1 || len(got[0]) != 2 {
		t.Errorf("got %v", got)
	}
	if got := suite.Select(suite.All(), regexp.MustCompile("no such cell")); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestCellsOfAGroupAreMeasuredInTurns(t *testing.T) {
	var progress bytes.Buffer
	s := small(scenario.Validate, 4)
	results, failed, err := suite.Run(t.Context(), suite.Options{
		Groups: []suite.Group{{
			{Scenario: s, Contender: report.Bare, Load: report.Tenth}, {Scenario: s, Contender: report.Bare, Load: report.Full},
			{Scenario: s, Contender: report.Streams, Load: report.Full},
		}},
		Duration: time.Millisecond, Rounds: 3, Callers: 2, Least: 2, Progress: &progress,
	})
	if err != nil || len(failed) > 0 || len(results) != 3 {
		t.Fatalf("%v, %v, %v", results, failed, err)
	}
	for i, want := range []report.Load{report.Full, report.Full, report.Tenth} {
		if r := results[i]; r.Load != want || len(r.Rounds) != 3 || r.Contender == report.Bare && r.Rounds[0].Calls != 4 {
			t.Errorf("%s: %+v", r.Cell, r.Rounds)
		}
	}
}

func TestACellThatFailsLeavesTheOthers(t *testing.T) {
	s := small(scenario.Validate, 4)
	good := report.Cell{Scenario: s, Contender: report.Streams, Load: report.Full}
	bad := report.Cell{Scenario: s, Contender: "nobody", Load: report.Full}
	for name, groups := range map[string][]suite.Group{
		"in its group": {{bad, good}}, "in other groups": {{bad}, {good}},
	} {
		results, failed, err := suite.Run(t.Context(), suite.Options{
			Groups: groups, Duration: time.Millisecond, Rounds: 2, Callers: 1, Least: 1, Progress: io.Discard,
		})
		if err != nil || len(results) != 1 || results[0].Cell != good || len(results[0].Rounds) != 2 {
			t.Errorf("%s: %+v, %v", name, results, err)
		}
		if len(failed) != 1 || failed[0].Name != bad.String() || failed[0].Why == "" {
			t.Errorf("%s: failed %+v", name, failed)
		}
	}
}

// small is a combination in which nothing is one.
func small(stage scenario.Stage, hosts int) scenario.Scenario {
	return scenario.Scenario{Stage: stage, Hooks: 4, Hosts: hosts, Bytes: scenario.Small}
}

func send(t *testing.T, review measure.Review) {
	t.Helper()
	for range reviews {
		if err := review(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func newKeys(t *testing.T) *pki.PKI {
	t.Helper()
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestKubernetesAsksEveryHookOnceAReview(t *testing.T) {
	keys := newKeys(t)
	patching := small(scenario.Mutate, 4)
	patching.Patching = 2
	for _, s := range []scenario.Scenario{small(scenario.Validate, 4), small(scenario.Mutate, 1), patching} {
		n, err := native.Start(t.Context(), s, keys)
		if err != nil {
			t.Fatal(err)
		}
		send(t, n.Review)
		if got, want := n.Calls(), int64(reviews*s.Hooks); got != want {
			t.Errorf("%s: %d calls, want %d", s, got, want)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheMeshAsksEveryHookOnceAReviewOnBothRoads(t *testing.T) {
	keys := newKeys(t)
	patching := small(scenario.Mutate, 4)
	patching.Patching = 2
	for _, s := range []scenario.Scenario{small(scenario.Validate, 4), small(scenario.Mutate, 1), patching} {
		for _, kind := range []mesh.Hosts{mesh.SDK, mesh.Bare} {
			if kind == mesh.Bare && s.Patching > 0 {
				continue // bare hosts patch nothing
			}
			m, err := mesh.Start(t.Context(), mesh.Options{Scenario: s, Keys: keys, Hosts: kind})
			if err != nil {
				t.Fatal(err)
			}
			send(t, m.Review)
			send(t, m.ReviewJSON)
			if got, want := m.Calls(), int64(2*reviews*s.Hooks); got != want {
				t.Errorf("%s: %d calls, want %d", s, got, want)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheLimitsAnswer(t *testing.T) {
	keys := newKeys(t)
	streams, err := limits.StartStreams(t.Context(), small(scenario.Validate, 4), keys)
	if err != nil {
		t.Fatal(err)
	}
	send(t, streams.Review)
	trip, err := limits.StartRoundTrip(t.Context(), small(scenario.Validate, 4), keys)
	if err != nil {
		t.Fatal(err)
	}
	send(t, trip.Review)
	if err := streams.Close(); err != nil {
		t.Error(err)
	}
	if err := trip.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheLimitOfStreamsEndsWithItsHosts(t *testing.T) {
	streams, err := limits.StartStreams(t.Context(), small(scenario.Validate, 4), newKeys(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.Close(); err != nil {
		t.Error(err)
	}
	if err := streams.Review(t.Context()); err == nil {
		t.Error("a review was answered by hosts that have left")
	}
}
