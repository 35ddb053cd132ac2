package lint_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// digits is a list over which conditions of these tests loop.
const digits = "[0,1,2,3,4,5,6,7,8,9]"

// costly is a document of n mutating hooks for one request that need 10 s each, with a condition that loops 10 times for each level.
func costly(name string, n, levels int) string {
	var hooks []string
	for i := range n {
		condition := fmt.Sprintf("%d >= 0", i)
		for level := range levels {
			condition = fmt.Sprintf("%s.all(x%d, %s)", digits, level, condition)
		}
		hooks = append(hooks, hook(fmt.Sprintf("%s%d", name, i), "timeoutSeconds: 10", rule("CREATE", "apps", "deployments", ""),
			fmt.Sprintf("matchConditions: [{name: c, expression: %q}]", condition)))
	}
	return configuration("Mutating", name, hooks...)
}

// counted is how many hooks of documents are counted together.
func counted(t *testing.T, find func(*match.Snapshot, []config.Object) string, documents ...string) int {
	t.Helper()
	objects, problems := configtest.Decode("", []byte(strings.Join(documents, "\n---\n")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := config.Compile("1", objects)
	message := find(snapshot, objects)
	_, rest, _ := strings.Cut(message, "may have to wait ")
	text, _, _ := strings.Cut(rest, " ")
	sum, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("found %q: %v", message, err)
	}
	return int(sum / (10 * time.Second))
}

// TestTheConditionsOfSamplesHaveABoundTogether has as many hooks as the bound allows, and one more.
func TestTheConditionsOfSamplesHaveABoundTogether(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	const limit, loops = 20_000, 100
	count := func(documents ...string) int {
		return counted(t, func(s *match.Snapshot, _ []config.Object) string {
			return lint.OverBudgetWithin(t.Context(), s, budget, limit)[0].Message
		}, documents...)
	}
	most := count(costly("p", 100, 2))
	if most < 2 || most*loops > limit {
		t.Fatalf("%d hooks with conditions of %d loops are counted within %d units", most, loops, limit)
	}
	for name, documents := range map[string][]string{
		"one document, at the bound":    {costly("p", most, 2)},
		"one document, above":           {costly("p", most+1, 2)},
		"two authors, at the bound":     {costly("p", 1, 2), costly("q", most-1, 2)},
		"two authors, above":            {costly("p", 2, 2), costly("q", most-1, 2)},
		"each document above by itself": {costly("p", most+1, 2), costly("q", most+1, 2)},
	} {
		if got := count(documents...); got != most {
			t.Errorf("%s: %d hooks are counted, want %d", name, got, most)
		}
	}
	if got := count(costly("p", most+1, 2), costly("q", 5, 1)); got != most {
		t.Errorf("%d hooks are counted once the bound is met, want %d", got, most)
	}
}

// TestAnInspectionBoundsTheConditionsOfSamples: without the bound all are counted.
func TestAnInspectionBoundsTheConditionsOfSamples(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	const loops, n = 10_000, 100
	got := counted(t, func(s *match.Snapshot, objects []config.Object) string {
		for _, p := range (lint.Options{MutateBudget: budget}).Inspect(t.Context(), s, objects) {
			if p.Code == lint.CodeTimeoutBudget {
				return p.Message
			}
		}
		return ""
	}, costly("p", n, 4))
	if got < 2 || got == n || got*loops > lint.MaxSampleCost {
		t.Errorf("%d of %d hooks with conditions of %d loops are counted", got, n, loops)
	}
}
