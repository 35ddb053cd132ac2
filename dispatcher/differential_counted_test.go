package dispatcher_test

import (
	"slices"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// TestTheCallsThatCountAreFoundByTheOutcomes is about two hooks of one name in one configuration, which outcomes do not tell
// apart.
func TestTheCallsThatCountAreFoundByTheOutcomes(t *testing.T) {
	hook := func(index int) *match.Hook {
		return &match.Hook{ID: match.HookID{Configuration: "b", Name: "three", Index: index}}
	}
	inTurn := func(token string, index int) *made { return &made{token: token, hook: hook(index)} }
	ahead := func(token string, index int, object string) *made {
		return &made{token: token, hook: hook(index), ahead: true, seen: call{Object: object}}
	}
	said := func(token string) *admissionv1.HookOutcome {
		return &admissionv1.HookOutcome{Configuration: "b", Hook: "three", Outcome: "allowed", Instance: token}
	}
	failed := func(reason string) *admissionv1.HookOutcome {
		return &admissionv1.HookOutcome{Configuration: "b", Hook: "three", Outcome: "failed-open", Reason: reason}
	}
	late, never := failed("no verdict within 90ms"), failed("no time left to call it")
	for name, tt := range map[string]struct {
		calls    []*made
		outcomes []*admissionv1.HookOutcome
		want     []string
	}{
		"The first hangs, and the second answers": {
			[]*made{inTurn("0", 0), inTurn("1", 1)}, []*admissionv1.HookOutcome{late, said("1")}, []string{"0", "1"},
		},
		"The first answers, and the second hangs": {
			[]*made{inTurn("0", 0), inTurn("1", 1)}, []*admissionv1.HookOutcome{said("0"), late}, []string{"0", "1"},
		},
		"Both hang": {
			[]*made{inTurn("0", 0), inTurn("1", 1)}, []*admissionv1.HookOutcome{late, late}, []string{"0", "1"},
		},
		"The first hangs, and no time is left for the second": {
			[]*made{inTurn("0", 0)}, []*admissionv1.HookOutcome{late, never}, []string{"0"},
		},
		"A hook that failed ahead of its turn hangs in it": {
			[]*made{ahead("0", 0, "x"), inTurn("1", 0)}, []*admissionv1.HookOutcome{late}, []string{"1"},
		},
		"The time is over for both in the turn of the first, and both were asked ahead": {
			[]*made{ahead("0", 0, "x"), ahead("1", 1, "x")}, []*admissionv1.HookOutcome{late, never}, []string{"0"},
		},
		"The first was asked ahead about an object that is no more, and the time is over in the turn of the second": {
			[]*made{ahead("0", 0, "x"), ahead("1", 1, "y")}, []*admissionv1.HookOutcome{{Configuration: "b", Hook: "three", Outcome: "skipped"}, late}, []string{"1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var found []string
			for _, m := range (&callLog{calls: tt.calls}).counted(review.Answer{Outcomes: tt.outcomes}) {
				found = append(found, m.token)
			}
			if !slices.Equal(found, tt.want) {
				t.Errorf("the calls %q count, want %q", found, tt.want)
			}
		})
	}
}
