package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// vocabularyPage has the words of all SDKs beside each other.
const vocabularyPage = "../../sdk/README.md"

// publicName says where an SDK declares its public names.
type publicName struct {
	dir     string // below the root
	suffix  string // of the files
	without string // a part of the paths of other files
	// declaration is a regular expression in which NAME stands for the name.
	declaration string
}

// sdks are the columns of the page, in order.
var sdks = []publicName{
	{"hostsdk", ".go", "_test.go", `(?m)^(func (\(\w+ \*?\w+(\[T\])?\) )?|type |\t)NAME\b`},
	{"sdk/python/src/portcullis_host", ".py", "/_gen/", `(?m)^\s*(def |class |async def )?NAME\s*[:(=]`},
	{"sdk/typescript/api", ".api.md", "\x00", `(?m)^(export )?(class |function |interface |\s+)?(readonly |get )?NAME\b`},
	{"sdk/java", ".java", "/src/test/", `(?m)^\s*public ([\w<>@., \[\]?]+ )?NAME\b|(class|record) NAME\b`},
	{"sdk/rust/src", ".rs", "/gen/", `(?m)\bpub (async )?(fn|struct|enum) NAME\b|^\s+NAME[ ({,]`},
}

// TestTheSDKsHaveTheWordsOfThePage finds each name of the page among the declarations of its SDK.
func TestTheSDKsHaveTheWordsOfThePage(t *testing.T) {
	quoted := regexp.MustCompile("`([^`]+)`")
	last := regexp.MustCompile(`(\w+)$`)
	sources := make([]string, len(sdks))
	for i, sdk := range sdks {
		sources[i] = sdk.read(t)
	}
	rows := 0
	for line := range strings.Lines(textOf(t, vocabularyPage)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != len(sdks)+3 || !strings.Contains(line, "`") {
			continue
		}
		rows++
		for i, sdk := range sdks {
			names := quoted.FindAllStringSubmatch(cells[i+2], -1)
			if len(names) == 0 {
				t.Errorf("the row%shas no name for %s", cells[1], sdk.dir)
			}
			for _, name := range names {
				declaration := strings.ReplaceAll(sdk.declaration, "NAME", last.FindString(name[1]))
				if !regexp.MustCompile(declaration).MatchString(sources[i]) {
					t.Errorf("%s declares no %s, which the row%shas", sdk.dir, name[1], cells[1])
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("the page has %d rows", rows)
	}
}

// read returns the files of an SDK, one after the other.
func (p publicName) read(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join("..", "..", p.dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, p.suffix) || strings.Contains(path, p.without) {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
