package observe

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/storage/names"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestTheNameOfAnObjectIsThatOfLogsAndRecords(t *testing.T) {
	long := strings.Repeat("a", 300)
	for title, test := range map[string]struct {
		group, resource, name, object string
		want                          string
	}{
		"a name":                             {"", "pods", "web", `{"metadata":{"generateName":"web-"}}`, "web"},
		"none yet":                           {"", "pods", "", `{"metadata":{"generateName":"web-6f-"}}`, "web-6f-*"},
		"one in escapes":                     {"", "pods", "", `{"metadata":{"generateName":"w\u0065b-"}}`, "web-*"},
		"neither":                            {"", "pods", "", `{"metadata":{}}`, ""},
		"a field like it":                    {"", "pods", "", `{"generateName":"a","metadata":{"labels":{"generateName":"b"}}}`, ""},
		"no text":                            {"", "pods", "", `{"metadata":{"generateName":7}}`, ""},
		"no object":                          {"", "pods", "", "", ""},
		"a Secret":                           {"", "secrets", "hunter2", `{}`, ""},
		"a Secret without a name":            {"", "secrets", "", `{"metadata":{"generateName":"hunter2-"}}`, ""},
		"a custom resource of the same name": {"example.com", "secrets", "", `{"metadata":{"generateName":"a-"}}`, "a-*"},
		"one that the API server cuts":       {"", "pods", "", `{"metadata":{"generateName":"` + long + `"}}`, long[:58] + "*"},
	} {
		got := objectName(&admissionv1.AdmissionRequest{
			Resource: &admissionv1.GroupVersionResource{Group: test.group, Version: "v1", Resource: test.resource},
			Name:     test.name, Operation: "CREATE", Object: &admissionv1.Object{Raw: []byte(test.object)},
		})
		if got != test.want {
			t.Errorf("%s: %q, want %q", title, got, test.want)
		}
	}
	if made := names.SimpleNameGenerator.GenerateName(long); !strings.HasPrefix(made, long[:58]) || strings.HasPrefix(made, long[:59]) {
		t.Errorf("the API server makes %s", made)
	}
}
