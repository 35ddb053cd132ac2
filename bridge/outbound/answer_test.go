package outbound

import (
	"bytes"
	stdcmp "cmp"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// in is an AdmissionReview in a version with the given members in its response, behind the uid of the review.
func in(version, members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/` + version + `","response":{"uid":"%UID%"` + members + `}}`
}

func TestWhatAnAnswerMeans(t *testing.T) {
	const allowed, denied = `,"allowed":true`, `,"allowed":false,"status":{"code":403,"message":"no"}`
	const patch = `,"patch":"W10=","patchType":"JSONPatch"`
	jsonType := http.Header{"Content-Type": {"application/json"}}
	tests := []struct {
		name    string
		version string // v1 when empty
		status  int    // 200 when 0
		header  http.Header
		body    string
		want    string
	}{
		{"an allowance", "", 0, jsonType, in("v1", allowed), "allowed"},
		{"a denial", "", 0, jsonType, in("v1", denied), "denied"},
		{"an answer that does not say allowed", "", 0, jsonType, in("v1", ""), "denied"},
		{"an allowance in v1beta1", "v1beta1", 0, jsonType, in("v1beta1", allowed), "allowed"},
		{"an answer in another version", "", 0, jsonType, in("v1beta1", allowed), "bad_answer"},
		{"an answer in a newer version", "v1beta1", 0, jsonType, in("v1", allowed), "bad_answer"},
		{"another uid", "", 0, jsonType, strings.Replace(in("v1", allowed), "%UID%", "x", 1), "bad_answer"},
		{"another uid in v1beta1", "v1beta1", 0, jsonType, strings.Replace(in("v1beta1", allowed), "%UID%", "x", 1), "allowed"},
		{"no kind", "", 0, jsonType, strings.Replace(in("v1", allowed), `"kind":"AdmissionReview",`, "", 1), "bad_answer"},
		{"no kind in v1beta1", "v1beta1", 0, jsonType, strings.Replace(in("v1beta1", allowed), `"kind":"AdmissionReview",`, "", 1), "allowed"},
		{"no response", "", 0, jsonType, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, "bad_answer"},
		{"nothing", "", 0, jsonType, ``, "bad_answer"},
		{"nothing, and its status", "", http.StatusNoContent, nil, ``, "bad_answer"},
		{"half an answer", "", 0, jsonType, in("v1", allowed)[:90], "bad_answer"},
		{"a web page", "", 0, http.Header{"Content-Type": {"text/html"}}, `<html>`, "bad_answer"},
		{"a Status", "", 0, jsonType, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403}`, "bad_answer"},

		{"another content type does not matter", "", 0, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, in("v1", allowed), "allowed"},
		{"a content type that is none", "", 0, http.Header{"Content-Type": {"application/json; charset"}}, in("v1", allowed), "bad_answer"},
		{"status 201", "", 201, jsonType, in("v1", allowed), "allowed"},
		{"status 206", "", 206, jsonType, in("v1", allowed), "allowed"},
		{"status 207", "", 207, jsonType, in("v1", allowed), "bad_answer"},
		{"status 301", "", 301, http.Header{"Location": {"/elsewhere"}}, ``, "bad_answer"},
		{"status 304", "", 304, nil, ``, "bad_answer"},
		{"status 307", "", 307, http.Header{"Location": {"/elsewhere"}}, in("v1", allowed), "bad_answer"},
		{"status 400", "", 400, jsonType, in("v1", allowed), "handler"},
		{"status 413", "", 413, nil, ``, "too_large"},
		{"status 429", "", 429, nil, ``, "overload"},
		{"status 500", "", 500, nil, `boom`, "handler"},
		{"status 503", "", 503, nil, ``, "unavailable"},

		{"a denial with a patch that is none", "", 0, jsonType, in("v1", denied+`,"patch":5`), "denied"},
		{"a denial that is cut off", "", 0, jsonType, in("v1", denied)[:118], "denied"},
		{"a denial under status 403", "", 403, jsonType, in("v1", denied), "denied"},
		{"a denial under a content type that is none", "", 0, http.Header{"Content-Type": {";"}}, in("v1", denied), "denied"},
		{"a denial under another uid", "", 0, jsonType, strings.Replace(in("v1", denied), "%UID%", "x", 1), "bad_answer"},

		{"a patch is for the chain to judge", "", 0, jsonType, in("v1", allowed+patch), "allowed"},
		{"an empty patch type shows only here", "", 0, jsonType, in("v1", allowed+`,"patchType":""`), "bad_answer"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := serve(t, saying(t, max(test.status, http.StatusOK), test.header, test.body))
			h := taking(w.hook("/"), stdcmp.Or(test.version, "v1"))
			want(t, ask(t, newClient(t, Options{}), h), test.want)
		})
	}
}

func TestAVerdictIsTheWholeAnswer(t *testing.T) {
	const members = `,"allowed":true,"patch":"W10=","patchType":"x","warnings":["w"],"auditAnnotations":{"k":"v"},"status":{"code":200}`
	whole := func(patch, patchType string) *admissionv1.AdmissionResponse {
		r := &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: patchType, Warnings: []string{"w"}, AuditAnnotations: map[string]string{"k": "v"},
			Status: &admissionv1.Status{Code: 200},
		}
		if patch != "" {
			r.Patch = []byte(patch)
		}
		return r
	}
	for version, verdicts := range map[string][2]*admissionv1.AdmissionResponse{ // of a validating and of a mutating hook
		"v1":      {whole("[]", "x"), whole("[]", "x")},
		"v1beta1": {whole("", ""), whole("[]", "JSONPatch")},
	} {
		w := serve(t, saying(t, http.StatusOK, nil, in(version, members)))
		h := taking(w.hook("/"), version)
		for i, r := range ask(t, newClient(t, Options{}), h, mutating(h)) {
			if diff := cmp.Diff(verdicts[i], r.Verdict, protocmp.Transform(), protocmp.IgnoreFields(&admissionv1.AdmissionResponse{}, "uid")); diff != "" {
				t.Errorf("%s, hook %d (-want +got):\n%s", version, i, diff)
			}
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("followed") })
	for _, status := range []int{301, 302, 303, 307, 308} {
		w := serve(t, func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, elsewhere.URL, status) })
		got := ask(t, newClient(t, Options{}), w.hook("/"))
		want(t, got, "bad_answer")
		if text := got[0].Failure.Error(); !strings.Contains(text, "redirects are not followed") || strings.Contains(text, elsewhere.URL) {
			t.Errorf("it quotes the answer: %s", text)
		}
	}
}

func TestAnAnswerMayBeAsLargeAsTheLimit(t *testing.T) {
	sized := func(members string, size int) string {
		body := in("v1", members)
		return body + strings.Repeat(" ", size-len(withUID(body, "00000000-0000-0000-0000-000000000000")))
	}
	const limit = 4096
	for body, kind := range map[string]string{
		sized(`,"allowed":true`, limit):      "allowed",
		sized(`,"allowed":true`, limit+1):    "bad_answer",
		sized(`,"allowed":false`, limit+1):   "denied", // D1
		sized(`,"allowed":true`, 100*limit):  "bad_answer",
		sized(`,"allowed":false`, 100*limit): "denied",
	} {
		for _, zip := range []bool{false, true} {
			w := serve(t, saying(t, http.StatusOK, nil, body))
			if zip {
				w.Config.Handler = zipped(w.Config.Handler)
			}
			got := ask(t, newClient(t, Options{limits: limits{answerBytes: limit}}), w.hook("/"))
			want(t, got, kind)
		}
	}
}

// zipped compresses answers for callers that take it, as net/http's transport does by itself.
func zipped(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			http.Error(w, "not asked for", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		inner.ServeHTTP(bodyOnly{w, z}, r)
		z.Close()
		_, _ = w.Write(b.Bytes())
	})
}

// bodyOnly writes bodies elsewhere.
type bodyOnly struct {
	http.ResponseWriter
	body *gzip.Writer
}

func (b bodyOnly) Write(p []byte) (int, error) { return b.body.Write(p) }
func (b bodyOnly) WriteHeader(int)             {}

func TestAnAnswerThatEndsTooEarly(t *testing.T) {
	for members, kind := range map[string]string{`,"allowed":true`: "lost", `,"allowed":false`: "denied"} {
		w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
			got := readReview(t, r)
			rw.Header().Set("Content-Length", "1000")
			fmt.Fprint(rw, withUID(in("v1", members), string(got.Request.UID)))
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		want(t, ask(t, newClient(t, Options{}), w.hook("/")), kind)
	}
}

func TestAConnectionThatEndsInPlaceOfAnAnswer(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	got := ask(t, newClient(t, Options{}), w.hook("/"))
	want(t, got, "lost")
	if got[0].Failure.NotStarted {
		t.Error("the webhook may have begun")
	}
}

func TestAHeadThatIsTooLarge(t *testing.T) {
	w := serve(t, saying(t, http.StatusOK, http.Header{"X-Large": {strings.Repeat("x", maxAnswerHeaderBytes)}}, in("v1", `,"allowed":true`)))
	want(t, ask(t, newClient(t, Options{}), w.hook("/")), "lost")
}

func TestSwitchingProtocolsIsNoAnswer(t *testing.T) {
	w := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Connection", "Upgrade")
		rw.Header().Set("Upgrade", "x")
		rw.WriteHeader(http.StatusSwitchingProtocols)
	})
	want(t, ask(t, newClient(t, Options{}), w.hook("/")), "bad_answer")
}

func TestWhatIsWrongWithAClientConfig(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	with := func(url string) *match.Hook {
		h := *w.hook("/")
		h.ClientConfig.URL = &url
		return &h
	}
	noCA, neither := *w.hook("/"), *w.hook("/")
	noCA.ClientConfig.CABundle = []byte("none")
	neither.ClientConfig.URL = nil
	c := newClient(t, Options{})
	for name, h := range map[string]*match.Hook{
		"http":               with(strings.Replace(w.URL, "https", "http", 1)),
		"no host":            with("https:///x"),
		"no URL":             with("https://[::1"),
		"nothing":            with(""),
		"neither":            &neither,
		"a CA that is none":  &noCA,
		"nobody is there":    with("https://127.0.0.1:1"),
		"a port that is not": with("https://127.0.0.1:99999"),
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, c, h)
			want(t, got, "unavailable")
			if !got[0].Failure.NotStarted {
				t.Error("nothing was sent, but it counts as started")
			}
		})
	}
}
