package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Bounds of the explanations of one review.
const (
	// MaxExpressions is the most expressions.
	MaxExpressions = 64
	// MaxParts is the most parts of an expression.
	MaxParts = 64
	// MaxPartBytes is the most bytes of the text of a part, and of its value.
	MaxPartBytes = 240
	// MaxExplainedBytes is the most bytes of all parts.
	MaxExplainedBytes = 64 << 10
	// MaxExplainedCost is the most units of CEL of all expressions with parts, and of the keys of maps that are read for their values, a unit each. The
	// expressions were metered when they were evaluated first.
	MaxExplainedCost = 1_000_000
)

// maxExplained is the most expressions of which an explainer keeps the programs.
const maxExplained = 256

// Explainer finds the values of the parts of expressions. It may be used concurrently.
type Explainer struct {
	env     *celgo.Env
	options []celgo.ProgramOption

	mu       sync.Mutex
	programs map[string]*explained // by expression
}

// Explanations are an [Observer] that collects the expressions of one review that are false or fail. They are not for concurrent use.
type Explanations struct {
	explainer   *Explainer
	all         []*admissionv1.Expression // since the last call of Take
	seen, bytes int                       // of all expressions of the review
	cost, last  int64                     // of the expressions with parts and their values, and of the last expression
}

var _ Observer = (*Explanations)(nil)

// Explanations are explanations of nothing yet.
func (e *Explainer) Explanations() *Explanations { return &Explanations{explainer: e} }

// Observe implements [Observer].
func (e *Explanations) Observe(o Observation) {
	outcome := ""
	switch o.Event {
	case Spent:
		e.last = o.Cost
	case False:
		outcome = "false"
	case Failed:
		outcome = "failed"
	case Begun, Bound, Unbound, True, Changed, Unchanged, Ended:
	}
	if outcome == "" || o.Expression == "" || e.seen == MaxExpressions {
		return
	}
	e.seen++
	x := &admissionv1.Expression{Field: strings.TrimPrefix(o.Field, "."), Outcome: outcome}
	if left := MaxExplainedCost - e.cost - e.last; left >= 0 && e.bytes <= MaxExplainedBytes {
		x.Parts = e.explainer.Explain(o, &left)
		e.cost = MaxExplainedCost - left
	}
	for _, p := range x.GetParts() {
		e.bytes += len(p.GetText()) + len(p.GetValue())
	}
	if e.bytes > MaxExplainedBytes {
		x.Parts = nil
	}
	e.all = append(e.all, x)
}

// Take returns the expressions since the last call; none of nil explanations.
func (e *Explanations) Take() []*admissionv1.Expression {
	if e == nil {
		return nil
	}
	all := e.all
	e.all = nil
	return all
}

// BoundExpressions leaves as many expressions and bytes in outcomes as a review has: its stages and each policy in shadow are explained within bounds of
// their own.
func BoundExpressions(outcomes []*admissionv1.HookOutcome) {
	seen, bytes := 0, 0
	for _, o := range outcomes {
		o.Expressions = o.GetExpressions()[:min(len(o.GetExpressions()), MaxExpressions-seen)]
		seen += len(o.GetExpressions())
		for _, x := range o.GetExpressions() {
			for _, p := range x.GetParts() {
				bytes += len(p.GetText()) + len(p.GetValue())
			}
			if bytes > MaxExplainedBytes {
				x.Parts = nil
			}
		}
	}
}

// explained is an expression whose parts keep their values; ast is nil if it does not compile.
type explained struct {
	program celgo.Program
	ast     *ast.AST
}

// NewExplainer returns an explainer. It takes some ms.
func NewExplainer() (*Explainer, error) {
	base, err := environments()
	if err != nil {
		return nil, err
	}
	env, err := base.StoredExpressionsEnv().Extend(
		celgo.EnableMacroCallTracking(),
		celgo.Variable(cel.ObjectVarName, celgo.DynType), celgo.Variable(cel.OldObjectVarName, celgo.DynType),
		celgo.Variable(cel.ParamsVarName, celgo.DynType), celgo.Variable(cel.RequestVarName, celgo.DynType),
		celgo.Variable(cel.NamespaceVarName, celgo.DynType), celgo.Variable(cel.AuthorizerVarName, library.AuthorizerType),
		celgo.Variable(cel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
	)
	if err != nil {
		return nil, err //nolint:wrapcheck // it depends on no input
	}
	return &Explainer{
		env: env, options: append(match.BoundCalls(env), celgo.EvalOptions(celgo.OptTrackState), celgo.CostLimit(celconfig.PerCallLimit),
			celgo.InterruptCheckFrequency(celconfig.CheckFrequency)),
		programs: map[string]*explained{},
	}, nil
}

// Explain evaluates the expression of an observation once more, and returns the parts that were evaluated, in the order in which they are written: a part
// that a decision made needless has no value. A part of a comprehension has the value of the last round, which decided. It is to be called while the
// observation is observed. Without an expression there are no parts, nor if it reads a Secret as its param: a user who asks for a review need not know it.
// keys is how many keys of maps may be read for the values.
func (e *Explainer) Explain(o Observation, keys *int64) []*admissionv1.ExpressionPart {
	if o.activation == nil || isSecret(o.activation.params) {
		return nil
	}
	x := e.compile(o.Expression)
	if x.ast == nil {
		return nil
	}
	spent := o.activation.spent
	_, details, _ := x.program.Eval(o.activation)
	o.activation.spent = spent // its verdict is the same with an explanation as without
	if details == nil || details.State() == nil {
		return nil
	}
	w := &partWriter{keys: keys, state: details.State(), info: x.ast.SourceInfo(), seen: map[string]bool{}}
	w.own, w.short = ownVariables(o.Policy)
	w.write(x.ast.Expr(), 0)
	return w.parts
}

func (e *Explainer) compile(text string) *explained {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.programs[text]; known != nil {
		return known
	}
	if len(e.programs) == maxExplained {
		clear(e.programs)
	}
	made := &explained{}
	e.programs[text] = made
	parsed, issues := e.env.Parse(text)
	if issues.Err() != nil {
		return made
	}
	program, err := e.env.Program(parsed, e.options...)
	if err == nil {
		made.program, made.ast = program, parsed.NativeRep()
	}
	return made
}

// partWriter collects the parts of an expression.
type partWriter struct {
	state interpreter.EvalState
	info  *ast.SourceInfo
	seen  map[string]bool // by text: a variable that is named twice has one value
	keys  *int64          // of maps, that may still be read
	short bool            // the expression is of a Policy, which names variables without "variables." unless they are its own
	own   []string
	parts []*admissionv1.ExpressionPart
}

// write adds a part, and the parts in it.
func (w *partWriter) write(e ast.Expr, depth uint32) {
	id := e.ID()
	written := e
	if call, ok := w.info.GetMacroCall(id); ok {
		written = call // as its author wrote it
	}
	value, evaluated := w.state.Value(id)
	if !isConstant(written) && evaluated && len(w.parts) < MaxParts {
		text, err := celgo.ExprToString(e, w.info)
		if text = strings.Join(strings.Fields(text), " "); w.short {
			text = shortened(text, w.own)
		}
		if err == nil && !w.seen[text] {
			w.seen[text] = true
			w.parts = append(w.parts, &admissionv1.ExpressionPart{Depth: depth, Text: cut(text), Value: cut(w.valueText(value))})
			depth++
		}
	}
	switch written.Kind() {
	case ast.CallKind:
		c := written.AsCall()
		if c.FunctionName() == operators.OptSelect { // a.?b.?c is one part
			return
		}
		if c.IsMemberFunction() {
			w.write(c.Target(), depth)
		}
		for _, argument := range c.Args() {
			w.write(argument, depth)
		}
	case ast.SelectKind:
		w.writeOperand(written.AsSelect().Operand(), depth)
	case ast.ListKind:
		for _, element := range written.AsList().Elements() {
			w.write(element, depth)
		}
	case ast.MapKind:
		for _, entry := range written.AsMap().Entries() {
			w.write(entry.AsMapEntry().Value(), depth)
		}
	case ast.ComprehensionKind, ast.IdentKind, ast.LiteralKind, ast.StructKind, ast.UnspecifiedExprKind:
	}
}

// isConstant reports a literal, and a list of literals.
func isConstant(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind || e.Kind() == ast.ListKind && !slices.ContainsFunc(e.AsList().Elements(), func(e ast.Expr) bool { return !isConstant(e) })
}

// writeOperand adds the parts of an operand of a selection, unless that selects a field, too: a.b.c is one part.
func (w *partWriter) writeOperand(e ast.Expr, depth uint32) {
	switch e.Kind() {
	case ast.SelectKind:
		w.writeOperand(e.AsSelect().Operand(), depth)
	case ast.IdentKind:
	default:
		w.write(e, depth)
	}
}

// isSecret reports whether a param is a Secret.
func isSecret(param any) bool {
	o, _ := param.(map[string]any)
	return o["kind"] == "Secret" && o["apiVersion"] == "v1"
}

// valueText is the beginning of a value as JSON, or in the words of CEL if it has no JSON: at least MaxPartBytes of a longer value, and little more.
func (w *partWriter) valueText(v ref.Val) string {
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return "none"
		}
		v = o.GetValue()
	}
	return string(w.appendValue(nil, v))
}

// appendValue adds a value to a text until that is longer than MaxPartBytes: a value may be an object of MiB.
func (w *partWriter) appendValue(text []byte, v ref.Val) []byte {
	if len(text) > MaxPartBytes {
		return text
	}
	switch v := v.(type) {
	case *types.Err:
		return append(text, "error: "+v.Error()...)
	case types.String:
		return appendString(text, string(v))
	case traits.Mapper:
		return w.appendMap(text, v)
	case traits.Lister:
		text = append(text, '[')
		for i, n := types.Int(0), v.Size().(types.Int); i < n && len(text) <= MaxPartBytes; i++ { //nolint:errcheck,forcetypeassert // a size is an Int
			text = w.appendValue(appendComma(text, i), v.Get(i))
		}
		return append(text, ']')
	}
	if native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]()); err == nil {
		if raw, err := protojson.Marshal(native.(*structpb.Value)); err == nil { //nolint:errcheck,forcetypeassert // it was asked for
			return append(text, raw...)
		}
	}
	if s, ok := v.Value().(fmt.Stringer); ok {
		if _, isError := s.(error); !isError {
			return append(text, s.String()...)
		}
	}
	return append(text, v.Type().TypeName()...) // such as an authorizer, which has no value for people
}

func appendComma(text []byte, i types.Int) []byte {
	if i > 0 {
		return append(text, ',')
	}
	return text
}

// appendString adds a text of which a part alone is quoted if it is long.
func appendString(text []byte, s string) []byte {
	s = strings.ToValidUTF8(s[:min(len(s), MaxPartBytes+1)], "")
	quoted, _ := protojson.Marshal(structpb.NewStringValue(s)) // valid UTF-8 is no error
	return append(text, quoted...)
}

// appendMap adds the entries of a map in the order of their keys. Of a map that cannot be shown as a whole the first keys are found without a sort.
func (w *partWriter) appendMap(text []byte, m traits.Mapper) []byte {
	const shown = MaxPartBytes / len(`"":0,`)
	if *w.keys -= int64(m.Size().(types.Int)); *w.keys < 0 { //nolint:errcheck,forcetypeassert // a size is an Int
		return append(text, "{...}"...)
	}
	var keys []string
	values := map[string]ref.Val{}
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		name := fmt.Sprint(key.Value())
		at, _ := slices.BinarySearch(keys, name)
		if at == shown {
			continue
		}
		keys, values[name] = slices.Insert(keys, at, name), key
		if len(keys) > shown {
			delete(values, keys[shown])
			keys = keys[:shown]
		}
	}
	text = append(text, '{')
	for i, name := range keys {
		if len(text) > MaxPartBytes {
			break
		}
		text = append(appendString(appendComma(text, types.Int(i)), name), ':')
		text = w.appendValue(text, m.Get(values[name]))
	}
	return append(text, '}')
}

// cut is a text of at most MaxPartBytes.
func cut(text string) string {
	if len(text) <= MaxPartBytes {
		return text
	}
	const more = "..."
	return strings.ToValidUTF8(text[:MaxPartBytes-len(more)], "") + more
}
