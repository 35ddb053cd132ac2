package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// Concurrent lists the import paths of the module's packages in which a goroutine, a channel or a lock stands, in the sources or in the
// tests, sorted. The race detector can find nothing of the others' own.
func Concurrent(g *Graph) ([]string, error) {
	var paths []string
	for _, path := range g.own([]string{"./..."}, nil) {
		found, err := g.Packages[path].concurrent()
		if err != nil {
			return nil, err
		}
		if found {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// concurrent tells whether any of the package's files, tests among them, has a goroutine, a channel or a lock.
func (p *Package) concurrent() (bool, error) {
	for _, names := range [][]string{p.GoFiles, p.TestGoFiles, p.XTestGoFiles} {
		for _, name := range names {
			found, err := concurrency(filepath.Join(p.Dir, name))
			if found || err != nil {
				return found, err
			}
		}
	}
	return false, nil
}

// concurrency tells whether a file has a goroutine, a channel or a lock.
func concurrency(path string) (bool, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return false, fmt.Errorf("reading the sources: %w", err)
	}
	for _, spec := range file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil && synchronizes(name) {
			return true, nil
		}
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
			found = true
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW
		}
		return !found
	})
	return found, nil
}

// synchronizes tells whether the package with this import path is about goroutines and locks.
func synchronizes(path string) bool {
	return path == "sync" || path == "sync/atomic" || path == "testing/synctest" || strings.HasPrefix(path, "golang.org/x/sync/")
}
