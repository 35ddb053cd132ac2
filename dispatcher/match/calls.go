package match

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/interpreter/functions"
)

// Limits of functions that an expression calls. CEL counts the cost of a call after it, and stops between calls alone: one call of lists.range could take all
// memory, and one comparison of nested lists a processor for ever. kube-apiserver has none of these limits.
const (
	// MaxRepeated bounds how many characters longer the regular expressions of one expression get when their repetitions are written out: "a{3}" is "aaa".
	// Each character takes some 50 bytes while the expression is in use, and 700 while it is compiled. An expression that makes more as it is evaluated
	// fails.
	MaxRepeated = 1000
	// MaxCall bounds the work of one call: bytes that it reads or makes, and comparisons. The call fails past it.
	MaxCall = 8 << 20
	// itemBytes is the memory of an item of a list that a call makes.
	itemBytes = 16
)

// work estimates the work of a call from its arguments.
type work func(args []ref.Val) int

// works are the estimates for the functions whose work may be more than in proportion to their length, and for comparisons:
// an expression makes lists of much length from few.
func works() map[string]work {
	return map[string]work{
		operators.Equals:    comparison,
		operators.NotEquals: comparison,
		operators.In:        comparison,
		"replace": func(args []ref.Val) int {
			return length(args[0]) + (length(args[0])/max(1, length(args[1]))+1)*length(args[2])
		},
		"join": func(args []ref.Val) int {
			if len(args) == 1 {
				return extent(args[0])
			}
			return extent(args[0]) + length(args[0])*length(args[1])
		},
		"format":                func(args []ref.Val) int { return length(args[0]) + precisions(args[0]) + extent(args[1]) },
		"split":                 func(args []ref.Val) int { return pieces(args[0], args[1]) * itemBytes },
		"findAll":               func(args []ref.Val) int { return length(args[0]) * itemBytes },
		"lists.range":           func(args []ref.Val) int { return number(args[0]) * itemBytes },
		"flatten":               func(args []ref.Val) int { return extent(args[0]) * itemBytes },
		"distinct":              func(args []ref.Val) int { return extent(args[0]) * length(args[0]) },
		"sets.contains":         overlap,
		"sets.equivalent":       overlap,
		"sets.intersects":       overlap,
		"indexOf":               search,
		"lastIndexOf":           search,
		"sort":                  sorting,
		"@sortByAssociatedKeys": sorting,
		"quantity":              digits, "isQuantity": digits,
		"matches": nothing,
		"find":    nothing,
	}
}

func nothing([]ref.Val) int { return 0 }

// comparison is the work to compare a value with another, or with the items of a list. Values that hold no others are compared at once.
func comparison(args []ref.Val) int {
	if !holds(args[0]) || !holds(args[1]) {
		return 0
	}
	return extent(args[1])
}

// holds reports whether a value holds other values.
func holds(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return true
	}
	return false
}

// overlap is the work to look each item of a list up in another.
func overlap(args []ref.Val) int {
	return extent(args[0])*length(args[1]) + extent(args[1])*length(args[0])
}

// sorting is the work to sort a list, or to sort by another.
func sorting(args []ref.Val) int { return extent(args[len(args)-1]) * 20 }

// search is the work to find an item in a list, or a text in another one.
func search(args []ref.Val) int {
	if _, ok := args[0].(types.String); ok {
		return length(args[0]) * length(args[1])
	}
	return extent(args[0])
}

// digits is the work to read a quantity, in the square of its length, and in proportion to its exponent.
func digits(args []ref.Val) int {
	text, _ := args[0].(types.String)
	work := len(text) * len(text)
	if i := strings.LastIndexAny(string(text), "eE"); i >= 0 {
		work += 8 * leading(strings.TrimLeft(string(text[i+1:]), "+-"))
	}
	return work
}

// leading is the number at the start of a text, or just more than MaxCall.
func leading(text string) (n int) {
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		n = min(10*n+int(c-'0'), MaxCall+1)
	}
	return n
}

// number is an int, between 0 and MaxCall.
func number(v ref.Val) int {
	n, _ := v.(types.Int)
	return int(max(0, min(n, MaxCall)))
}

// length is the bytes of a text, or the items of a list; 0 of others.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case traits.Lister:
		return number(v.Size())
	}
	return 0
}

// pieces is how many pieces a text is split into.
func pieces(text, separator ref.Val) int {
	of, _ := text.(types.String)
	by, _ := separator.(types.String)
	return strings.Count(string(of), string(by)) + 1
}

// precisions is the sum of the numbers after a % in a format.
func precisions(format ref.Val) (sum int) {
	text, _ := format.(types.String)
	for _, clause := range strings.Split(string(text), "%")[1:] {
		sum += leading(strings.TrimLeft(clause, "."))
	}
	return sum
}

// extent is the bytes and items of a value with all that it holds, each as often as it is held, or just more than MaxCall.
func extent(v ref.Val) int { return extentWithin(v, MaxCall) }

func extentWithin(v ref.Val, most int) int {
	n := 1
	switch v := v.(type) {
	case types.String:
		n += len(v)
	case types.Bytes:
		n += len(v)
	case *types.Optional:
		if v.HasValue() {
			n += extentWithin(v.GetValue(), most-n)
		}
	case traits.Mapper:
		for i := v.Iterator(); n <= most && i.HasNext() == types.True; {
			key := i.Next()
			n += extentWithin(key, most-n) + extentWithin(v.Get(key), most-n)
		}
	case traits.Lister:
		for i := v.Iterator(); n <= most && i.HasNext() == types.True; {
			n += extentWithin(i.Next(), most-n)
		}
	}
	return n
}

// BoundCalls are the options of programs of an environment that bound their calls by MaxRepeated and MaxCall.
func BoundCalls(env *cel.Env) []cel.ProgramOption {
	known, works, declared := map[string]*functions.Overload{}, works(), env.Functions()
	for name := range works {
		if f := declared[name]; f != nil {
			all, _ := f.Bindings() // CEL itself uses them, and reports the error
			for _, o := range all {
				known[o.Operator] = o
			}
		}
	}
	return []cel.ProgramOption{
		cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
			call, ok := i.(interpreter.InterpretableCall)
			if !ok || works[call.Function()] == nil {
				return i, nil
			}
			work := works[call.Function()]
			of := known[call.OverloadID()]
			if of == nil {
				of = known[call.Function()]
			}
			return bound(call, work, func(args []ref.Val) ref.Val { return run(call.Function(), of, args) }), nil
		}),
		// It would take the place of the call, as the others of its kind do, whose work needs no bound.
		cel.OptimizeRegex(&interpreter.RegexOptimization{Function: "findAll", RegexIndex: 1, Factory: boundFindAll(works["findAll"])}),
	}
}

// run calls a function.
func run(name string, of *functions.Overload, args []ref.Val) ref.Val {
	switch {
	case name == operators.Equals:
		return types.Equal(args[0], args[1])
	case name == operators.NotEquals:
		return types.Bool(types.Equal(args[0], args[1]) != types.True)
	case of == nil || of.OperandTrait != 0 && !args[0].Type().HasTrait(of.OperandTrait):
	case len(args) == 1 && of.Unary != nil:
		return of.Unary(args[0])
	case len(args) == 2 && of.Binary != nil:
		return of.Binary(args[0], args[1])
	case of.Function != nil:
		return of.Function(args...)
	}
	return types.NoSuchOverloadErr()
}

// boundFindAll makes a call of findAll whose pattern is compiled once.
func boundFindAll(work work) func(interpreter.InterpretableCall, string) (interpreter.InterpretableCall, error) {
	return func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		return bound(call, work, func(args []ref.Val) ref.Val {
			text, ok := args[0].(types.String)
			most := types.Int(-1)
			if len(args) == 3 {
				n, isInt := args[2].(types.Int)
				most, ok = n, ok && isInt
			}
			if !ok {
				return types.NoSuchOverloadErr()
			}
			return types.NewStringList(types.DefaultTypeAdapter, compiled.FindAllString(string(text), int(most)))
		}), nil
	}
}

// boundedCall is a call whose arguments are looked at first.
type boundedCall struct {
	interpreter.InterpretableCall

	args []interpreter.Interpretable
	work work
	run  func(args []ref.Val) ref.Val
}

func bound(call interpreter.InterpretableCall, work work, run func([]ref.Val) ref.Val) *boundedCall {
	return &boundedCall{InterpretableCall: call, args: call.Args(), work: work, run: run}
}

// Eval implements [interpreter.Interpretable]. It evaluates all arguments, as calls without it do.
func (c *boundedCall) Eval(a interpreter.Activation) ref.Val {
	args := make([]ref.Val, len(c.args))
	for i, arg := range c.args {
		args[i] = arg.Eval(a)
	}
	for _, arg := range args {
		if types.IsUnknownOrError(arg) {
			return arg
		}
	}
	if err := c.check(args); err != nil {
		return types.WrapErr(err)
	}
	return c.run(args)
}

// check returns an error for a call that would do too much.
func (c *boundedCall) check(args []ref.Val) error {
	if c.work(args) > MaxCall {
		return fmt.Errorf("a call of %s would read, make or compare more than %d bytes", strings.Trim(c.Function(), "_@"), MaxCall)
	}
	if !takesRegex(c.Function()) {
		return nil
	}
	pattern, _ := args[1].(types.String)
	return tooRepeated(repetitions(string(pattern)))
}

func takesRegex(function string) bool {
	return function == "matches" || function == "find" || function == "findAll"
}

// checkRegexes returns an error if the regular expressions that a parsed expression names repeat more than MaxRepeated.
func checkRegexes(parsed *cel.Ast) error {
	repeated := 0
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !takesRegex(e.AsCall().FunctionName()) {
			return
		}
		for _, arg := range e.AsCall().Args() {
			if arg.Kind() == ast.LiteralKind && arg.AsLiteral().Type() == types.StringType {
				repeated += repetitions(fmt.Sprint(arg.AsLiteral().Value()))
			}
		}
	}))
	return tooRepeated(repeated)
}

func tooRepeated(repeated int) error {
	if repeated <= MaxRepeated {
		return nil
	}
	return fmt.Errorf("its regular expressions get %d characters longer when their repetitions are written out, and at most %d are compiled: "+
		"repeat less, or compare size()", repeated, MaxRepeated)
}

// repetitions is how many characters longer a pattern gets when its repetitions are written out; 0 of a text that is no pattern.
func repetitions(pattern string) int {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return max(0, writtenOut(tree)-len(pattern))
}

// writtenOut is about how many instructions a regular expression compiles to. Package syntax bounds its depth.
func writtenOut(tree *syntax.Regexp) int {
	length := 1
	if tree.Op == syntax.OpLiteral {
		length = len(tree.Rune)
	} else if tree.Op == syntax.OpConcat || tree.Op == syntax.OpRepeat {
		length = 0
	}
	for _, sub := range tree.Sub {
		length += writtenOut(sub)
	}
	if tree.Op == syntax.OpRepeat {
		length *= max(tree.Min, tree.Max, 1)
	}
	return length
}
