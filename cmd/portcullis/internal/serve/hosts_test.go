package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// hooksWithout are n hooks of which the last one is fail-closed.
func hooksWithout(n int) []*match.Hook {
	out := make([]*match.Hook, n)
	for i := range out {
		out[i] = &match.Hook{
			ID:            match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "c", Name: fmt.Sprint("h", i)},
			FailurePolicy: admissionregistrationv1.Ignore,
		}
	}
	out[n-1].FailurePolicy = admissionregistrationv1.Fail
	return out
}

func TestADispatcherNamesHooksWithoutAHostThatRefuseRequestsFirst(t *testing.T) {
	told, more := unservedHooks(hooksWithout(maxUnserved + 3))
	if len(told) != maxUnserved || more != 3 || told[0].Hook != fmt.Sprint("h", maxUnserved+2) || told[1].Hook != "h0" ||
		told[0].Object != "ValidatingWebhookConfiguration/c" {
		t.Errorf("told %v and %d more", told, more)
	}
	if told, more := unservedHooks(hooksWithout(maxUnserved)); len(told) != maxUnserved || more != 0 {
		t.Errorf("told %d and %d more", len(told), more)
	}
	if told, more := unservedHooks(nil); told != nil || more != 0 {
		t.Errorf("told %v and %d more", told, more)
	}
}

// TestWhenTheLastHostOfAHookHasLeftItIsSaidEverywhere: every request that the hook covers is refused then, and nothing else is
// wrong.
func TestWhenTheLastHostOfAHookHasLeftItIsSaidEverywhere(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	admin := func(path string) string {
		w := httptest.NewRecorder()
		r.app.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Body.String()
	}
	says := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in %s", w, text)
			}
		}
	}
	if got := r.run(configcli.NewApply(), r.documents(), "-f", "-"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	_, stop := r.host(func() error { return nil })
	r.until("InRotation True", "Effective True", `Served True HostsConnected hook "policy.example.com": 1 host, 64 slots`)
	says(admin("/metrics"), `portcullis_hook_hosts{name="policy.example.com",type="validating"} 1`)
	says(r.run(configcli.NewExplain(), "", "vwc", "policy").Out, "policy is in force everywhere\n")

	stop()
	r.until(`Served False NoHost hook "policy.example.com": served on 0 of 1 dispatcher, no host on: test`)
	says(admin("/metrics"), `portcullis_hook_hosts{name="policy.example.com",type="validating"} 0`)
	says(admin("/readyz"), "no host serves policy/policy.example.com")
	explained := r.run(configcli.NewExplain(), "", "vwc", "policy").Out
	says(explained, "policy is in force everywhere, and not served (NoHost): ", "error  no-host-connected", "are refused there")
	says(r.run(configcli.NewGet(), "", "vwc").Out, "False (NoHost)")
	says(r.run(configcli.NewGet(), "", "hr").Out, "False (NoHost)")
	says(r.run(configcli.NewExplain(), "", "hr", "policy").Out, `is in force everywhere, and not served (NoHost): hook "policy.example.com"`)

	r.host(func() error { return nil })
	r.until("Served True HostsConnected")
}
