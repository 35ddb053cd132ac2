package chain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// allDenied is the status of a request that hooks h0, h1, ... deny, of which the first asks for all denials.
func allDenied(t *testing.T, denials []*admissionv1.Status) *admissionv1.Status {
	t.Helper()
	o := chain.Options{
		Request:  &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Admission: &admissionv1.AdmissionRequest{Uid: "u1"}},
		Subject:  subject{},
		Deadline: epoch.Add(time.Minute),
	}
	for i := range denials {
		o.Hooks = append(o.Hooks, &match.Hook{
			ID:      match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Name: fmt.Sprintf("h%d", i)},
			Timeout: time.Second, SideEffects: "None", Route: match.Route{AllDenials: i == 0},
		})
	}
	m := chain.NewValidate(o)
	m.Next(epoch)
	for i := len(denials) - 1; i >= 0; i-- {
		m.Deliver(i, review.Result{Verdict: &admissionv1.AdmissionResponse{Status: denials[i]}})
	}
	m.Next(epoch)
	answer, ok := m.Answer()
	if !ok {
		t.Fatal("no answer")
	}
	return answer.Response.GetStatus()
}

func TestManyDenialsAreCounted(t *testing.T) {
	for n, want := range map[int]string{
		16: `16 hooks denied the request: hook "h0" denied the request: no; hook "h1" denied`,
		17: `17 hooks denied the request: hook "h0" denied the request: no; hook "h1" denied`,
	} {
		denials := make([]*admissionv1.Status, n)
		for i := range denials {
			denials[i] = &admissionv1.Status{Message: "no"}
		}
		got := allDenied(t, denials).GetMessage()
		if !strings.HasPrefix(got, want) || strings.Count(got, "hook \"h") != 16 || strings.HasSuffix(got, "; and 1 more") != (n == 17) {
			t.Errorf("%d denials: %s", n, got)
		}
	}
}

func TestLongDenialsAreCut(t *testing.T) {
	const head = `hook "h1" denied the request: `
	for name, text := range map[string]string{
		"as long as may be": strings.Repeat("x", 1024-len(head)),
		"one too long":      strings.Repeat("x", 1025-len(head)),
		"cut in a letter":   strings.Repeat("é", 1024),
	} {
		got := allDenied(t, []*admissionv1.Status{{Message: "first"}, {Message: text}}).GetMessage()
		_, told, _ := strings.Cut(got, "; ")
		whole := len(head)+len(text) <= 1024
		if !strings.HasPrefix(told, head) || len(told) > 1024 || !utf8.ValidString(told) || strings.HasSuffix(told, "...") == whole || (whole && told != head+text) {
			t.Errorf("%s: %d bytes, %s", name, len(told), told)
		}
	}
}

func TestASingleDenialIsToldAsItIs(t *testing.T) {
	text := strings.Repeat("x", 4096)
	if got := allDenied(t, []*admissionv1.Status{{Message: text, Reason: "Because", Code: 422}}); got.GetMessage() != `hook "h0" denied the request: `+text ||
		got.GetReason() != "Because" || got.GetCode() != 422 || got.GetDetails() != nil {
		t.Errorf("got %v", got)
	}
}

func TestCausesOfAllDenialsAreBounded(t *testing.T) {
	causes := func(n, bytes int) *admissionv1.Status {
		s := &admissionv1.Status{Details: &admissionv1.StatusDetails{Name: "x"}}
		for range n {
			s.Details.Causes = append(s.Details.Causes, &admissionv1.StatusCause{Message: strings.Repeat("x", bytes)})
		}
		return s
	}
	for _, c := range []struct {
		name          string
		first, second *admissionv1.Status
		want          int
		wantName      string
	}{
		{"all find room", causes(2, 1), causes(62, 1), 64, "x"},
		{"those of the first stay", causes(70, 1), causes(3, 1), 70, "x"},
		{"one too many", causes(2, 1), causes(63, 1), 64, "x"},
		{"as many bytes as may be", causes(1, 1), causes(2, 8<<10), 3, "x"},
		{"one byte too many", causes(1, 1), causes(2, 8<<10+1), 2, "x"},
		{"the first may be long", causes(1, 31<<10), causes(1, 1), 2, "x"},
		{"the first has no details", &admissionv1.Status{}, causes(1, 1), 1, ""},
	} {
		before := len(c.first.GetDetails().GetCauses())
		details := allDenied(t, []*admissionv1.Status{c.first, c.second}).GetDetails()
		if len(details.GetCauses()) != c.want || details.GetName() != c.wantName || len(c.first.GetDetails().GetCauses()) != before {
			t.Errorf("%s: %d causes, want %d; details of %q", c.name, len(details.GetCauses()), c.want, details.GetName())
		}
	}
}
