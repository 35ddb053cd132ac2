package dispatcher

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestOutputsAreKnownForAShortTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o, x := newOutputs(), output{1}
	if o.recall(x, now) {
		t.Error("an output is known that nobody remembered")
	}
	o.remember(x, now)
	if !o.recall(x, now.Add(outputLife-1)) {
		t.Error("an output is forgotten too soon")
	}
	if o.recall(x, now.Add(outputLife)) {
		t.Error("an output is known after its life")
	}
	o.remember(x, now.Add(outputLife))
	if !o.recall(x, now.Add(outputLife+1)) {
		t.Error("an output that was put out again is not known")
	}
}

func TestOutputsAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o := newOutputs()
	nth := func(n int) (x output) {
		binary.BigEndian.PutUint64(x[:], uint64(n))
		return x
	}
	for n := range maxOutputs + 1 {
		o.remember(nth(n), now)
		o.remember(nth(n), now)
	}
	if o.recall(nth(0), now) || !o.recall(nth(1), now) || !o.recall(nth(maxOutputs), now) {
		t.Error("at the bound, the oldest output has to go, and it alone")
	}
	if len(o.until) != maxOutputs || len(o.order) != maxOutputs {
		t.Errorf("%d and %d outputs are kept, want %d", len(o.until), len(o.order), maxOutputs)
	}
}

// TestOutputsDifferInWhateverHooksSee changes each field of a request: a reinvocation that is spared by mistake would be
// a policy that was not asked.
func TestOutputsDifferInWhateverHooksSee(t *testing.T) {
	object := []byte(`{"b":"` + strings.Repeat("x", 64<<10) + `","a":1}`)
	whole := func() *admissionv1.AdmissionRequest {
		dry := false
		return &admissionv1.AdmissionRequest{
			Uid: "u", Cluster: "c", Kind: &admissionv1.GroupVersionKind{Group: "g", Version: "v", Kind: "k"},
			Resource: &admissionv1.GroupVersionResource{Group: "g", Version: "v", Resource: "r"}, SubResource: "s",
			RequestKind:        &admissionv1.GroupVersionKind{Group: "g", Version: "v", Kind: "k"},
			RequestResource:    &admissionv1.GroupVersionResource{Group: "g", Version: "v", Resource: "r"},
			RequestSubResource: "s", Name: "n", Namespace: "ns", Operation: "UPDATE",
			UserInfo: &admissionv1.UserInfo{
				Username: "u", Uid: "u", Groups: []string{"g"},
				Extra: map[string]*admissionv1.ExtraValue{"k": {Items: []string{"v"}}},
			},
			OldObject: &admissionv1.Object{Raw: []byte(`{}`)}, Options: &admissionv1.Object{Raw: []byte(`{}`)}, DryRun: &dry,
		}
	}
	known := outputOf("r1", whole(), object)
	if known != outputOf("r1", whole(), object) {
		t.Fatal("the same is not the same")
	}
	if known == outputOf("r2", whole(), object) || known == outputOf("r1", whole(), bytes.Replace(object, []byte(`"a":1`), []byte(`"a":2`), 1)) {
		t.Error("another configuration or object is the same output")
	}
	// The uid is another for each stage, and the subresource is that of the request in every version.
	ignored := map[protoreflect.Name]bool{"uid": true, "request_sub_resource": true}
	whole().ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		r := whole()
		r.ProtoReflect().Clear(f)
		if same := known == outputOf("r1", r, object); same != ignored[f.Name()] && f.Name() != "dry_run" {
			t.Errorf("without %s: same output: %v, want %v", f.Name(), same, ignored[f.Name()])
		}
		return true
	})
	for name, change := range map[string]func(*admissionv1.AdmissionRequest){
		"dry run": func(r *admissionv1.AdmissionRequest) { r.DryRun = proto.Bool(true) },
		"user":    func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "v" },
		"groups":  func(r *admissionv1.AdmissionRequest) { r.UserInfo.Groups = []string{"g", ""} },
		"extra":   func(r *admissionv1.AdmissionRequest) { r.UserInfo.Extra["k"].Items = []string{"v", "w"} },
		"shifted": func(r *admissionv1.AdmissionRequest) { r.Name, r.Namespace = "nn", "s" },
	} {
		r := whole()
		change(r)
		if known == outputOf("r1", r, object) {
			t.Errorf("%s: the same output", name)
		}
	}
}
