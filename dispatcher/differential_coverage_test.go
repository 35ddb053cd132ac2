package dispatcher_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// These tests compare the pages about the differential test with its code.

func TestTheTableOfSemanticsNamesEveryRuleAndTestsThatExist(t *testing.T) {
	page := read(t, "../docs/semantics-coverage.md")
	for i, row := range regexp.MustCompile(`(?m)^\| C(\d+) \|`).FindAllSubmatch(page, -1) {
		if want := strconv.Itoa(i + 1); string(row[1]) != want {
			t.Fatalf("row C%s stands where C%s should", row[1], want)
		}
	}
	names := regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`").FindAllSubmatch(page, -1)
	if len(names) == 0 {
		t.Fatal("the page names no test")
	}
	for _, name := range names {
		if directory, test := string(name[1]), string(name[2]); !declared(t, directory, test) {
			t.Errorf("%s.%s does not exist", directory, test)
		}
	}
}

func declared(t *testing.T, directory, test string) bool {
	t.Helper()
	var files []string
	for _, above := range []string{"", "internal", "test"} { // which the page leaves out
		found, err := filepath.Glob(filepath.Join("..", above, directory, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		return bytes.Contains(read(t, file), []byte("\nfunc "+test+"("))
	})
}

func TestEachDeviationOfThePageHasItsPredicate(t *testing.T) {
	// The oracle cannot show D5, makes no patch for D10, selects by other labels than D12's, says less than D13 takes, and has no code of D14.
	accepted := []string{"D5", "D10", "D12", "D13", "D14"}
	for _, d := range deviations() {
		accepted = append(accepted, d.id)
	}
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|`).FindAllSubmatch(read(t, "../docs/deviations.md"), -1) {
		id := string(row[1])
		listed = append(listed, id)
		if id[0] == 'D' && !slices.Contains(accepted, id) {
			t.Errorf("docs/deviations.md lists %s, and the test does not accept it", id)
		}
	}
	for _, id := range accepted {
		if !slices.Contains(listed, id) {
			t.Errorf("the test accepts %s, and docs/deviations.md does not list it", id)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
