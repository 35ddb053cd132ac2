package mesh

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestGetDispatchersShowsWhoIsBehind(t *testing.T) {
	now := time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)
	answer := &configv1.ListDispatchersResponse{Behind: []string{"b", "c"}, Dispatchers: []*configv1.DispatcherStatus{
		{DispatcherId: "a", Version: "v1", Judging: true, ConfigAgeMs: 140, Held: "57", Applied: &configv1.Revision{Digest: "d", Sources: map[string]string{"etcd": "57"}}, Said: timestamppb.New(now)},
		{DispatcherId: "b", Version: "v1", Judging: true, ConfigAgeMs: 960, Applied: &configv1.Revision{Sources: map[string]string{"etcd": "41"}}, Diverging: []string{"HookRoute/x", "Role/y"}},
		{DispatcherId: "c", Version: "v1", ConfigAgeMs: 7200, Applied: &configv1.Revision{}, ServesStaleUntil: timestamppb.New(now.Add(time.Hour))},
	}}
	var out bytes.Buffer
	for _, format := range []string{"", printer.Wide} {
		s := &Show{Out: &out, Format: format}
		if err := s.print(printer.Message{Message: answer}, dispatcherColumns(), s.dispatcherRows(answer, now)); err != nil {
			t.Fatal(err)
		}
		out.WriteString("\n")
	}
	want, err := os.ReadFile("testdata/dispatchers.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.TrimSuffix(out.String(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

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

// follows runs a watch until the mesh says errEnd, and returns its output and its notes.
func follows(t *testing.T, format string, client *asked, show func(*Show, context.Context) error) (out, notes string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var o, n bytes.Buffer
		s := &Show{Mesh: meshOf(client, &n), Out: &o, Format: format, Watch: true, Timeout: time.Minute}
		if err := show(s, t.Context()); status.Code(err) != codes.PermissionDenied {
			t.Errorf("ended with %v", err)
		}
		out, notes = o.String(), n.String()
	})
	return out, notes
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
	out, notes := follows(t, "", answers(), (*Show).Dispatchers)
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
	out, _ = follows(t, printer.JSON, answers(), (*Show).Dispatchers)
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
	out, notes := follows(t, "", &asked{answers: []any{changes(3, 2), changes(3, 2), changes(5, 4, 3, 2), errEnd}}, (*Show).Changes)
	want := `REVISION  WHEN                  WHO  WHAT
2         1970-01-01T00:00:00Z  me   created Role/r-2
3         1970-01-01T00:00:00Z  me   created Role/r-3
4         1970-01-01T00:00:00Z  me   created Role/r-4
5         1970-01-01T00:00:00Z  me   created Role/r-5
`
	if diff := cmp.Diff(want, out); diff != "" || notes != "" {
		t.Errorf("(-want +got):\n%s%s", diff, notes)
	}
	out, _ = follows(t, printer.JSON, &asked{answers: []any{changes(), changes(1), changes(1), changes(2, 1), errEnd}}, (*Show).Changes)
	if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], `{"revision":"2",`) {
		t.Errorf("printed %s", out)
	}
}

// TestManyChangesAtOnce has more changes between two looks than are answered unasked, and then more than are remembered.
func TestManyChangesAtOnce(t *testing.T) {
	client := &asked{answers: []any{changes(1), changes(4, 3), changes(4, 3, 2, 1), changes(4, 3, 2, 1), changes(9), changes(9, 8), errEnd}}
	out, notes := follows(t, "", client, (*Show).Changes)
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
	out, notes := follows(t, "", &asked{answers: []any{changes(1), away, away, late, changes(2, 1), away, changes(2, 1), errEnd}}, (*Show).Changes)
	if strings.Count(out, "\n") != 3 || notes != "there is no answer (refused): asking again\nthere is no answer (refused): asking again\n" {
		t.Errorf("printed %s, said %s", out, notes)
	}
	for want, err := range map[codes.Code]error{codes.Unavailable: away, codes.DeadlineExceeded: late, codes.PermissionDenied: errEnd} {
		s := &Show{Mesh: meshOf(&asked{answers: []any{err}}, &bytes.Buffer{}), Out: &bytes.Buffer{}, Watch: true, Timeout: time.Minute}
		if err := s.Changes(t.Context()); status.Code(err) != want {
			t.Errorf("a mesh that never answered: %v, want %v", err, want)
		}
	}
	s := &Show{Mesh: meshOf(&asked{}, nil), Format: printer.YAML, Watch: true}
	if err := s.Dispatchers(t.Context()); err == nil || !strings.Contains(err.Error(), "use -o json") {
		t.Errorf("as YAML: %v", err)
	}
}
