package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// containerFile is the Dockerfile of a host, as far as these need it.
type containerFile struct {
	*testing.T
	directory string
	stages    []stage
	context   []string // the files of the repository that .dockerignore leaves in
}

// stage is the part of a container file that begins with FROM.
type stage struct {
	name, base   string
	instructions []instruction
}

type instruction struct{ keyword, text string }

// TestContainerFilesAreSound: an engine takes them, a cluster that runs no Pod as root does too, and they put no files of the machine into an
// image.
func TestContainerFilesAreSound(t *testing.T) {
	pinned := regexp.MustCompile(`:\d+\.\d+[0-9._]*(-[a-z0-9-]+)?(@sha256:[0-9a-f]{64})?$`)
	for language, s := range sources() {
		t.Run(language, func(t *testing.T) {
			f := readContainerFile(t, s.directory)
			if len(f.stages) < 2 {
				t.Error("what builds is in the image: want a stage for it")
			}
			for i, s := range f.stages {
				if s.base != "scratch" && f.stage(s.base) == nil && !pinned.MatchString(s.base) {
					t.Errorf("the base image %s is pinned to no version", s.base)
				}
				for _, in := range s.instructions {
					f.checkInstruction(in, i == len(f.stages)-1)
				}
			}
			last := f.stages[len(f.stages)-1]
			var entrypoint []string
			if err := json.Unmarshal([]byte(last.last("ENTRYPOINT")), &entrypoint); err != nil || len(entrypoint) == 0 {
				t.Errorf("ENTRYPOINT %s needs a shell, which would not pass on SIGTERM", last.last("ENTRYPOINT"))
			}
			if last.last("USER") != "65532:65532" {
				t.Errorf("USER is %q, want 65532:65532 as in the chart", last.last("USER"))
			}
		})
	}
}

func (f *containerFile) checkInstruction(in instruction, isLast bool) {
	f.Helper()
	switch in.keyword {
	case "COPY":
		from, paths := f.copied(in)
		if from != "" && f.stage(from) == nil {
			f.Errorf("COPY %s: there is no such stage", in.text)
		}
		for _, p := range paths[:len(paths)-1] {
			if from == "" && !f.inContext(p) {
				f.Errorf("COPY %s: the repository does not have %s, or .dockerignore leaves it out", in.text, p)
			}
		}
	case "RUN":
		if isLast {
			f.Errorf("RUN %s: the image needs a shell", in.text)
		}
	case "ENV", "USER", "ENTRYPOINT", "WORKDIR":
	default: // ARG and LABEL among them, which stay readable in the image
		f.Errorf("%s %s is not needed so far", in.keyword, in.text)
	}
}

// TestTheContainerFileBuilds builds the container file of a language as an engine does, in a copy of the files of this machine: COPY from the files
// that .dockerignore leaves in, RUN in a root of its own, and the entry point as the user of the image. The tools come from this machine, and not
// from the base images. `make image-LANGUAGE` runs it.
func TestTheContainerFileBuilds(t *testing.T) {
	if *language == "" || !*image {
		t.Skip("no -language and -image: `make image-LANGUAGE` builds")
	}
	for _, tool := range []string{"bash", "unshare", "chroot", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			missingf(t, "no %s to build with", tool)
		}
	}
	if os.Getuid() != 0 {
		missingf(t, "a root file system of its own needs root")
	}
	f := readContainerFile(t, sources()[*language].directory)
	p := &page{T: t, dir: t.TempDir(), env: os.Environ()}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	p.useWhatTheCheckFetched(root)
	list := filepath.Join(t.TempDir(), "context")
	if err := os.WriteFile(list, []byte(strings.Join(f.context, "\x00")+"\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "REPOSITORY="+root, "CONTEXT="+list, "CARGO_PROFILE_RELEASE_OPT_LEVEL=0") // optimizing takes minutes, and shows nothing
	script := filepath.Join(t.TempDir(), "build.sh")
	if err := os.WriteFile(script, []byte(f.script()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("unshare --mount bash -euo pipefail " + script)
}

// script carries out the container file, each stage in a directory of its own.
func (f *containerFile) script() string {
	var b strings.Builder
	b.WriteString(`mount -t tmpfs none . && cd "$PWD" && mkdir context
tar -C "$REPOSITORY" --null --files-from="$CONTEXT" -cf - | tar -xC context
begin() {
  mkdir -p "$1/upper" "$1/work" "$1/root"
  [[ $2 == scratch ]] && return
  mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
  mount -t tmpfs none "$1/root/tmp"
  mount --bind /proc "$1/root/proc" && mount --bind /dev "$1/root/dev"
  chmod 755 "$1/root/root" # base images have their tools elsewhere
}
copy() { # TARGET SOURCE...: the content of directories, and files by their names or by that of the target
  local target=$1 source
  shift
  for source in "$@"; do
    if [[ -d $source ]]; then mkdir -p "$target" && cp -a "$source/." "$target/"
    else mkdir -p "$([[ $target == */ ]] && echo "$target" || dirname "$target")" && cp -a "$source" "$target"; fi
  done
}
`)
	for i, s := range f.stages {
		f.scriptOf(&b, i, s)
	}
	return b.String()
}

func (f *containerFile) scriptOf(b *strings.Builder, number int, s stage) {
	dir, environment := "/", ""
	fmt.Fprintf(b, "begin stage%d %s\n", number, s.base)
	for _, in := range s.instructions {
		switch in.keyword {
		case "WORKDIR":
			dir = absolute(dir, in.text)
			fmt.Fprintf(b, "mkdir -p stage%d/root%s\n", number, dir)
		case "ENV":
			environment += "export " + in.text + "; "
		case "COPY":
			from, paths := f.copied(in)
			base := "context/"
			if source := f.stage(from); source != nil {
				base = fmt.Sprintf("stage%d/root", slices.IndexFunc(f.stages, func(s stage) bool { return s.name == source.name }))
			}
			fmt.Fprintf(b, "copy stage%d/root%s", number, absolute(dir, paths[len(paths)-1]))
			for _, p := range paths[:len(paths)-1] {
				fmt.Fprintf(b, " %s%s", base, p)
			}
			b.WriteString("\n")
		case "RUN":
			command := regexp.MustCompile(`--mount=\S+\s+`).ReplaceAllString(in.text, "")
			fmt.Fprintf(b, "chroot stage%d/root bash -euo pipefail -c %s\n", number, quoted("cd "+dir+"; "+environment+command))
		case "ENTRYPOINT":
			var words []string
			if err := json.Unmarshal([]byte(in.text), &words); err != nil {
				f.Fatal(err)
			}
			run := fmt.Sprintf("chroot --userspec=%s stage%d/root", s.last("USER"), number)
			if dir != "/" {
				run += " env -C " + dir
			}
			for _, word := range words {
				run += " " + quoted(word)
			}
			fmt.Fprintf(b, "if said=$(%s 2>&1); then exit 1; fi; echo \"$said\"; [[ $said == *--dispatchers* ]]\n", run)
		}
	}
}

// absolute is a path seen from a directory, with the slash at its end if it has one.
func absolute(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func readContainerFile(t *testing.T, directory string) *containerFile {
	t.Helper()
	f := &containerFile{T: t, directory: directory}
	text := strings.ReplaceAll(read(t, directory, "Dockerfile"), "\\\n", " ")
	for line := range strings.Lines(text) {
		keyword, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		switch {
		case keyword == "" || strings.HasPrefix(keyword, "#"):
		case keyword == "FROM":
			base, name, _ := strings.Cut(rest, " AS ")
			f.stages = append(f.stages, stage{name: name, base: base})
		case len(f.stages) == 0:
			t.Fatalf("%s before the first FROM", keyword)
		default:
			s := &f.stages[len(f.stages)-1]
			s.instructions = append(s.instructions, instruction{keyword, rest})
		}
	}
	tracked := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-co", "--exclude-standard", "-z")
	files, err := tracked.Output()
	if err != nil {
		t.Fatal(err)
	}
	ignored := ignore(t, directory)
	for file := range strings.SplitSeq(strings.Trim(string(files), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join("..", file)); err == nil && !ignored(file) {
			f.context = append(f.context, file)
		}
	}
	return f
}

// ignore reads Dockerfile.dockerignore: the last pattern that matches a file, or a directory above it, decides. The first one leaves out everything,
// so that no secret of a working tree comes into a build.
func ignore(t *testing.T, directory string) func(file string) bool {
	t.Helper()
	lines := strings.Fields(read(t, directory, "Dockerfile.dockerignore"))
	if lines[0] != "*" {
		t.Errorf("Dockerfile.dockerignore begins with %s, want *", lines[0])
	}
	type rule struct {
		pattern *regexp.Regexp
		ignores bool
	}
	var rules []rule
	for _, line := range lines {
		pattern, keeps := strings.CutPrefix(line, "!")
		expression := strings.NewReplacer(`\*\*/`, `(?:.*/)?`, `\*`, `[^/]*`).Replace(regexp.QuoteMeta(pattern))
		rules = append(rules, rule{regexp.MustCompile("^" + expression + "(?:/|$)"), !keeps})
	}
	return func(file string) bool {
		ignored := false
		for _, r := range rules {
			if r.pattern.MatchString(file) {
				ignored = r.ignores
			}
		}
		return ignored
	}
}

// copied are the stage that COPY copies from, if it names one, and its paths, the target last.
func (f *containerFile) copied(in instruction) (from string, paths []string) {
	paths = strings.Fields(in.text)
	if stage, found := strings.CutPrefix(paths[0], "--from="); found {
		return stage, paths[1:]
	}
	return "", paths
}

// stage returns the stage of a name.
func (f *containerFile) stage(name string) *stage {
	for i := range f.stages {
		if name != "" && f.stages[i].name == name {
			return &f.stages[i]
		}
	}
	return nil
}

func (f *containerFile) inContext(name string) bool {
	return slices.ContainsFunc(f.context, func(file string) bool {
		return name == "." || file == name || strings.HasPrefix(file, name+"/")
	})
}

// last is the text of the last instruction of a kind.
func (s *stage) last(keyword string) (text string) {
	for _, in := range s.instructions {
		if in.keyword == keyword {
			text = in.text
		}
	}
	return text
}
