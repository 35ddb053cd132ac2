package answers

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	"github.com/portcullis-mesh/portcullis/internal/citest"
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

// times is a text, so many times, with another between.
func times(n int, text, between string) string {
	return strings.TrimSuffix(strings.Repeat(text+between, n), between)
}

func TestAnAnswerIsBoundedInBytesDepthAndParts(t *testing.T) {
	citest.Sequential(t)
	whole, lists := Transport{}, Transport{ItemByItem: true}
	text := func(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }
	items := func(items string) string { return `{"metadata":{},"items":[` + items + `]}` }
	for name, test := range map[string]struct {
		body, query string
		over        Transport
		want        string // part of the error; empty for none
	}{
		"as many bytes as there may be":        {text(MaxBytes), "", whole, ""},
		"one byte more":                        {text(MaxBytes + 1), "", whole, "larger than 33554432 bytes"},
		"as deep as it may be":                 {nested(MaxDepth), "", whole, ""},
		"one level more":                       {nested(MaxDepth + 1), "", whole, "deeper than 256 levels"},
		"arrays count as levels":               {strings.Repeat("[", MaxDepth+1), "", whole, "deeper than 256 levels"},
		"objects in strings do not":            {`"` + strings.Repeat(`\"{[`, MaxDepth+1) + `"`, "", whole, ""},
		"nor does what an escape ends":         {`["\\",` + nested(MaxDepth-1) + "]", "", whole, ""},
		"a backslash hides no level":           {`["\\",` + nested(MaxDepth) + "]", "", whole, "deeper than 256 levels"},
		"as many parts as there may be":        {"[" + times(MaxParts-1, "{}", ",") + "]", "", whole, ""},
		"one part more":                        {"[" + times(MaxParts, "{}", ",") + "]", "", whole, "more than 250000 objects and arrays"},
		"arrays are parts":                     {"[" + times(MaxParts, "[]", ",") + "]", "", whole, "more than 250000 objects and arrays"},
		"an event with all parts it may have":  {"[" + times(MaxItemParts-1, "{}", ",") + "]", "?watch=1", whole, ""},
		"one part of an event more":            {"[" + times(MaxItemParts, "{}", ",") + "]", "?watch=1", whole, "more than 50000"},
		"events count one by one":              {times(2*MaxItemParts, "{}", "\n"), "?watch=1", whole, ""},
		"as large an event as there may be":    {text(MaxItemBytes), "?watch=1", whole, ""},
		"one byte of an event more":            {text(MaxItemBytes + 1), "?watch=1", whole, "larger than 8388608"},
		"an item with all parts it may have":   {items("{}," + times(MaxItemParts, "{}", "")), "", lists, ""},
		"one part of an item more":             {items("{}," + times(MaxItemParts+1, "{}", "")), "", lists, "more than 50000"},
		"items count one by one":               {items(times(2*MaxItemParts, "{}", ",")), "", lists, ""},
		"as large an item as there may be":     {items("1," + text(MaxItemBytes)[:MaxItemBytes-2]), "", lists, ""},
		"one byte of an item more":             {items("1," + text(MaxItemBytes)), "", lists, "larger than 8388608"},
		"metadata of a list has no items":      {`{"metadata":{` + times(MaxItemParts+1, `"a":{}`, ",") + "}}", "", lists, "more than 50000"},
		"nor has the list of an item":          {items("[" + times(MaxItemParts, "{}", ",") + "]"), "", lists, "more than 50000"},
		"no comma begins a whole answer again": {times(MaxParts+1, "{}", ","), "", whole, "more than 250000"},
	} {
		test.over.RoundTripper = &answering{header: typed("application/json"), body: test.body}
		body, err := read(t, test.over, test.query)
		if test.want == "" && (err != nil || body != test.body) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %d of %d bytes, %v; want %q", name, len(body), len(test.body), err, test.want)
		}
	}
}

func TestAnAnswerWithOneObjectIsAsLargeAsAnObject(t *testing.T) {
	citest.Sequential(t)
	for name, test := range map[string]struct {
		method, accept string
		most           int
	}{
		"a review that is sent":     {http.MethodPost, mediaType, MaxObjectBytes},
		"the metadata of an object": {http.MethodGet, mediaType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + mediaType, MaxObjectBytes},
		"the metadata of a list":    {http.MethodGet, mediaType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + mediaType, MaxBytes},
		"discovery":                 {http.MethodGet, mediaType + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," + mediaType, MaxBytes},
	} {
		for _, bytes := range []int{test.most, test.most + 1} {
			body := `"` + strings.Repeat(`x\"`, bytes/3)
			body = body[:bytes-3] + `xx"`
			request, err := http.NewRequestWithContext(t.Context(), test.method, "http://cluster/", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Accept", test.accept)
			response, err := Transport{RoundTripper: &answering{header: typed(mediaType), body: body}}.RoundTrip(request)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
			}
			if refused := err != nil && strings.Contains(err.Error(), "larger than"); refused != (bytes > test.most) {
				t.Errorf("%s of %d bytes: %v", name, bytes, err)
			}
		}
	}
}

// TestTheMetadataOfANamespaceIsAsLargeAsAnObject asks with the header that client-go sends.
func TestTheMetadataOfANamespaceIsAsLargeAsAnObject(t *testing.T) {
	const before, behind = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"shop","annotations":{"a":"`, `"}}}`
	for _, bytes := range []int{MaxObjectBytes, MaxObjectBytes + 1} {
		body := before + strings.Repeat("a", bytes-len(before)-len(behind)) + behind
		_, err := clientOf(t, &answering{header: typed(mediaType), body: body}).Get(t.Context(), "shop", metav1.GetOptions{})
		if refused := err != nil && strings.Contains(err.Error(), "larger than"); refused != (bytes > MaxObjectBytes) || !refused && err != nil {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}

// TestLongAnswersAreReadInTurns: and short ones, which reviews wait for, at once.
func TestLongAnswersAreReadInTurns(t *testing.T) {
	answer := func(bytes int) *answering {
		return &answering{header: typed(mediaType), body: `"` + strings.Repeat("a", bytes-2) + `"`}
	}
	synctest.Test(t, func(t *testing.T) {
		work := turns.NewQueue()
		done, err := work.Wait(t.Context(), "another", true)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := read(t, Transport{RoundTripper: answer(readAtOnce), Cluster: "c", Work: work}, ""); len(text) != readAtOnce || err != nil {
			t.Errorf("a short answer: %d bytes, %v", len(text), err)
		}
		var long string
		ended := make(chan error)
		go func() {
			var err error
			long, err = read(t, Transport{RoundTripper: answer(readAtOnce + 1), Cluster: "c", Work: work}, "")
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("a long answer was read out of turn: %v", err)
		default:
		}
		done()
		if err := <-ended; len(long) != readAtOnce+1 || err != nil {
			t.Errorf("a long answer: %d bytes, %v", len(long), err)
		}
	})
}

// TestTheWorkOnAWatchCountsAsWorkOfItsCluster has a reader decode and keep events between its reads, for longer than it takes to scan them.
func TestTheWorkOnAWatchCountsAsWorkOfItsCluster(t *testing.T) {
	const pieces, work = 400, 10 * time.Millisecond
	for query, most := range map[string]time.Duration{"?watch=true": 5 * pieces * work, "": pieces * work} {
		synctest.Test(t, func(t *testing.T) {
			body := strings.Repeat(`{"type":"MODIFIED","object":{}}`, pieces*4096/30)[:pieces*4096]
			over := Transport{
				RoundTripper: &answering{header: typed(mediaType), body: body}, Cluster: "c", Work: turns.NewQueue(), ItemByItem: true,
			}
			response, err := over.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster/"+query, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			begun := time.Now()
			for piece := make([]byte, 4096); len(body) > 0; body = body[min(len(body), len(piece)):] {
				if _, err := response.Body.Read(piece); err != nil {
					t.Fatal(err)
				}
				<-time.After(work)
			}
			if took := time.Since(begun); took > most || took < most*3/5 {
				t.Errorf("%q: %v of work took %v, want at most %v", query, pieces*work, took, most)
			}
		})
	}
}

// TestNumbersAreBooked: a number of two bytes takes sixteen in a list of any values, and more while the list grows.
func TestNumbersAreBooked(t *testing.T) {
	const numbers = 100_000
	many := "[" + times(numbers, "0", ",") + "]"
	for name, test := range map[string]struct {
		itemByItem bool
		body       string
		least      int64 // bytes of a number
	}{
		"in an answer": {false, `{"x":` + many + "}", 40},
		"in an item":   {true, `{"items":[{"x":` + many + "}]}", 500}, // as a list of schemas
	} {
		ledger, err := memory.New(memory.Options{Total: 256 << 20})
		if err != nil {
			t.Fatal(err)
		}
		over := Transport{RoundTripper: &answering{header: typed(mediaType), body: test.body}, Memory: ledger, Cluster: "c", ItemByItem: test.itemByItem}
		response, err := over.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if read, err := io.ReadAll(response.Body); len(read) != len(test.body) || err != nil {
			t.Fatal(len(read), err)
		}
		if used := ledger.InUse(); used < test.least*numbers {
			t.Errorf("%s: %d bytes are booked for %d numbers", name, used, numbers)
		}
		response.Body.Close()
	}
}

func TestAnAnswerIsBookedBeforeItIsReadAndGivenBack(t *testing.T) {
	const total = 4 << 20
	ledger, err := memory.New(memory.Options{Total: total})
	if err != nil {
		t.Fatal(err)
	}
	large := `{"kind":"XList","items":[` + times(300, `{"a":"`+strings.Repeat("x", 4000)+`"}`, ",") + "]}"
	open := func(over Transport, query string) *http.Response {
		over.RoundTripper, over.Memory, over.Cluster = &answering{header: typed("application/json"), body: large}, ledger, "east"
		request := httptest.NewRequest(http.MethodGet, "http://cluster/"+query, nil)
		response, err := over.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	for name, test := range map[string]struct {
		over  Transport
		query string
		fits  bool
	}{
		"a list, item by item":            {Transport{ItemByItem: true}, "", true},
		"a whole answer of as many bytes": {Transport{}, "", false},
		"an event of as many bytes":       {Transport{}, "?watch=1", false},
	} {
		response := open(test.over, test.query)
		read, most := 0, int64(0)
		var err error
		for p := make([]byte, 8<<10); err == nil; most = max(most, ledger.InUse()) {
			var n int
			if n, err = response.Body.Read(p); n > 0 && ledger.InUse() < int64(n) {
				t.Errorf("%s: %d bytes booked with %d read", name, ledger.InUse(), n)
			}
			read += n
		}
		var full *memory.FullError
		if test.fits != errors.Is(err, io.EOF) || !test.fits && !errors.As(err, &full) || !test.fits && read >= total/bytesFactor {
			t.Errorf("%s: %d bytes, %v", name, read, err)
		}
		if most > 3*total/4 || test.fits && most > total/8 {
			t.Errorf("%s: %d bytes were booked", name, most)
		}
		response.Body.Close()
		if ledger.InUse() != 0 {
			t.Errorf("%s: %d bytes stay booked", name, ledger.InUse())
		}
	}
	own, err := ledger.Reserve("east", 0)
	if err != nil {
		t.Fatal(err)
	}
	large = `{"a":"` + strings.Repeat("x", 4000) + `"}`
	over := Transport{RoundTripper: &answering{header: typed("application/json"), body: large}, Memory: ledger, Cluster: "east"}
	response, err := over.RoundTrip(httptest.NewRequest(http.MethodGet, "http://cluster", nil).WithContext(Booked(t.Context(), own)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || own.Bytes() < bytesFactor*4000 {
		t.Errorf("%d bytes are booked to its own reservation while it is decoded: %v", own.Bytes(), err)
	}
	own.Release()
}

func TestAListIsReadItemByItem(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","selfLink":"x","remainingItemCount":null},"items":[{"a":1},{"b":[2]}]}`: `7: {"a":1} {"b":[2]}`,
		`{"items":null,"kind":"PodList"}`:                              ": ",
		`{"kind":"PodList","metadata":null}`:                           ": ",
		`{"kind":"PodList","items":[`:                                  "error: EOF",
		`{"kind":"PodList","items":[{},`:                               "error: EOF",
		`{"kind":"PodList","items":{"a":1}}`:                           "error: its items are no array",
		`{"kind":"PodList","items":[],"continue":"x"}`:                 `error: it has a member "continue"`,
		`{"kind":"PodList","metadata":{"continue":"next"},"items":[]}`: "error: a part of a list",
		`{"kind":"PodList","metadata":{"labels":{}},"items":[]}`:       `error: "{" in the place of a text`,
		`{"kind":["PodList"],"items":[]}`:                              `error: "[" in the place of a text`,
		`{"kind":"Status","message":"x"}`:                              `error: it has a member "message"`,
		`{"kind":"Pod","metadata":{}}`:                                 `error: "Pod" in the place of a list`,
		`[{}]`:                                                         `error: want "{"`,
		`{}`:                                                           `error: "" in the place of a list`,
		`{"kind":"PodList","items":[` + times(MaxItems, "1", ",") + `],"metadata":{"resourceVersion":"7"}}`: "7: " + times(MaxItems, "1", " "),
		`{"kind":"PodList","items":[` + times(MaxItems+1, "1", ",") + `]}`:                                  "error: more than 100000 items",
	} {
		var found []string
		meta, err := Items(strings.NewReader(text), func(raw []byte) error {
			found = append(found, string(raw))
			return nil
		})
		got := meta.ResourceVersion + ": " + strings.Join(found, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if part, failed := strings.CutPrefix(want, "error: "); failed && (err == nil || !strings.Contains(err.Error(), part)) || !failed && got != want {
			t.Errorf("%.100s: %.100s\nwant %.100s", text, got, want)
		}
	}
	read := 0
	meta, err := Page(strings.NewReader(`{"kind":"PodList","metadata":{"continue":"next"},"items":[{},{}]}`), func([]byte) error {
		read++
		return nil
	})
	if read != 2 || meta.Continue != "next" || err != nil {
		t.Errorf("a part of a list: %d items, %+v, %v", read, meta, err)
	}
	long := `{"kind":"PodList","metadata":{"continue":"` + strings.Repeat("a", MaxContinueBytes+1) + `"},"items":[]}`
	if _, err := Page(strings.NewReader(long), nil); err == nil || !strings.Contains(err.Error(), "more than 4096 bytes") {
		t.Errorf("a long token: %v", err)
	}
	stop := errors.New("stop")
	if _, err := Items(strings.NewReader(`{"items":[1,2]}`), func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an item that is refused: %v", err)
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
		b := &boundedBody{mostUnit: int64(len(text)), mostParts: len(text)}
		parts, deepest := 0, 0
		for i := range len(text) {
			if err := b.scan(text[i]); err != nil && b.depth <= MaxDepth {
				t.Fatal(err)
			}
			parts, deepest = max(parts, b.parts), max(deepest, b.depth)
		}
		for at := range min(len(text), 64) { // the same in two pieces, texts at a time
			pieces := &boundedBody{mostUnit: b.mostUnit, mostParts: b.mostParts}
			if pieces.count([]byte(text[:at])) == nil && pieces.count([]byte(text[at:])) == nil {
				type counts struct {
					unit, parts, depth           int
					text, escaped, array, status bool
				}
				of := func(b *boundedBody) counts {
					return counts{int(b.unit), b.parts, b.depth, b.text, b.escaped, b.array, b.kind.status}
				}
				if got, want := of(pieces), of(b); got != want {
					t.Fatalf("cut at %d: %+v, want %+v", at, got, want)
				}
			} else if b.depth <= MaxDepth && deepest <= MaxDepth {
				t.Fatalf("cut at %d it is refused", at)
			}
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

// TestWholeErrorsAreInOneLineWithoutSecrets has an error whose cause stands behind the bound of quotations, as of a webhook that cannot be called.
func TestWholeErrorsAreInOneLineWithoutSecrets(t *testing.T) {
	message := `failed calling webhook "trial.portcullis.dev": ` + strings.Repeat("x", 300) + " Bearer abcdefghijkl\ncause"
	status, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Message: message})
	if err != nil {
		t.Fatal(err)
	}
	over := Transport{WholeErrors: true, RoundTripper: &answering{code: http.StatusInternalServerError, header: typed("application/json"), body: string(status)}}
	r, err := over.RoundTrip(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var got metav1.Status
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if want := `failed calling webhook "trial.portcullis.dev": ` + strings.Repeat("x", 300) + " REDACTED cause"; got.Message != want {
		t.Errorf("message %q, want %q", got.Message, want)
	}
}
