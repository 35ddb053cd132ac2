package answers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	// maxMessage bounds the quotation of a message, in bytes.
	maxMessage = 256
	// maxCauses bounds the causes of an error that are kept.
	maxCauses = 8
)

// refusal is an error of the API server as client-go may read it. Of a metav1.Status it has the reason and the start of the message. Of any
// other body it has nothing: it may be the page of a server that the cluster's owner is not to read.
func (t Transport) refusal(r *http.Response) *http.Response {
	var said metav1.Status
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxErrorBytes+1))
	r.Body.Close()
	ok := err == nil && len(body) <= MaxErrorBytes && isJSON(r.Header) && json.Unmarshal(body, &said) == nil
	header := http.Header{"Content-Type": {"text/plain"}}
	body = fmt.Appendf(nil, "HTTP %d, without the Status of an API server", r.StatusCode)
	if ok && said.Kind == "Status" && said.Status == metav1.StatusFailure {
		header.Set("Content-Type", mediaType)
		short := trimmed(&said, r.StatusCode)
		if t.WholeErrors {
			short.Message = printable(identity.Redact(said.Message), MaxErrorBytes)
		}
		body, _ = json.Marshal(short) //nolint:errchkjson // strings and numbers alone
	}
	if after := r.Header.Get("Retry-After"); after != "" {
		header.Set("Retry-After", after)
	}
	r.Header, r.Body, r.ContentLength = header, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}

// trimmed keeps the fields of a Status that callers decide by, and the start of its message.
func trimmed(s *metav1.Status, code int) *metav1.Status {
	short := &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: metav1.StatusReason(identifier(string(s.Reason))), Message: fmt.Sprintf("the API server answered HTTP %d", code),
	}
	if text := printable(identity.Redact(s.Message), maxMessage); text != "" { // it quotes the URL of an entry that failed
		short.Message += fmt.Sprintf(": %q", text)
	}
	if len(s.Continue) <= MaxContinueBytes && !strings.ContainsFunc(s.Continue, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
		short.Continue = s.Continue // of an old list, by which it goes on
	}
	if s.Details == nil {
		return short
	}
	short.Details = &metav1.StatusDetails{RetryAfterSeconds: s.Details.RetryAfterSeconds}
	for _, c := range s.Details.Causes[:min(len(s.Details.Causes), maxCauses)] {
		short.Details.Causes = append(short.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(identifier(string(c.Type)))})
	}
	return short
}

// identifier is a name of ASCII letters and digits, as reasons of Kubernetes are; empty for any other text.
func identifier(s string) string {
	if len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return ""
	}
	return s
}

// printable is the start of a text, in one line.
func printable(s string, most int) string {
	s = strings.ToValidUTF8(s[:min(len(s), most)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
