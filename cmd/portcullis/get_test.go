package main

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

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
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
		if strings.Contains(oneSpace(all), oneSpace(text)) { // columns are as wide as what is in them
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
	root.AddCommand(newGetCommand())
	root.SetArgs(append([]string{"get", "-w"}, args...))
	root.SetOut(&w.out)
	root.SetErr(&w.notes)
	go func() { w.ended <- run(ctx, root) }()
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
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	w := watch(t, "vwc", "--ready-file", ready)
	w.out.shows(t, "OBJECT ")
	if r := execute(t, newApplyCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.code != 0 {
		t.Fatal(r.notes)
	}
	w.out.shows(t, "ValidatingWebhookConfiguration/policy ")
	if r := execute(t, newDeleteCommand(), nil, "vwc", "policy", "--ready-file", ready); r.code != 0 {
		t.Fatal(r.notes)
	}
	w.out.shows(t, "ValidatingWebhookConfiguration/policy         gone\n")
	w.ends(t)
}

func TestWhatGetPrintsCanBeAppliedAgain(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := info.file(t)
	run := func(cmd *cobra.Command, in string, args ...string) ran {
		t.Helper()
		r := execute(t, cmd, strings.NewReader(in), append(args, "--ready-file", ready)...)
		if r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.notes)
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
	run(newApplyCommand(), strings.Replace(appliedHooks, "GROUP", `""`, 1)+more, "-f", "-")
	printed := run(newGetCommand(), "", "-o", "yaml").out
	again := run(newApplyCommand(), printed, "-f", "-").out
	if strings.Count(again, " unchanged\n") != 4 || strings.Count(again, "\n") != 4 {
		t.Errorf("%s\nof\n%s", again, printed)
	}
	run(newDiffCommand(), printed, "-f", "-")
	one := run(newGetCommand(), "", "role", "r", "-o", "yaml").out
	if again := run(newApplyCommand(), one, "-f", "-").out; again != "Role/r unchanged\n" {
		t.Errorf("%s", again)
	}
}

func TestAnApplyIsAsExpectedOrNotAtAll(t *testing.T) {
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	apply := func(in string, expect ...string) ran {
		t.Helper()
		args := []string{"-f", "-", "--ready-file", ready}
		for _, e := range expect {
			args = append(args, "--expect", e)
		}
		return execute(t, newApplyCommand(), strings.NewReader(in), args...)
	}
	if r := apply(documents, "vwc/policy=0", "route/policy=0"); r.code != 0 {
		t.Fatal(r.notes)
	}
	apply(documents, "vwc/policy=0").ends(t, exitDenied, "an object has changed meanwhile", "not 0: read it again")
	wide := execute(t, newGetCommand(), nil, "vwc", "policy", "-o", "wide", "--ready-file", ready)
	lines := strings.Split(wide.out, "\n")
	from := strings.Index(lines[0], "VERSION")
	version := strings.Fields(lines[1][from:])[0]
	if r := apply(strings.Replace(documents, "Fail", "Ignore", 1), "vwc/policy="+version); r.code != 0 {
		t.Error(r.notes)
	}
	execute(t, newDeleteCommand(), nil, "vwc", "policy", "--expect", version, "--ready-file", ready).ends(t, exitDenied, "has resource version")
	apply(documents, "policy=1").fails(t, "--expect", "KIND/NAME")
	apply(documents, "vwc/policy").fails(t, "KIND/NAME=VERSION")
}

// watches is a service whose Watch sends what is there, and then ends, one call after the other.
type watches struct {
	configv1.ConfigServiceClient

	calls [][]any // *configv1.WatchResponse, or the error at the end
}

func (w *watches) Watch(context.Context, *configv1.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[configv1.WatchResponse], error) {
	next := w.calls[0]
	w.calls = w.calls[1:]
	return &watchStream{next: next}, nil
}

type watchStream struct {
	grpc.ServerStreamingClient[configv1.WatchResponse]

	next []any
}

func (s *watchStream) Recv() (*configv1.WatchResponse, error) {
	next := s.next[0]
	s.next = s.next[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next.(*configv1.WatchResponse), nil
}

func TestAWatchThatEndsIsBegunAgain(t *testing.T) {
	change := func(kind configv1.WatchResponse_Type, name, source string) *configv1.WatchResponse {
		return &configv1.WatchResponse{Type: kind, Object: &configv1.ConfigObject{Key: &configv1.ConfigKey{Kind: "Role", Name: name}, Source: source}}
	}
	put, deleted := configv1.WatchResponse_TYPE_PUT, configv1.WatchResponse_TYPE_DELETED
	synced := &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_SYNCED}
	client := &watches{calls: [][]any{
		{change(put, "a", "1"), change(put, "b", "1"), change(put, "c", "1"), synced, change(deleted, "c", "1"), status.Error(codes.Aborted, "too slow")},
		{change(put, "a", "1"), status.Error(codes.Unavailable, "stopping")}, // nobody knows what is missing
		{change(put, "a", "1"), change(put, "d", "a longer one"), synced, change(put, "a", "2"), status.Error(codes.PermissionDenied, "no role")},
	}}
	var out, notes bytes.Buffer
	err := watchObjects(t.Context(), &mesh.Show{Client: client, Out: &out, Notes: &notes}, &configv1.WatchRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("ended with %v", err)
	}
	want := `OBJECT  ACCEPTED  IN ROTATION  EFFECTIVE  SERVED  SOURCE
Role/a  -         -            -          -       1
Role/b  -         -            -          -       1
Role/c  -         -            -          -       1
Role/c  gone
Role/d  -         -            -          -       a longer one
Role/b  gone
Role/a  -         -            -          -       2
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := "the watch has ended (too slow): beginning again\nthe watch has ended (stopping): beginning again\n"; notes.String() != want {
		t.Errorf("said %q", &notes)
	}

	client = &watches{calls: [][]any{{status.Error(codes.Unavailable, "nobody there")}}}
	show := &mesh.Show{Client: client, Out: &out, Notes: &notes}
	if err := watchObjects(t.Context(), show, &configv1.WatchRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a mesh that does not answer at all: %v", err)
	}
}

func TestAFileOfManyObjectsIsAppliedAsOne(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := info.file(t)
	role := func(i int) string {
		return fmt.Sprintf("---\napiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: r-%d}\nspec: {role: viewer, identities: [i-%d]}\n", i, i)
	}
	var first, second strings.Builder
	for i := range 500 {
		first.WriteString(role(i))
	}
	dir := filepath.Dir(write(t, "a.yaml", first.String()))
	for i := range 20 {
		second.WriteString(role(500 + i))
	}
	r := execute(t, newApplyCommand(), strings.NewReader(second.String()), "-f", dir, "-f", "-", "--ready-file", ready, "--wait", "--progress", "lines")
	if r.code != 0 || strings.Count(r.out, " created\n") != 520 {
		t.Fatalf("exit code %d: %s%s", r.code, r.out, r.notes)
	}
	if want := "reading\nchecking and storing 520 objects\n"; !strings.HasPrefix(r.notes, want) || !strings.HasSuffix(r.notes, "1 of 1 dispatchers judge by it\n") {
		t.Errorf("said %q", r.notes)
	}
	changes := execute(t, newGetCommand(), nil, "changes", "--ready-file", ready)
	if !strings.Contains(changes.out, "created Role/r-500, created Role/r-501, created Role/r-502 and 517 more\n") {
		t.Errorf("changes:\n%.500s", changes.out)
	}
	explained := execute(t, newExplainCommand(), nil, "role", "r-7", "--ready-file", ready)
	if !strings.Contains(explained.out, "created Role/r-7 and 519 more\n") {
		t.Errorf("explained:\n%.500s", explained.out)
	}
	quiet := execute(t, newApplyCommand(), nil, "-f", dir, "--ready-file", ready)
	if quiet.code != 0 || quiet.notes != "" || strings.Count(quiet.out, " unchanged\n") != 500 {
		t.Errorf("exit code %d in a pipe, said %q", quiet.code, quiet.notes)
	}
	for i := range 600 {
		second.WriteString(role(1000 + i))
	}
	execute(t, newApplyCommand(), strings.NewReader(second.String()), "-f", dir, "-f", "-", "--ready-file", ready).
		ends(t, exitDenied, "1120 manifests, and at most 1000 are applied at a time: split them")
	var big string
	for i := range 40 {
		big += fmt.Sprintf("---\napiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: b-%d, annotations: {a: %q}}\nspec: {role: viewer, identities: [x]}\n", i, strings.Repeat("x", 250_000))
	}
	execute(t, newApplyCommand(), strings.NewReader(big), "-f", "-", "--ready-file", ready).ends(t, exitDenied, "at most 8388608 are applied at a time")
}
