package cluster

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// capable is the document of a cluster with capabilities, named a, b, c ...
func capable(name string, secrets ...identity.Capability) *kinds.Cluster {
	d := document(name, nil)
	for i, secret := range secrets {
		sum := secret.Sum()
		d.Spec.Capabilities = append(d.Spec.Capabilities, kinds.Capability{Name: string(rune('a' + i)), SHA256: hex.EncodeToString(sum[:])})
	}
	return d
}

func secrets(n int) (all []identity.Capability) {
	for range n {
		all = append(all, identity.NewCapability())
	}
	return all
}

func TestAuthorizeCapability(t *testing.T) {
	own, others := secrets(kinds.MaxCapabilities), secrets(1)
	r := New(Options{})
	r.Update([]*kinds.Cluster{capable("prod-1", own...), capable("prod-2", others...), document("none", nil, "kube-apiserver")})
	for i, c := range own {
		if err := r.AuthorizeCapability(c, "prod-1"); err != nil {
			t.Errorf("capability %d: %v", i, err)
		}
	}
	for _, tc := range []struct {
		what, cluster string
		shown         identity.Capability
		want          error
	}{
		{"another cluster's", "prod-1", others[0], ErrUnknownCapability},
		{"this one's, elsewhere", "prod-2", own[0], ErrUnknownCapability},
		{"no cluster's", "prod-1", identity.NewCapability(), ErrUnknownCapability},
		{"none", "prod-1", identity.Capability{}, ErrUnknownCapability},
		{"that of a cluster without any", "none", own[0], ErrUnknownCapability},
		{"none for a cluster without any", "none", identity.Capability{}, ErrUnknownCapability},
		{"of an unknown cluster", "prod-3", own[0], ErrUnknownCluster},
	} {
		err := r.AuthorizeCapability(tc.shown, tc.cluster)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
		if want := fmt.Sprintf(`identity "" may not send reviews of cluster %q`, tc.cluster); err == nil || err.Error() != want {
			t.Errorf("%s: the text tells the reason: %v", tc.what, err)
		}
	}
	for reason, want := range map[string]float64{"unknown": 6, "unknown_cluster": 1, "expired": 0} {
		if got := testutil.ToFloat64(r.refused.WithLabelValues(reason)); got != want {
			t.Errorf("%v refused as %s, want %v", got, reason, want)
		}
	}
	r.Update([]*kinds.Cluster{capable("prod-1", own[1])})
	if err := r.AuthorizeCapability(own[0], "prod-1"); !errors.Is(err, ErrUnknownCapability) {
		t.Errorf("after it was removed: %v", err)
	}
	if err := r.AuthorizeCapability(own[1], "prod-1"); err != nil {
		t.Errorf("beside the removed one: %v", err)
	}
}

func TestACapabilityIsAcceptedUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := secrets(1)
		d := capable("prod-1", c...)
		d.Spec.Capabilities[0].NotAfter = time.Now().Add(time.Hour).Format(time.RFC3339)
		r := New(Options{})
		r.Update([]*kinds.Cluster{d})
		<-time.After(time.Hour)
		if err := r.AuthorizeCapability(c[0], "prod-1"); err != nil {
			t.Errorf("at its last moment: %v", err)
		}
		<-time.After(1)
		if err := r.AuthorizeCapability(c[0], "prod-1"); !errors.Is(err, ErrCapabilityExpired) {
			t.Errorf("afterwards: %v", err)
		}
		if got := testutil.ToFloat64(r.refused.WithLabelValues("expired")); got != 1 {
			t.Errorf("%v refused as expired, want 1", got)
		}
	})
}

func TestCapabilitiesAreInTheMetrics(t *testing.T) {
	c := secrets(3)
	d := capable("prod-1", c[:2]...)
	d.Spec.Capabilities[1].NotAfter = "2027-01-31T00:00:00Z"
	r := New(Options{})
	r.Update([]*kinds.Cluster{d})
	for range 3 {
		_ = r.AuthorizeCapability(c[0], "prod-1")
	}
	_ = r.AuthorizeCapability(c[2], "prod-1") // is refused
	changed := capable("prod-1", c[0], c[2])  // b is another one now
	for _, step := range []struct {
		expiry string
		counts [2]int
	}{{`portcullis_capability_expiration_timestamp_seconds{cluster="prod-1",name="b"} 1.8013536e+09`, [2]int{3, 0}}, {"", [2]int{3, 1}}} {
		want := fmt.Sprintf(`# HELP portcullis_capability_reviews_total Reviews that came by a capability of a cluster. A replaced capability may be removed when this stands still.
# TYPE portcullis_capability_reviews_total counter
portcullis_capability_reviews_total{cluster="prod-1",name="a"} %d
portcullis_capability_reviews_total{cluster="prod-1",name="b"} %d
`, step.counts[0], step.counts[1])
		if step.expiry != "" {
			want = "# HELP portcullis_capability_expiration_timestamp_seconds When a capability of a cluster expires, in seconds since 1970; " +
				"absent if it does not expire.\n# TYPE portcullis_capability_expiration_timestamp_seconds gauge\n" + step.expiry + "\n" + want
		}
		if err := testutil.CollectAndCompare(r, strings.NewReader(want), capabilityExpiryMetric, capabilityReviewsMetric); err != nil {
			t.Error(err)
		}
		r.Update([]*kinds.Cluster{changed})
		_ = r.AuthorizeCapability(c[2], "prod-1")
	}
}
