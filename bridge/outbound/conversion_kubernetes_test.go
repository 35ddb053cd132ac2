package outbound

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	upstream "k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
)

// conversionComparison is a conversion webhook behind the converter of k8s.io/apiextensions-apiserver and behind ours.
type conversionComparison struct {
	original runtime.ObjectConvertor
	ours     *custom.Definition
	caller   custom.Caller

	mu    sync.Mutex
	reply reply // %OBJECT% in its body is the object, converted
	asked []map[string]any
}

func newConversionComparison(t testing.TB, reviewVersion string) *conversionComparison {
	t.Helper()
	x := &conversionComparison{caller: newClient(t, Options{RetryInterval: 1}).Conversions("prod-1")}
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) { x.answer(t, rw, r) })
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}, {Name: "v2", Served: true}},
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: w.converter("/convert"), ConversionReviewVersions: []string{reviewVersion}},
			},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names},
	}
	factory, err := upstream.NewCRConverterFactory(webhookutil.NewDefaultServiceResolver(),
		func(r webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver { return r })
	if err != nil {
		t.Fatal(err)
	}
	if x.original, _, err = factory.NewConverter(crd); err != nil {
		t.Fatal(err)
	}
	if x.ours, err = custom.Compile(crd); err != nil {
		t.Fatal(err)
	}
	return x
}

// answer is the webhook: it converts widgets, and answers as the script says.
func (x *conversionComparison) answer(t testing.TB, w http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		t.Errorf("no review: %v", err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	request, _ := review["request"].(map[string]any)
	uid, _ := request["uid"].(string)
	request["uid"] = "%UID%"
	x.asked = append(x.asked, map[string]any{
		"review": review, "path": r.URL.Path, "query": r.URL.RawQuery, "content type": r.Header.Get("Content-Type"), "accept": r.Header.Get("Accept"),
	})
	if x.reply.Drop {
		panic(http.ErrAbortHandler)
	}
	for name, values := range x.reply.Header {
		w.Header()[name] = values
	}
	objects, _ := request["objects"].([]any)
	object, _ := objects[0].(map[string]any)
	object["apiVersion"] = request["desiredAPIVersion"]
	converted, err := json.Marshal(object)
	if err != nil {
		t.Error(err)
	}
	object["apiVersion"] = "example.com/v1"
	w.WriteHeader(x.reply.Status)
	_, _ = io.WriteString(w, strings.NewReplacer("%UID%", uid, "%OBJECT%", string(converted)).Replace(x.reply.Body))
}

// compare converts an object here and there and says whether that worked.
func (x *conversionComparison) compare(t testing.TB, raw []byte, r reply) bool {
	t.Helper()
	x.reply = r
	to := schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}
	in, want := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := in.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	want.SetGroupVersionKind(to)
	wantErr := x.original.Convert(in, want, nil)
	there, begun := x.take(), time.Now()
	got, err := x.ours.Convert(t.Context(), raw, to, x.caller)
	here := x.take()
	for _, question := range here { // the original tells the time that it had at first each time it asks again
		query, _ := question["query"].(string)
		checkTold(t, query, conversionTimeout, begun.Add(conversionTimeout))
		question["query"] = "timeout=" + conversionTimeout.String()
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v, want %v, of %s after %s", err, wantErr, raw, r)
	}
	if diff := cmp.Diff(there, here); diff != "" {
		t.Errorf("the webhook was asked (-want +got), of %s after %s:\n%s", raw, r, diff)
	}
	if err != nil {
		return false
	}
	converted := &unstructured.Unstructured{}
	if err := converted.UnmarshalJSON(got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Object, converted.Object); diff != "" {
		t.Errorf("of %s after %s (-want +got):\n%s", raw, r, diff)
	}
	return true
}

// take returns the questions to the webhook since the last time.
func (x *conversionComparison) take() []map[string]any {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer func() { x.asked = nil }()
	return x.asked
}

// conversionOf is a good answer around objects.
func conversionOf(version, objects string) string {
	return `{"apiVersion":"apiextensions.k8s.io/` + version + `","kind":"ConversionReview","response":{"uid":"%UID%",` +
		`"result":{"status":"Success"},"convertedObjects":[` + objects + `]}}`
}

func TestConversionsOverHTTPSAreThoseOfTheOriginal(t *testing.T) {
	const object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u","labels":{"a":"1"}},"spec":{"size":3}}`
	again := http.Header{"Retry-After": {"0"}}
	for _, version := range []string{"v1", "v1beta1"} {
		x := newConversionComparison(t, version)
		good := conversionOf(version, "%OBJECT%")
		for name, c := range map[string]struct {
			reply reply
			want  string // ok, refused, or v1 when v1 alone refuses
		}{
			"converted":                    {reply{Status: 200, Body: good}, "ok"},
			"201":                          {reply{Status: 201, Body: good}, "ok"},
			"206":                          {reply{Status: 206, Body: good}, "ok"},
			"207":                          {reply{Status: 207, Body: good}, "refused"},
			"204":                          {reply{Status: 204}, "refused"},
			"400":                          {reply{Status: 400, Body: good}, "refused"},
			"500":                          {reply{Status: 500, Body: good}, "refused"},
			"500, again":                   {reply{Status: 500, Header: again, Body: good}, "refused"},
			"429, again":                   {reply{Status: 429, Header: again}, "refused"},
			"a redirect to nowhere":        {reply{Status: 302, Body: good}, "refused"},
			"a Status":                     {reply{Status: 500, Body: `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no"}`}, "refused"},
			"a Status of success":          {reply{Status: 200, Body: `{"apiVersion":"v1","kind":"Status","status":"Success"}`}, "refused"},
			"the connection is lost":       {reply{Drop: true}, "refused"},
			"cut off":                      {reply{Status: 200, Header: http.Header{"Content-Length": {"1000"}}, Body: good}, "refused"},
			"of type text/plain":           {reply{Status: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: good}, "ok"},
			"of a type that is none":       {reply{Status: 200, Header: http.Header{"Content-Type": {"text/ "}}, Body: good}, "refused"},
			"empty":                        {reply{Status: 200}, "refused"},
			"garbage":                      {reply{Status: 200, Body: "<html>"}, "refused"},
			"another uid":                  {reply{Status: 200, Body: strings.Replace(good, "%UID%", "x", 1)}, "v1"},
			"no kind":                      {reply{Status: 200, Body: strings.Replace(good, `"kind":"ConversionReview",`, "", 1)}, "v1"},
			"two objects":                  {reply{Status: 200, Body: conversionOf(version, "%OBJECT%,%OBJECT%")}, "refused"},
			"no object":                    {reply{Status: 200, Body: conversionOf(version, "")}, "refused"},
			"a failure":                    {reply{Status: 200, Body: strings.Replace(good, "Success", "Failure", 1)}, "refused"},
			"another name":                 {reply{Status: 200, Body: conversionOf(version, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"x","namespace":"n","uid":"u"}}`)}, "refused"},
			"labels, and other metadata":   {reply{Status: 200, Body: conversionOf(version, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u","generation":7,"labels":{"b":"2"}}}`)}, "ok"},
			"the version that it was in":   {reply{Status: 200, Body: conversionOf(version, object)}, "refused"},
			"a megabyte":                   {reply{Status: 200, Body: good + strings.Repeat(" ", 1<<20)}, "ok"},
			"what is not JSON in a string": {reply{Status: 200, Body: conversionOf(version, "\"\x01\"")}, "refused"},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				ok := x.compare(t, []byte(object), c.reply)
				if want := c.want == "ok" || c.want == "v1" && version == "v1beta1"; ok != want {
					t.Errorf("converted: %v, want %s", ok, c.want)
				}
			})
		}
	}
}

func TestRandomConversionsOverHTTPSAreThoseOfTheOriginal(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	x := newConversionComparison(t, "v1")
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	for range 300 {
		object := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"labels":%s,"generation":%d},"spec":{"a":%s}}`,
			one("w", "x"), one("{}", "null", `{"a":"1"}`), rng.IntN(3), one("1", "1.5", "[]", `"ü\u2028"`, "9007199254740993", "1e300", "null"))
		converted := one("%OBJECT%", "%OBJECT%", fmt.Sprintf(`{"apiVersion":"example.com/%s","kind":%q,"metadata":{"name":%q,"labels":%s},"x":%s}`,
			one("v2", "v2", "v2", "v1"), one("Widget", "Widget", "Widget", "Gadget"), one("w", "x"),
			one("{}", "null", "7", `{"a":"2"}`, `{"a":"b c"}`), one("1.0", "18446744073709551616", "{}")))
		body := conversionOf("v1", converted)
		x.compare(t, []byte(object), reply{Status: []int{200, 200, 200, 200, 400, 500}[rng.IntN(6)], Body: one(body, body, body, body[:rng.IntN(len(body))])})
	}
}
