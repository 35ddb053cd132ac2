package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	victimName = "victim" // its cluster, its API server and its host
	victimHook = "policy.victim.example"
	// perSecond is how many reviews it sends in a second.
	perSecond = 50
	// handling is how long its hook takes.
	handling = 5 * time.Millisecond
)

// victimDocuments are its cluster and its hook.
func victimDocuments() []string {
	return []string{
		mesh.Cluster(victimName, victimName, ""),
		validating(victimName, victimHook, "failurePolicy: Fail, timeoutSeconds: 10"),
		routeIn(victimName, victimName, victimName),
	}
}

// validating is a configuration with one hook for Pods, with further fields.
func validating(name, hook, fields string) string {
	return configuration("Validating", name, hook, fields)
}

// configuration is a webhook configuration with one hook for Pods, with further fields.
func configuration(kind, name, hook, fields string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: %sWebhookConfiguration
metadata: {name: %s}
webhooks:
- {name: %s, admissionReviewVersions: [v1], sideEffects: None, rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}], %s}
`, kind, name, hook, fields)
}

// routeIn has a host serve the hooks of a configuration in a cluster.
func routeIn(configuration, host, cluster string) string {
	return fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: %s}
spec: {configuration: %[1]s, stream: {}, hosts: [%s], clusters: [%s]}
`, configuration, host, cluster)
}

// victim is a tenant that minds its own business.
type victim struct {
	caller *mesh.Caller
	url    string
}

// newVictim starts its host. Its hook denies the objects that are to be denied.
func newVictim(t *testing.T, a *arena) *victim {
	t.Helper()
	a.Host(t, victimName, hostsdk.Validate(victimHook, func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		<-time.After(handling)
		if r.Name() == "denied" {
			return hostsdk.Deny("no"), nil
		}
		return hostsdk.Allow(), nil
	}))
	return &victim{caller: a.caller(t, victimName), url: a.dispatcher.URL(victimName, "validate")}
}

// caller sends reviews with the identity of an API server.
func (a *arena) caller(t testing.TB, name string) *mesh.Caller {
	t.Helper()
	return mesh.NewCaller(t, a.Authority().Pool(), a.certificate(t, name), true)
}

// certificate is the certificate of an API server.
func (a *arena) certificate(t testing.TB, name string) tls.Certificate {
	t.Helper()
	pair, err := a.callers.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// latencies are sorted.
type latencies []time.Duration

// of is a percentile, in ms.
func (l latencies) of(percent int) string {
	if len(l) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(l[min(len(l)*percent/100, len(l)-1)].Microseconds())/1000)
}

// review sends reviews for a time, whether the ones before are answered or not. Each has to be judged as the hook says.
func (v *victim) review(t *testing.T, length time.Duration) latencies {
	t.Helper()
	var (
		mu      sync.Mutex
		all     latencies
		reviews sync.WaitGroup
		tick    = time.NewTicker(time.Second / perSecond)
	)
	defer tick.Stop()
	for n, end := 0, time.Now().Add(length); time.Now().Before(end); n++ {
		<-tick.C
		reviews.Go(func() {
			begun := time.Now()
			err := v.one(t.Context(), n%2 == 0)
			took := time.Since(begun)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took)
			if err != nil {
				t.Errorf("after %v: %v", took, err)
			}
		})
	}
	reviews.Wait()
	slices.Sort(all)
	return all
}

// one sends a review that has to be allowed, or denied.
func (v *victim) one(ctx context.Context, allowed bool) error {
	name := map[bool]string{true: "allowed", false: "denied"}[allowed]
	answer, err := v.caller.Review(ctx, v.url, podRequest(name, nil))
	if err == nil && answer.Allowed != allowed {
		err = fmt.Errorf("a Pod that is to be %s: %+v", name, answer)
	}
	return err
}

// podRequest is the creation of a Pod.
func podRequest(name string, labels map[string]string) *admissionv1.AdmissionRequest {
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	pod := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
	}
	return &admissionv1.AdmissionRequest{
		UID: uuid.NewUUID(), Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
		Name: name, Namespace: "default", Operation: admissionv1.Create, Object: runtime.RawExtension{Object: pod},
	}
}
