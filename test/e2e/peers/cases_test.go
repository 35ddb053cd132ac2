package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/peers/checks"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// testCase is a Deployment that every side allows, or that every side denies.
type testCase struct {
	name           string
	allowed        bool
	object, review []byte
}

// testCases are a Deployment of 2 kB that is allowed, the first, and those that one check each denies.
func testCases(t *testing.T) []testCase {
	text, err := os.ReadFile("testdata/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	for _, c := range []struct {
		name   string
		change func(*appsv1.Deployment)
	}{
		{"allowed", func(*appsv1.Deployment) {}},
		{"no tag", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Image = "registry.example.com:5000/app" }},
		{"latest", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.InitContainers[0].Image = "registry.example.com/app:latest"
		}},
		{"no label", func(d *appsv1.Deployment) { delete(d.Labels, "team") }},
		{"privileged", func(d *appsv1.Deployment) {
			s := d.Spec.Template.Spec.Containers[0].SecurityContext
			s.Privileged, s.AllowPrivilegeEscalation = ptr.To(true), nil
		}},
		{"many replicas", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](checks.MostReplicas + 1) }},
	} {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(text, &d); err != nil {
			t.Fatal(err)
		}
		c.change(&d)
		object, err := json.Marshal(&d)
		if err != nil {
			t.Fatal(err)
		}
		review, err := json.Marshal(reviewOf(object, d.Name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, testCase{name: c.name, allowed: len(all) == 0, object: object, review: review})
	}
	return all
}

// reviewOf is the review of a dry-run creation, as kube-apiserver sends it.
func reviewOf(object []byte, name string) admissionv1.AdmissionReview {
	kind := metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	resource := metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	return admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "7f0c9a0e-5d0f-4f3a-9f3e-1c1b9d5b8a10", Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: name, Namespace: metav1.NamespaceDefault, Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: "e2e-admin", Groups: []string{"system:masters", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object}, DryRun: ptr.To(true),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"],"fieldManager":"peers"}`)},
		},
	}
}

// target is where requests are sent: AdmissionReviews, or objects that are written.
type target struct {
	url    string
	client *http.Client
	writes bool
}

// newTarget calls url as the holder of a certificate, over connections of HTTP/1.1 that are kept.
func newTarget(t *testing.T, c *kube.Cluster, url string, authority []byte, name string, groups ...string) *target {
	pair, err := c.Authority().Client(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return targetWith(t, url, authority, pair)
}

func targetWith(t *testing.T, url string, authority []byte, pair pki.Pair) *target {
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		t.Fatalf("no authority of %s", url)
	}
	const mostIdle = 512 // more than there are callers
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{cert}}, MaxIdleConnsPerHost: mostIdle,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &target{url: url, client: &http.Client{Transport: transport}}
}

// judge sends a case, and returns whether it was allowed.
func (r *target) judge(ctx context.Context, asked testCase) (bool, error) {
	body := asked.review
	if r.writes {
		body = asked.object
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	if r.writes {
		return writeAllowed(response.StatusCode, answer)
	}
	var review struct {
		Response struct {
			Allowed *bool `json:"allowed"`
		} `json:"response"`
	}
	if err := json.Unmarshal(answer, &review); err != nil || review.Response.Allowed == nil {
		return false, fmt.Errorf("%s: no verdict in %s", response.Status, answer)
	}
	return *review.Response.Allowed, nil
}

// writeAllowed is whether kube-apiserver took the object.
func writeAllowed(status int, answer []byte) (bool, error) {
	switch status {
	case http.StatusCreated:
		return true, nil
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity:
		if bytes.Contains(answer, []byte("denied")) {
			return false, nil
		}
	}
	return false, fmt.Errorf("%d: %s", status, answer)
}
