package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
)

// Purity names sources that start no goroutine and read no clock, and says why.
type Purity struct {
	// From are the packages, as patterns.
	From []string
	// Files, when set, are patterns of file names as in [filepath.Match]; the package's other files are not bound.
	Files []string
	// Reason completes the report.
	Reason string
}

// CheckPurity returns a sentence for each go statement and each use of the clock in the sources that the rules name.
func CheckPurity(g *Graph, rules []Purity) ([]string, error) {
	var violations []string
	for _, rule := range rules {
		for _, path := range g.own(rule.From, nil) {
			for _, file := range g.Packages[path].files() {
				if !rule.binds(file) {
					continue
				}
				found, err := impurities(file)
				if err != nil {
					return nil, err
				}
				for _, what := range found {
					violations = append(violations, what+": "+rule.Reason)
				}
			}
		}
	}
	return violations, nil
}

// binds tells whether the rule holds for the file.
func (r *Purity) binds(file string) bool {
	return len(r.Files) == 0 || slices.ContainsFunc(r.Files, func(pattern string) bool {
		ok, err := filepath.Match(pattern, filepath.Base(file))
		return ok && err == nil
	})
}

// impurities lists the go statements and the uses of the clock in one file.
func impurities(path string) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("reading the sources: %w", err)
	}
	clock := importName(file, "time")
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, fmt.Sprintf("%s starts a goroutine", fset.Position(n.Pos())))
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && id.Name == clock && readsClock(n.Sel.Name) {
				found = append(found, fmt.Sprintf("%s uses time.%s", fset.Position(n.Pos()), n.Sel.Name))
			}
		}
		return true
	})
	return found, nil
}

// importName is the name that the file gives to an imported package; empty when it does not import it.
func importName(file *ast.File, path string) string {
	for _, spec := range file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return filepath.Base(path)
	}
	return ""
}

// readsClock tells whether the function of package time depends on when it is called.
func readsClock(name string) bool {
	switch name {
	case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick":
		return true
	default:
		return false
	}
}
