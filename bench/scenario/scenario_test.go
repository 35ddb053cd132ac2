package scenario_test

import (
	"bytes"
	"encoding/json"
	"testing"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

func TestPodsAreAsLongAsTheyShallBe(t *testing.T) {
	for _, bytes := range []int{scenario.Small, scenario.Medium, scenario.Large} {
		pod, err := scenario.Scenario{Bytes: bytes}.Pod()
		if err != nil || len(pod) != bytes || !json.Valid(pod) {
			t.Errorf("%d bytes, %v, want %d", len(pod), err, bytes)
		}
	}
	if _, err := (scenario.Scenario{Bytes: 100}).Pod(); err == nil {
		t.Error("a Pod of 100 bytes is no error")
	}
}

func TestTheMessageAndTheJSONAreTheSameReview(t *testing.T) {
	s := scenario.Scenario{Stage: scenario.Validate, Hooks: 1, Hosts: 1, Bytes: scenario.Small}
	message, err := s.Request()
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Review()
	if err != nil {
		t.Fatal(err)
	}
	var review k8sadmissionv1.AdmissionReview
	if err := json.Unmarshal(text, &review); err != nil {
		t.Fatal(err)
	}
	switch r := review.Request; {
	case string(r.UID) != message.GetUid(), r.UserInfo.Username != message.GetUserInfo().GetUsername(),
		!bytes.Equal(r.Object.Raw, message.GetObject().GetRaw()), !bytes.Equal(r.Options.Raw, message.GetOptions().GetRaw()):
		t.Errorf("the message %v is not the review %s", message, text)
	}
}

func TestHooksAreDividedOverTheHosts(t *testing.T) {
	s := scenario.Scenario{Stage: scenario.Validate, Hooks: 8, Hosts: 8, Bytes: scenario.Small}
	seen := map[int]bool{}
	for i := range s.Hooks {
		seen[s.Host(i)] = true
	}
	if len(seen) != s.Hosts {
		t.Errorf("hooks on %d hosts, want %d", len(seen), s.Hosts)
	}
	if c := s.Validating(scenario.Nowhere); len(c.Webhooks) != 8 || *c.Webhooks[0].MatchPolicy != admissionregistrationv1.Equivalent {
		t.Errorf("not 8 hooks with Kubernetes' defaults: %+v", c.Webhooks)
	}
	if c := s.Mutating(scenario.Nowhere); len(c.Webhooks) != 8 || *c.Webhooks[0].TimeoutSeconds != 10 {
		t.Errorf("not 8 hooks with Kubernetes' defaults: %+v", c.Webhooks)
	}
}

func TestScenariosHaveNames(t *testing.T) {
	names := map[string]bool{}
	for _, s := range append(scenario.All(), scenario.Short()...) {
		names[s.String()] = true
	}
	if len(names) != len(scenario.All()) {
		t.Errorf("%d names for %d scenarios, of which the short ones are some", len(names), len(scenario.All()))
	}
	s := scenario.Scenario{Stage: scenario.Mutate, Hooks: 8, Hosts: 1, Bytes: scenario.Large}
	if got, want := s.String(), "mutate/1MB/8 hooks/1 host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
