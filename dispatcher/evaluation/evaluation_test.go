package evaluation

import (
	"context"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestAnInterruptEndsEachComprehension has 1,000 items and as many for each of them. cel.Program.ContextEval ends each inner comprehension, and begins the next.
func TestAnInterruptEndsEachComprehension(t *testing.T) {
	items := make([]any, 1000)
	for i := range items {
		items[i] = int64(i)
	}
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	checked, issues := env.Compile("object.all(a, object.all(b, a + b >= 0))")
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(checked, cel.CostTracking(nil), cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		t.Fatal(err)
	}
	cost := func(ctx context.Context) uint64 {
		_, details, err := program.Eval(&interruptible{items, NewInterrupt(ctx)})
		if err == nil || CostOf(details) == UnknownCost {
			t.Fatal(err, details)
		}
		return uint64(CostOf(details))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"ended": ended, "over by the clock": Briefly(t.Context(), 0)} {
		if got := cost(ctx); got > 2000 {
			t.Errorf("%s: the evaluation has cost %d", name, got)
		}
	}
}

// interruptible are the variables of an evaluation that an Interrupt ends.
type interruptible struct {
	object any
	Interrupt
}

func (i *interruptible) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		return i.object, true
	case InterruptedVarName:
		return i.Value(), true
	}
	return nil, false
}

func (i *interruptible) Parent() interpreter.Activation { return nil }

func TestABriefContextIsOverNoLaterThanItsParent(t *testing.T) {
	parent, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if Over(Briefly(parent, time.Minute)) != nil || Over(Briefly(parent, 0)) == nil {
		t.Error("its own time does not count")
	}
	of, _ := parent.Deadline()
	if deadline, ok := Briefly(parent, 2*time.Hour).Deadline(); !ok || !deadline.Equal(of) {
		t.Errorf("the deadline is %v, want %v", deadline, of)
	}
	cancel()
	if Over(Briefly(parent, time.Minute)) == nil {
		t.Error("the end of the parent does not count")
	}
}
