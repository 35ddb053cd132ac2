package scenario_test

import (
	"bytes"
	"encoding/json"
	"testing"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
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
	for _, deleting := range []bool{false, true} {
		s := scenario.Scenario{Stage: scenario.Validate, Hooks: 1, Hosts: 1, Bytes: scenario.Small, Deleting: deleting}
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
			string(r.Operation) != message.GetOperation(), r.Name != message.GetName(), deleting != (message.GetObject() == nil),
			!bytes.Equal(r.Object.Raw, message.GetObject().GetRaw()), !bytes.Equal(r.OldObject.Raw, message.GetOldObject().GetRaw()),
			!bytes.Equal(r.Options.Raw, message.GetOptions().GetRaw()):
			t.Errorf("the message %v is not the review %s", message, text)
		}
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
}

func TestConfigurationsHaveTheDefaultsOfKubernetes(t *testing.T) {
	s := scenario.Scenario{Stage: scenario.Validate, Hooks: 8}
	validating, none := s.Configurations(scenario.Nowhere)
	if len(none) > 0 || len(validating) != 1 || len(validating[0].Webhooks) != 8 ||
		*validating[0].Webhooks[0].MatchPolicy != admissionregistrationv1.Equivalent {
		t.Errorf("not 8 validating hooks: %+v", validating)
	}
	s.Stage = scenario.Mutate
	nobody, mutating := s.Configurations(scenario.Nowhere)
	if len(nobody) > 0 || len(mutating) != 1 || len(mutating[0].Webhooks) != 8 || *mutating[0].Webhooks[0].TimeoutSeconds != 10 {
		t.Errorf("not 8 mutating hooks: %+v", mutating)
	}
}

func TestOfManyHooksOnlySomeAskForTheCreationOfPods(t *testing.T) {
	validating, _ := scenario.Among().Configurations(scenario.Nowhere)
	all, matching, names := 0, 0, map[string]bool{}
	for _, c := range validating {
		for _, h := range c.Webhooks {
			all++
			names[h.Name] = true
			rule := h.Rules[0]
			if rule.Operations[0] == admissionregistrationv1.Create && rule.Resources[0] == "pods" {
				matching++
			}
		}
	}
	if all != 10_000 || len(names) != all || matching != 8 {
		t.Errorf("%d hooks with %d names, of which %d match", all, len(names), matching)
	}
}

func TestOnlyTheFirstReplicaIsSlow(t *testing.T) {
	s := scenario.Replicas(true, true)
	if s.Wait(0) != 10*s.Wait(1) || s.Wait(1) != s.Wait(2) || scenario.Replicas(false, true).Wait(0) != s.Wait(1) {
		t.Errorf("replicas take %s, %s and %s", s.Wait(0), s.Wait(1), s.Wait(2))
	}
}

func TestScenariosHaveNames(t *testing.T) {
	for want, s := range map[string]scenario.Scenario{
		"mutate/1MB/8 hooks/1 host":                                {Stage: scenario.Mutate, Hooks: 8, Hosts: 1, Bytes: scenario.Large},
		"validate/2kB/8 hooks/8 hosts/10000 configured":            scenario.Among(),
		"mutate/2kB/8 hooks/8 hosts/1 patching":                    scenario.Patching(1),
		"mutate/2kB/8 hooks/8 hosts/5ms/speculate":                 scenario.Taking(8, true),
		"validate/2kB/1 hook/1 host/2ms/3 replicas/one 20ms/hedge": scenario.Replicas(true, true),
		"validate/2kB/1 hook/1 host/rust":                          scenario.Policy("rust", scenario.Small, false),
		"validate/20kB/1 hook/1 host/go/delete":                    scenario.Policy("go", scenario.Medium, true),
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
