package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

func TestTheSlotsOfEachReplicaAreMetricsWhileItIsConnected(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		metrics := newReplicaMetrics(m.router)
		want := func(series ...string) {
			t.Helper()
			text := "# HELP portcullis_host_replica_slots Calls that a replica takes at a time: its credit.\n# TYPE portcullis_host_replica_slots gauge\n" +
				strings.Join(series, "\n") + "\n"
			if len(series) == 0 {
				text = ""
			}
			if err := testutil.CollectAndCompare(metrics, strings.NewReader(text), "portcullis_host_replica_slots"); err != nil {
				t.Error(err)
			}
		}
		want()
		one := m.connect("one", &hostv1.Hello{MaxOutstanding: 3}, "a")
		m.connect("idle", &hostv1.Hello{MaxOutstanding: 2}, "unknown")
		m.review("a")
		want(fmt.Sprintf(`portcullis_host_replica_slots{host=%q,replica="one"} 3`, replicasOf(m.router.all())[0].host))
		for _, x := range replicasOf(m.router.all()) {
			if len(x.sessions) != 1 || x.sessions[0].UsedSlots() != 1 {
				t.Errorf("replica %s has %d sessions, want one with a used slot", x.instance, len(x.sessions))
			}
		}
		one.cancel()
		elapse(time.Second)
		want()
	})
}

func TestReplicasOfOneHostLeaveSeriesToThoseOfOthers(t *testing.T) {
	at := func(host string, second int) *replica {
		return &replica{host: host, instance: fmt.Sprint(second), joined: time.Unix(int64(second), 0)}
	}
	all := []*replica{at("many", 4), at("many", 3), at("many", 2), at("many", 1), at("few", 9)}
	var got []string
	for _, x := range shareSeries(all, 3) {
		got = append(got, x.host+" "+x.instance)
	}
	if text := strings.Join(got, ", "); text != "few 9, many 1, many 2" {
		t.Errorf("the replicas with series are %s", text)
	}
}
