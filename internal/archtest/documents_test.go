package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var (
	codeBlock   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	headingLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor    = regexp.MustCompile(`[^\w\- ]`)
	codeName    = regexp.MustCompile("`([a-z][a-z/]*)\\.([A-Z]\\w*)`")
	codeSpan    = regexp.MustCompile("`[^`]*`")
	fileName    = regexp.MustCompile("`((?:[a-z][a-z0-9_-]*/)+[a-z0-9_-]+\\.(?:go|proto|yaml|md))`")
)

func TestTheLinksOfDocumentsLeadSomewhere(t *testing.T) {
	anchors := map[string][]string{}
	for _, page := range documents(t) {
		anchors[filepath.Clean(page)] = anchorsOf(t, page)
	}
	for page := range anchors {
		for _, found := range link.FindAllStringSubmatch(textOf(t, page), -1) {
			path, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, ":") { // another site
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), filepath.FromSlash(path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: there is no file for the link %s", page, found[1])
			} else if anchor != "" && !slices.Contains(anchors[filepath.Clean(target)], anchor) {
				t.Errorf("%s: there is no heading for the link %s", page, found[1])
			}
		}
	}
}

// TestLinesOfDocumentsAreShort: at most 100 characters, without the addresses of links. Blocks of code, tables, and a line that cannot be
// broken outside of its code may be longer.
func TestLinesOfDocumentsAreShort(t *testing.T) {
	written := regexp.MustCompile(`^(docs/)?(design/)?[\w-]+\.md$`)
	for _, page := range documents(t) {
		page = filepath.ToSlash(strings.TrimPrefix(page, root))
		if !written.MatchString(page) || page == "docs/circles.md" { // a program writes it
			continue
		}
		for line := range strings.Lines(textOf(t, root+page)) {
			line = link.ReplaceAllString(strings.TrimRight(line, "\n"), "]()")
			breakable := strings.Contains(strings.TrimLeft(codeSpan.ReplaceAllString(line, ""), " -"), " ")
			if utf8.RuneCountInString(line) > 100 && breakable && !strings.HasPrefix(strings.TrimLeft(line, " "), "|") {
				t.Errorf("%s: this line has more than 100 characters:\n%s", page, line)
			}
		}
	}
}

func TestTheCodeThatTheGlossaryNamesExists(t *testing.T) {
	names := codeName.FindAllStringSubmatch(textOf(t, filepath.Join(root, "docs", "glossary.md")), -1)
	if len(names) == 0 {
		t.Fatal("the glossary names no code")
	}
	for _, name := range names {
		files, err := filepath.Glob(filepath.Join(place(name[1]), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declared := func(file string) bool {
			text := textOf(t, file)
			return slices.ContainsFunc([]string{"type " + name[2] + " ", "type " + name[2] + "[", "func " + name[2] + "("}, func(line string) bool {
				return strings.Contains(text, "\n"+line)
			})
		}
		if !slices.ContainsFunc(files, declared) {
			t.Errorf("the glossary names %s.%s, which is not declared", name[1], name[2])
		}
	}
}

func TestTheFilesThatTheGlossaryNamesExist(t *testing.T) {
	names := fileName.FindAllStringSubmatch(textOf(t, filepath.Join(root, "docs", "glossary.md")), -1)
	if len(names) == 0 {
		t.Fatal("the glossary names no file")
	}
	for _, name := range names {
		if _, err := os.Stat(place(name[1])); err != nil {
			t.Errorf("the glossary names %s: %v", name[1], err)
		}
	}
}

// place is the path of a folder or file that a page names. Pages leave out internal/, as package names do.
func place(name string) string {
	path := filepath.Join(root, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		return filepath.Join(root, "internal", filepath.FromSlash(name))
	}
	return path
}

// documents returns the Markdown files of the repository outside of hidden directories and node_modules.
func documents(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case !entry.IsDir() && filepath.Ext(path) == ".md":
			pages = append(pages, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// textOf is a file without blocks of code, if it is Markdown.
func textOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(file) != ".md" {
		return string(text)
	}
	return codeBlock.ReplaceAllString(string(text), "")
}

// anchorsOf are the anchors of the headings of a page, as GitHub makes them.
func anchorsOf(t *testing.T, page string) (anchors []string) {
	t.Helper()
	for _, found := range heading.FindAllStringSubmatch(textOf(t, page), -1) {
		text := headingLink.ReplaceAllString(strings.TrimSpace(found[1]), "$1")
		text = noAnchor.ReplaceAllString(strings.ToLower(text), "")
		anchors = append(anchors, strings.ReplaceAll(text, " ", "-"))
	}
	return anchors
}

// TestTheTestsOfTheThreatModelExist: a threat whose test has been renamed or removed is not shown to be stopped any more.
func TestTheTestsOfTheThreatModelExist(t *testing.T) {
	root := filepath.Join("..", "..")
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(textOf(t, filepath.Join(root, "docs", "security.md")), -1)
	if len(named) == 0 {
		t.Fatal("the threat model names no test")
	}
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			for _, found := range declaration.FindAllSubmatch(text, -1) {
				declared[string(found[1])] = true
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named {
		if !declared[name[1]] {
			t.Errorf("docs/security.md names %s, which is not declared", name[1])
		}
	}
}

// TestTheArchitectureNamesEachFolder: the table of the page has the folders of the repository, and the flows name folders that exist.
func TestTheArchitectureNamesEachFolder(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var folders, named []string
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			folders = append(folders, entry.Name())
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`(\\w+)`\\]").FindAllStringSubmatch(string(text), -1) {
		named = append(named, row[1])
	}
	if diff := cmp.Diff(folders, named); diff != "" {
		t.Errorf("docs/architecture.md has a sentence for each folder, in order (-folders +page):\n%s", diff)
	}
	for _, name := range regexp.MustCompile(`\b[a-z]+/[a-z0-9/]+\b`).FindAllString(headingLink.ReplaceAllString(string(text), "$1"), -1) {
		if info, err := os.Stat(place(name)); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md names %s, which is no folder", name)
		}
	}
}
