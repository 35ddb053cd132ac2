package service_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// TestAnAuthorFillsTheStoreForNobodyElse writes one object again and again, as an author, and as the mesh for a followed object of a cluster, until
// each has written its share of the bytes within the retention.
func TestAnAuthorFillsTheStoreForNobodyElse(t *testing.T) {
	now := time.Unix(1000, 0)
	usage := &etcdstore.Usage{Quota: 1000}
	f := newFixture(t, func(o *service.Options) {
		var err error
		o.Written, err = etcdstore.NewWriteBudget(etcdstore.WriteBudgetOptions{
			Total: 1 << 20, Retention: time.Minute, QuotaPercent: 75, Usage: func() *etcdstore.Usage { return usage }, Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	f.applied("root", rolesOfPeople)
	version := 0
	large := func(name string) string { // another one each time
		version++
		return policy(name, fmt.Sprintf("matchConditions: [{name: c, expression: \"'%d%s' != ''\"}]", version, strings.Repeat("x", 10<<10)))
	}
	writes := func(write func() error) (n int) {
		t.Helper()
		for range 200 {
			switch err := write(); {
			case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "within 1m0s"):
				return n
			case err != nil:
				t.Fatal(err)
			}
			n++
		}
		t.Fatalf("%d writes, and none is refused", n)
		return n
	}
	apply := func(who, name string) func() error {
		return func() error { _, err := f.apply(who, large(name)); return err }
	}
	if n := writes(apply("author", "team-p")); n < 30 || n > 50 { // half of the bytes
		t.Errorf("an author writes %d times", n)
	}
	f.refused(codes.ResourceExhausted, `"author" has written`, "author", large("team-p"))
	f.applied("author", large("team-p"), dryRun)
	key := config.Key{Kind: "ValidatingWebhookConfiguration", Name: "team-p"}
	deleting := func(who string) error {
		_, err := f.Delete(f.as(who), &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: key.Kind, Name: key.Name}})
		return err
	}
	if err := deleting("author"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("an author writes by a deletion: %v", err)
	}
	writer := f.Writer("follower")
	if n := writes(func() error {
		_, err := writer.Apply(t.Context(), "east", applyOf(large("followed.east.p")))
		return err
	}); n < 10 || n > 30 { // half of the rest
		t.Errorf("the mesh writes %d times for a cluster", n)
	}
	for range 60 {
		f.applied("root", large("p"))
		f.applied("operator", large("q"))
	}
	now = now.Add(time.Minute)
	f.applied("author", large("team-p"))
	usage.InUse = 751
	f.refused(codes.ResourceExhausted, "the store has 751 bytes in use", "author", large("team-p"))
	f.applied("operator", large("q"))
	if err := deleting("operator"); err != nil {
		t.Error(err)
	}
}
