// Package replies makes answers of webhooks, right and wrong ones, for tests that compare two callers' decisions from
// them.
package replies

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
)

// Reply is an answer of a webhook.
type Reply struct {
	Status int
	Header http.Header
	Body   string // %UID% is the uid of the review
	Drop   bool   // the connection is closed in its place
}

// Write sends the reply to a review with a uid.
func (r Reply) Write(w http.ResponseWriter, uid string) {
	if r.Drop {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to close a connection
	}
	for name, values := range r.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.Status)
	_, _ = io.WriteString(w, strings.ReplaceAll(r.Body, "%UID%", uid)) // The caller may be gone.
}

// Random makes replies, right and wrong ones. It is not safe for concurrent use.
type Random struct{ *rand.Rand }

func (s Random) oneOf(choices ...string) string { return choices[s.IntN(len(choices))] }

// rarely returns a choice now and then, but mostly usual.
func (s Random) rarely(usual string, choices ...string) string {
	if s.IntN(12) > 0 {
		return usual
	}
	return s.oneOf(choices...)
}

// Next makes a reply to a review in a version, "v1" or "v1beta1". A patch in it is for an object with a spec.
func (s Random) Next(version string) Reply {
	r := Reply{Status: http.StatusOK, Header: http.Header{}, Drop: s.IntN(40) == 0}
	if s.IntN(8) == 0 {
		// Without those whose Location would be followed: that redirects are not is a deviation.
		r.Status = []int{201, 204, 206, 207, 300, 304, 400, 403, 404, 409, 413, 429, 500, 502, 503}[s.IntN(15)]
	}
	if s.IntN(60) == 0 {
		r.Status, r.Header["Retry-After"] = 503, []string{"0"}
	}
	r.Header["Content-Type"] = []string{s.rarely("application/json", "text/plain", "application/json; charset", "", "text/html; charset=utf-8", ";")}
	r.Body = fmt.Sprintf(`{"kind":%s,"apiVersion":%s,"response":%s}`,
		s.rarely(`"AdmissionReview"`, `"Status"`, `""`, `null`, `1`),
		s.rarely(`"admission.k8s.io/`+version+`"`, `"admission.k8s.io/v1"`, `"admission.k8s.io/v1beta1"`, `"v1"`, `""`),
		s.rarely(s.response(), "null", "[]", "{}"))
	switch s.IntN(30) {
	case 0:
		r.Body = r.Body[:s.IntN(len(r.Body))]
	case 1:
		r.Body = s.oneOf("", "ok", "<html>", "null", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"message":"no"}`)
	}
	if r.Status == http.StatusNoContent || r.Status == http.StatusNotModified {
		r.Body = ""
	}
	return r
}

func (s Random) response() string {
	members := []string{`"uid":` + s.rarely(`"%UID%"`, `"x"`, `""`, `5`)}
	add := func(name, value string) { members = append(members, `"`+name+`":`+value) }
	add("allowed", s.rarely(s.oneOf("true", "true", "false"), "null", `"true"`))
	if s.IntN(3) == 0 {
		add("status", s.rarely(fmt.Sprintf(`{"code":%s,"message":%s,"reason":%s,"status":%s}`, s.oneOf("0", "200", "400", "403", "409", "422", "429", "500"),
			s.oneOf(`""`, `"not signed"`), s.oneOf(`""`, `"Forbidden"`), s.oneOf(`""`, `"Failure"`, `"Success"`)), "null", `"no"`, "{}"))
	}
	if s.IntN(3) == 0 {
		// {"op":"add","path":"/spec/added","value":1}; null; []; {}; a removal of an absent member
		add("patch", s.rarely(`"W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvYWRkZWQiLCJ2YWx1ZSI6MX1d"`, `"bnVsbA=="`, `"W10="`, `"e30="`, `""`, `"?"`, "null",
			`"W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL25vbmUifV0="`))
	}
	if s.IntN(3) == 0 {
		add("patchType", s.rarely(`"JSONPatch"`, `""`, `"MergePatch"`, "null", "1"))
	}
	if s.IntN(4) == 0 {
		add("warnings", s.rarely(`["careful"]`, `"careful"`, `[1]`, `[]`, "null"))
	}
	if s.IntN(8) == 0 {
		add("auditAnnotations", s.rarely(`{"a":"b"}`, `{"a":1}`, "[]", "null"))
	}
	return "{" + strings.Join(members, ",") + "}"
}
