package mesh

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// callTimeout bounds one call: that much later than the mesh itself gives up.
const callTimeout = 40 * time.Second

// Caller sends reviews as API servers do, over HTTPS with a client
// certificate. It is safe for concurrent use.
type Caller struct {
	client *http.Client
}

// NewCaller makes a caller that trusts the authorities and presents the
// certificate, also to a server that would not have it; an empty one is none.
// Its connections are closed when the test ends. keepAlive false makes a new
// connection for each call.
func NewCaller(t testing.TB, authorities *x509.CertPool, certificate tls.Certificate, keepAlive bool) *Caller {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: authorities,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
		},
		ForceAttemptHTTP2: true,
		DisableKeepAlives: !keepAlive,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &Caller{client: &http.Client{Transport: transport, Timeout: callTimeout}}
}

// OverHTTP2 has all calls share one connection. It is called before the first
// call.
func (c *Caller) OverHTTP2() {
	transport, _ := c.client.Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP2(true)
}

// Answer is the answer to a POST.
type Answer struct {
	Status int
	Body   []byte
}

// Post sends a body and reads the whole answer; an error says that there was
// none.
func (c *Caller) Post(ctx context.Context, url string, body []byte) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	return c.Do(request)
}

// Do sends any request and reads the whole answer.
func (c *Caller) Do(request *http.Request) (Answer, error) {
	response, err := c.client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	return Answer{Status: response.StatusCode, Body: data}, nil
}

// Review sends a review and reads the response, which must carry its uid.
func (c *Caller) Review(ctx context.Context, url string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  request,
	})
	if err != nil {
		return nil, err
	}
	answer, err := c.Post(ctx, url, body)
	if err != nil {
		return nil, err
	}
	return answer.Response(request.UID)
}

// Response is the answer to the review with that uid.
func (a Answer) Response(uid types.UID) (*admissionv1.AdmissionResponse, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(a.Body, &review); a.Status != http.StatusOK || err != nil || review.Response == nil {
		return nil, fmt.Errorf("no AdmissionReview came back: status %d: %s", a.Status, a.Body)
	}
	if review.Response.UID != uid {
		return nil, fmt.Errorf("the answer to review %s is of %s", uid, review.Response.UID)
	}
	return review.Response, nil
}
