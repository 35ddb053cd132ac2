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

func TestAFailureNamesInstancePhaseAndTrace(t *testing.T) {
	const ms = time.Millisecond
	traced := trace.TraceID{0x4b, 15: 0x36}
	for name, tt := range map[string]struct {
		webhook bool
		trace   trace.TraceID
		timing  review.Timing
		want    string
	}{
		"nobody had it":           {want: "review u1"},
		"nobody had it, traced":   {trace: traced, want: "trace 4b000000000000000000000000000036"},
		"it waited for a replica": {timing: review.Timing{Queued: 998 * ms}, want: "queued 998ms; review u1"},
		"it waits on a session":   {timing: review.Timing{Queued: 998 * ms, Instance: "vm-7"}, want: `host instance "vm-7": queued 998ms; review u1`},
		"the host was not heard of since": {
			timing: review.Timing{Queued: ms / 10, Wire: 900 * ms, Instance: "vm-7"}, want: `host instance "vm-7": on the way 900ms; review u1`,
		},
		"its handler has it": {
			trace: traced, timing: review.Timing{Queued: 2 * ms, Host: 900*ms + ms/3, Instance: "vm-7"},
			want: `host instance "vm-7": queued 2ms, in the handler 900ms; trace 4b000000000000000000000000000036`,
		},
		"it failed at once": {timing: review.Timing{Host: ms / 10, Instance: "vm-7"}, want: `host instance "vm-7"; review u1`},
		"a webhook has it": {
			webhook: true, timing: review.Timing{Wire: time.Second, Instance: "policy.svc:443"}, want: `webhook "policy.svc:443": called 1s; review u1`,
		},
		"the name of the instance is long": {
			timing: review.Timing{Instance: strings.Repeat("x", 300)}, want: `host instance "` + strings.Repeat("x", maxInstanceBytes) + `"; review u1`,
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
