package match

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// maxEntryCondition is the most bytes of an expression in Hook.EntryConditions.
const maxEntryCondition = 1024

// EntryConditions are the parts of the hook's matchConditions that an API server can evaluate before it calls an entry: CEL expressions, sorted, each
// once. If any is false, the hook is not called for the request, whatever its other conditions are. None ever fails to evaluate: where the part of a
// matchCondition that it stands for would fail, it is true. The caller must not change them.
func (h *Hook) EntryConditions() []string {
	if h.conditions == nil {
		return nil
	}
	return h.conditions.entry
}

// entryConditions joins the entry conditions of all expressions of a hook.
func entryConditions(compiled []*Expression) []string {
	var all []string
	for _, x := range compiled {
		all = append(all, x.entry...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// entryConditionsOf are the parts of an expression, joined by &&, that read only fields of the request which are the same in every
// version that the API server may convert it to, and that cannot fail once the fields which they read are there. The expression compiles, so
// that its types are right.
func entryConditionsOf(parsed *cel.Ast) []string {
	var all []string
	for _, part := range conjuncts(parsed.NativeRep().Expr()) {
		t := total{}
		if part.Kind() == ast.LiteralKind || !t.holds(part) {
			continue
		}
		text, err := parser.Unparse(part, parsed.NativeRep().SourceInfo())
		if err != nil {
			continue
		}
		if text = t.guarded(text); len(text) <= maxEntryCondition {
			all = append(all, text)
		}
	}
	return all
}

// conjuncts are the parts of an expression that && joins. One false part makes the expression false, whatever the other parts do.
func conjuncts(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	var all []ast.Expr
	for _, part := range e.AsCall().Args() {
		all = append(all, conjuncts(part)...)
	}
	return all
}

// total finds expressions that cannot fail, provided that some fields of the request are there.
type total struct {
	needs []string // such fields, as paths
}

// guarded is the expression with a text, true where a field that it reads is not there.
func (t *total) guarded(text string) string {
	if len(t.needs) == 0 {
		return text
	}
	slices.Sort(t.needs)
	var guards []string
	for _, path := range slices.Compact(t.needs) {
		guards = append(guards, fmt.Sprintf("!has(%s)", path))
	}
	return strings.Join(guards, " || ") + " || (" + text + ")"
}

func (t *total) holds(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.ListKind:
		return len(e.AsList().OptionalIndices()) == 0 && t.all(e.AsList().Elements())
	case ast.SelectKind:
		return t.field(e)
	case ast.CallKind:
		return t.call(e.AsCall())
	case ast.UnspecifiedExprKind, ast.ComprehensionKind, ast.IdentKind, ast.MapKind, ast.StructKind:
	}
	return false
}

func (t *total) all(list []ast.Expr) bool {
	return !slices.ContainsFunc(list, func(e ast.Expr) bool { return !t.holds(e) })
}

// field reports whether a field of the request has the same value in the API server and in the mesh. The kind has not: it depends on the version that
// the hook, or the entry, sees.
func (t *total) field(e ast.Expr) bool {
	path := pathOf(e)
	switch path {
	case "request.operation", "request.resource.group", "request.resource.version", "request.resource.resource":
		return true
	case "request.name", "request.namespace", "request.subResource", "request.userInfo.username", "request.userInfo.groups":
		if !e.AsSelect().IsTestOnly() {
			t.needs = append(t.needs, path)
		}
		return true
	}
	return false
}

// pathOf is an expression of names with dots between them; any other text for another.
func pathOf(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.SelectKind:
		return pathOf(e.AsSelect().Operand()) + "." + e.AsSelect().FieldName()
	case ast.UnspecifiedExprKind, ast.CallKind, ast.ComprehensionKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.StructKind:
	}
	return ""
}

// call is whether a function has a result for all values of the right types.
func (t *total) call(c ast.CallExpr) bool {
	args := c.Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	switch c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional,
		operators.Equals, operators.NotEquals, operators.In, "startsWith", "endsWith", "contains":
		return t.all(args)
	case "matches":
		return len(args) == 2 && isPattern(args[1]) && t.holds(args[0])
	}
	return false
}

// isPattern is whether an expression is a regular expression as CEL has them.
func isPattern(e ast.Expr) bool {
	if e.Kind() != ast.LiteralKind || e.AsLiteral().Type() != types.StringType {
		return false
	}
	_, err := regexp.Compile(fmt.Sprint(e.AsLiteral().Value()))
	return err == nil
}
