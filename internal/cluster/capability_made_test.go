package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func keysOf(t *testing.T, lines ...string) *identity.CapabilityKeys {
	t.Helper()
	keys, err := identity.ParseCapabilityKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// rotated is the document of the cluster prod-1, whose capabilities the mesh makes.
func rotated(secrets ...identity.Capability) *kinds.Cluster {
	d := capable("prod-1", secrets...)
	d.Spec.RotateCapability = "1h"
	return d
}

// TestACapabilityThatTheMeshMadeIsAcceptedWhereTheDocumentSaysSo: by each key, until its end, for its own cluster.
func TestACapabilityThatTheMeshMadeIsAcceptedWhereTheDocumentSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := identity.NewCapabilityKey(), identity.NewCapabilityKey()
		var keys atomic.Pointer[identity.CapabilityKeys]
		r := New(Options{CapabilityKeys: keys.Load})
		byHand := secrets(1)[0]
		r.Update([]*kinds.Cluster{rotated(byHand), capable("prod-2")})
		end := time.Now().Add(4 * time.Hour)
		made := keysOf(t, a).Make("prod-1", end)
		want := func(what string, shown identity.Capability, cluster string, want error) {
			t.Helper()
			if err := r.AuthorizeCapability(shown, cluster); !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		want("without keys", made, "prod-1", ErrUnknownCapability)
		keys.Store(keysOf(t, a))
		want("by its key", made, "prod-1", nil)
		want("made by hand", byHand, "prod-1", nil)
		want("for a cluster that does not ask for it", keysOf(t, a).Make("prod-2", end), "prod-2", ErrUnknownCapability)
		want("of another cluster", keysOf(t, a).Make("prod-2", end), "prod-1", ErrUnknownCapability)
		want("for a cluster that there is not", keysOf(t, a).Make("prod-3", end), "prod-3", ErrUnknownCluster)
		want("of a key that is not known yet", keysOf(t, b).Make("prod-1", end), "prod-1", ErrUnknownCapability)
		keys.Store(keysOf(t, b, a))
		want("by the second key", made, "prod-1", nil)
		longer := rotated()
		longer.Spec.RotateCapability = "720h"
		r.Update([]*kinds.Cluster{longer})
		want("after the period is another one", made, "prod-1", nil)
		<-time.After(4 * time.Hour)
		want("at its last moment", made, "prod-1", nil)
		<-time.After(time.Second)
		want("after its end", made, "prod-1", ErrCapabilityExpired)
		keys.Store(keysOf(t, b))
		want("of a key that was removed", keysOf(t, a).Make("prod-1", end.Add(time.Hour)), "prod-1", ErrUnknownCapability)
		r.Update([]*kinds.Cluster{capable("prod-1")})
		want("after the document has ended it", keysOf(t, b).Make("prod-1", end.Add(time.Hour)), "prod-1", ErrUnknownCapability)
	})
}

func TestCapabilitiesThatTheMeshMakesAreInTheMetrics(t *testing.T) {
	a, b := identity.NewCapabilityKey(), identity.NewCapabilityKey()
	var keys atomic.Pointer[identity.CapabilityKeys]
	both := keysOf(t, a, b)
	keys.Store(both)
	r := New(Options{CapabilityKeys: keys.Load})
	r.Update([]*kinds.Cluster{rotated(), capable("prod-2")})
	end := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 2 {
		_ = r.AuthorizeCapability(both.Make("prod-1", end), "prod-1")
	}
	r.Update([]*kinds.Cluster{rotated()}) // goes on counting
	_ = r.AuthorizeCapability(keysOf(t, b).Make("prod-1", end.Add(time.Hour)), "prod-1")
	want := func(first string, counts ...string) {
		t.Helper()
		text := "# HELP portcullis_capability_expiration_timestamp_seconds When a capability of a cluster expires, in seconds since 1970; " +
			"absent if it does not expire.\n# TYPE portcullis_capability_expiration_timestamp_seconds gauge\n" + first +
			"# HELP portcullis_capability_reviews_total Reviews that came by a capability of a cluster. A replaced capability may be removed when " +
			"this stands still.\n# TYPE portcullis_capability_reviews_total counter\n" + strings.Join(counts, "")
		if err := testutil.CollectAndCompare(r, strings.NewReader(text), capabilityExpiryMetric, capabilityReviewsMetric); err != nil {
			t.Error(err)
		}
	}
	line := func(metric, key string, value float64) string {
		return fmt.Sprintf("%s{cluster=\"prod-1\",name=\"key:%s\"} %v\n", metric, key, value)
	}
	names := both.Names()
	expiry := line(capabilityExpiryMetric, names[1], float64(end.Add(time.Hour).Unix()))
	want(expiry, line(capabilityReviewsMetric, names[0], 2), line(capabilityReviewsMetric, names[1], 1))
	keys.Store(keysOf(t, b))
	want(expiry, line(capabilityReviewsMetric, names[1], 1))
}

// BenchmarkAuthorizeCapability is the cost of a capability that the mesh made, with as many keys as there may be.
func BenchmarkAuthorizeCapability(b *testing.B) {
	lines := make([]string, identity.MaxCapabilityKeys)
	for i := range lines {
		lines[i] = identity.NewCapabilityKey()
	}
	keys, err := identity.ParseCapabilityKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		b.Fatal(err)
	}
	r := New(Options{CapabilityKeys: func() *identity.CapabilityKeys { return keys }})
	r.Update([]*kinds.Cluster{rotated()})
	made := keys.Make("prod-1", time.Now().Add(time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.AuthorizeCapability(made, "prod-1"); err != nil {
			b.Fatal(err)
		}
	}
}
