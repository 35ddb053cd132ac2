package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// CheckComments returns a sentence for each package of the module that has no package comment, more than one, or one
// that does not begin as Go tools expect it. Except are patterns of packages that are not checked.
func CheckComments(g *Graph, except []string) ([]string, error) {
	var violations []string
	for _, importPath := range g.own([]string{"./..."}, except) {
		p := g.Packages[importPath]
		if len(p.GoFiles) == 0 {
			continue // tests alone are no package to anyone
		}
		comments, err := packageComments(p)
		if err != nil {
			return nil, err
		}
		if problem := judgeComments(p, comments); problem != "" {
			violations = append(violations, fmt.Sprintf("%s %s", g.short(importPath), problem))
		}
	}
	return violations, nil
}

// packageComments are the comments above the package clauses of the package's files.
func packageComments(p *Package) ([]string, error) {
	var comments []string
	for _, name := range p.files() {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("reading the sources: %w", err)
		}
		if file.Doc != nil {
			comments = append(comments, file.Doc.Text())
		}
	}
	return comments, nil
}

// judgeComments returns the problem of a package's comments, or "".
func judgeComments(p *Package, comments []string) string {
	if len(comments) != 1 {
		return fmt.Sprintf("has %d package comments, want one", len(comments))
	}
	begin := "Package " + p.Name + " "
	if p.Name == "main" {
		program := path.Base(p.ImportPath)
		begin = strings.ToUpper(program[:1]) + program[1:] + " "
	}
	if !strings.HasPrefix(comments[0], begin) {
		return fmt.Sprintf("has a package comment that does not begin with %q", begin)
	}
	return ""
}
