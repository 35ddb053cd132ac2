package serve

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// page is an output that can be looked at while it is written.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(data)
}

// shows waits until a text is there.
func (p *page) shows(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		p.mu.Lock()
		all := p.text.String()
		p.mu.Unlock()
		if strings.Contains(oneSpace(all), oneSpace(text)) { // the content of a column decides its width
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %s", text, all)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// oneSpace is text with one space where there are several.
func oneSpace(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }

// watching is a command that goes on until it is interrupted.
type watching struct {
	out, notes page
	ended      chan int
	interrupt  context.CancelFunc
}

func watch(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	w := &watching{ended: make(chan int, 1), interrupt: interrupt}
	root := &cobra.Command{Use: "portcullis", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(configcli.NewGet())
	root.SetArgs(append([]string{"get", "-w"}, args...))
	root.SetOut(&w.out)
	root.SetErr(&w.notes)
	go func() { w.ended <- cli.Run(ctx, root) }()
	return w
}

// ends interrupts the command, which is no error.
func (w *watching) ends(t *testing.T) {
	t.Helper()
	w.interrupt()
	if code := within(t, "the end", w.ended); code != 0 {
		t.Errorf("exit code %d: %s", code, &w.notes.text)
	}
}

func TestGetWatchesUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	w := watch(t, "vwc", "--ready-file", ready)
	w.out.shows(t, "OBJECT ")
	if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	w.out.shows(t, "ValidatingWebhookConfiguration/policy ")
	if r := clitest.Execute(t, configcli.NewDelete(), nil, "vwc", "policy", "--ready-file", ready); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	w.out.shows(t, "ValidatingWebhookConfiguration/policy         gone\n")
	w.ends(t)
}

func TestAContextOfTheSettingsReachesTheMesh(t *testing.T) {
	settings := clitest.Write(t, "config", "current-context: here\ncontexts: {here: {ready-file: "+withStore(t)+"}, away: {server: 127.0.0.1}}\n")
	if r := clitest.Execute(t, configcli.NewGet(), nil, "--settings", settings); r.Code != 0 || !strings.Contains(r.Out, "HookRoute/") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	clitest.Execute(t, configcli.NewGet(), nil, "--settings", settings, "--context", "away").Fails(t, "--ca is missing")
}

func TestWhatGetPrintsCanBeAppliedAgain(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := readyFileOf(t, info)
	run := func(cmd *cobra.Command, in string, args ...string) clitest.Result {
		t.Helper()
		r := clitest.Execute(t, cmd, strings.NewReader(in), append(args, "--ready-file", ready)...)
		if r.Code != 0 {
			t.Fatalf("exit code %d: %s", r.Code, r.Notes)
		}
		return r
	}
	more := `---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: r, labels: {a: "true", b: "1e3", c: "0123"}, annotations: {text: "two\nlines: # of text\n"}}
spec: {role: viewer, identities: ["yes", "null", "1.0"]}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: c}
spec: {identities: [api], namespaces: {static: {default: {env: "on"}}}}
`
	run(configcli.NewApply(), strings.Replace(appliedHooks, "GROUP", `""`, 1)+more, "-f", "-")
	printed := run(configcli.NewGet(), "", "-o", "yaml").Out
	again := run(configcli.NewApply(), printed, "-f", "-").Out
	if strings.Count(again, " unchanged\n") != 4 || strings.Count(again, "\n") != 4 {
		t.Errorf("%s\nof\n%s", again, printed)
	}
	run(configcli.NewDiff(), printed, "-f", "-")
	one := run(configcli.NewGet(), "", "role", "r", "-o", "yaml").Out
	if again := run(configcli.NewApply(), one, "-f", "-").Out; again != "Role/r unchanged\n" {
		t.Errorf("%s", again)
	}
}

func TestAnApplyIsAsExpectedOrNotAtAll(t *testing.T) {
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	apply := func(in string, expect ...string) clitest.Result {
		t.Helper()
		args := []string{"-f", "-", "--ready-file", ready}
		for _, e := range expect {
			args = append(args, "--expect", e)
		}
		return clitest.Execute(t, configcli.NewApply(), strings.NewReader(in), args...)
	}
	if r := apply(documents, "vwc/policy=0", "route/policy=0"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	apply(documents, "vwc/policy=0").Ends(t, cli.ExitDenied, "an object has changed meanwhile", "not 0: read it again")
	wide := clitest.Execute(t, configcli.NewGet(), nil, "vwc", "policy", "-o", "wide", "--ready-file", ready)
	lines := strings.Split(wide.Out, "\n")
	from := strings.Index(lines[0], "VERSION")
	version := strings.Fields(lines[1][from:])[0]
	if r := apply(strings.Replace(documents, "Fail", "Ignore", 1), "vwc/policy="+version); r.Code != 0 {
		t.Error(r.Notes)
	}
	clitest.Execute(t, configcli.NewDelete(), nil, "vwc", "policy", "--expect", version, "--ready-file", ready).Ends(t, cli.ExitDenied, "has resource version")
	apply(documents, "policy=1").Fails(t, "--expect", "KIND/NAME")
	apply(documents, "vwc/policy").Fails(t, "KIND/NAME=VERSION")
}

func TestAFileOfManyObjectsIsAppliedAsOne(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := readyFileOf(t, info)
	role := func(i int) string {
		return fmt.Sprintf("---\napiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: r-%d}\nspec: {role: viewer, identities: [i-%d]}\n", i, i)
	}
	var first, second strings.Builder
	for i := range 500 {
		first.WriteString(role(i))
	}
	dir := filepath.Dir(clitest.Write(t, "a.yaml", first.String()))
	for i := range 20 {
		second.WriteString(role(500 + i))
	}
	r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(second.String()), "-f", dir, "-f", "-", "--ready-file", ready, "--wait", "--progress", "lines")
	if r.Code != 0 || strings.Count(r.Out, " created\n") != 520 {
		t.Fatalf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	if want := "reading\nchecking and storing 520 objects\n"; !strings.HasPrefix(r.Notes, want) || !strings.HasSuffix(r.Notes, "1 of 1 dispatchers judge by it\n") {
		t.Errorf("said %q", r.Notes)
	}
	changes := clitest.Execute(t, configcli.NewGet(), nil, "changes", "--ready-file", ready)
	if !strings.Contains(changes.Out, "created Role/r-500, created Role/r-501, created Role/r-502 and 517 more\n") {
		t.Errorf("changes:\n%.500s", changes.Out)
	}
	explained := clitest.Execute(t, configcli.NewExplain(), nil, "role", "r-7", "--ready-file", ready)
	if !strings.Contains(explained.Out, "created Role/r-7 and 519 more\n") {
		t.Errorf("explained:\n%.500s", explained.Out)
	}
	quiet := clitest.Execute(t, configcli.NewApply(), nil, "-f", dir, "--ready-file", ready)
	if quiet.Code != 0 || quiet.Notes != "" || strings.Count(quiet.Out, " unchanged\n") != 500 {
		t.Errorf("exit code %d in a pipe, said %q", quiet.Code, quiet.Notes)
	}
	for i := range 600 {
		second.WriteString(role(1000 + i))
	}
	clitest.Execute(t, configcli.NewApply(), strings.NewReader(second.String()), "-f", dir, "-f", "-", "--ready-file", ready).
		Ends(t, cli.ExitDenied, "1120 manifests, and at most 1000 are applied at a time: split them")
	var big string
	for i := range 40 {
		big += fmt.Sprintf("---\napiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: b-%d, annotations: {a: %q}}\nspec: {role: viewer, identities: [x]}\n", i, strings.Repeat("x", 250_000))
	}
	clitest.Execute(t, configcli.NewApply(), strings.NewReader(big), "-f", "-", "--ready-file", ready).Ends(t, cli.ExitDenied, "at most 8388608 are applied at a time")
}
