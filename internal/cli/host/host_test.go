package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/cli/clitest"
)

func TestInitWritesTheExampleOfALanguage(t *testing.T) {
	for lang, file := range map[string]string{
		"go": "main.go", "python": "imagepolicy.py", "typescript": "src/policy.ts", "rust": "src/policy.rs",
		"java": "src/main/java/com/example/imagepolicy/ImagePolicy.java",
	} {
		t.Run(lang, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "host")
			r := clitest.Execute(t, NewCommand(), nil, "init", "--lang", lang, dir)
			if r.Code != 0 || r.Out != languages()[lang].text(dir) {
				t.Fatalf("%+v", r)
			}
			example := filepath.Join("..", "..", "..", "examples", languages()[lang].example)
			for _, name := range []string{file, "mesh.yaml", ".gitignore"} {
				if got := read(t, filepath.Join(dir, name)); got != read(t, filepath.Join(example, name)) {
					t.Errorf("%s differs from that of the example:\n%s", name, got)
				}
			}
		})
	}
}

func TestAHostOfOnesOwnIsTiedToNoRepository(t *testing.T) {
	for lang := range languages() {
		dir := t.TempDir()
		if r := clitest.Execute(t, NewCommand(), nil, "init", "--lang", lang, dir); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.Contains(read(t, name), "../..") {
				t.Errorf("%s: %s has a path out of its folder", lang, name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestInitTakesNoFolderThatIsInUse(t *testing.T) {
	file := clitest.Write(t, "notes.txt", "mine")
	clitest.Execute(t, NewCommand(), nil, "init", "--lang", "go", filepath.Dir(file)).Fails(t, "is not empty", "notes.txt")
	clitest.Execute(t, NewCommand(), nil, "init", "--lang", "go", file).Fails(t, "notes.txt")
	if got := read(t, file); got != "mine" {
		t.Errorf("the file is %q now", got)
	}
}

func TestInitNeedsALanguageThatHasAnSDK(t *testing.T) {
	clitest.Execute(t, NewCommand(), nil, "init", "--lang", "cobol", t.TempDir()).Fails(t, "--lang", "go or java or python or rust or typescript")
	clitest.Execute(t, NewCommand(), nil, "init", t.TempDir()).Fails(t, "lang")
	clitest.Execute(t, NewCommand(), nil, "init", "--lang", "go").Fails(t, "arg")
}

// The page of a language is the way that init prints.
func TestThePageOfALanguageHasTheCommandsOfInit(t *testing.T) {
	for lang, l := range languages() {
		page := read(t, filepath.Join("..", "..", "..", "examples", l.example, "README.md"))
		at := 0
		for i, s := range l.steps("imagepolicy") {
			commands := s.commands
			if i == 0 {
				commands = "portcullis host init --lang " + lang + " imagepolicy\n" + commands
			}
			block := "```sh\n" + commands + "\n"
			next := strings.Index(page[at:], block)
			if next < 0 {
				t.Errorf("%s: the page lacks, in its place:\n%s", lang, block)
				continue
			}
			at += next + len(block)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
