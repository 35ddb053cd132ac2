package policy

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Kubernetes counts the cost of an expression while it is evaluated, and ends the evaluation at a limit: 1,000,000 units for an expression, and a budget
// for a policy. The count takes more time than the evaluation. So the most that the expressions of a policy can cost is computed before, from their text
// and from the longest list and text in the request: where that is below the limits, nothing is counted. The results are the same, since the limits would
// not have ended anything. This file computes too much rather than too little:
//
//   - The size of a value bounds all values that it holds, at each depth. So has an item of a list the size of the list.
//   - Both branches of a condition are evaluated, and all iterations of a comprehension.
//   - A call costs the most of all overloads of the function, for the largest arguments.
//   - Only the functions of estimates are known. An expression that calls another one, reads a variable of CEL that is not known here, or has a
//     comprehension that is none of the known macros, may cost without bound: then all of the policy is counted, as in Kubernetes.
//
// TestNoExpressionCostsMoreThanItsBound compares the bounds with the costs of random expressions.

// maxUncounted is the most units that all expressions of a policy together may cost without being counted: the smallest budget of its parts. Validations
// and messages share a budget of four times as much, and may evaluate the variables once each.
const maxUncounted = celconfig.RuntimeCELCostBudgetMatchConditions

// maxVisited is the most parts of expressions that are visited to compute a bound. Comprehensions in comprehensions are visited often.
const maxVisited = 10_000

// size bounds a value with all that it holds: no list and no map has more items, and no text more bytes. A number has neither.
type size struct{ items, bytes float64 }

// or bounds both values.
func (s size) or(t size) size { return size{max(s.items, t.items), max(s.bytes, t.bytes)} }

// length bounds the length by which calls cost; it is 1 for a number. A text counts by its characters, of which it has no more than
// bytes.
func (s size) length() float64 { return max(s.items, s.bytes, 1) }

// reading is the cost to read a value once.
func (s size) reading() float64 { return math.Ceil(s.length() * common.StringTraversalCostFactor) }

// matching is the cost to match a value with a regular expression.
func (s size) matching(pattern size) float64 {
	return math.Ceil((1+s.length())*common.StringTraversalCostFactor) * math.Ceil(pattern.length()*common.RegexStringLengthCostFactor)
}

// text is the size of a text of at most so many bytes.
func text(bytes float64) size { return size{bytes: bytes} }

// unbounded is the cost of an expression that is not known.
func unbounded() float64 { return math.Inf(1) }

// unknown is the size of a value that is not known.
func unknown() size { return size{math.Inf(1), math.Inf(1)} }

const (
	// shortText is more than the bytes of a number, a time or a duration as text.
	shortText = 64
	// runeGrowth is how many times as long a text may get when invalid UTF-8 in it is replaced.
	runeGrowth = 3
)

// estimate bounds the cost of a call, and the size of its value.
type estimate func(args []size) (cost float64, value size)

// estimates has the functions that are known, by their names in the syntax tree.
func estimates() map[string]estimate {
	constant := func([]size) (float64, size) { return 1, size{} }
	same := func(args []size) (float64, size) { return 1, largest(args) }
	reads := func(args []size) (float64, size) { return args[0].reading(), size{} }
	compares := func(args []size) (float64, size) { return min(args[0].reading(), args[1].reading()), size{} }
	rewrites := func(args []size) (float64, size) { return args[0].reading(), text(runeGrowth * args[0].bytes) }
	finds := func(args []size) (float64, size) {
		return args[0].matching(args[1]), size{args[0].bytes + 1, args[0].bytes}
	}
	all := map[string]estimate{
		operators.Add: func(args []size) (float64, size) {
			cost := math.Ceil((args[0].length() + args[1].length()) * common.StringTraversalCostFactor)
			return cost, size{args[0].items + args[1].items, args[0].bytes + args[1].bytes}
		},
		operators.In: func(args []size) (float64, size) { return args[1].length(), size{} },
		"contains":   func(args []size) (float64, size) { return args[0].reading() * args[1].reading(), size{} },
		"string":     func(args []size) (float64, size) { return args[0].reading(), text(max(args[0].bytes, shortText)) },
		"bytes":      func(args []size) (float64, size) { return args[0].reading(), text(args[0].bytes) },
		"replace": func(args []size) (float64, size) {
			return 2 * args[0].reading(), text(args[0].bytes + (args[0].bytes+1)*args[2].bytes)
		},
		"split": func(args []size) (float64, size) {
			return 2 * args[0].reading(), size{args[0].bytes + 1, runeGrowth * args[0].bytes}
		},
		"join": func(args []size) (float64, size) {
			joined := text(args[0].items * largest(args).bytes * 2)
			return 2 * joined.reading(), joined
		},
		"format":              func(args []size) (float64, size) { return args[0].reading(), unknown() },
		"jsonpatch.escapeKey": func(args []size) (float64, size) { return args[0].reading(), text(2 * args[0].bytes) },
		"matches":             finds, "find": finds, "findAll": finds,
	}
	for _, name := range []string{
		operators.LogicalNot, operators.Negate, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.NotStrictlyFalse,
		"size", "type", "int", "uint", "double", "bool", "duration", "timestamp", "optional.none", "hasValue",
		"isGreaterThan", "isLessThan", "compareTo", "add", "sub", "sign", "asInteger", "isInteger", "asApproximateFloat",
	} {
		all[name] = constant
	}
	for _, name := range []string{operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals} {
		all[name] = compares
	}
	for _, name := range []string{"startsWith", "endsWith", "quantity", "isQuantity"} {
		all[name] = reads
	}
	for _, name := range []string{"lowerAscii", "upperAscii", "trim", "substring", "charAt"} {
		all[name] = rewrites
	}
	for _, name := range []string{"dyn", "optional.of", "optional.ofNonZeroValue", "value", "or", "orValue"} {
		all[name] = same
	}
	return all
}

func largest(all []size) (s size) {
	for _, one := range all {
		s = s.or(one)
	}
	return s
}

// estimator bounds the costs of the expressions of one policy.
type estimator struct {
	known     map[string]estimate
	values    size            // of the variables of CEL
	variables map[string]size // of the policy
	visited   int
}

// scope are the variables of comprehensions.
type scope struct {
	name string
	size

	outer *scope
}

func (s *scope) find(name string) *scope {
	for ; s != nil && s.name != name; s = s.outer {
	}
	return s
}

// bound bounds the cost and the value of an expression.
func (e *estimator) bound(x ast.Expr, s *scope) (cost float64, value size) {
	if e.visited++; e.visited > maxVisited {
		return unbounded(), unknown()
	}
	switch x.Kind() {
	case ast.LiteralKind:
		switch literal := x.AsLiteral().(type) {
		case types.String:
			value = text(float64(len(literal)))
		case types.Bytes:
			value = text(float64(len(literal)))
		}
		return 0, value
	case ast.IdentKind:
		return e.ident(x.AsIdent(), s)
	case ast.SelectKind:
		return e.selected(x.AsSelect(), s)
	case ast.CallKind:
		return e.call(x.AsCall(), s)
	case ast.ListKind:
		cost, value = e.all(x.AsList().Elements(), s)
		return common.ListCreateBaseCost + cost, value.or(size{items: float64(x.AsList().Size())})
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range x.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		cost, value = e.all(parts, s)
		return common.MapCreateBaseCost + cost, value.or(size{items: float64(x.AsMap().Size())})
	case ast.StructKind:
		var parts []ast.Expr
		for _, field := range x.AsStruct().Fields() {
			parts = append(parts, field.AsStructField().Value())
		}
		cost, value = e.all(parts, s)
		return common.StructCreateBaseCost + cost, value
	case ast.ComprehensionKind:
		return e.comprehension(x.AsComprehension(), s)
	case ast.UnspecifiedExprKind:
	}
	return unbounded(), unknown()
}

// all bounds the sum of costs, and each of the values.
func (e *estimator) all(parts []ast.Expr, s *scope) (cost float64, value size) {
	for _, part := range parts {
		c, v := e.bound(part, s)
		cost, value = cost+c, value.or(v)
	}
	return cost, value
}

// ident bounds a variable: of a comprehension, or of CEL. The authorizer has no size, and no function of it is known.
func (e *estimator) ident(name string, s *scope) (float64, size) {
	if of := s.find(name); of != nil {
		return common.SelectAndIdentCost, of.size
	}
	switch name {
	case cel.ObjectVarName, cel.OldObjectVarName, cel.ParamsVarName, cel.RequestVarName, cel.NamespaceVarName:
		return common.SelectAndIdentCost, e.values
	}
	return unbounded(), unknown()
}

// selected bounds a field, or the test of its presence. It costs a unit, and another if it is the field of no variable.
func (e *estimator) selected(x ast.SelectExpr, s *scope) (float64, size) {
	const cost = 2 * common.SelectAndIdentCost
	if operand := x.Operand(); operand.Kind() == ast.IdentKind && operand.AsIdent() == cel.VariableVarName && s.find(cel.VariableVarName) == nil {
		value, ok := e.variables[x.FieldName()]
		if !ok {
			return unbounded(), unknown()
		}
		return cost + common.SelectAndIdentCost, value // its expression counts for itself
	}
	if x.IsTestOnly() && isConditional(x.Operand()) {
		return unbounded(), unknown() // Kubernetes takes a unit off for each such test that it has not counted before, and may come to less than none
	}
	of, value := e.bound(x.Operand(), s)
	return cost + of, value
}

// isConditional reports whether an expression is a field, of any depth, of the ternary operator.
func isConditional(x ast.Expr) bool {
	for {
		switch {
		case x.Kind() == ast.SelectKind:
			x = x.AsSelect().Operand()
		case x.Kind() == ast.CallKind && isIndex(x.AsCall().FunctionName()):
			x = x.AsCall().Args()[0]
		default:
			return x.Kind() == ast.CallKind && x.AsCall().FunctionName() == operators.Conditional
		}
	}
}

func isIndex(function string) bool {
	return function == operators.Index || function == operators.OptIndex || function == operators.OptSelect
}

func (e *estimator) call(x ast.CallExpr, s *scope) (cost float64, value size) {
	args := x.Args()
	if x.IsMemberFunction() {
		args = append([]ast.Expr{x.Target()}, args...)
	}
	sizes := make([]size, len(args))
	for i, arg := range args {
		var c float64
		c, sizes[i] = e.bound(arg, s)
		cost += c
	}
	switch name := x.FunctionName(); {
	case name == operators.LogicalAnd || name == operators.LogicalOr:
		return cost, size{}
	case name == operators.Conditional:
		return cost + common.SelectAndIdentCost, sizes[1].or(sizes[2])
	case isIndex(name):
		return cost + 2*common.SelectAndIdentCost, sizes[0]
	case e.known[name] != nil:
		c, value := e.known[name](sizes)
		return cost + c, value
	}
	return unbounded(), unknown()
}

// comprehension bounds a macro. Its accumulator starts with a value; each iteration makes no more than the same of it, or appends to it.
func (e *estimator) comprehension(x ast.ComprehensionExpr, s *scope) (float64, size) {
	rangeCost, items := e.bound(x.IterRange(), s)
	cost, accumulated := e.bound(x.AccuInit(), s)
	cost += rangeCost
	if x.IterRange().Kind() == ast.ListKind && x.IterRange().AsList().Size() == 0 { // a variable for one expression, as of optMap
		c, value := e.bound(x.Result(), &scope{x.AccuVar(), accumulated, s})
		return cost + c, value
	}
	inside := func(accumulated size) *scope {
		outer := &scope{x.IterVar(), items, s}
		if x.HasIterVar2() {
			outer = &scope{x.IterVar2(), items, outer}
		}
		return &scope{x.AccuVar(), accumulated, outer}
	}
	if appended, n := appendedTo(x); appended != nil {
		_, one := e.all(appended, inside(unknown()))
		accumulated = accumulated.or(one)
		accumulated.items = max(accumulated.items, one.items, items.items*n)
	}
	each, _ := e.bound(x.LoopCondition(), inside(accumulated))
	step, value := e.bound(x.LoopStep(), inside(accumulated))
	if appended, _ := appendedTo(x); appended == nil && value.or(accumulated) != accumulated {
		return unbounded(), unknown()
	}
	if items.items > 0 {
		cost += items.items * (each + step)
	}
	c, value := e.bound(x.Result(), &scope{x.AccuVar(), accumulated, s})
	return cost + c, value
}

// appendedTo returns the expressions that each iteration of a comprehension appends to its empty list or map, if a condition is met, and how many items
// they are; nil if it does something else.
func appendedTo(x ast.ComprehensionExpr) (appended []ast.Expr, items float64) {
	isAccumulator := func(x ast.Expr, name string) bool { return x.Kind() == ast.IdentKind && x.AsIdent() == name }
	step, name := x.LoopStep(), x.AccuVar()
	if step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Conditional && isAccumulator(step.AsCall().Args()[2], name) {
		step = step.AsCall().Args()[1]
	}
	if step.Kind() != ast.CallKind || step.AsCall().IsMemberFunction() {
		return nil, 0
	}
	switch args := step.AsCall().Args(); {
	case len(args) < 2 || !isAccumulator(args[0], name):
	case step.AsCall().FunctionName() == operators.Add && args[1].Kind() == ast.ListKind && isEmpty(x.AccuInit()):
		return args[1:], float64(args[1].AsList().Size())
	case step.AsCall().FunctionName() == mapInsert && len(args) == 3 && isEmpty(x.AccuInit()):
		return args[1:], 1
	}
	return nil, 0
}

// mapInsert is the function by which transformMap adds an entry to a map.
const mapInsert = "cel.@mapInsert"

// isEmpty reports whether an expression is an empty list or map.
func isEmpty(x ast.Expr) bool {
	return x.Kind() == ast.ListKind && x.AsList().Size() == 0 || x.Kind() == ast.MapKind && x.AsMap().Size() == 0
}

// Exponents of two that the longest list and text of a request stay below, in a policy that is not counted.
const (
	itemsExponent = 14
	bytesExponent = 21
)

// costs are the bounds of the costs of a policy.
type costs struct {
	variables    []namedExpression // in the order of their declaration
	expressions  []ast.Expr        // others
	readsRequest bool

	// bounds has the cost for each exponent of the longest list and text, computed when it is first needed; 0 before. It is one more than the cost.
	bounds [itemsExponent + 1][bytesExponent + 1]atomic.Uint32
}

type namedExpression struct {
	name string
	ast.Expr
}

// newCosts returns the bounds of a policy; nil if each evaluation of its expressions has to be counted.
func newCosts(variables []variable, all ...[]program) *costs {
	c := &costs{}
	for i := range variables {
		v := &variables[i]
		if v.uncounted == nil {
			return nil
		}
		c.variables = append(c.variables, namedExpression{v.name, v.uncounted.Expression})
	}
	for _, x := range slices.Concat(all...) {
		switch {
		case x.uncounted != nil:
			c.expressions = append(c.expressions, x.uncounted.Expression)
		case x.ExpressionAccessor != nil:
			return nil
		}
	}
	reads := ast.NewExprVisitor(func(x ast.Expr) {
		c.readsRequest = c.readsRequest || x.Kind() == ast.IdentKind && x.AsIdent() == cel.RequestVarName
	})
	for _, x := range c.variables {
		ast.PostOrderVisit(x.Expr, reads)
	}
	for _, x := range c.expressions {
		ast.PostOrderVisit(x, reads)
	}
	if _, ok := c.within(conversion.Longest{}); !ok {
		return nil
	}
	return c
}

// within returns a bound of the cost of all expressions together; ok is false if it is above maxUncounted.
func (c *costs) within(longest conversion.Longest) (bound int64, ok bool) {
	items, bytes := bits.Len(uint(longest.Items)), bits.Len(uint(longest.Bytes))
	if items > itemsExponent || bytes > bytesExponent {
		return 0, false
	}
	known := &c.bounds[items][bytes]
	if known.Load() == 0 {
		known.Store(1 + uint32(min(c.compute(size{math.Ldexp(1, items) - 1, math.Ldexp(1, bytes) - 1}), maxUncounted+1)))
	}
	bound = int64(known.Load()) - 1
	return bound, bound <= maxUncounted
}

// compute bounds the cost of all expressions together. It is unbounded if one may cost more than an expression may.
func (c *costs) compute(values size) (sum float64) {
	e := &estimator{known: estimates(), values: values, variables: map[string]size{}}
	add := func(x ast.Expr) (value size) {
		cost, value := e.bound(x, nil)
		if !(cost <= celconfig.PerCallLimit) { // it may be no number: of an unknown size, and none at all
			cost = unbounded()
		}
		sum += cost
		return value
	}
	for _, v := range c.variables {
		e.variables[v.name] = add(v.Expr)
	}
	for _, x := range c.expressions {
		add(x)
	}
	return sum
}

// isUncounted reports whether a policy may be evaluated for a request without a count of its costs.
func (c *costs) isUncounted(ctx context.Context, in *input, a *activation) bool {
	if c == nil || a.observed.observer != nil {
		return false
	}
	longest := in.longest
	if c.readsRequest {
		_, request, err := in.attributes.RequestVariable(a.resource, in.versioned.VersionedKind)
		if err != nil {
			return false
		}
		longest = longest.Or(request)
	}
	bound, ok := c.within(longest)
	return ok && reserve(ctx, bound)
}
