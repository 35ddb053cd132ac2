package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// asked is a mesh that answers one question after the other, with an answer or an error.
type asked struct {
	configv1.ConfigServiceClient

	answers []any
	limits  []uint32 // that were asked for
}

func (a *asked) next() (any, error) {
	next := a.answers[0]
	a.answers = a.answers[1:]
	err, _ := next.(error)
	return next, err
}

func (a *asked) ListDispatchers(context.Context, *configv1.ListDispatchersRequest, ...grpc.CallOption) (*configv1.ListDispatchersResponse, error) {
	next, err := a.next()
	if err != nil {
		return nil, err
	}
	return next.(*configv1.ListDispatchersResponse), nil
}

func (a *asked) ListChanges(_ context.Context, r *configv1.ListChangesRequest, _ ...grpc.CallOption) (*configv1.ListChangesResponse, error) {
	a.limits = append(a.limits, r.GetLimit())
	next, err := a.next()
	if err != nil {
		return nil, err
	}
	return next.(*configv1.ListChangesResponse), nil
}

// dispatchers is an answer: for each one its id, and the revision that it has applied.
func dispatchers(behind []string, age uint32, pairs ...string) *configv1.ListDispatchersResponse {
	out := &configv1.ListDispatchersResponse{Behind: behind}
	for i := 0; i < len(pairs); i += 2 {
		out.Dispatchers = append(out.Dispatchers, &configv1.DispatcherStatus{
			DispatcherId: pairs[i], Version: "v1", Judging: true, ConfigAgeMs: age, Said: timestamppb.New(time.Unix(int64(age), 0)),
			Applied: &configv1.Revision{Sources: map[string]string{"etcd": pairs[i+1]}},
		})
	}
	return out
}

// changes are an answer with the changes of revisions, the latest first.
func changes(revisions ...int) *configv1.ListChangesResponse {
	out := &configv1.ListChangesResponse{}
	for _, r := range revisions {
		out.Changes = append(out.Changes, &configv1.Change{
			Revision: fmt.Sprint(r), At: timestamppb.New(time.Unix(0, 0)), Actor: "me", Actions: []string{fmt.Sprintf("created Role/r-%d", r)},
		})
	}
	return out
}

var errEnd = status.Error(codes.PermissionDenied, "no role")

// follows runs a watch until the mesh says errEnd, and returns what it printed and said.
func follows(t *testing.T, format string, client *asked, what func(*getCommand) func(ctx context.Context, c configv1.ConfigServiceClient, out, notes *bytes.Buffer) error) (out, notes string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var o, n bytes.Buffer
		c := &getCommand{watch: true, timeout: time.Minute, output: &choice{value: format}}
		if err := what(c)(t.Context(), client, &o, &n); status.Code(err) != codes.PermissionDenied {
			t.Errorf("ended with %v", err)
		}
		out, notes = o.String(), n.String()
	})
	return out, notes
}

func onDispatchers(c *getCommand) func(context.Context, configv1.ConfigServiceClient, *bytes.Buffer, *bytes.Buffer) error {
	return func(ctx context.Context, client configv1.ConfigServiceClient, out, notes *bytes.Buffer) error {
		return c.dispatchers(ctx, client, out, notes)
	}
}

func onChanges(c *getCommand) func(context.Context, configv1.ConfigServiceClient, *bytes.Buffer, *bytes.Buffer) error {
	return func(ctx context.Context, client configv1.ConfigServiceClient, out, notes *bytes.Buffer) error {
		return c.changes(ctx, client, out, notes)
	}
}

func TestADispatcherIsShownAgainWhenItHasChanged(t *testing.T) {
	answers := func() *asked {
		return &asked{answers: []any{
			dispatchers(nil, 100, "a", "7", "b", "7"),
			dispatchers(nil, 900, "a", "7", "b", "7"), // older, and nothing else
			dispatchers([]string{"b"}, 200, "a", "8", "b", "7"),
			dispatchers(nil, 300, "a", "8", "b", "8", "c", "8"),
			dispatchers(nil, 400, "a", "8", "c", "8"),
			errEnd,
		}}
	}
	out, notes := follows(t, "", answers(), onDispatchers)
	want := `DISPATCHER  STATE    ETCD  CONFIG AGE  SERVES STALE UNTIL  VERSION  KEEPS AN OLDER VERSION OF
a           Current  7     100ms       -                   v1       -
b           Current  7     100ms       -                   v1       -
a           Current  8     200ms       -                   v1       -
b           Behind   7     200ms       -                   v1       -
b           Current  8     300ms       -                   v1       -
c           Current  8     300ms       -                   v1       -
b           gone
`
	if diff := cmp.Diff(want, out); diff != "" || notes != "" {
		t.Errorf("(-want +got):\n%s%s", diff, notes)
	}
	out, _ = follows(t, formatJSON, answers(), onDispatchers)
	var counts []int
	for line := range strings.Lines(out) {
		var r struct {
			Dispatchers []any `json:"dispatchers"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		counts = append(counts, len(r.Dispatchers))
	}
	if diff := cmp.Diff([]int{2, 2, 3, 2}, counts); diff != "" {
		t.Errorf("dispatchers in each line (-want +got):\n%s", diff)
	}
}

func TestAChangeIsShownOnce(t *testing.T) {
	out, notes := follows(t, "", &asked{answers: []any{changes(3, 2), changes(3, 2), changes(5, 4, 3, 2), errEnd}}, onChanges)
	want := `REVISION  WHEN                  WHO  WHAT
2         1970-01-01T00:00:00Z  me   created Role/r-2
3         1970-01-01T00:00:00Z  me   created Role/r-3
4         1970-01-01T00:00:00Z  me   created Role/r-4
5         1970-01-01T00:00:00Z  me   created Role/r-5
`
	if diff := cmp.Diff(want, out); diff != "" || notes != "" {
		t.Errorf("(-want +got):\n%s%s", diff, notes)
	}
	out, _ = follows(t, formatJSON, &asked{answers: []any{changes(), changes(1), changes(1), changes(2, 1), errEnd}}, onChanges)
	if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], `{"revision":"2",`) {
		t.Errorf("printed %s", out)
	}
}

// TestManyChangesAtOnce has more changes between two looks than are answered unasked, and then more than are remembered.
func TestManyChangesAtOnce(t *testing.T) {
	client := &asked{answers: []any{changes(1), changes(4, 3), changes(4, 3, 2, 1), changes(4, 3, 2, 1), changes(9), changes(9, 8), errEnd}}
	out, notes := follows(t, "", client, onChanges)
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if want := []string{"REVISION", "1 ", "2 ", "3 ", "4 ", "8 ", "9 "}[i]; !strings.HasPrefix(line, want) {
			t.Errorf("line %d is %q, want %s", i, line, want)
		}
	}
	if diff := cmp.Diff([]uint32{0, 0, 1000, 0, 0, 1000, 0}, client.limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if want := "after 4 there were changes that the store no longer remembers\n"; notes != want {
		t.Errorf("said %q", notes)
	}
}

func TestAMeshThatDoesNotAnswerIsAskedAgainOnceItHasAnswered(t *testing.T) {
	away, late := status.Error(codes.Unavailable, "refused"), status.Error(codes.DeadlineExceeded, "late")
	out, notes := follows(t, "", &asked{answers: []any{changes(1), away, away, late, changes(2, 1), away, changes(2, 1), errEnd}}, onChanges)
	if strings.Count(out, "\n") != 3 || notes != "there is no answer (refused): asking again\nthere is no answer (refused): asking again\n" {
		t.Errorf("printed %s, said %s", out, notes)
	}
	c := &getCommand{watch: true, timeout: time.Minute, output: &choice{}}
	for want, err := range map[codes.Code]error{codes.Unavailable: away, codes.DeadlineExceeded: late, codes.PermissionDenied: errEnd} {
		if err := c.changes(t.Context(), &asked{answers: []any{err}}, &bytes.Buffer{}, &bytes.Buffer{}); status.Code(err) != want {
			t.Errorf("a mesh that never answered: %v, want %v", err, want)
		}
	}
	c.output.value = formatYAML
	if err := c.dispatchers(t.Context(), &asked{}, &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "use -o json") {
		t.Errorf("as YAML: %v", err)
	}
}

func TestGetWatchesDispatchersAndChanges(t *testing.T) {
	ready := withStore(t)
	table := watch(t, "dispatchers", "--ready-file", ready)
	lines := watch(t, "changes", "-o", "json", "--ready-file", ready)
	table.out.shows(t, "DISPATCHER ")
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	for _, said := range []string{`"created ValidatingWebhookConfiguration/policy"`, `"updated ValidatingWebhookConfiguration/policy"`} {
		if r := execute(t, newApplyCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", ready); r.code != 0 {
			t.Fatal(r.notes)
		}
		lines.out.shows(t, said)
		documents = strings.Replace(documents, "Fail", "Ignore", 1)
	}
	changes := execute(t, newGetCommand(), nil, "changes", "--ready-file", ready)
	table.out.shows(t, "Current  "+strings.Fields(strings.Split(changes.out, "\n")[1])[0]) // the last revision
	table.ends(t)
	lines.ends(t)
}

// door is an address that leads to whoever is behind it now.
type door struct {
	listener net.Listener
	behind   atomic.Pointer[string]
}

func newDoor(t *testing.T, behind string) *door {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{listener: listener}
	d.behind.Store(&behind)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { d.carry(client) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	return d
}

// carry is one connection, until one of its ends is gone.
func (d *door) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", *d.behind.Load())
	if err != nil {
		return
	}
	defer server.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
	_ = server.Close()
	<-back
}

func TestAWatchSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	var certificates tlsFiles
	first, stop := storeAs(t, dir, func(c *serveConfig) { certificates = c.tls })
	d := newDoor(t, first.Hosts)
	atDoor := first
	atDoor.Hosts = d.listener.Addr().String()
	w := watch(t, "changes", "--ready-file", atDoor.file(t))
	apply := func(info readyInfo, documents string) {
		t.Helper()
		if r := execute(t, newApplyCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", info.file(t)); r.code != 0 {
			t.Fatal(r.notes)
		}
	}
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	apply(first, documents)
	w.out.shows(t, "created ValidatingWebhookConfiguration/policy")
	stop()
	w.notes.shows(t, "asking again")
	second, _ := storeAs(t, dir, func(c *serveConfig) { c.tls = certificates })
	second.CA, second.ClientCert, second.ClientKey = first.CA, first.ClientCert, first.ClientKey
	d.behind.Store(&second.Hosts)
	apply(second, strings.Replace(documents, "Fail", "Ignore", 1))
	w.out.shows(t, "updated ValidatingWebhookConfiguration/policy")
	w.ends(t)
	if created := strings.Count(w.out.text.String(), "created ValidatingWebhookConfiguration/policy"); created != 1 {
		t.Errorf("shown %d times: %s", created, &w.out.text)
	}
}
