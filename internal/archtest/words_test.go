package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// indirectWords stand in the place of an actor or of a noun: "whoever calls" for "the caller". CONTRIBUTING.md asks for plain
// technical English.
var indirectWords = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever|who (is|has|may)|is (what|who|whom)|` +
	`what (is|was|has|may|comes)|says? (of|so|that|what|whether|who|how)|said|told|tells? (it|them|that|what))\b`)

// pronouns stand in the place of a noun. In 1,000 words, the comments of connect-go have 0.3 of them, and the comments of etcd's raft 0.9.
var pronouns = regexp.MustCompile(`(?i)\b(what|(that|those) of|ones? (that|of))\b`)

// riddles are indirect words and pronouns that no message of the product may have. Words with a hyphen, such as flags, are names.
var riddles = regexp.MustCompile(`(?i)(^|[^-\w])(nobody|somebody|anybody|whoever|what|(that|those) of|ones? that)($|[^-\w])`)

// wordRatchet is the number of words that the comments of some files may still have, by top-level folder. The target is 0. A change that lowers a
// count lowers the number here.
type wordRatchet struct {
	words *regexp.Regexp
	tests bool // of the tests and of test/ in place of the product
	most  map[string]int
}

func wordRatchets() map[string]wordRatchet {
	return map[string]wordRatchet{
		"indirect words":    {words: indirectWords},
		"pronouns":          {words: pronouns},
		"pronouns in tests": {words: pronouns, tests: true},
	}
}

func TestCommentsUseNoMoreIndirectWords(t *testing.T) {
	for name, r := range wordRatchets() {
		t.Run(name, func(t *testing.T) {
			found := map[string][]string{}
			for _, file := range goFiles(t, r.tests) {
				folder, _, _ := strings.Cut(file, string(filepath.Separator))
				found[folder] = append(found[folder], placesOf(t, file, r.words)...)
			}
			for folder, places := range found {
				switch most := r.most[folder]; {
				case len(places) > most:
					t.Errorf("the comments of %s have %d %s, want %d at most: write the actor or the noun in their place\n%s",
						folder, len(places), name, most, strings.Join(places, "\n"))
				case len(places) < most:
					t.Logf("the comments of %s have %d %s: lower its number from %d", folder, len(places), name, most)
				}
			}
		})
	}
}

// TestMessagesHaveNoRiddles reads the text of each string of the product, as of messages, help texts and descriptions.
func TestMessagesHaveNoRiddles(t *testing.T) {
	for _, file := range goFiles(t, false) {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(text, " ") && riddles.MatchString(text) {
				t.Errorf("%s: %q: write the actor or the noun in the place of %q", set.Position(n.Pos()), text, riddles.FindString(text))
			}
			return true
		})
	}
}

// placesOf are the places of a file with a word in a comment.
func placesOf(t *testing.T, file string, words *regexp.Regexp) (places []string) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			for _, word := range words.FindAllString(comment.Text, -1) {
				places = append(places, set.Position(comment.Pos()).String()+": "+word)
			}
		}
	}
	return places
}

// goFiles are the Go files of the product, or its tests and all of test/, by their paths in the repository.
func goFiles(t *testing.T, tests bool) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "gen" || strings.HasPrefix(name, ".") && name != "."):
			return filepath.SkipDir
		case filepath.Ext(name) == ".go" && (strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/")) == tests:
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
