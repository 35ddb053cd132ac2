package shadow

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func hookNamed(name string) match.HookID {
	return match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "c", Name: name}
}

// call is a call of hook h.
func call(cluster, namespace, user string, o Outcome, message string) *CallRecord {
	return &CallRecord{
		Cluster: cluster, Hook: hookNamed("h"), Subject: Subject{namespace, user}, Outcome: o, Took: time.Millisecond, Message: message,
		Reference: Reference{UID: "u", Operation: "CREATE", Resource: "pods", Name: "web"},
	}
}

// only returns the one record of a recorder.
func only(t *testing.T, r *Recorder) Hook {
	t.Helper()
	all := r.Hooks(Query{})
	if len(all) != 1 {
		t.Fatalf("%d records", len(all))
	}
	return all[0]
}

func TestCallsAreCountedByNamespaceAndUser(t *testing.T) {
	r := NewRecorder(0)
	for i, c := range []*CallRecord{
		call("a", "shop", "jane", Denied, "no tag"), call("a", "shop", "jane", Denied, "no tag"), call("a", "shop", "jane", Allowed, ""),
		call("a", "shop", "joe", Patched, ""), call("a", "", "joe", Failed, "gone"), call("a", "shop", "jane", Denied, "no owner"),
	} {
		c.Reference.UID = fmt.Sprint(i)
		r.Add(start.Add(time.Duration(i)*time.Minute), c)
	}
	dropped := call("a", "shop", "jane", Dropped, "")
	dropped.Took = 0
	r.Add(start.Add(6*time.Minute), dropped)

	at := func(first, last int) Seen {
		return Seen{start.Add(time.Duration(first) * time.Minute), start.Add(time.Duration(last) * time.Minute)}
	}
	latest := func(uid string) Reference {
		return Reference{UID: uid, Operation: "CREATE", Resource: "pods", Name: "web"}
	}
	jane, joe, nowhere := Subject{"shop", "jane"}, Subject{"shop", "joe"}, Subject{"", "joe"}
	want := Hook{
		Cluster: "a", Hook: hookNamed("h"), Hour: start, Counts: Counts{Allowed: 1, Patched: 1, Denied: 3, Failed: 1, Dropped: 1}, Seen: at(0, 6),
		Subjects: []SubjectCounts{
			{Subject: jane, Counts: Counts{Allowed: 1, Denied: 3, Dropped: 1}, Seen: at(0, 6)},
			{Subject: joe, Counts: Counts{Patched: 1}, Seen: at(3, 3)},
			{Subject: nowhere, Counts: Counts{Failed: 1}, Seen: at(4, 4)},
		},
		Cases: []Case{
			{Outcome: Denied, Subject: jane, Message: "no tag", Calls: 2, Seen: at(0, 1), Latest: latest("1")},
			{Outcome: Patched, Subject: joe, Calls: 1, Seen: at(3, 3), Latest: latest("3")},
			{Outcome: Failed, Subject: nowhere, Message: "gone", Calls: 1, Seen: at(4, 4), Latest: latest("4")},
			{Outcome: Denied, Subject: jane, Message: "no owner", Calls: 1, Seen: at(5, 5), Latest: latest("5")},
		},
	}
	got := only(t, r)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Hook{}, "Took")); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if n := got.Took.Count(); n != 6 {
		t.Errorf("the time of %d calls, want that of the 6 that were made", n)
	}
}

func TestSubjectsPastTheLimitAreCountedTogether(t *testing.T) {
	r := NewRecorder(0)
	for i := range MaxSubjects + 2 {
		r.Add(start, call("a", "shop", fmt.Sprint("user-", i), Denied, "no"))
	}
	r.Add(start, call("a", "shop", "user-0", Denied, "no"))
	h := only(t, r)
	if n := len(h.Subjects); n != MaxSubjects+1 {
		t.Fatalf("%d subjects", n)
	}
	if last := h.Subjects[MaxSubjects]; !last.Others || last.User != "" || last.Denied != 2 {
		t.Errorf("the others: %+v", last)
	}
	if first := h.Subjects[0]; first.Denied != 2 {
		t.Errorf("a subject that was known: %+v", first)
	}
}

func TestTheLatestCasesAreKept(t *testing.T) {
	r := NewRecorder(0)
	for i := range MaxCases {
		r.Add(start.Add(time.Duration(i)*time.Second), call("a", "shop", "jane", Denied, fmt.Sprint("rule ", i)))
	}
	r.Add(start, call("a", "shop", "jane", Failed, "gone"))
	if n := len(only(t, r).Cases); n != MaxCases+1 {
		t.Errorf("%d cases at the limit", n)
	}
	r.Add(start.Add(time.Minute), call("a", "shop", "jane", Denied, "rule 0")) // seen again
	r.Add(start.Add(time.Minute), call("a", "shop", "jane", Denied, "one more"))
	var messages []string
	for _, c := range only(t, r).Cases {
		messages = append(messages, c.Message)
	}
	if text := strings.Join(messages, ", "); len(messages) != MaxCases+1 || strings.Contains(text, "rule 1,") ||
		!strings.Contains(text, "rule 0,") || !strings.Contains(text, "one more") || !strings.Contains(text, "gone") {
		t.Errorf("cases: %s", text)
	}
}

func TestTextsAreCut(t *testing.T) {
	r := NewRecorder(0)
	c := call("a", strings.Repeat("n", MaxText+1), strings.Repeat("u", MaxText+1), Denied, strings.Repeat("m", MaxText-1)+"ä")
	c.Reference.Name = strings.Repeat("x", MaxText+1)
	r.Add(start, c)
	got := only(t, r).Cases[0]
	if len(got.Namespace) != MaxText || len(got.User) != MaxText || len(got.Message) != MaxText-1 || len(got.Latest.Name) != MaxText {
		t.Errorf("%d, %d, %d, %d bytes", len(got.Namespace), len(got.User), len(got.Message), len(got.Latest.Name))
	}
}

func TestHooksOfAnHourAreBounded(t *testing.T) {
	r := NewRecorder(0)
	for i := range MaxHooks + 1 {
		c := call("a", "shop", "jane", Allowed, "")
		c.Hook = hookNamed(fmt.Sprint("h", i))
		r.Add(start, c)
	}
	if n := len(r.Hooks(Query{})); n != MaxHooks {
		t.Errorf("%d hooks", n)
	}
	if n := len(r.Hooks(Query{Hook: "h7"})); n != 1 {
		t.Errorf("%d hooks of one name", n)
	}
}

func TestRecordsGoBackAWeek(t *testing.T) {
	r := NewRecorder(0)
	r.Add(start, call("a", "shop", "jane", Denied, "no"))
	r.Add(start.Add(Retention), call("a", "shop", "jane", Denied, "no"))
	if n := len(r.Hooks(Query{})); n != 2 {
		t.Errorf("%d hours at the end of the retention", n)
	}
	if n := len(r.Hooks(Query{Since: start.Add(time.Hour)})); n != 1 {
		t.Errorf("%d hours since the second", n)
	}
	r.Add(start.Add(Retention+time.Hour), call("a", "shop", "jane", Denied, "no"))
	if n := len(r.Hooks(Query{})); n != 2 {
		t.Errorf("%d hours past the retention", n)
	}
}

// TestAFloodOfOneClusterShortensItsOwnPast has one cluster write ever new messages of ever new users.
func TestAFloodOfOneClusterShortensItsOwnPast(t *testing.T) {
	const most = 1 << 18
	r := NewRecorder(most)
	r.Add(start, call("quiet", "shop", "jane", Denied, "no"))
	for i := range 20000 {
		c := call("loud", fmt.Sprint("ns-", i), fmt.Sprint("user-", i), Denied, strings.Repeat("x", 400)+fmt.Sprint(i))
		r.Add(start.Add(time.Duration(i)*15*time.Second), c)
		if n := r.log.Bytes(); n > most {
			t.Fatalf("%d bytes after %d calls", n, i)
		}
	}
	if len(r.Hooks(Query{Cluster: "quiet"})) != 1 {
		t.Error("the quiet cluster has lost its records")
	}
	if len(r.Hooks(Query{Cluster: "loud"})) == 0 {
		t.Error("the loud cluster has no records at all")
	}
	if d := r.Dropped(); len(d) != 1 || d["loud"].IsZero() {
		t.Errorf("dropped: %v", d)
	}
	r.Keep(nil)
	if n := r.log.Bytes(); n != 0 {
		t.Errorf("%d bytes of clusters that have gone", n)
	}
}

func TestWhatIsReturnedIsNotWrittenAgain(t *testing.T) {
	r := NewRecorder(0)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 300 {
				r.Add(start.Add(time.Duration(i)*time.Second), call("a", "shop", fmt.Sprint(w), Denied, fmt.Sprint(i%20)))
				for _, h := range r.Hooks(Query{}) {
					for _, c := range h.Cases {
						_ = c.Latest.UID + c.Message
					}
				}
			}
		})
	}
	all.Wait()
	if h := only(t, r); h.Denied != 1200 {
		t.Errorf("%d calls", h.Denied)
	}
}

func BenchmarkAdd(b *testing.B) {
	r, c := NewRecorder(0), call("a", "shop", "jane", Denied, "no tag")
	b.ReportAllocs()
	for b.Loop() {
		r.Add(start, c)
	}
}
