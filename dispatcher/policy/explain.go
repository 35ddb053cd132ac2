package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
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
	"github.com/google/cel-go/interpreter"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

const (
	// MaxParts is the most parts of an expression in its explanation.
	MaxParts = 64
	// MaxPartBytes is the most bytes of the text of a part, and of its value.
	MaxPartBytes = 240
)

// Part is a part of an expression that was evaluated, with its value.
type Part struct {
	// Depth is the number of parts around it; 0 is the whole expression.
	Depth int `json:"depth"`
	// Text is the part in the form of cel-go's unparser, which quotes by ", and Value its value as JSON, or the text of its error. Both are cut at MaxPartBytes.
	Text  string `json:"text"`
	Value string `json:"value"`
}

// Explainer finds the values of the parts of expressions. It may be used concurrently.
type Explainer struct {
	env     *celgo.Env
	options []celgo.ProgramOption

	mu       sync.Mutex
	programs map[string]*explained // by expression
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
		env: env, options: append(match.BoundCalls(env), celgo.EvalOptions(celgo.OptTrackState)), programs: map[string]*explained{},
	}, nil
}

// Explain evaluates the expression of an observation once more, and returns the parts that were evaluated, in the order in which they are written: a part
// that a decision made needless has no value. A part of a comprehension has the value of the last round, which decided. It is to be called while the
// observation is observed. Without an expression there are no parts.
func (e *Explainer) Explain(o Observation) []Part {
	if o.activation == nil {
		return nil
	}
	x := e.compile(o.Expression)
	if x.ast == nil {
		return nil
	}
	spent := o.activation.spent
	_, details, _ := x.program.Eval(o.activation)
	o.activation.spent = spent // a tool has no budget
	if details == nil || details.State() == nil {
		return nil
	}
	w := &partWriter{state: details.State(), info: x.ast.SourceInfo(), seen: map[string]bool{}, short: strings.HasPrefix(o.Policy.ID(), ShortKind+"/")}
	w.write(x.ast.Expr(), 0)
	return w.parts
}

func (e *Explainer) compile(text string) *explained {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.programs[text]; known != nil {
		return known
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
	short bool            // the expression is of a Policy, which names variables without "variables."
	parts []Part
}

// write adds a part, and the parts in it.
func (w *partWriter) write(e ast.Expr, depth int) {
	id := e.ID()
	written := e
	if call, ok := w.info.GetMacroCall(id); ok {
		written = call // as its author wrote it
	}
	value, evaluated := w.state.Value(id)
	if !isConstant(written) && evaluated && len(w.parts) < MaxParts {
		text, err := celgo.ExprToString(e, w.info)
		if text = strings.Join(strings.Fields(text), " "); w.short {
			text = strings.ReplaceAll(text, cel.VariableVarName+".", "")
		}
		if err == nil && !w.seen[text] {
			w.seen[text] = true
			w.parts = append(w.parts, Part{Depth: depth, Text: cut(text), Value: cut(valueText(value))})
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
func (w *partWriter) writeOperand(e ast.Expr, depth int) {
	switch e.Kind() {
	case ast.SelectKind:
		w.writeOperand(e.AsSelect().Operand(), depth)
	case ast.IdentKind:
	default:
		w.write(e, depth)
	}
}

// valueText is a value as JSON, or in the words of CEL if it has no JSON.
func valueText(v ref.Val) string {
	if failure, ok := v.(*types.Err); ok {
		return "error: " + failure.Error()
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return "none"
		}
		v = o.GetValue()
	}
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if message, ok := native.(*structpb.Value); err == nil && ok {
		text := &bytes.Buffer{}
		if raw, err := protojson.Marshal(message); err == nil && json.Compact(text, raw) == nil { // protojson sets spaces at random
			return text.String()
		}
	}
	return fmt.Sprint(v.Value())
}

// cut is a text of at most MaxPartBytes.
func cut(text string) string {
	if len(text) <= MaxPartBytes {
		return text
	}
	const more = "..."
	return strings.ToValidUTF8(text[:MaxPartBytes-len(more)], "") + more
}

// String is the part in one line.
func (p Part) String() string {
	return fmt.Sprintf("%s%s = %s", strings.Repeat("  ", p.Depth), p.Text, cmp.Or(p.Value, "?"))
}
