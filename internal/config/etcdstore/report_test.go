package etcdstore_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// reportBefore is a report as a dispatcher before the field "status" writes it.
const reportBefore = `{
"id":"d1","hostAddresses":["10.0.0.7:8444"],"version":"v1.0.0","digest":"d","sources":{"etcd":"12"},"held":9007199254740993,
"begun":"2026-01-02T03:04:04.25Z","judging":true,"diverging":["HookRoute/r"],
"pending":[{"object":"HookRoute/r","hook":"h","reason":"HostNotReady","message":"the cache is cold"}],
"unserved":[{"object":"HookRoute/r","hook":"h"}],"unservedMore":2,
"entryDrifts":[{"cluster":"east","unplanned":[{"object":"HookRoute/r","hook":"h"}],"unplannedMore":3,"gone":4,"bypass":true}],
"entriesUnseen":["west"],
"entriesBehind":[{"cluster":"north","message":"it is away","failed":true,"unread":true,"lacking":["HookRoute/r"],"lackingMore":5}],
"entriesBehindMore":["south"],"entriesWider":[{"cluster":"north","message":"old"}],
"follows":[{"cluster":"east","followed":6,"others":[{"object":"HookRoute/o","waiting":true,"message":"soon"}],"othersMore":7,"error":"unreachable"}],
"staleUntil":"2026-01-02T04:00:00Z","said":"2026-01-02T03:04:05.5Z"}`

func TestTwoVersionsOfDispatchersReadTheReportsOfEachOther(t *testing.T) {
	e := newEtcd(t)
	const key = etcdstore.DefaultPrefix + "dispatchers/d1"
	report := func(value string) *configv1.DispatcherReport {
		t.Helper()
		if _, err := e.client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		all, err := e.Dispatchers(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("reports %v: %v", all, err)
		}
		return all[0]
	}
	read := report(reportBefore)
	if s := read.GetStatus(); s.GetHeld() != "9007199254740993" || s.GetConfigAgeMs() != 1250 || s.GetApplied().GetSources()["etcd"] != "12" {
		t.Errorf("status %v", s)
	}
	written, err := etcdstore.EncodeReport(read)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read, report(string(written)), protocmp.Transform()); diff != "" {
		t.Errorf("read after it was written (-want +got):\n%s", diff)
	}
	fields := func(text string) (f map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		delete(f, "status")
		return f
	}
	if diff := cmp.Diff(fields(reportBefore), fields(string(written))); diff != "" {
		t.Errorf("the version before reads (-want +got):\n%s", diff)
	}
	if got := report(`{"maxAge":60000000000,"newer":{},"status":{"held":"9","newer":1}}`); got.GetStatus().GetHeld() != "9" {
		t.Errorf("fields of other versions are not skipped: %v", got)
	}
}

func TestAReportIsTheSameUntilMoreThanItsTimeChanges(t *testing.T) {
	e := newEtcd(t)
	if _, err := e.client.Put(t.Context(), etcdstore.DefaultPrefix+"dispatchers/d1", reportBefore); err != nil {
		t.Fatal(err)
	}
	all, err := e.Dispatchers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*configv1.DispatcherReport){
		"":       func(r *configv1.DispatcherReport) { r.Status.Said, r.Status.ConfigAgeMs = nil, 7 },
		"status": func(r *configv1.DispatcherReport) { r.Status.Held = "8" },
		"others": func(r *configv1.DispatcherReport) { r.EntriesBehind[0].Lacking = nil },
		"none":   func(r *configv1.DispatcherReport) { proto.Reset(r) },
	} {
		changed := proto.CloneOf(all[0])
		change(changed)
		if got := etcdstore.SameReport(all[0], changed); got != (name == "") {
			t.Errorf("%q: the same: %t", name, got)
		}
	}
	if etcdstore.SameReport(all[0], nil) {
		t.Error("the same as none")
	}
}
