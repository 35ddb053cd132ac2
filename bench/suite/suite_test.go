package suite_test

import (
	"bytes"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/bench/limits"
	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/mesh"
	"github.com/portcullis-mesh/portcullis/bench/native"
	"github.com/portcullis-mesh/portcullis/bench/pki"
	"github.com/portcullis-mesh/portcullis/bench/report"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
	"github.com/portcullis-mesh/portcullis/bench/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reviews is how many reviews everyone gets here.
const reviews = 3

func TestEveryCombinationRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every combination: skipped by -short")
	}
	var progress bytes.Buffer
	scenarios := scenario.All()
	results, err := suite.Run(t.Context(), suite.Options{
		Scenarios: scenarios, Duration: time.Millisecond, Callers: []int{1}, Least: 1, Progress: &progress,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	want := 0
	for _, s := range scenarios {
		want += len(report.Contenders())
		if s.Bytes < scenario.Large {
			want += len(report.Contenders()) // at one tenth
		}
	}
	if len(results) != want || bytes.Count(progress.Bytes(), []byte("\n")) != want {
		t.Errorf("%d results, want %d:\n%s", len(results), want, progress.String())
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
	for _, s := range []scenario.Scenario{small(scenario.Validate, 4), small(scenario.Mutate, 1)} {
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
	for _, s := range []scenario.Scenario{small(scenario.Validate, 4), small(scenario.Mutate, 1)} {
		m, err := mesh.Start(t.Context(), s, keys)
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
