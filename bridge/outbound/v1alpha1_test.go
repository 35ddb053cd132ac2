package outbound

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// sayingAlpha is a webhook of Kubernetes 1.8 that answers with bytes, and hands on the body of each request.
func sayingAlpha(t *testing.T, status int, body string, asked chan<- string) *webhook {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked <- string(got)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// alpha is an answer with the given members in its status.
func alpha(members string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","status":{` + members + `}}`
}

func TestWhatAnAnswerOfAWebhookOfKubernetes18Means(t *testing.T) {
	const allowed, denied = `"allowed":true`, `"allowed":false,"status":{"code":403,"message":"no","reason":"Forbidden"}`
	for name, test := range map[string]struct {
		status     int
		body, want string
	}{
		"an allowance": {200, alpha(allowed), "allowed"},
		"a denial":     {200, alpha(denied), "denied"},
		"nothing is said: 1.8 took it as a denial": {200, alpha(``), "denied"},
		"no status":                             {200, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1"}`, "denied"},
		"no kind and version":                   {200, `{"status":{"allowed":true}}`, "allowed"},
		"the spec is sent back":                 {200, strings.Replace(alpha(allowed), `"status"`, `"spec":{"name":"w","object":{}},"status"`, 1), "allowed"},
		"an answer of today":                    {200, in("v1", `,"allowed":true`), "bad_answer"},
		"half an answer":                        {200, alpha(allowed)[:80], "bad_answer"},
		"a Status":                              {200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, "bad_answer"},
		"a status that is a word":               {200, alpha(`"allowed":true,"status":"fine"`), "bad_answer"},
		"an allowance under status 500":         {500, alpha(allowed), "handler"},
		"a denial under status 500":             {500, alpha(denied), "denied"},
		"a denial that is cut off":              {200, alpha(denied)[:110], "denied"},
		"a denial with a status that is a word": {200, alpha(`"allowed":false,"status":"no"`), "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			w := sayingAlpha(t, test.status, test.body, make(chan string, 1))
			want(t, ask(t, newClient(t, Options{}), taking(w.hook("/"), "v1alpha1")), test.want)
		})
	}
}

func TestADenialOfAWebhookOfKubernetes18IsTheWholeAnswer(t *testing.T) {
	w := sayingAlpha(t, http.StatusOK, alpha(`"allowed":false,"status":{"code":422,"message":"no","reason":"Invalid","details":{"name":"w"}},`+
		`"patch":"W10=","warnings":["w"],"uid":"x"`), make(chan string, 1))
	got := ask(t, newClient(t, Options{}), taking(w.hook("/"), "v1alpha1"))[0].Verdict
	want := &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
		Code: 422, Message: "no", Reason: "Invalid", Details: &admissionv1.StatusDetails{Name: "w"},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("verdict (-want +got):\n%s", diff)
	}
}

func TestWebhooksOfKubernetes18AreAskedAsItAsked(t *testing.T) {
	asked := make(chan string, 2)
	w := sayingAlpha(t, http.StatusOK, alpha(`"allowed":true`), asked)
	h := taking(w.hook("/"), "v1alpha1")
	want(t, ask(t, newClient(t, Options{}), h, h), "allowed", "allowed")
	first, second := <-asked, <-asked
	const wanted = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{` +
		`"kind":{"group":"example.com","version":"v1","kind":"Widget"},` +
		`"object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}},"oldObject":null,` +
		`"operation":"CREATE","name":"w","namespace":"default","resource":{"group":"example.com","version":"v1","resource":"widgets"},` +
		`"userInfo":{"username":"jane"}},"status":{"allowed":false}}`
	if diff := cmp.Diff(wanted, first); diff != "" {
		t.Errorf("review (-want +got):\n%s", diff)
	}
	if first != second {
		t.Errorf("two webhooks were asked differently: %s", second)
	}
}

func TestAMutatingHookIsNotAskedAsOfKubernetes18(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	want(t, ask(t, newClient(t, Options{}), mutating(taking(w.hook("/"), "v1alpha1"))), "unavailable")
}
