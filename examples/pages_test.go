package examples_test

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var language = flag.String("language", "", "follow the page of this language, as in `go test ./examples -args -language python`")

// image has the container file of the language built, instead of its page followed.
var image = flag.Bool("image", false, "build by the container file of the language")

// patience is longer than any step takes on a busy machine that has to fetch and compile everything.
const patience = 15 * time.Minute

// page is the page "Write a hook in ..." of a language as somebody follows it, in a directory of their own.
type page struct {
	*testing.T
	dir    string
	env    []string
	blocks []string // of commands, each for a terminal or for a moment of its own
}

// TestThePageLeadsToAVerdict follows a page from an empty folder. `make sdks` runs it for each language, after the check of its SDK has fetched
// the dependencies of both.
func TestThePageLeadsToAVerdict(t *testing.T) {
	if *language == "" {
		t.Skip("no -language: `make sdks` follows each page")
	}
	p := newPage(t)
	p.run(p.blocks[0])
	for i, block := range p.blocks[1:] {
		var begins bool
		if p.blocks[i+1], begins = strings.CutPrefix(block, "cd imagepolicy\n"); !begins {
			t.Errorf("the block relies on the cd of another one:\n%s", block)
		}
	}
	p.dir = filepath.Join(p.dir, "imagepolicy")
	p.tookLockedVersions()
	p.start("dev", p.blocks[1])
	p.eventually("the mesh serves", func() (string, bool) {
		_, err := os.Stat(filepath.Join(p.dir, "dev", "ready.json"))
		return "", err == nil
	})
	p.start("host", p.blocks[2])
	reviews := strings.Split(strings.TrimSpace(p.blocks[3]), "\n")
	p.says(reviews[0], "images are named by digest here: nginx:latest")
	for _, mutate := range reviews[1:] {
		p.says(mutate, `"team"`)
	}
	p.namesTheMissingFile(p.blocks[2])
}

func newPage(t *testing.T) *page {
	t.Helper()
	example, tools := "imagepolicy-"+*language, map[string][]string{
		"go": nil, "python": {"python3"}, "typescript": {"node", "npm"}, "java": {"javac", "mvn"}, "rust": {"cargo", "cc"},
	}
	if *language == "go" {
		example = "imagepolicy"
	}
	for _, tool := range append(tools[*language], "bash", "git", "tar") {
		if _, err := exec.LookPath(tool); err != nil {
			missingf(t, "no %s to follow the page with", tool)
		}
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{T: t, dir: t.TempDir(), env: os.Environ()}
	p.useWhatTheCheckFetched(root)
	bin, clone := filepath.Join(t.TempDir(), "bin"), filepath.Join(t.TempDir(), "clone")
	p.env = append(p.env, "PORTCULLIS="+clone, "PATH="+bin+string(os.PathListSeparator)+p.variable("PATH"), "GOFLAGS=", "GOWORK=")
	p.run("mkdir " + clone + " && cd " + root + " && go build -o " + bin + "/ ./cmd/portcullis && git ls-files -co --exclude-standard -z -- " +
		"gen hostsdk internal/wire proto sdk | tar --null --files-from=- --ignore-failed-read -cf - | tar -xC " + clone)
	text, err := os.ReadFile(filepath.Join(example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("127.0.0.1:8444", freeAddress(t))
	for _, found := range regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllSubmatch(text, -1) {
		p.blocks = append(p.blocks, names.Replace(string(found[1])))
	}
	if len(p.blocks) != 4 {
		t.Fatalf("the page of %s has %d blocks of commands, want those of init, dev, the host and reviews", *language, len(p.blocks))
	}
	return p
}

// missingf skips the test, and fails it where nothing may be skipped.
func missingf(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// useWhatTheCheckFetched lets the tools of a language find the files that sdk/LANGUAGE/check has fetched and compiled. They work without it
// too, from an empty machine on, except that Java needs a newer Maven than distributions have.
func (p *page) useWhatTheCheckFetched(root string) {
	p.Helper()
	tmp := filepath.Join(root, ".tmp")
	switch *language {
	case "java":
		maven, _ := filepath.Glob(filepath.Join(tmp, "sdk-java", "apache-maven-*", "bin"))
		if len(maven) == 0 {
			missingf(p.T, "sdk/java/check has fetched no Maven")
		}
		repository := filepath.Join(tmp, "sdk-java", "m2")
		// The page installs the SDK itself. A step that it lacks fails only where nothing of the SDK is installed.
		if err := os.RemoveAll(filepath.Join(repository, "dev", "portcullis")); err != nil {
			p.Fatal(err)
		}
		p.env = append(p.env, "PATH="+maven[0]+string(os.PathListSeparator)+os.Getenv("PATH"),
			"MAVEN_ARGS=-B -q -ntp -Dmaven.repo.local="+repository)
	case "typescript":
		// As the check found or fetched it: the SDK needs a newer Node.js than the machine may have.
		p.env = append(p.env, "PATH="+filepath.Join(tmp, "sdk-typescript", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	case "rust":
		if compiled, _ := filepath.Glob(filepath.Join(tmp, "rust", "*")); len(compiled) > 0 {
			// Offline, cargo takes the versions that are there. Without debug information they are the check's versions.
			p.env = append(p.env, "CARGO_TARGET_DIR="+compiled[0], "CARGO_NET_OFFLINE=true", "CARGO_PROFILE_DEV_DEBUG=0")
		}
	}
}

// locks are the files of an example that lock versions, and commands that print, in the words of these, the dependencies of the page beside
// the SDK. Go and Maven take the versions of the manifests.
func locks() map[string]struct{ file, took string } {
	return map[string]struct{ file, took string }{
		"python":     {"requirements.txt", "venv/bin/pip freeze --exclude portcullis-host | tr _ -"},
		"rust":       {"Cargo.lock", "grep ^checksum Cargo.lock"},
		"typescript": {"package-lock.json", "sed '/\"resolved\": \"file:/,+1d' package-lock.json | grep integrity"},
	}
}

// tookLockedVersions fails if a release of a foreign package can change the result of the page.
func (p *page) tookLockedVersions() {
	p.Helper()
	lock, found := locks()[*language]
	if !found {
		return
	}
	locked, err := os.ReadFile(filepath.Join("imagepolicy-"+*language, lock.file))
	if err != nil {
		p.Fatal(err)
	}
	took, err := p.command(p.Context(), lock.took).Output()
	if err != nil {
		p.Fatalf("%s: %v", lock.took, err)
	}
	for line := range strings.Lines(strings.ToLower(string(took))) {
		if !bytes.Contains(bytes.ToLower(locked), []byte(strings.TrimSpace(line))) {
			p.Errorf("the page took what %s of the example does not lock: %s", lock.file, line)
		}
	}
}

// variable is the value of a variable of the environment.
func (p *page) variable(name string) (value string) {
	for _, entry := range p.env {
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value = v // the last one counts
		}
	}
	return value
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// command is a block in a shell, in a process group of its own as in a terminal.
func (p *page) command(ctx context.Context, block string) *exec.Cmd {
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block)
	c.Dir, c.Env, c.SysProcAttr = p.dir, p.env, &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

// run runs a block to its end.
func (p *page) run(block string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	begun := time.Now()
	if said, err := p.command(ctx, block).CombinedOutput(); err != nil {
		p.Fatalf("%s\n%v\n%s", block, err, said)
	}
	p.Logf("%s: %v", strings.TrimSpace(block), time.Since(begun).Round(time.Second))
}

// start runs a block until the end of the test, which presses Ctrl-C in its terminal.
func (p *page) start(name, block string) {
	p.Helper()
	said, err := os.Create(filepath.Join(p.TempDir(), name+".log"))
	if err != nil {
		p.Fatal(err)
	}
	c := p.command(context.WithoutCancel(p.Context()), block)
	c.Stdout, c.Stderr = said, said
	if err := c.Start(); err != nil {
		p.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait() // a shell that Ctrl-C ended says so
		close(ended)
	}()
	p.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			p.Errorf("%s does not end by Ctrl-C", name)
		}
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		if log, err := os.ReadFile(said.Name()); p.Failed() {
			p.Logf("%s (%v):\n%s", name, err, log)
		}
		said.Close()
	})
}

// namesTheMissingFile starts the host with a file that does not exist. It says so in one line, without the stack of an exception.
func (p *page) namesTheMissingFile(block string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	said, err := p.command(ctx, strings.ReplaceAll(block, "dev/certs/host.crt", "missing.crt")).CombinedOutput()
	line, stack := regexp.MustCompile(`(?m)^Error: .*missing\.crt`), regexp.MustCompile(`(?m)^Traceback|^\s+(at|File) `)
	if err == nil || !line.Match(said) || stack.Match(said) {
		p.Errorf("the host says of a missing certificate (%v):\n%s", err, said)
	}
}

// says repeats a command until it says something, whatever its exit code: a denial has its own.
func (p *page) says(block, want string) {
	p.Helper()
	p.eventually(block, func() (string, bool) {
		said, _ := p.command(p.Context(), block).CombinedOutput()
		return string(said), bytes.Contains(said, []byte(want))
	})
}

// eventually polls a condition, which explains itself.
func (p *page) eventually(what string, holds func() (string, bool)) {
	p.Helper()
	deadline, tick := time.After(patience), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		said, ok := holds()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.Fatalf("%s: not in %v\n%s", what, patience, said)
		}
	}
}
