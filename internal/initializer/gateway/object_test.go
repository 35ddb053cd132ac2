package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// stagedPod is a Pod with generateName, as staging has it.
func stagedPod(raw string) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{
			Cluster: "prod-1", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "web-x7k2p",
		},
		Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Uid: "u-1", ResourceVersion: "42", Pending: []string{"a.example.com", "b.example.com"},
		Creator: &admissionv1.UserInfo{Username: "jane", Groups: []string{"dev"}, Extra: map[string]*admissionv1.ExtraValue{"k": {Items: []string{"v"}}}},
		Object:  &admissionv1.Object{Raw: []byte(raw)}, Created: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}
}

const podWithGenerateName = `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-","creationTimestamp":null,"labels":{"a":"<b>"}},"spec":{"n":1.0,"big":12345678901234567890}}`

func TestEncode(t *testing.T) {
	raw, err := encode(stagedPod(podWithGenerateName))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"kind": "Pod", "apiVersion": "v1", "spec": {"n": 1.0, "big": 12345678901234567890}, "metadata": {
		"generateName": "web-", "name": "web-x7k2p", "namespace": "shop", "uid": "u-1", "resourceVersion": "42", "creationTimestamp": "2026-01-02T03:04:05Z",
		"labels": {"a": "<b>"}, "initializers": {"pending": [{"name": "a.example.com"}, {"name": "b.example.com"}]},
		"annotations": {"initializers.portcullis.dev/creator": "{\"username\":\"jane\",\"groups\":[\"dev\"],\"extra\":{\"k\":[\"v\"]}}"}}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(raw), `"n":1.0,"big":12345678901234567890`) || !strings.Contains(string(raw), `"<b>"`) {
		t.Errorf("numbers or characters are written in another way: %s", raw)
	}
	viewed := stagedPod("")
	viewed.Object, viewed.Result = nil, &admissionv1.Status{Status: "Failure", Message: "no", Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{Field: "f"}}}}
	raw, err = encode(viewed)
	for _, part := range []string{`"apiVersion":"v1"`, `"kind":"Pod"`, `"result":{"kind":"Status"`, `"causes":[{"field":"f"}]`} {
		if err != nil || !strings.Contains(string(raw), part) {
			t.Errorf("%s, %v, want %s", raw, err, part)
		}
	}
}

// edited is an object as it is shown, changed in its metadata.
func edited(t *testing.T, o *initializerv1.StagedObject, edit func(metadata map[string]any)) []byte {
	t.Helper()
	raw, err := encode(o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var metadata map[string]any
	if err := json.Unmarshal(p.root["metadata"], &metadata); err != nil {
		t.Fatal(err)
	}
	edit(metadata)
	if p.root["metadata"], err = json.Marshal(metadata); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(p.root); err != nil {
		t.Fatal(err)
	}
	return raw
}

func pendingNames(names ...string) map[string]any {
	list := []any{}
	for _, name := range names {
		list = append(list, map[string]any{"name": name})
	}
	return map[string]any{"pending": list}
}

func TestDecode(t *testing.T) {
	const own = `{"kind":"Pod","metadata":{"name":"web-x7k2p","uid":"own","initializers":{"pending":[]},"annotations":{"initializers.portcullis.dev/creator":"forged"}}}`
	for name, tt := range map[string]struct {
		object  string
		edit    func(metadata map[string]any)
		want    string // object
		pending []string
		result  string // message
		wrong   string
	}{
		"what is not changed is as it was":                       {podWithGenerateName, func(map[string]any) {}, podWithGenerateName, []string{"a.example.com", "b.example.com"}, "", ""},
		"an object's own fields of these names are as they were": {own, func(map[string]any) {}, own, []string{"a.example.com", "b.example.com"}, "", ""},
		"an annotation is added": {
			podWithGenerateName, func(m map[string]any) { m["annotations"] = map[string]any{"x": "y"} },
			strings.Replace(podWithGenerateName, `"labels"`, `"annotations":{"x":"y"},"labels"`, 1), []string{"a.example.com", "b.example.com"}, "", "",
		},
		"the first name is removed": {
			podWithGenerateName, func(m map[string]any) { m["initializers"] = pendingNames("b.example.com") }, podWithGenerateName, []string{"b.example.com"}, "", "",
		},
		"no initializers are no pending ones":    {podWithGenerateName, func(m map[string]any) { delete(m, "initializers") }, podWithGenerateName, nil, "", ""},
		"so is an empty list":                    {podWithGenerateName, func(m map[string]any) { m["initializers"] = pendingNames() }, podWithGenerateName, nil, "", ""},
		"so is null":                             {podWithGenerateName, func(m map[string]any) { m["initializers"] = nil }, podWithGenerateName, nil, "", ""},
		"a result is passed on":                  {podWithGenerateName, func(m map[string]any) { m["initializers"] = map[string]any{"result": map[string]any{"message": "no"}} }, podWithGenerateName, nil, "no", ""},
		"another name is refused":                {podWithGenerateName, func(m map[string]any) { m["name"] = "other" }, "", nil, "", `metadata.name is "other"`},
		"a namespace that is another is refused": {podWithGenerateName, func(m map[string]any) { m["namespace"] = "other" }, "", nil, "", `metadata.namespace is "other"`},
		"another uid is a conflict":              {podWithGenerateName, func(m map[string]any) { m["uid"] = "u-2" }, "", nil, "", "metadata.uid is u-2"},
		"initializers of another form":           {podWithGenerateName, func(m map[string]any) { m["initializers"] = "a" }, "", nil, "", "metadata.initializers"},
		"annotations of another form":            {podWithGenerateName, func(m map[string]any) { m["annotations"] = "a" }, "", nil, "", "metadata.annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			o := stagedPod(tt.object)
			r, err := decode(o, edited(t, o, tt.edit))
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%v, want %q", err, tt.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if patch, err := conversion.DiffPatch([]byte(tt.want), r.GetObject().GetRaw()); err != nil || len(patch) > 0 {
				t.Errorf("the object differs by %s, %v", patch, err)
			}
			if diff := cmp.Diff(tt.pending, r.GetPending()); diff != "" || r.GetResult().GetMessage() != tt.result || r.GetResourceVersion() != "42" {
				t.Errorf("%s %v", diff, r)
			}
			if !cmp.Equal(o.GetKey(), r.GetKey(), protocmp.Transform()) {
				t.Errorf("key %v", r.GetKey())
			}
		})
	}
}

// FuzzDecode: a body is refused, or it becomes an object in which nothing of staging is left.
func FuzzDecode(f *testing.F) {
	shown, err := encode(stagedPod(podWithGenerateName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(shown))
	f.Add(`{"metadata":{"name":"web-x7k2p","initializers":{"pending":[{"name":"x"}],"result":{"status":"Failure"}}}}`)
	f.Add(`{"metadata":{"name":"web-x7k2p","annotations":{"initializers.portcullis.dev/creator":"x"}}}`)
	f.Add(`{"metadata":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, body string) {
		r, err := decode(stagedPod(podWithGenerateName), []byte(body))
		if err != nil {
			return
		}
		p, err := parse(r.GetObject().GetRaw())
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"name", "namespace", "uid", "resourceVersion", "initializers"} {
			if _, there := p.metadata[field]; there {
				t.Errorf("metadata.%s is in the object: %s", field, r.GetObject().GetRaw())
			}
		}
		if _, there := p.annotations[CreatorAnnotation]; there {
			t.Errorf("the creator is in the object: %s", r.GetObject().GetRaw())
		}
	})
}
