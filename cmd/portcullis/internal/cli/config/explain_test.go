package config

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// noon is now, in these tests.
var noon = time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(-d)) }

// troubled is an object about which there is much to say.
func troubled() *explained {
	return &explained{
		object: &configv1.ConfigObject{
			Key:    &configv1.ConfigKey{Kind: "ValidatingWebhookConfiguration", Name: "policy"},
			Source: "etcd", Generation: 3, ResourceVersion: "57", Actor: "ann", Changed: before(90 * time.Second),
			Acknowledged: map[string]string{"danger-leases": "ann"},
			Conditions: []*configv1.Condition{
				{Type: "Accepted", Status: "True", Reason: "Valid"},
				{Type: "InRotation", Status: "True", Reason: "Immediate"},
				{Type: "Effective", Status: "False", Reason: "Diverging", Message: "an older version is in force in: two", Dispatchers: []string{"two", "three"}},
			},
			Findings: []*configv1.Finding{
				{Code: "danger-leases", Severity: "danger", Path: "webhooks[0]", Message: "the hook fails closed on leases"},
				{Code: "kept", Severity: "warning", Message: "the last good version stays in force:\x1b[2J mend it"},
			},
		},
		dispatchers: []*configv1.DispatcherStatus{
			{DispatcherId: "one", Judging: true, Applied: &configv1.Revision{Sources: map[string]string{"etcd": "57"}}, Held: "57", Said: before(time.Second)},
			{
				DispatcherId: "two", Judging: true, Applied: &configv1.Revision{Sources: map[string]string{"etcd": "57"}},
				Diverging: []string{"ValidatingWebhookConfiguration/policy"}, Held: "41", Said: before(2 * time.Second),
			},
			{
				DispatcherId: "three", Applied: &configv1.Revision{Sources: map[string]string{"etcd": "41"}}, Said: before(time.Minute),
				ServesStaleUntil: timestamppb.New(noon.Add(time.Hour)),
			},
		},
		changes: []*configv1.Change{{
			Revision: "57", At: before(90 * time.Second), Actor: "ann", Actions: []string{"updated ValidatingWebhookConfiguration/policy"}, Acknowledged: []string{"danger-leases"},
		}},
	}
}

func TestExplainSaysWhatIsInTheWay(t *testing.T) {
	clitest.Golden(t, "explain.txt", troubled().text(noon))
	file := &explained{object: &configv1.ConfigObject{
		Key: &configv1.ConfigKey{Kind: "Role", Name: "r"}, Source: "directory", Origin: "conf.d/r.yaml:3",
		Conditions: []*configv1.Condition{{Type: "Effective", Status: "Unknown", Reason: "NoDispatcher", Message: "no dispatcher says that it lives"}},
	}}
	clitest.Golden(t, "explain-file.txt", file.text(noon))
}

func TestTheFirstThingInTheWayIsTheVerdict(t *testing.T) {
	not := func(kind string) *configv1.Condition {
		return &configv1.Condition{Type: kind, Status: "False", Reason: "Why", Message: "do this"}
	}
	for name, tc := range map[string]struct {
		object *configv1.ConfigObject
		want   string
	}{
		"all is well":                           {&configv1.ConfigObject{Conditions: []*configv1.Condition{{Type: "Accepted", Status: "True"}}}, "is in force everywhere"},
		"an invalid object":                     {&configv1.ConfigObject{Conditions: []*configv1.Condition{not("Effective"), not("InRotation"), not("Accepted")}}, "is not valid (Why): do this"},
		"an object that is not called":          {&configv1.ConfigObject{Conditions: []*configv1.Condition{not("Effective"), not("InRotation")}}, "is not called (Why): do this"},
		"an object that other dispatchers lack": {&configv1.ConfigObject{Conditions: []*configv1.Condition{not("Effective")}}, "is not in force everywhere (Why): do this"},
		"an object without a host":              {&configv1.ConfigObject{Conditions: []*configv1.Condition{not("Served")}}, "is in force everywhere, and not served (Why): do this"},
		"entries of before":                     {&configv1.ConfigObject{Conditions: []*configv1.Condition{not("Registered")}}, "is in force everywhere, and its entries are not known to be (Why): do this"},
		"an object that is being removed":       {&configv1.ConfigObject{Removing: true, Conditions: []*configv1.Condition{not("Accepted")}}, "is being removed: no review begins with it any more, and reviews that began with it are finished first"},
	} {
		if got := (&explained{object: tc.object}).verdict(); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
