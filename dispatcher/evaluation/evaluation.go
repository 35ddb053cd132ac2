// Package evaluation has the errors and costs of evaluations of CEL as kube-apiserver has them, and ends evaluations in time.
package evaluation

import (
	"context"
	"runtime"
	"time"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Briefly returns a context for evaluations that end after a time, by the clock: it makes no timer, so it is Over before it is done. Evaluations in it
// let no other goroutine compute in between.
func Briefly(ctx context.Context, length time.Duration) context.Context {
	return &brief{Context: ctx, deadline: time.Now().Add(length)}
}

type brief struct {
	context.Context //nolint:containedctx // the parent

	deadline    time.Time
	interrupted bool // by the goroutine that evaluates
}

// Interrupted reports whether an evaluation in a context of [Briefly] was interrupted: its result does not count. The goroutine that evaluates calls it.
func Interrupted(ctx context.Context) bool {
	b, ok := ctx.(*brief)
	return ok && b.interrupted
}

// Deadline implements [context.Context].
func (b *brief) Deadline() (time.Time, bool) {
	if deadline, ok := b.Context.Deadline(); ok && deadline.Before(b.deadline) {
		return deadline, true
	}
	return b.deadline, true
}

// Over is the error of a context that is over. The timer that ends a context needs a processor, and evaluations may have all of them for 10 ms: so the
// clock counts.
func Over(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// InterruptedVarName is the variable that comprehensions of cel-go read in each iteration, to end when it is true.
const InterruptedVarName = "#interrupted"

// Interrupt is the value of InterruptedVarName in one evaluation. The activation of cel.Program.ContextEval answers true each hundredth time alone, so
// that an inner comprehension ends early each time, and the outer one goes on to its end. It also waits for the timer of its context.
type Interrupt struct {
	ctx    context.Context //nolint:containedctx // bounds the evaluation
	checks uint            // of Value
	over   bool
	yields bool
}

// NewInterrupt returns the interrupt of an evaluation that ctx bounds.
func NewInterrupt(ctx context.Context) Interrupt {
	_, brief := ctx.(*brief)
	return Interrupt{ctx: ctx, yields: !brief}
}

// Value reports whether the evaluation is over. Once it is true it stays so. It looks at the clock each hundredth time.
func (i *Interrupt) Value() bool {
	if i.checks++; i.checks%celconfig.CheckFrequency == 0 && !i.over {
		i.over = i.Begin() != nil
	}
	return i.over
}

// Begin is called before each expression of the evaluation. It returns the error of a context that is over.
func (i *Interrupt) Begin() error {
	i.Yield()
	err := Over(i.ctx)
	if b, ok := i.ctx.(*brief); ok && err != nil {
		b.interrupted = true
	}
	return err
}

// Yield lets others compute that are ready, such as reviews of other clusters: an evaluation may take a processor for seconds, unless it is brief.
func (i *Interrupt) Yield() {
	if i.yields {
		runtime.Gosched()
	}
}
