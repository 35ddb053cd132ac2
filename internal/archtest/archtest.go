// Package archtest checks the shape of the module: which package may import which, which packages stay pure, and that
// each has one package comment.
//
// The rules of this module stand in house_test.go, with their reasons. The checkers here know no rule: they are
// functions over a [Graph], so that their own tests can show them a violation. Only [Load] does I/O. Nothing here keeps
// state; everything may be called concurrently.
package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Package is a node of the build's import graph.
type Package struct {
	// ImportPath names the package.
	ImportPath string
	// Name is the name in the package clause; "main" for a command.
	Name string
	// Dir is the absolute directory of the sources.
	Dir string
	// GoFiles are the names of the files in the build, without tests.
	GoFiles []string
	// TestGoFiles and XTestGoFiles are the names of the files of its tests, inside and outside of the package.
	TestGoFiles, XTestGoFiles []string
	// Imports are the import paths of those files.
	Imports []string
	// Standard is true for the standard library.
	Standard bool
}

// files are the paths of the package's sources.
func (p *Package) files() []string {
	paths := make([]string, 0, len(p.GoFiles))
	for _, name := range p.GoFiles {
		paths = append(paths, filepath.Join(p.Dir, name))
	}
	return paths
}

// Graph is everything that a module's packages reach, tests left out.
type Graph struct {
	// Module is the path of the module whose rules are checked.
	Module string
	// Packages are keyed by import path.
	Packages map[string]*Package
}

// Load asks the go command for the graph of the module that holds dir.
func Load(ctx context.Context, dir string) (*Graph, error) {
	out, err := goCommand(ctx, dir, "list", "-m")
	if err != nil {
		return nil, err
	}
	g := &Graph{Module: strings.TrimSpace(string(out)), Packages: map[string]*Package{}}
	// -e: a package that does not build is the compiler's business, its imports are still ours.
	out, err = goCommand(ctx, dir, "list", "-e", "-deps", "-json=ImportPath,Name,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,Standard", g.Module+"/...")
	if err != nil {
		return nil, err
	}
	if err := g.decode(out); err != nil {
		return nil, fmt.Errorf("reading the output of go list: %w", err)
	}
	if len(g.own([]string{"./..."}, nil)) == 0 {
		return nil, fmt.Errorf("go list knows no package of a module in %s: run it inside the module", dir)
	}
	return g, nil
}

// decode adds the packages that go list wrote, one JSON object after the other.
func (g *Graph) decode(list []byte) error {
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		p := new(Package)
		err := dec.Decode(p) //nolint:musttag // the fields bear go list's own names
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		g.Packages[p.ImportPath] = p
	}
}

// goCommand runs the go command in dir and returns its standard output.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}

// own are the import paths of the module's packages that match any of the patterns and none of the exceptions, sorted.
func (g *Graph) own(patterns, except []string) []string {
	var paths []string
	for path := range g.Packages {
		inModule := path == g.Module || strings.HasPrefix(path, g.Module+"/")
		if inModule && g.matchAny(patterns, path) && !g.matchAny(except, path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// matchAny tells whether any of the patterns names the package.
func (g *Graph) matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return g.match(pattern, path) })
}

// match tells whether the pattern names the package. A pattern is an import path; "./x" is a package of the module;
// "x/..." is x and all below it, as for the go command; "std" is the whole standard library.
func (g *Graph) match(pattern, path string) bool {
	if pattern == "std" {
		p, ok := g.Packages[path]
		return ok && p.Standard
	}
	if rel, ok := strings.CutPrefix(pattern, "./"); ok {
		pattern = g.Module + "/" + rel
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == tree || strings.HasPrefix(path, tree+"/")
	}
	return path == pattern
}

// short is the path as the rules write it: packages of the module begin with "./".
func (g *Graph) short(path string) string {
	if rel, ok := strings.CutPrefix(path, g.Module+"/"); ok {
		return "./" + rel
	}
	return path
}
