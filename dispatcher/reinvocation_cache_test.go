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

func TestReinvocationCacheKeepsAnOutputForItsLifetime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c, x := newReinvocationCache(), outputDigest{1}
	if c.isOutput(x, now) {
		t.Error("an output is known that was not added")
	}
	c.addOutput(x, now)
	if !c.isOutput(x, now.Add(outputLifetime-1)) {
		t.Error("an output is forgotten too soon")
	}
	if c.isOutput(x, now.Add(outputLifetime)) {
		t.Error("an output is known after its life")
	}
	c.addOutput(x, now.Add(outputLifetime))
	if !c.isOutput(x, now.Add(outputLifetime+1)) {
		t.Error("an output that was put out again is not known")
	}
}

func TestReinvocationCacheIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := newReinvocationCache()
	nth := func(n int) (x outputDigest) {
		binary.BigEndian.PutUint64(x[:], uint64(n))
		return x
	}
	for n := range maxOutputs + 1 {
		c.addOutput(nth(n), now)
		c.addOutput(nth(n), now)
	}
	if c.isOutput(nth(0), now) || !c.isOutput(nth(1), now) || !c.isOutput(nth(maxOutputs), now) {
		t.Error("at the bound, the oldest output has to go, and it alone")
	}
	if len(c.until) != maxOutputs || len(c.order) != maxOutputs {
		t.Errorf("%d and %d outputs are kept, want %d", len(c.until), len(c.order), maxOutputs)
	}
}

// TestOutputDigestCoversWhatHooksSee changes each field of a request: two requests with the same digest would let a
// reinvocation skip a hook that has to be called.
func TestOutputDigestCoversWhatHooksSee(t *testing.T) {
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
	known := digestOutput("r1", whole(), object)
	if known != digestOutput("r1", whole(), object) {
		t.Fatal("the same is not the same")
	}
	if known == digestOutput("r2", whole(), object) || known == digestOutput("r1", whole(), bytes.Replace(object, []byte(`"a":1`), []byte(`"a":2`), 1)) {
		t.Error("another configuration or object is the same output")
	}
	// The uid is another for each stage, and the subresource is the same in every version.
	ignored := map[protoreflect.Name]bool{"uid": true, "request_sub_resource": true}
	whole().ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		r := whole()
		r.ProtoReflect().Clear(f)
		if same := known == digestOutput("r1", r, object); same != ignored[f.Name()] && f.Name() != "dry_run" {
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
		if known == digestOutput("r1", r, object) {
			t.Errorf("%s: the same output", name)
		}
	}
}
