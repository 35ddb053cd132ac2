package bridge

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Everything that can be wrong with a request, on a raw connection. After each the same connection serves a good one,
// unless it says that it closes.
func TestBadInput(t *testing.T) {
	good := reviewOf("u1", 0)
	deep := func(levels int) string {
		return strings.Replace(good, `"metadata":{"name":""}`, `"x":`+strings.Repeat("[", levels)+strings.Repeat("]", levels), 1)
	}
	withoutUID := strings.Replace(reviewOf("u1", 2*testLimit), `"uid":"u1",`, "", 1)
	tests := map[string]struct {
		request string
		want    answered // uid empty: an HTTP status
		message string
		closes  bool
	}{
		"No body": {post(validatePath, ""), answered{status: 400}, "not a JSON object", false},
		"A body that is not JSON": {
			post(validatePath, "kind: AdmissionReview"), answered{status: 400}, "not a JSON object", false,
		},
		"A body that is JSON and no object": {post(validatePath, `["AdmissionReview"]`), answered{status: 400}, "not a JSON object", false},
		"Malformed JSON before the uid":     {post(validatePath, `{"kind":AdmissionReview}`), answered{status: 400}, "malformed JSON", false},
		"Malformed JSON behind the uid": {
			post(validatePath, good[:len(good)-2]), answered{status: 200, uid: "u1", code: 400}, "malformed JSON", false,
		},
		"Text behind the review": {
			post(validatePath, good+"x"), answered{status: 200, uid: "u1", code: 400}, "malformed JSON", false,
		},
		"An object that is no text": {
			post(validatePath, strings.Replace(good, `"metadata":{"name":""}`, `"data":{"k":"V`+"\xff\xfe"+`"}`, 1)),
			answered{status: 200, uid: "u1", code: 400}, "request.object of the AdmissionReview cannot be read: invalid UTF-8", false,
		},
		"Another kind": {
			post(validatePath, `{"kind":"Pod","apiVersion":"v1","request":{"uid":"u1"}}`), answered{status: 400}, `kind "Pod"`, false,
		},
		"A bare AdmissionRequest": {post(validatePath, `{"uid":"u1","operation":"CREATE"}`), answered{status: 400}, "AdmissionReview", false},
		"A version of long ago": {
			post(validatePath, strings.Replace(good, "admission.k8s.io/v1", "admission.k8s.io/v1alpha2", 1)),
			answered{status: 400}, "admission.k8s.io/v1alpha2", false,
		},
		"A version of long ago without spec": {
			post(validatePath, strings.Replace(good, "admission.k8s.io/v1", patchless, 1)), answered{status: 400}, "no spec", false,
		},
		"A version that knows no patches, to be mutated": {
			post("/v1/clusters/prod-1/mutate", alphaReview), answered{status: 200, code: 400}, "takes no patch", false,
		},
		"A version without uids, cut off": {
			post(validatePath, alphaReview[:len(alphaReview)-1]), answered{status: 200, code: 400}, "malformed JSON", false,
		},
		"A review without request": {
			post(validatePath, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`), answered{status: 400}, "no request", false,
		},
		"A request without uid": {post(validatePath, strings.Replace(good, `"u1"`, `""`, 1)), answered{status: 400}, "no uid", false},
		"A field of another type": {
			post(validatePath, strings.Replace(good, `"operation":"CREATE"`, `"operation":1`, 1)),
			answered{status: 200, uid: "u1", code: 400}, "operation", false,
		},
		"An object with a field twice, of a caller that is no API server": {
			post("/v1/clusters/prod-1/admit", strings.Replace(good, `"metadata":{`, `"metadata":{"labels":{"a":"","a":"b"},`, 1)),
			answered{status: 200, uid: "u1", code: 400}, `duplicate field "metadata.labels.a"`, false,
		},
		"Options with a field twice, of a caller that is no API server": {
			post("/v1/clusters/prod-1/admit", strings.Replace(good, `"operation":`, `"options":{"a":1,"a":2},"operation":`, 1)),
			answered{status: 200, uid: "u1", code: 400}, `request.options cannot be judged: duplicate field "a"`, false,
		},
		"An object that is none, of a caller that is no API server": {
			post("/v1/clusters/prod-1/admit", strings.Replace(good, `"operation":`, `"oldObject":"Pod","operation":`, 1)),
			answered{status: 200, uid: "u1", code: 400}, "request.oldObject cannot be judged: not a JSON object", false,
		},
		"Nesting of 10,001 levels": {
			post(validatePath, deep(10001)), answered{status: 200, uid: "u1", code: 400}, "malformed JSON", false,
		},
		"A body over the limit": {
			post(validatePath, reviewOf("u1", testLimit+1)), answered{status: 200, uid: "u1", code: 413}, "larger than 131072 bytes", false,
		},
		"A body over the limit, in chunks": {
			post(validatePath, chunked(reviewOf("u1", testLimit+1)), "Transfer-Encoding: chunked", "Content-Length: "),
			answered{status: 200, uid: "u1", code: 413}, "larger than", false,
		},
		"A body far over the limit": {
			post(validatePath, reviewOf("u1", 8*testLimit)), answered{status: 200, uid: "u1", code: 413}, "larger than", false,
		},
		"A body over the limit without uid": {post(validatePath, withoutUID), answered{status: 413}, "larger than", false},
		"A body over the limit that is no review": {
			post(validatePath, strings.Repeat("x", testLimit+1)), answered{status: 413}, "larger than", false,
		},
		"Chunks that are malformed": {
			post(validatePath, "zz\r\n", "Transfer-Encoding: chunked", "Content-Length: "), answered{status: 400}, "cut off after 0 bytes", true,
		},
		"Another method": {
			strings.Replace(post(validatePath, good), "POST", "PUT", 1), answered{status: 405}, "method PUT", false,
		},
		"A method to ask for methods":      {"OPTIONS * HTTP/1.1\r\nHost: bridge\r\n\r\n", answered{status: 404}, "no such path", false},
		"An unknown path":                  {post("/v1/clusters/prod-1", good), answered{status: 404}, "/v1/clusters/{cluster}", false},
		"An unknown stage":                 {post("/v1/clusters/prod-1/approve", good), answered{status: 404}, "no such path", false},
		"A path with more behind the plan": {post(validatePath+"/a/b/c", good), answered{status: 404}, "no such path", false},
		"An empty entry":                   {post(validatePath+"/", good), answered{status: 404}, "no such path", false},
		"An empty entry with a plan":       {post(validatePath+"//10.", good), answered{status: 404}, "no such path", false},
		"An empty cluster":                 {post("/v1/clusters//validate", good), answered{status: 404}, "no such path", false},
		"No content type":                  {post(validatePath, good, "Content-Type: "), answered{status: 415}, `content type ""`, false},
		"Another content type": {
			post(validatePath, good, "Content-Type: application/yaml"), answered{status: 415}, "application/yaml", false,
		},
		"A content type that is none": {
			post(validatePath, good, "Content-Type: application/json;;"), answered{status: 415}, "application/json;;", false,
		},
		"A form that would be another method": {
			post(validatePath, good, "Content-Type: application/x-www-form-urlencoded", "X-Http-Method-Override: GET"),
			answered{status: 415}, "x-www-form-urlencoded", false,
		},
		"A compressed body":  {post(validatePath, good, "Content-Encoding: gzip"), answered{status: 415}, "uncompressed", false},
		"A timeout of words": {post(validatePath+"?timeout=soon", good), answered{status: 400}, `timeout="soon"`, false},
		"A timeout of zero":  {post(validatePath+"?timeout=0s", good), answered{status: 400}, "above zero", false},
		"A malformed query":  {post(validatePath+"?timeout=%zz", good), answered{status: 400}, "query", false},
		"A cluster of somebody else": {
			post("/v1/clusters/prod-9/validate", good), answered{status: 403}, "spec.identities", false,
		},
	}
	e := serve(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		if r.Admission.GetUid() != "again" {
			t.Errorf("a review that is refused reached the Reviewer: %v", r)
		}
		return allow(ctx, r)
	}))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conn := e.dial(t)
			conn.send(t, test.request)
			response, body := conn.receive(t)
			got := understand(t, response, body)
			if got.status != test.want.status || got.uid != test.want.uid || got.allowed {
				t.Fatalf("answer = %+v, want %+v", got, test.want)
			}
			if test.want.code != 0 && got.code != test.want.code {
				t.Errorf("code = %d, want %d", got.code, test.want.code)
			}
			if !strings.Contains(got.message, test.message) || !strings.HasPrefix(got.message, "portcullis: ") {
				t.Errorf("message = %q, want it to say %q", got.message, test.message)
			}
			if response.Close != test.closes {
				t.Errorf("closes the connection: %t, want %t", response.Close, test.closes)
			}
			if !test.closes {
				conn.send(t, post(validatePath, reviewOf("again", 0)))
				response, body := conn.receive(t)
				if again := understand(t, response, body); again.uid != "again" || !again.allowed {
					t.Errorf("the next review on the connection: %+v", again)
				}
			}
			if held := e.options.Memory.InUse(); held != 0 {
				t.Errorf("%d bytes are still held", held)
			}
		})
	}
}

// chunked spells a body in chunks of 10,000 bytes.
func chunked(body string) string {
	var text strings.Builder
	for len(body) > 0 {
		n := min(10_000, len(body))
		fmt.Fprintf(&text, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return text.String() + "0\r\n\r\n"
}

func TestGoodInputOfUnusualForm(t *testing.T) {
	tests := map[string]string{
		"Exactly at the limit":           post(validatePath, reviewOf("u1", testLimit)),
		"Exactly at the limit, chunked":  post(validatePath, chunked(reviewOf("u1", testLimit)), "Transfer-Encoding: chunked", "Content-Length: "),
		"Small and chunked":              post(validatePath, chunked(reviewOf("u1", 0)), "Transfer-Encoding: chunked", "Content-Length: "),
		"A character set is named":       post(validatePath, reviewOf("u1", 0), "Content-Type: application/json; charset=utf-8"),
		"The content type in capitals":   post(validatePath, reviewOf("u1", 0), "Content-Type: Application/JSON"),
		"Not encoded, and said so":       post(validatePath, reviewOf("u1", 0), "Content-Encoding: identity"),
		"A timeout and something beside": post(validatePath+"?dryRun=All&timeout=10s", reviewOf("u1", 0)),
		// The gateway would take each of these from the headers.
		"A gRPC timeout":          post(validatePath, reviewOf("u1", 0), "Grpc-Timeout: 1n"),
		"gRPC metadata":           post(validatePath, reviewOf("u1", 0), "Grpc-Metadata-X-Bin: !!!"),
		"Trailers":                post(validatePath, reviewOf("u1", 0), "Te: trailers"),
		"Another codec in Accept": post(validatePath, reviewOf("u1", 0), "Accept: application/yaml"),
		"An absolute URL in the line": strings.Replace(
			post(validatePath, reviewOf("u1", 0)), "POST ", "POST https://elsewhere", 1),
	}
	e := serve(t, testOptions(allow))
	for name, request := range tests {
		t.Run(name, func(t *testing.T) {
			conn := e.dial(t)
			conn.send(t, request)
			response, body := conn.receive(t)
			if got := understand(t, response, body); got.uid != "u1" || !got.allowed {
				t.Errorf("answer = %+v, want u1 allowed", got)
			}
			if response.ContentLength != int64(len(body)) || response.Trailer != nil {
				t.Errorf("content length %d for %d bytes, trailer %v", response.ContentLength, len(body), response.Trailer)
			}
		})
	}
}

func TestHeadersThatBelongToAStatus(t *testing.T) {
	e := serve(t, testOptions(allow))
	conn := e.dial(t)
	conn.send(t, strings.Replace(post(validatePath, ""), "POST", "GET", 1))
	if response, _ := conn.receive(t); response.Header.Get("Allow") != http.MethodPost {
		t.Errorf("405 with Allow %q, want POST", response.Header.Get("Allow"))
	}
	conn.send(t, post(validatePath, "x", "Content-Encoding: gzip"))
	if response, _ := conn.receive(t); response.Header.Get("Accept-Encoding") != "identity" || response.Header.Get("Accept") != "application/json" {
		t.Errorf("415 with %v, want what is accepted", response.Header)
	}
}

// A caller that waits to be told to send is told so, and only when its body is wanted.
func TestExpectContinue(t *testing.T) {
	e := serve(t, testOptions(allow))
	body := reviewOf("u1", 0)
	head, _, _ := strings.Cut(post(validatePath, body, "Expect: 100-continue"), "\r\n\r\n")

	conn := e.dial(t)
	conn.send(t, head+"\r\n\r\n")
	line, err := conn.reader.ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("first line = %q, error %v, want 100 Continue", line, err)
	}
	if _, err := conn.reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	conn.send(t, body)
	response, text := conn.receive(t)
	if got := understand(t, response, text); !got.allowed {
		t.Errorf("answer = %+v, want allowed", got)
	}

	refused := e.dial(t)
	refused.send(t, strings.Replace(head, "prod-1", "prod-9", 1)+"\r\n\r\n")
	if response, _ := refused.receive(t); response.StatusCode != http.StatusForbidden {
		t.Errorf("status = %d, want 403 before the body is sent", response.StatusCode)
	}
}

// A body that ends before its announced end is answered as far as anybody still listens.
func TestTruncatedBody(t *testing.T) {
	tests := map[string]struct {
		sent int
		want answered
	}{
		"before the uid": {20, answered{status: 400, code: 400}},
		"behind the uid": {200, answered{status: 200, uid: "u1", code: 400}},
	}
	e := serve(t, testOptions(allow))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			conn := e.dial(t)
			body := reviewOf("u1", 1000)
			request := post(validatePath, body)
			conn.send(t, request[:len(request)-len(body)+test.sent])
			secured, ok := conn.Conn.(*tls.Conn)
			if !ok {
				t.Fatal("not a TLS connection")
			}
			if err := secured.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			response, text := conn.receive(t)
			got := understand(t, response, text)
			if got.status != test.want.status || got.uid != test.want.uid || got.code != test.want.code {
				t.Errorf("answer = %+v, want %+v", got, test.want)
			}
			if want := fmt.Sprintf("cut off after %d bytes", test.sent); !strings.Contains(got.message, want) {
				t.Errorf("message = %q, want %q", got.message, want)
			}
		})
	}
}

// An announced length is believed: a body over the limit is denied for it, however much arrives.
func TestTruncatedBodyOverTheLimit(t *testing.T) {
	e := serve(t, testOptions(allow))
	conn := e.dial(t)
	conn.send(t, post(validatePath, reviewOf("u1", 1000), "Content-Length: 1000000"))
	secured, ok := conn.Conn.(*tls.Conn)
	if !ok {
		t.Fatal("not a TLS connection")
	}
	if err := secured.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	response, text := conn.receive(t)
	if got := understand(t, response, text); got.uid != "u1" || got.code != http.StatusRequestEntityTooLarge {
		t.Errorf("answer = %+v, want a denial with 413", got)
	}
}

// A sender that stops in the middle is answered when the review's own deadline is over.
func TestSlowSender(t *testing.T) {
	tests := map[string]struct {
		sent int
		want answered
	}{
		"before the uid": {20, answered{status: 408, code: 408}},
		"behind the uid": {200, answered{status: 200, uid: "u1", code: 408}},
		"over the limit": {2 * headBytes, answered{status: 200, uid: "u1", code: 413}},
		"over the limit, with a part of the head": {200, answered{status: 200, uid: "u1", code: 413}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := serve(t, testOptions(allow))
			conn := e.dial(t)
			body := reviewOf("u1", 1000)
			if test.want.code == http.StatusRequestEntityTooLarge {
				body = reviewOf("u1", 2*testLimit)
			}
			request := post(validatePath+"?timeout=100ms", body)
			conn.send(t, request[:len(request)-len(body)+test.sent])
			response, text := conn.receive(t)
			got := understand(t, response, text)
			if got.status != test.want.status || got.uid != test.want.uid || got.code != test.want.code {
				t.Errorf("answer = %+v, want %+v", got, test.want)
			}
			if held := e.options.Memory.InUse(); held != 0 {
				t.Errorf("%d bytes are still held", held)
			}
		})
	}
}

// Over HTTP/2 the bound is the stream's: other reviews on the connection go on.
func TestSlowSenderOverHTTP2(t *testing.T) {
	e := serve(t, testOptions(allow))
	client := e.client2(t)
	reader, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = io.WriteString(writer, reviewOf("slow", 1000)[:200]) }()
	response, err := client.Post(e.url(validatePath+"?timeout=100ms"), "application/json", reader)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := understand(t, response, text); got.uid != "slow" || got.code != http.StatusRequestTimeout {
		t.Errorf("answer = %+v, want a denial with 408", got)
	}
	if got := ask(t, client, e.url(validatePath), reviewOf("u1", 0)); !got.allowed {
		t.Errorf("the next review on the connection: %+v", got)
	}
}

func TestCallersWithoutRights(t *testing.T) {
	e := serve(t, testOptions(allow))
	foreign, err := certs.NewAuthority("foreign", 0)
	if err != nil {
		t.Fatal(err)
	}
	try := func(config *tls.Config, path string) (answered, error) {
		conn, err := tls.Dial("tcp", e.addr, config)
		if err != nil {
			return answered{}, err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, post(path, reviewOf("u1", 0))); err != nil {
			return answered{}, err
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return answered{}, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return understand(t, response, body), err
	}

	got, err := try(e.clientTLS(t, e.authority, ""), validatePath)
	if err != nil || got.status != http.StatusUnauthorized || !strings.Contains(got.message, "client certificate") {
		t.Errorf("without certificate: %+v, error %v, want 401 that says what to do", got, err)
	}
	forced := e.clientTLS(t, foreign, "kube-apiserver")
	cert := forced.Certificates[0]
	forced.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	if got, err := try(forced, validatePath); err == nil {
		t.Errorf("with a certificate of a foreign authority: %+v, want a refusal of the handshake", got)
	}

	known, err := try(e.clientTLS(t, e.authority, "stranger"), validatePath)
	if err != nil || known.status != http.StatusForbidden {
		t.Fatalf("a stranger for a cluster that exists: %+v, error %v, want 403", known, err)
	}
	unknown, err := try(e.clientTLS(t, e.authority, "stranger"), "/v1/clusters/prod-9/validate")
	if err != nil || unknown.status != http.StatusForbidden {
		t.Fatalf("a stranger for a cluster that does not exist: %+v, error %v, want 403", unknown, err)
	}
	if known.message != strings.ReplaceAll(unknown.message, "prod-9", "prod-1") {
		t.Errorf("the answers tell whether a cluster exists:\n%s\n%s", known.message, unknown.message)
	}
}

// TestCallersBeforeTheFirstConfiguration: nothing may judge their reviews yet, and another dispatcher may.
func TestCallersBeforeTheFirstConfiguration(t *testing.T) {
	options := testOptions(allow)
	options.Authorize = func(identity.Peer, string) error { return review.ErrNoConfiguration }
	options.AuthorizeCapability = func(identity.Capability, string) error { return review.ErrNoConfiguration }
	e := serve(t, options)
	for _, path := range []string{validatePath, shown("prod-1", identity.NewCapability().Reveal(), "validate")} {
		got := ask(t, e.client(t), e.url(path), reviewOf("u1", 0))
		if got.status != http.StatusServiceUnavailable || !strings.Contains(got.message, "no configuration yet") {
			t.Errorf("%+v, want 503 that says why", got)
		}
	}
}

func TestAListenerThatRequiresCertificates(t *testing.T) {
	e := serveWith(t, newBridge(t, testOptions(allow)), tls.RequireAndVerifyClientCert, ServerOptions{})
	if got := ask(t, e.client(t), e.url(validatePath), reviewOf("u1", 0)); !got.allowed {
		t.Errorf("with certificate: %+v", got)
	}
	conn, err := tls.Dial("tcp", e.addr, e.clientTLS(t, e.authority, ""))
	if err != nil {
		return // refused in the handshake
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without certificate: %v, want a refusal of the handshake", err)
	}
}
