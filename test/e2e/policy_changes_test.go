package e2e

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// markAndFind are a mutating and a validating hook on the Pods of a namespace.
func markAndFind(namespace string, policy admissionregistrationv1.FailurePolicyType) []metav1.Object {
	mark, find := onPods(rolledMark), onPods(rolledFind)
	mark.NamespaceSelector, mark.FailurePolicy = kube.InNamespace(namespace), policy
	find.NamespaceSelector, find.FailurePolicy = kube.InNamespace(namespace), policy
	return []metav1.Object{kube.Mutating("mark", mark), kube.Validating("find", find)}
}

// newMarkedWitness makes Pods that markAndFind have to see. The mutating hook
// marks them, and the validating hook is the witness.
func newMarkedWitness(r *road) (*witness, []hostsdk.Hook) {
	w := &witness{create: r.createMarkedName}
	return w, []hostsdk.Hook{
		hostsdk.Validate(rolledFind, w.judge),
		hostsdk.Mutate(rolledMark, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Patch([]byte(markPatch)), nil
		}),
	}
}

// changing is a road on which markAndFind change their policy.
type changing struct {
	*road

	configure func(policy admissionregistrationv1.FailurePolicyType)
	// written returns when the entries match the configuration.
	written func()
}

// newChangingByCommand has a configuration in files, and a command that
// applies the entries.
func newChangingByCommand(t *testing.T) changing {
	t.Helper()
	r := newRoad(t)
	register, want := r.entries(t), " created"
	return changing{road: r, configure: func(policy admissionregistrationv1.FailurePolicyType) {
		t.Helper()
		r.Configure(t, "initial", append(documents(t, markAndFind(r.namespace, policy)...), clusterDocument(t))...)
	}, written: func() {
		t.Helper()
		register(want)
		want = ""
	}}
}

// newChangingByMesh has a configuration in a store, and two dispatchers of
// which one writes the entries.
func newChangingByMesh(t *testing.T) changing {
	t.Helper()
	k := newPairOfKeepers(t)
	return changing{road: k.road, configure: func(policy admissionregistrationv1.FailurePolicyType) {
		t.Helper()
		k.apply(t, documents(t, markAndFind(k.namespace, policy)...))
	}, written: func() {
		t.Helper()
		within(t, takeover, "the entries are those of the hooks", func() error { return k.has(t, "cluster", clusterName, "Registered", "True", "") })
	}}
}

// TestHooksThatChangeTheirPolicySeeEachWrite changes the failurePolicy of a
// mutating and of a validating hook, again and again, while Pods are created:
// no write fails, and each write that passes was seen by both hooks.
func TestHooksThatChangeTheirPolicySeeEachWrite(t *testing.T) {
	citest.Soak(t, "changes hooks 20 times under load: 4 minutes")
	for name, start := range map[string]func(*testing.T) changing{
		"a command applies the entries": newChangingByCommand,
		"the mesh keeps the entries":    newChangingByMesh,
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			w, hooks := newMarkedWitness(c.road)
			c.StartHost(t, hostName, hooks...)
			c.configure(admissionregistrationv1.Fail)
			c.written()
			within(t, takeover, "the entries are in force", func() error { return w.sees(t.Context()) })

			flow, changes := newTraffic(t, w.write), citest.Rounds(2, 4, 20)
			for i := range changes {
				policy := admissionregistrationv1.Ignore
				if i%2 == 1 {
					policy = admissionregistrationv1.Fail
				}
				c.configure(policy)
				if i%3 == 0 {
					flow.await(t) // a dispatcher may know it before the API server, or behind it
				}
				c.written()
				flow.await(t)
			}
			flow.wantNoFailure(t)
			t.Logf("%d Pods in %d changes of the policy", w.wantAll(t), changes)
		})
	}
}

// TestHooksThatAreRemovedAndAddedSeeEachWriteInBetween removes fail-closed
// hooks from the store and adds them again, while Pods are created: no write
// fails, and the hooks see each write that begins after the mesh has reported
// that they are in rotation on each dispatcher. Where other hooks bring the API server to send it
// these writes at all times, that is so at once. Else the API server has to
// learn of the entries first.
func TestHooksThatAreRemovedAndAddedSeeEachWriteInBetween(t *testing.T) {
	citest.Soak(t, "changes hooks 20 times under load: 13 minutes")
	for name, beside := range map[string]admissionregistrationv1.FailurePolicyType{
		"alone":                           "",
		"beside hooks that fail closed":   admissionregistrationv1.Fail,
		"beside hooks that are fail-open": admissionregistrationv1.Ignore,
	} {
		t.Run(name, func(t *testing.T) {
			k := newPairOfKeepers(t)
			w, hooks := newMarkedWitness(k.road)
			k.StartHost(t, hostName, hooks...)
			if beside != "" {
				k.stay(t, beside)
			}
			coming := documents(t, markAndFind(k.namespace, admissionregistrationv1.Fail)...)
			load, changes, total := newTraffic(t, k.createDry), citest.Rounds(2, 2, 20), 0
			for range changes {
				k.apply(t, coming)
				k.awaitMarkAndFind(t)
				if beside == "" {
					eventually(t, "the API server has learnt of the entries", func() error { return w.sees(t.Context()) })
				}
				judged := newTraffic(t, w.write)
				judged.await(t)
				judged.wantNoFailure(t)
				total = w.wantAll(t)
				k.remove(t, coming)
				load.await(t)
			}
			load.wantNoFailure(t)
			t.Logf("%d Pods while the hooks were in rotation, %d times", total, changes)
		})
	}
}

// awaitMarkAndFind returns when markAndFind are in rotation on each dispatcher.
func (k *pairOfKeepers) awaitMarkAndFind(t *testing.T) {
	t.Helper()
	for _, condition := range []string{"InRotation", "Effective"} { // in this order: putting a hook in rotation is a change that dispatchers learn of
		for kind, name := range map[string]string{"mwc": "mark", "vwc": "find"} {
			within(t, takeover, name+" is "+condition, func() error { return k.has(t, kind, name, condition, "True", "") })
		}
	}
}

// stay applies a mutating and a validating hook with a policy, which allow
// Pods at all times, and returns when the API server calls by their entries.
func (k *pairOfKeepers) stay(t *testing.T, policy admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	const name = "stays.example.com"
	mutating, validating := &witness{create: k.createDryName}, &witness{create: k.createDryName}
	k.StartHost(t, hostName, hostsdk.Mutate(name, mutating.judge), hostsdk.Validate(name, validating.judge))
	hook := onPods(name)
	hook.NamespaceSelector, hook.FailurePolicy = kube.InNamespace(k.namespace), policy
	k.apply(t, documents(t, kube.Mutating("stays-first", hook), kube.Validating("stays-last", hook)), "--wait", "--timeout="+takeover.String())
	for _, w := range []*witness{mutating, validating} {
		eventually(t, "the hooks that stay see Pods", func() error { return w.sees(t.Context()) })
	}
}
