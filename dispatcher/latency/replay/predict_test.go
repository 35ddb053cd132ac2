package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency/replay"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// predict judges ten reviews and predicts the effect of a change on them.
func predict(t *testing.T, w *world, whatIf ...string) replay.Prediction {
	var out []replay.Prediction
	synctest.Test(t, func(t *testing.T) {
		var c replay.Variant
		for _, text := range whatIf {
			if err := c.Parse(text); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if out, err = replay.Predict(w.judge(t, w.stage(), 10), c); err != nil {
			t.Fatal(err)
		}
	})
	if len(out) != 2 || out[0].Cluster != "" || out[1].Cluster != "prod" || out[0].Before != out[1].Before || out[1].Reviews != 10 || out[1].Replayed != 10 {
		t.Fatalf("predictions %+v", out)
	}
	return out[1]
}

// always has the same act of each hook in each review.
func always(acts map[string]act) func(hook, uid string) act {
	return func(hook, _ string) act { return acts[hook] }
}

func TestPredictions(t *testing.T) {
	slow := func() *world {
		return &world{
			hooks: []hook{{name: "a", validates: true}, {name: "b", validates: true, ignore: true}},
			acts:  always(map[string]act{"a": {took: 10 * ms}, "b": {took: 300 * ms}}),
		}
	}
	serial := func() *world {
		return &world{
			hooks: []hook{{name: "a"}, {name: "b"}, {name: "c"}},
			acts:  always(map[string]act{"a": {took: 10 * ms}, "b": {took: 20 * ms}, "c": {took: 40 * ms}}),
		}
	}
	initializing := serial()
	for i := range initializing.hooks {
		initializing.hooks[i].initializes = true
	}
	apart := &world{hooks: slices.Clone(initializing.hooks), acts: initializing.acts}
	apart.hooks[0].parallel, apart.hooks[2].parallel = true, true
	failing := &world{
		hooks: []hook{{name: "a"}, {name: "b"}},
		acts: func(hook, uid string) act {
			if hook == "a" {
				return act{took: 10 * ms, fails: uid != "3"}
			}
			return act{took: 25 * ms}
		},
	}
	patching := serial()
	patching.acts = always(map[string]act{"a": {took: 10 * ms, patch: true}, "b": {took: 20 * ms}, "c": {took: 40 * ms}})
	closed := slow()
	closed.hooks[1].ignore = false
	opens := slow()
	opens.hooks[1].ignore, opens.opens = false, true
	overdue := slow()
	overdue.hooks[1].timeout = 100 * ms
	same := func(replay.Prediction) bool { return true }
	for _, test := range []struct {
		name          string
		world         *world
		whatIf        string
		before, after time.Duration
		holds         func(replay.Prediction) bool
	}{
		{"a validating hook that others wait for is gone", slow(), "without=b", 300 * ms, 10 * ms, same},
		{"a validating hook that is not waited for is gone", slow(), "without=a", 300 * ms, 300 * ms, same},
		{"a mutating hook is gone", serial(), "without=b,c", 70 * ms, 10 * ms, same},
		{
			"a fail-open hook has less time", slow(), "deadline=b:50ms", 300 * ms, 50 * ms,
			func(p replay.Prediction) bool {
				return p.After.FailedOpen == 10 && p.Before.FailedOpen == 0 && p.After.Failed == 0 && p.Refused == 0
			},
		},
		{
			"a fail-closed hook has less time", closed, "deadline=b:50ms", 300 * ms, 50 * ms,
			func(p replay.Prediction) bool { return p.After.Failed == 10 && p.Before.Failed == 0 && p.Refused == 10 },
		},
		{
			"a fail-closed hook has less time where nothing may be refused for a failure", opens, "deadline=b:50ms", 300 * ms, 50 * ms,
			func(p replay.Prediction) bool { return p.After.FailedOpen == 10 && p.Refused == 0 },
		},
		{
			"a hook that was not waited for has more time", overdue, "deadline=b:1s", 100 * ms, time.Second,
			func(p replay.Prediction) bool { return p.Overdue == 10 && p.After.FailedOpen == 10 },
		},
		{
			"a hook that failed is gone, and the ones behind it were called once", failing, "without=a", 10 * ms, 25 * ms,
			func(p replay.Prediction) bool {
				return p.Before.Failed == 9 && p.After.Failed == 0 && p.Allowed == 9 && p.Estimated == 9
			},
		},
		{"serial hooks validate", serial(), "validate=a,b,c", 70 * ms, 40 * ms, same},
		{"one of the serial hooks validates", serial(), "validate=a", 70 * ms, 70 * ms, same},
		{"serial hooks are called before their turn", serial(), "parallel=b,c", 70 * ms, 40 * ms, same},
		{"initializers act at the same time", initializing, "parallel=b,c", 70 * ms, 50 * ms, same},
		{"one initializer alone may act at the same time", initializing, "parallel=b", 70 * ms, 70 * ms, same},
		{"the initializer between two that may act at the same time may too", apart, "parallel=b", 70 * ms, 40 * ms, same},
		{"the initializer between two that may act at the same time is gone", apart, "without=b", 70 * ms, 40 * ms, same},
		{"serial hooks behind one that changes the object are not", patching, "parallel=b,c", 70 * ms, 60*ms - 20*ms + 10*ms, same},
	} {
		got := predict(t, test.world, test.whatIf)
		if got.Before.P50 != test.before || got.After.P50 != test.after || got.After.P99 != test.after || !test.holds(got) {
			t.Errorf("%s: %+v, want p50 from %s to %s", test.name, got, test.before, test.after)
		}
	}
}

func TestSeveralChangesAreMadeTogether(t *testing.T) {
	w := &world{
		hooks: []hook{{name: "a"}, {name: "b", ignore: true}, {name: "c"}},
		acts:  always(map[string]act{"a": {took: 10 * ms}, "b": {took: 200 * ms}, "c": {took: 40 * ms}}),
	}
	if got := predict(t, w, "without=a", "deadline=b:20ms"); got.After.P50 != 60*ms {
		t.Errorf("%+v", got)
	}
}

// TestHooksThatAreCalledBeforeTheirTurnTakeAsLongAsPredicted makes the change.
func TestHooksThatAreCalledBeforeTheirTurnTakeAsLongAsPredicted(t *testing.T) {
	w := &world{
		hooks: []hook{{name: "a"}, {name: "b"}, {name: "c"}},
		acts: func(hook, uid string) act {
			return act{took: time.Duration(random(hook, uid).IntN(50)) * ms}
		},
	}
	predicted := predict(t, w, "parallel=b,c").After
	for i := range w.hooks {
		w.hooks[i].speculate = true
	}
	if is := predict(t, w).Before; is != predicted {
		t.Errorf("it became %+v, and was predicted as %+v", is, predicted)
	}
}

func TestChangesThatCannotBeMade(t *testing.T) {
	w := &world{
		hooks: []hook{{name: "m.example.com"}, {name: "v.example.com", validates: true}},
		acts:  always(map[string]act{"m.example.com": {patch: true}}),
	}
	for whatIf, want := range map[string]string{
		"without=x":              "without=x: no such hook is in force: `portcullis get hooks` lists them",
		"validate=m.example.com": "the hook changes objects",
		"validate=v.example.com": "called at the same time already",
		"parallel=v.example.com": "called at the same time already",
		"validate=i.example.com": "an initializer does not validate",
		"parallel=i.example.com": "a controller acts when its name is the first",
		"":                       "use without=HOOK",
		"faster=m.example.com":   "use without=HOOK",
		"without=":               "use without=HOOK",
		"deadline=m.example.com": "for example deadline=m.example.com:500ms",
		"deadline=a:-1s":         "for example deadline=a:500ms",
		"replicas=a:1":           "for example replicas=a:+1",
		"replicas=a:+1x":         "for example replicas=a:+1",
		"replicas=a:+0":          "for example replicas=a:+1",
		"replicas=x:+1":          "no such hook is in force",
		"deadline=x:1s":          "no such hook is in force",
		"deadline=h:8080:1s":     "no such hook is in force",
	} {
		synctest.Test(t, func(t *testing.T) {
			var c replay.Variant
			err := c.Parse(whatIf)
			if err == nil {
				in := w.judge(t, mutate, 3)
				in.Hooks = append(in.Hooks, &match.Hook{ID: match.HookID{Stage: admissionv1.Stage_STAGE_INITIALIZE, Name: "i.example.com"}})
				_, err = replay.Predict(in, c)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", whatIf, err, want)
			}
		})
	}
}

func TestARecordThatCannotBeReplayedStaysAsItIs(t *testing.T) {
	w := &world{hooks: []hook{{name: "a", validates: true}}, acts: always(map[string]act{"a": {took: 100 * ms}})}
	synctest.Test(t, func(t *testing.T) {
		in := w.judge(t, validate, 4)
		in.Counts = nil
		in.Reviews["d"][0].Outcome = "failed" // for a reason that its calls do not show
		in.Reviews["d"][1].Took = 50 * ms     // less than its call
		in.Reviews["d"][2].Outcome = "refused"
		got, err := replay.Predict(in, replay.Variant{Without: []string{"a"}})
		if err != nil || got[1].Kept != 4 || got[1].Replayed != 1 || got[1].After.Failed != 2 || got[1].After.Slowest != 100*ms || got[1].After.P50 != 50*ms {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func ExampleVariant_Parse() {
	var c replay.Variant
	for _, text := range []string{"without=a.example.com,b.example.com", "deadline=c.example.com:500ms", "replicas=d.example.com:+2"} {
		if err := c.Parse(text); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(c.Without, c.Deadlines, c.Replicas)
	// Output: [a.example.com b.example.com] map[c.example.com:500ms] map[d.example.com:2]
}
