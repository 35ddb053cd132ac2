package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// object is an object with a manifest.
func object(name, manifest string) *configv1.ConfigObject {
	return &configv1.ConfigObject{Key: &configv1.ConfigKey{Kind: "Role", Name: name}, Manifest: &admissionv1.Object{Raw: []byte(manifest)}}
}

func TestManifestsAreJSONInPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		message *configv1.ListResponse
		want    string
	}{
		"nothing": {&configv1.ListResponse{}, `{}`},
		"two objects": {
			&configv1.ListResponse{Objects: []*configv1.ConfigObject{object("a", ` {"b" : [1.0, "<"]}`), object("c", `{}`)}},
			`{"objects":[{"key":{"kind":"Role","name":"a"},"manifest":{"b":[1.0,"<"]}},{"key":{"kind":"Role","name":"c"},"manifest":{}}]}`,
		},
		"no manifest": {
			&configv1.ListResponse{Objects: []*configv1.ConfigObject{object("a", "")}}, `{"objects":[{"key":{"kind":"Role","name":"a"},"manifest":{}}]}`,
		},
		"a text that looks like one": {
			&configv1.ListResponse{Findings: []*configv1.Finding{{Message: manifestBegins + "e30=" + manifestEnds, Manifest: 3}}},
			`{"findings":[{"message":"\"manifest\":{\"raw\":\"e30=\"}","manifest":3}]}`,
		},
		"a manifest that holds one": {
			&configv1.ListResponse{Objects: []*configv1.ConfigObject{object("a", `{"x":{"manifest":{"raw":"e30="}}}`)}},
			`{"objects":[{"key":{"kind":"Role","name":"a"},"manifest":{"x":{"manifest":{"raw":"e30="}}}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Marshal(tc.message)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := Marshal(object("a", "kind: Role")); err == nil {
		t.Error("a manifest that is no JSON is written")
	}
}

func TestManifestsAreObjectsOrText(t *testing.T) {
	var got configv1.ApplyRequest
	body := `{"manifests": [ {"kind": "Role"}, "kind: Role\n" ], "dryRun": true, "acknowledge": ["a"]}`
	if err := (codec{}).Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.GetManifests()) != 2 || string(got.GetManifests()[0].GetRaw()) != `{"kind": "Role"}` || string(got.GetManifests()[1].GetRaw()) != "kind: Role\n" ||
		!got.GetDryRun() || len(got.GetAcknowledge()) != 1 {
		t.Errorf("read %v", &got)
	}
}

// FuzzTheJSONOfAnObject compares the output with protobuf's own.
func FuzzTheJSONOfAnObject(f *testing.F) {
	f.Add("a", `{"b":1}`, "message")
	f.Add(manifestBegins, `"\"manifest\":{\"raw\":\"`, manifestEnds)
	f.Fuzz(func(t *testing.T, name, manifest, message string) {
		name, message = strings.ToValidUTF8(name, "?"), strings.ToValidUTF8(message, "?")
		o := object(name, manifest)
		o.Findings = []*configv1.Finding{{Message: message}}
		data, err := Marshal(o)
		if !json.Valid([]byte(manifest)) {
			if err == nil && manifest != "" {
				t.Fatalf("%q is no JSON, and was written as %s", manifest, data)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		var want bytes.Buffer
		if err := json.Compact(&want, []byte(manifest)); err != nil || want.String() != string(fields["manifest"]) {
			t.Errorf("manifest %s, want %s", fields["manifest"], &want)
		}
		delete(fields, "manifest")
		rest, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		var back configv1.ConfigObject
		if err := protojson.Unmarshal(rest, &back); err != nil || back.GetKey().GetName() != name || back.GetFindings()[0].GetMessage() != message {
			t.Errorf("read again: %v, %v", &back, err)
		}
	})
}

// FuzzARequestThatIsRead never panics, and reads as many manifests as there are.
func FuzzARequestThatIsRead(f *testing.F) {
	f.Add([]byte(`{"manifests":[{}, "a"], "dryRun":true}`))
	f.Add([]byte(`{"manifests":[null,[],1]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r configv1.ApplyRequest
		if err := decodeApply(body, &r); err != nil {
			return
		}
		var count struct {
			Manifests []json.RawMessage `json:"manifests"`
		}
		if err := json.Unmarshal(body, &count); err == nil && len(count.Manifests) != len(r.GetManifests()) && bytes.Count(bytes.ToLower(body), []byte("manifests")) == 1 &&
			bytes.Contains(body, []byte(`"manifests"`)) {
			t.Errorf("%d manifests of %s", len(r.GetManifests()), body)
		}
	})
}
