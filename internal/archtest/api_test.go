package archtest_test

import (
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var writeAPI = flag.Bool("write-api", false, "write the API reports of the Go SDK")

// TestTheAPIOfTheSDKIsAsReported compares the exported declarations of each package with its api.txt: a change of the API is seen in review.
func TestTheAPIOfTheSDKIsAsReported(t *testing.T) {
	for _, directory := range []string{"hostsdk", "hostsdk/hosttest", "hostsdk/kube"} {
		report, got := filepath.Join(root, directory, "api.txt"), exported(t, filepath.Join(root, directory))
		if *writeAPI {
			if err := os.WriteFile(report, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: the API has changed: go test ./internal/archtest -run API -write-api (-reported +declared):\n%s", directory, diff)
		}
	}
}

// exported are the exported declarations of a package without comments and bodies, sorted.
func exported(t *testing.T, directory string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var declarations []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if f.Recv != nil && !ast.IsExported(receiver(f.Recv.List[0].Type)) {
					continue
				}
				f.Body = nil
			}
			if g, ok := d.(*ast.GenDecl); ok && (g.Tok == token.IMPORT || blank(g)) {
				continue
			}
			var text strings.Builder
			if err := format.Node(&text, token.NewFileSet(), d); err != nil {
				t.Fatal(err)
			}
			declarations = append(declarations, text.String()+"\n")
		}
	}
	slices.Sort(declarations)
	return strings.Join(declarations, "\n")
}

// receiver is the name of the type of a method.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	default:
		return ""
	}
}

// blank reports whether a declaration names nothing, as an assertion about a type does.
func blank(g *ast.GenDecl) bool {
	return !slices.ContainsFunc(g.Specs, func(s ast.Spec) bool {
		v, ok := s.(*ast.ValueSpec)
		return !ok || slices.ContainsFunc(v.Names, func(n *ast.Ident) bool { return n.IsExported() })
	})
}
