package session

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

func TestNobodyWaitsForTheHostsOfAHookInShadow(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		snapshot, _ := match.Compile(match.Input{
			Objects: []match.Object{{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "a.example.com"}},
			}}},
			Routes: []match.RouteBinding{{Configuration: "c", Route: match.Route{Stream: true, Hosts: []string{"host"}, Shadow: shadow}}},
		})
		router, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		router.Update(snapshot)
		if missing := router.Ready(); (len(missing) == 0) != shadow {
			t.Errorf("in shadow is %t: missing are %q", shadow, missing)
		}
	}
}
