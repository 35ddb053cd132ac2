package archtest_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// figure is a number in the table of trust, with its unit, and the constant behind it: "3 MiB (`config.MaxDocumentBytes`)", where words may stand
// between the two.
var figure = regexp.MustCompile("(\\d+)( KiB| MiB| GiB| s)?\\b[^|(;,]*\\(`([a-z0-9/]+)\\.(\\w+)`\\)")

// TestTheTableOfTrustHasTheFiguresOfTheCode also finds a row without a bound or a test.
func TestTheTableOfTrustHasTheFiguresOfTheCode(t *testing.T) {
	_, table, found := strings.Cut(textOf(t, filepath.Join("..", "..", "docs", "security.md")), "## Every input that somebody else chooses")
	if !found {
		t.Fatal("docs/security.md has no table of trust")
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 9 || strings.HasPrefix(cells[1], "-") || strings.HasPrefix(cells[1], " input") {
			continue
		}
		rows++
		for i, column := range map[int]string{2: "who chooses it", 5: "booked to", 6: "past the bound", 7: "shown by"} {
			if strings.TrimSpace(cells[i]) == "" {
				t.Errorf("the row%shas nothing under %q", cells[1], column)
			}
		}
		if !strings.Contains(cells[7], "`Test") {
			t.Errorf("the row%snames no test", cells[1])
		}
		for _, f := range figure.FindAllStringSubmatch(line, -1) {
			if want := constantOf(t, f[3], f[4]); !slices.Contains(want, f[1]+f[2]) {
				t.Errorf("%s.%s is %q, and the row%shas %s", f[3], f[4], want, cells[1], f[1]+f[2])
			}
		}
		if got, cited := len(figure.FindAllString(line, -1)), strings.Count(line, ".Max")+strings.Count(line, ".Default")+strings.Count(line, ".max"); got != cited {
			t.Errorf("the row%snames %d constants, and %d of them have a figure", cells[1], cited, got)
		}
	}
	if rows < 20 {
		t.Errorf("the table has %d rows", rows)
	}
}

// constantOf is the value of a constant of a package, as the table may write it.
func constantOf(t *testing.T, dir, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(place(dir), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, s := range g.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && v.Names[0].Name == name && len(v.Values) == 1 {
						return written(t, v.Values[0])
					}
				}
			}
		}
	}
	t.Errorf("there is no constant %s in %s", name, dir)
	return nil
}

// written is a number, alone and in the units of bytes of which it is a multiple, or in seconds.
func written(t *testing.T, e ast.Expr) []string {
	t.Helper()
	text, seconds := strings.CutSuffix(types.ExprString(e), " * time.Second")
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	n, ok := constant.Int64Val(v.Value)
	switch {
	case !ok:
		t.Fatalf("%s is no number", text)
	case seconds:
		return []string{fmt.Sprint(n, " s")}
	}
	all := []string{fmt.Sprint(n)}
	for i, unit := range []string{" KiB", " MiB", " GiB"} {
		if size := int64(1) << (10 * (i + 1)); n%size == 0 {
			all = append(all, fmt.Sprint(n/size, unit))
		}
	}
	return all
}

// clientConfiguration makes a configuration of clients of an API server.
var clientConfiguration = regexp.MustCompile(
	`\b(?:clientcmd|rest)\.(?:BuildConfigFromFlags|InClusterConfig|AnonymousClientConfig|RESTConfigFromKubeConfig|New\w*ClientConfig)\(`)

// TestClientsOfAPIServersBoundTheAnswers has configurations made in the files alone that wrap them, or hand them to a package that wraps them, in
// answers.Transport.
func TestClientsOfAPIServersBoundTheAnswers(t *testing.T) {
	wrapping := map[string]string{
		"cmd/portcullis/internal/cli/connect/kubernetes.go": "wraps for commands",
		"cmd/portcullis/internal/cli/certs/keep.go":         "wraps for the CronJob",
		"cmd/portcullis/internal/serve/stores_cluster.go":   "config/kubernetes.NewClients wraps",
		"cmd/portcullis/internal/lonebridge/run.go":         "the tunnel of a bridge hands answers on, and the dispatcher wraps",
		"internal/cluster/kubeconfig.go":                    "package cluster wraps",
	}
	seen := map[string]bool{}
	for _, directory := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if clientConfiguration.MatchString(textOf(t, path)) {
				file := filepath.ToSlash(strings.TrimPrefix(path, filepath.Clean(root)+string(filepath.Separator)))
				if seen[file] = true; wrapping[file] == "" {
					t.Errorf("%s makes a configuration of clients: take one from package connect, which bounds the answers", file)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file := range wrapping {
		if !seen[file] {
			t.Errorf("%s makes no configuration of clients", file)
		}
	}
}
