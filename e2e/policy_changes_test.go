package e2e

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/e2e/kube"
)

// policyChanges is how often the hook changes from Ignore to Fail, and back.
const policyChanges = 20

// TestAHookThatChangesItsPolicySeesEachWrite changes the failurePolicy of a hook and applies the entries, again and again, while Pods
// are created: no write fails, and no write passes that the hook has not seen.
func TestAHookThatChangesItsPolicySeesEachWrite(t *testing.T) {
	const watching = "watching.example.com"
	hook := onPods(watching)
	r := newRoad(t, kube.Validating("watching", hook))
	hook.NamespaceSelector = kube.InNamespace(r.namespace)
	w := &witness{create: r.createDryName}
	r.host(t, func(h *hostsdk.Host) { h.Validate(watching, w.judge) })
	configure := func(policy admissionregistrationv1.FailurePolicyType) {
		t.Helper()
		hook.FailurePolicy = policy
		r.Configure(t, "initial", append(documents(t, kube.Validating("watching", hook)), clusterDocument(t))...)
	}
	register := r.entries(t)
	configure(admissionregistrationv1.Fail)
	register(" created")
	eventually(t, "the entries are in force", func() error { return w.sees(t.Context()) })

	flow := newTraffic(t, w.write)
	for i := range policyChanges {
		policy := admissionregistrationv1.Ignore
		if i%2 == 1 {
			policy = admissionregistrationv1.Fail
		}
		configure(policy)
		if i%3 == 0 {
			flow.await(t) // the dispatcher may know it before the API server, or behind it
		}
		register("")
		flow.await(t)
	}
	flow.wantNoFailure(t)
	t.Logf("%d Pods in %d changes of the policy", w.wantAll(t), policyChanges)
}
