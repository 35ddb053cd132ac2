package host

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/examples"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// begin makes a host, and returns its folder and the steps that were printed.
func begin(t *testing.T, lang, name string, more ...string) (dir, steps string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "new", name)
	r := clitest.Execute(t, NewCommand(), nil, append([]string{"init", "--lang", lang, dir}, more...)...)
	if r.Code != 0 {
		t.Fatalf("%s: %+v", lang, r)
	}
	return dir, r.Out
}

func TestInitWritesTheExampleOfALanguage(t *testing.T) {
	for lang, file := range map[string]string{
		"go": "main.go", "python": "imagepolicy.py", "typescript": "src/policy.ts", "rust": "src/policy.rs",
		"java": "src/main/java/com/example/imagepolicy/ImagePolicy.java",
	} {
		t.Run(lang, func(t *testing.T) {
			dir, steps := begin(t, lang, exampleName, "--mutating")
			if want := (&project{language: languages()[lang], name: exampleName, mutating: true}).text(dir); steps != want {
				t.Errorf("printed\n%s\nwant\n%s", steps, want)
			}
			example := filepath.Join("..", "..", "..", "..", "..", "examples", languages()[lang].example)
			for _, name := range []string{file, "mesh.yaml", "cases.yaml"} {
				if got := read(t, filepath.Join(dir, name)); got != string(ownProject([]byte(read(t, filepath.Join(example, name))))) {
					t.Errorf("%s differs from the example's:\n%s", name, got)
				}
			}
		})
	}
}

// TestAHostHasTheNameThatItIsGiven: and a mutating hook only when that is asked for.
func TestAHostHasTheNameThatItIsGiven(t *testing.T) {
	other := regexp.MustCompile(`(?i)image[-_]?policy|team.?label|mutatingwebhook|two hooks`)
	for lang := range languages() {
		for _, name := range []string{"requirelabel", "require-label", "x1"} {
			dir, steps := begin(t, lang, name)
			texts := map[string]string{"the steps": steps}
			for _, file := range filesIn(t, dir) {
				texts[file] = "# " + file + "\n" + read(t, filepath.Join(dir, file))
			}
			for file, text := range texts {
				if found := other.FindString(text); found != "" {
					t.Errorf("%s %s: %s has %q", lang, name, file, found)
				}
			}
			for _, file := range []string{"mesh.yaml", "values.yaml", "cases.yaml"} {
				if !strings.Contains(texts[file], name+".example.com") {
					t.Errorf("%s: %s has no hook %s.example.com", lang, file, name)
				}
			}
			if objects, problems := configtest.Decode("mesh.yaml", []byte(texts["mesh.yaml"])); len(objects) != 2 || len(problems) > 0 {
				t.Errorf("%s: mesh.yaml has %d objects, want a configuration and its route: %v", lang, len(objects), problems)
			}
		}
	}
	dir, _ := begin(t, "go", "folder", "--name", "other", "--mutating")
	for file, want := range map[string]string{"go.mod": "module other\n", "mesh.yaml": "team-label.example.com", "policy.go": `"other.example.com"`} {
		if text := read(t, filepath.Join(dir, file)); !strings.Contains(text, want) {
			t.Errorf("%s has no %q", file, want)
		}
	}
}

// TestEachCutIsStillInItsExample: an example that is written anew would keep its mutating hook.
func TestEachCutIsStillInItsExample(t *testing.T) {
	for lang, l := range languages() {
		from, err := examples.Files(l.example)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range l.mutates {
			found := 0
			err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
				if err == nil && !entry.IsDir() && path.Base(name) == c.file {
					data, err := fs.ReadFile(from, name)
					found += len(regexp.MustCompile(c.expression).FindAll(data, -1))
					return err
				}
				return err
			})
			if err != nil || found == 0 {
				t.Errorf("%s: %s has nothing of %s (%v)", lang, c.file, c.expression, err)
			}
		}
	}
}

func TestNamesThatAreNoneAreRefused(t *testing.T) {
	for _, name := range []string{"Require", "1x", "a_b", "a.b", "ü", strings.Repeat("a", 64)} {
		clitest.Execute(t, NewCommand(), nil, "init", "--lang", "go", filepath.Join(t.TempDir(), name)).Fails(t, "is no name of a host", "--name")
	}
	for lang, name := range map[string]string{"python": "policy", "java": "policy"} {
		clitest.Execute(t, NewCommand(), nil, "init", "--lang", lang, filepath.Join(t.TempDir(), name)).Fails(t, "choose another name")
	}
}

// TestAHostCanBeDeployed: its container file copies files that there are, and its CI file and values can be read.
func TestAHostCanBeDeployed(t *testing.T) {
	for lang := range languages() {
		dir, steps := begin(t, lang, "require-label")
		copied := regexp.MustCompile(`(?m)^COPY (--from=portcullis )?([^-].*) \S+$`).FindAllStringSubmatch(read(t, filepath.Join(dir, "Dockerfile")), -1)
		if len(copied) == 0 {
			t.Errorf("%s: the Dockerfile copies nothing", lang)
		}
		for _, c := range copied {
			root := dir
			if c[1] != "" {
				root = filepath.Join("..", "..", "..", "..", "..")
			}
			for source := range strings.FieldsSeq(c[2]) {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("%s: %s: %v", lang, c[0], err)
				}
			}
		}
		for _, file := range []string{".github/workflows/ci.yaml", "values.yaml"} {
			var document map[string]any
			if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(dir, file))), &document); err != nil {
				t.Errorf("%s: %s: %v", lang, file, err)
			}
		}
		for command := range strings.SplitSeq((&project{language: languages()[lang], name: "require-label"}).steps(dir)[0].commands, "\n") {
			if !strings.HasPrefix(command, "cd ") && !strings.Contains(read(t, filepath.Join(dir, ".github", "workflows", "ci.yaml")), "        "+command+"\n") {
				t.Errorf("%s: CI does not run %s", lang, command)
			}
		}
		cases := "portcullis test . --host '" + strings.ReplaceAll(languages()[lang].start, exampleName, "require-label") + "'"
		if !strings.Contains(steps, "\n"+cases+"\n") || !strings.Contains(read(t, filepath.Join(dir, ".github", "workflows", "ci.yaml")), "- run: "+cases+" -o github\n") {
			t.Errorf("%s: the steps or CI do not run %s", lang, cases)
		}
		clone, blocks, _ := strings.Cut(strings.TrimSpace(steps), "\n\n")
		if !strings.Contains(clone, "\nexport PORTCULLIS=") {
			t.Errorf("%s: the steps do not begin with the variable that they use:\n%s", lang, clone)
		}
		for block := range strings.SplitSeq(blocks, "\n\n") {
			if lines := strings.Split(block, "\n"); lines[1] != "cd "+dir {
				t.Errorf("%s: the block begins elsewhere:\n%s", lang, block)
			}
		}
	}
}

// TestAGoHostOfAnyNamePassesItsTests follows the first step.
func TestAGoHostOfAnyNamePassesItsTests(t *testing.T) {
	citest.Gate(t, "compiles three hosts and their tests: 20 s of CPU time")
	clone, err := filepath.Abs(filepath.Join("..", "..", "..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"requirelabel"}, {"require-label", "--mutating"}, {"it's a folder", "--name", "test1"}} {
		dir, _ := begin(t, "go", args[0], args[1:]...)
		steps := (&project{language: languages()["go"], name: "x"}).steps(dir)
		run := exec.CommandContext(t.Context(), "bash", "-euc", steps[0].commands+"\ngo vet .\ntest -z \"$(gofmt -l .)\"")
		run.Env = append(os.Environ(), "PORTCULLIS="+clone, "GOFLAGS=", "GOWORK=")
		if said, err := run.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", args, err, said)
		}
	}
}

func TestAHostOfOnesOwnIsTiedToNoRepository(t *testing.T) {
	for lang := range languages() {
		dir, _ := begin(t, lang, "own")
		for _, file := range filesIn(t, dir) {
			if file != "Dockerfile" && strings.Contains(read(t, filepath.Join(dir, file)), "../..") {
				t.Errorf("%s: %s has a path out of its folder", lang, file)
			}
		}
	}
}

func TestInitTakesNoFolderThatIsInUse(t *testing.T) {
	file := clitest.Write(t, "notes.txt", "mine")
	clitest.Execute(t, NewCommand(), nil, "init", "--lang", "go", "--name", "a", filepath.Dir(file)).Fails(t, "is not empty", "notes.txt")
	clitest.Execute(t, NewCommand(), nil, "init", "--lang", "go", "--name", "a", file).Fails(t, "notes.txt")
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
		page := read(t, filepath.Join("..", "..", "..", "..", "..", "examples", l.example, "README.md"))
		at := 0
		for i, s := range (&project{language: l, name: exampleName, mutating: true}).steps(exampleName) {
			commands := s.commands
			if i == 0 {
				commands = "portcullis host init --lang " + lang + " --mutating imagepolicy\n" + commands
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

// filesIn are the files of a folder, in their order.
func filesIn(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
