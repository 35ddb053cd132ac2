package archtest_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// indirectWords stand in the place of an actor or of a noun: "whoever calls" for "the caller", "X is what holds Y" for "X holds Y".
// CONTRIBUTING.md asks for plain technical English.
var indirectWords = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever|who (is|has|may)|is (what|who|whom)|` +
	`what (is|was|has|may|comes)|says? (of|so|that|what|whether|who|how)|said|told|tells? (it|them|that|what))\b`)

// mostIndirectWords is a ratchet: the number that the comments of product code may still have, by top-level folder. The target is 0.
// A change that lowers a count lowers the number here.
func mostIndirectWords() map[string]int {
	return map[string]int{"config": 17, "conversion": 17, "dispatcher": 24, "internal": 1}
}

func TestCommentsUseNoMoreIndirectWords(t *testing.T) {
	found := map[string][]string{}
	for _, file := range productSources(t) {
		folder, _, _ := strings.Cut(file, string(filepath.Separator))
		found[folder] = append(found[folder], indirectWordsOf(t, file)...)
	}
	for folder, places := range found {
		switch most := mostIndirectWords()[folder]; {
		case len(places) > most:
			t.Errorf("the comments of %s have %d indirect words, want %d at most: write the actor or the noun in their place\n%s",
				folder, len(places), most, strings.Join(places, "\n"))
		case len(places) < most:
			t.Logf("the comments of %s have %d indirect words: lower its number from %d", folder, len(places), most)
		}
	}
}

// indirectWordsOf are the places of a file with an indirect word in a comment.
func indirectWordsOf(t *testing.T, file string) (places []string) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range parsed.Comments {
		for _, comment := range group.List {
			for _, word := range indirectWords.FindAllString(comment.Text, -1) {
				places = append(places, set.Position(comment.Pos()).String()+": "+word)
			}
		}
	}
	return places
}

// productSources are the Go files of the product, by their paths in the repository.
func productSources(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{"gen", "bench", "e2e", "examples", "tools"}, name) || strings.HasPrefix(name, ".") && name != "."):
			return filepath.SkipDir
		case filepath.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go"):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
