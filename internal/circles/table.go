package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// left is a test that a smaller circle leaves to a larger one.
type left struct{ dir, name, circle, why string }

// writeTable writes docs/circles.md: each test below root that is left to the gate or to the soak, and why.
func writeTable(out io.Writer, root string) error {
	var all []left
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		tests, err := leftIn(path)
		all = append(all, tests...)
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b left) int { return strings.Compare(a.key(), b.key()) })
	fmt.Fprint(out, "# Tests that are left to a larger circle\n\n`go run ./internal/circles table` writes this page from the tests. "+
		"All other tests run in `make test`, the\n"+
		"gate and the soak ([CONTRIBUTING](../CONTRIBUTING.md#tests)).\n\n| package | test | circle | why |\n|---|---|---|---|\n")
	for _, t := range all {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", t.dir, t.name, t.circle, t.why)
	}
	return nil
}

func (l left) key() string { return l.dir + " " + l.circle + " " + l.name }

// leftIn finds the calls of citest.Gate and citest.Soak in a file.
func leftIn(path string) ([]left, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("reading the tests: %w", err)
	}
	var tests []left
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		ast.Inspect(function.Body, func(n ast.Node) bool {
			if circle, why, ok := leaves(n); ok {
				tests = append(tests, left{dir: filepath.ToSlash(filepath.Dir(path)), name: function.Name.Name, circle: circle, why: why})
			}
			return true
		})
	}
	return tests, nil
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// leaves reads a call of citest.Gate or citest.Soak.
func leaves(n ast.Node) (circle, why string, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	if !isCall || len(call.Args) != 2 {
		return "", "", false
	}
	selector, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isSelector {
		return "", "", false
	}
	if !isName(selector.X, "citest") || !isName(call.Args[0], "t") {
		return "", "", false
	}
	if !slices.Contains([]string{"Gate", "Soak"}, selector.Sel.Name) {
		return "", "", false
	}
	literal, isLiteral := call.Args[1].(*ast.BasicLit)
	if !isLiteral {
		return strings.ToLower(selector.Sel.Name), "said in the test", true
	}
	why, err := strconv.Unquote(literal.Value)
	return strings.ToLower(selector.Sel.Name), why, err == nil
}
