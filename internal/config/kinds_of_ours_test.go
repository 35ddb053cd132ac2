package config

import (
	"strings"
	"testing"
)

func TestAHookConfigurationIsTheWebhookConfigurationOfItsName(t *testing.T) {
	for written, want := range map[string]string{
		"ValidatingHookConfiguration": validatingKind, "MutatingHookConfiguration": mutatingKind,
	} {
		document := strings.Replace(ruledHooks, "KIND", want, 1)
		kubernetes, _ := decode("f", []byte(document))
		ours := strings.Replace(strings.Replace(document, admissionregistrationV1, "portcullis.dev/v1", 1), want, written, 1)
		objects, problems := decode("f", []byte(ours))
		if problems.Err() != nil || len(objects) != 1 || len(kubernetes) != 1 {
			t.Fatalf("%s: %v", written, problems)
		}
		o := objects[0]
		if o.Key != (Key{Kind: want, Name: "ruled"}) || o.Digest != kubernetes[0].Digest || o.WrittenKind() != written {
			t.Errorf("%s is %s, written as %s, and means another thing", written, o.Key, o.WrittenKind())
		}
		_, problems = decode("f", []byte(strings.Replace(ours, "timeoutSeconds: 5", "timeoutSeconds: 50", 1)))
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), written+` "ruled": webhooks[1].timeoutSeconds`) {
			t.Errorf("%s: error %v, want one at its field", written, err)
		}
	}
}
