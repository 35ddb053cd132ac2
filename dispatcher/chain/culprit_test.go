package chain

import (
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func TestAFailureNamesInstancePhaseAndTheCommandThatShowsIt(t *testing.T) {
	const ms = time.Millisecond
	traced := trace.TraceID{0x4b, 15: 0x36}
	for name, tt := range map[string]struct {
		webhook bool
		trace   trace.TraceID
		timing  review.Timing
		want    string
	}{
		"nobody had it":           {want: "portcullis analyze u1"},
		"nobody had it, traced":   {trace: traced, want: "portcullis analyze 4b000000000000000000000000000036"},
		"it waited for a replica": {timing: review.Timing{Queued: 998 * ms}, want: "queued 998ms; portcullis analyze u1"},
		"it waits on a session":   {timing: review.Timing{Queued: 998 * ms, Instance: "vm-7"}, want: `host instance "vm-7": queued 998ms; portcullis analyze u1`},
		"the host was not heard of since": {
			timing: review.Timing{Queued: ms / 10, Wire: 900 * ms, Instance: "vm-7"}, want: `host instance "vm-7": on the way 900ms; portcullis analyze u1`,
		},
		"its handler has it": {
			trace: traced, timing: review.Timing{Queued: 2 * ms, Host: 900*ms + ms/3, Instance: "vm-7"},
			want: `host instance "vm-7": queued 2ms, in the handler 900ms; portcullis analyze 4b000000000000000000000000000036`,
		},
		"it failed at once": {timing: review.Timing{Host: ms / 10, Instance: "vm-7"}, want: `host instance "vm-7"; portcullis analyze u1`},
		"a webhook has it": {
			webhook: true, timing: review.Timing{Wire: time.Second, Instance: "policy.svc:443"}, want: `webhook "policy.svc:443": called 1s; portcullis analyze u1`,
		},
		"the name of the instance is long": {
			timing: review.Timing{Instance: strings.Repeat("x", 300)}, want: `host instance "` + strings.Repeat("x", maxInstanceBytes) + `"; portcullis analyze u1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &call{
				Call:   review.Call{Hook: &match.Hook{ID: match.HookID{Name: "x.example.com"}, Route: match.Route{Stream: !tt.webhook}}},
				result: review.Fail(review.FailureTimeout, "no verdict in time"),
			}
			c.result.Timing = tt.timing
			o := &Options{Request: &review.Request{Admission: &admissionv1.AdmissionRequest{Uid: "u1"}}, TraceID: tt.trace}
			want := `failed calling webhook "x.example.com": failed to call webhook: timeout: context deadline exceeded: no verdict in time [` + tt.want + "]"
			if got := failedCall(o, c).GetMessage(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// A uid is untrusted text: unless a shell reads it as a word, it is in no command.
func TestAUIDIsInACommandIfItIsAWord(t *testing.T) {
	long := strings.Repeat("a", maxUIDBytes+1)
	for uid, want := range map[string]string{
		"705ab4f5-6393-11e8-b7cc-42010a800002": "portcullis analyze 705ab4f5-6393-11e8-b7cc-42010a800002",
		"u1; curl x":                           "review u1; curl x", "$(x)": "review $(x)", "`x`": "review `x`", "--help": "review --help", "a\nb": "review a\nb", "é": "review é", "": "review ",
		long: "portcullis analyze " + long[1:],
	} {
		o := &Options{Request: &review.Request{Admission: &admissionv1.AdmissionRequest{Uid: uid}}}
		if got := analyzed(o); got != want {
			t.Errorf("%q: %q, want %q", uid, got, want)
		}
	}
}
