package answers

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// answering is a transport with one answer, that counts the calls to close its connections.
type answering struct {
	code   int
	header http.Header
	body   string

	accept string // of the last request
	closed int
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.accept = r.Header.Get("Accept")
	w := httptest.NewRecorder()
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(max(a.code, 200))
	_, _ = io.WriteString(w, a.body)
	response := w.Result()
	response.ContentLength = int64(len(a.body))
	return response, nil
}

func (a *answering) CloseIdleConnections() { a.closed++ }

// typed are the headers of an answer.
func typed(contentType string) http.Header { return http.Header{"Content-Type": {contentType}} }

// read reads an answer over a transport.
func read(t *testing.T, over Transport, query string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster/"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=X;g=meta.k8s.io;v=v1,application/json;as=X;g=meta.k8s.io;v=v1,application/json")
	response, err := over.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

func TestAnAnswerIsBoundedInBytesDepthAndParts(t *testing.T) {
	events := strings.Repeat("{}\n", 20)
	for name, test := range map[string]struct {
		body, query string
		bound       Transport
		want        string // part of the error; empty for none
	}{
		"as many bytes as there may be":  {`"` + strings.Repeat("x", 98) + `"`, "", Transport{MaxBytes: 100}, ""},
		"one byte more":                  {`"` + strings.Repeat("x", 99) + `"`, "", Transport{MaxBytes: 100}, "larger than 100 bytes"},
		"as deep as it may be":           {nested(MaxDepth), "", Transport{}, ""},
		"one level more":                 {nested(MaxDepth + 1), "", Transport{}, "deeper than 256 levels"},
		"arrays count as levels":         {strings.Repeat("[", MaxDepth+1), "", Transport{}, "deeper than 256 levels"},
		"objects in strings do not":      {`"` + strings.Repeat(`\"{[`, MaxDepth+1) + `"`, "", Transport{}, ""},
		"nor does what an escape ends":   {`["\\",` + nested(MaxDepth-1) + "]", "", Transport{}, ""},
		"a backslash hides no level":     {`["\\",` + nested(MaxDepth) + "]", "", Transport{}, "deeper than 256 levels"},
		"as many parts as there may be":  {"[" + strings.Repeat("{},", 8) + "{}]", "", Transport{MaxParts: 10}, ""},
		"one part more":                  {"[" + strings.Repeat("{},", 9) + "{}]", "", Transport{MaxParts: 10}, "more than 10 objects and arrays"},
		"arrays are parts":               {"[" + strings.Repeat("[],", 9) + "[]]", "", Transport{MaxParts: 10}, "more than 10 objects and arrays"},
		"events count one by one":        {events, "?watch=1", Transport{MaxParts: 1}, ""},
		"events together are an answer":  {events, "?watch=1", Transport{MaxBytes: 59}, "larger than 59 bytes"},
		"as large an event as there may": {`"` + strings.Repeat("x", MaxEventBytes-2) + `"`, "?watch=1", Transport{}, ""},
		"one byte more of an event":      {`"` + strings.Repeat("x", MaxEventBytes-1) + `"`, "?watch=1", Transport{}, "event of a watch of the API server is larger than 8388608"},
		"a list is as large as it is":    {`"` + strings.Repeat("x", MaxEventBytes-1) + `"`, "", Transport{}, ""},
	} {
		test.bound.RoundTripper = &answering{header: typed("application/json"), body: test.body}
		body, err := read(t, test.bound, test.query)
		if test.want == "" && (err != nil || body != test.body) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %d of %d bytes, %v; want %q", name, len(body), len(test.body), err, test.want)
		}
	}
}

func TestJSONAloneIsAskedForAndRead(t *testing.T) {
	for contentType, want := range map[string]string{
		"application/json": "",
		"application/json; charset=utf-8;g=apidiscovery.k8s.io;v=v2": "",
		"application/vnd.kubernetes.protobuf":                        `content type "application/vnd.kubernetes.protobuf"`,
		"application/vnd.kubernetes.protobuf;stream=watch":           "content type",
		"application/cbor":                 "content type",
		"application/json-seq":             "content type",
		"text/html":                        "is there an API server",
		"":                                 `content type ""`,
		"application/json, text/html":      "content type",
		strings.Repeat("x/y", 1000) + "\n": `content type "x/yx/y`,
	} {
		a := &answering{header: typed(contentType), body: "{}"}
		_, err := read(t, Transport{RoundTripper: a}, "")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300) {
			t.Errorf("%.50q: %v; want %q", contentType, err, want)
		}
		if want := "application/json;as=X;g=meta.k8s.io;v=v1,application/json"; a.accept != want {
			t.Errorf("the request accepts %q, want %q", a.accept, want)
		}
	}
	for asked, want := range map[string]string{
		"": "application/json", "application/cbor": "application/json", "*/*": "application/json",
		"application/com.github.proto-openapi.spec.v2@v1.0+protobuf": "application/json",
		"application/cbor;q=1, application/json;q=0.5":               "application/json;q=0.5",
	} {
		if got := acceptable([]string{asked}); got != want {
			t.Errorf("of %q %q is asked for, want %q", asked, got, want)
		}
	}
}

func TestRedirectsOfAnAPIServerAreNotFollowed(t *testing.T) {
	for _, code := range []int{300, 301, 302, 303, 304, 307, 308} {
		a := &answering{code: code, header: http.Header{"Location": {"https://169.254.169.254/latest"}}, body: "hunter2"}
		client := &http.Client{Transport: Transport{RoundTripper: a}}
		response, err := client.Get("https://cluster/")
		if err == nil {
			response.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "redirects are not followed") || strings.Contains(err.Error(), "169.254") {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// clientOf reads namespaces over an answer, as package cluster does.
func clientOf(t *testing.T, a *answering) metadata.ResourceInterface {
	t.Helper()
	c, err := metadata.NewForConfigAndClient(&rest.Config{Host: "http://cluster"}, &http.Client{Transport: Transport{RoundTripper: a}})
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
}

func TestOfAnErrorItsCodeItsReasonAndTheStartOfItsMessageAreQuoted(t *testing.T) {
	status := func(message string) string {
		return `{"kind":"Status","apiVersion":"v1","status":"Failure","code":200,"reason":"NotFound","message":"` + message + `",
			"details":{"name":"hunter2","retryAfterSeconds":7,"causes":[{"reason":"ResourceVersionTooLarge","message":"hunter2","field":"hunter2"},{"reason":"hunter2 <"}]}}`
	}
	for name, test := range map[string]struct {
		a    answering
		want string // part of the error
	}{
		"a Status":                 {answering{code: 404, header: typed("application/json"), body: status(`no \"x\"`)}, `the API server answered HTTP 404: "no \"x\""`},
		"a Status in another type": {answering{code: 404, header: typed("text/plain"), body: status("hunter2")}, "could not find the requested resource"},
		"a page":                   {answering{code: 500, header: typed("text/html"), body: "<p>hunter2"}, "an error on the server"},
		"other JSON":               {answering{code: 503, header: typed("application/json"), body: `{"message":"hunter2"}`}, "unable to handle the request"},
		"a long Status":            {answering{code: 404, header: typed("application/json"), body: status(strings.Repeat("a", 1000))}, `404: "aaa`},
		"a Status of many lines":   {answering{code: 404, header: typed("application/json"), body: status(`a\nlevel=ERROR \u001b[31m`)}, `"a level=ERROR  [31m"`},
		"a Status that is too large": {answering{code: 404, header: typed("application/json"), body: status(strings.Repeat("a", MaxErrorBytes))},
			"could not find the requested resource"},
		"no body": {answering{code: 403, header: typed("application/json")}, "HTTP 403, without the Status of an API server"},
	} {
		_, err := clientOf(t, &test.a).Get(t.Context(), "shop", metav1.GetOptions{})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 600 {
			t.Errorf("%s: %v\nwant %s", name, err, test.want)
		}
	}
	_, err := clientOf(t, &answering{code: 404, header: typed("application/json"), body: status("gone")}).Get(t.Context(), "shop", metav1.GetOptions{})
	if wait, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsNotFound(err) || wait != 7 || !ok {
		t.Errorf("decisions are made by %#v", err)
	}
	if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || apierrors.HasStatusCause(err, "hunter2 <") {
		t.Errorf("the causes of %#v", err)
	}
	_, err = clientOf(t, &answering{code: 404, header: typed("text/plain"), body: "404"}).Get(t.Context(), "shop", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !apierrors.IsUnexpectedServerError(err) {
		t.Errorf("the 404 of a server that is no API server: %#v", err)
	}
}

func TestIdleConnectionsBelowAreClosed(t *testing.T) {
	below := &answering{}
	utilnet.CloseIdleConnectionsFor(Transport{RoundTripper: below})
	if below.closed != 1 {
		t.Error("idle connections stay open")
	}
}

// FuzzThePartsOfAnAnswer compares the counting of bytes with a decoder.
func FuzzThePartsOfAnAnswer(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"}\"{"}]}`, `"\\"`, `[[[]],{}]`, `{"\u0022{":[{}]}`, `[{"a\\":{}},"\\\"["]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		b := &boundedBody{mostDocument: int64(len(text)), mostParts: len(text)}
		parts, deepest := 0, 0
		for i := range len(text) {
			if err := b.scan(text[i]); err != nil && b.depth <= MaxDepth {
				t.Fatal(err)
			}
			parts, deepest = max(parts, b.parts), max(deepest, b.depth)
		}
		wantParts, wantDepth, depth := 0, 0, 0
		for d := json.NewDecoder(strings.NewReader(text)); ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch token {
			case json.Delim('{'), json.Delim('['):
				wantParts, depth = wantParts+1, depth+1
			case json.Delim('}'), json.Delim(']'):
				depth--
			}
			wantDepth = max(wantDepth, depth)
		}
		if parts != wantParts || deepest != wantDepth {
			t.Errorf("%d parts, %d deep; want %d, %d", parts, deepest, wantParts, wantDepth)
		}
	})
}
