package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

// TestMutateWritesSmallPatches shows patches as a person would read them in a trace.
func TestMutateWritesSmallPatches(t *testing.T) {
	tests := map[string]struct {
		object string
		change func(pod *corev1.Pod)
		want   string
	}{
		"A handler that changes nothing makes no patch, though encoding adds empty members.": {
			object: `{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c"}]}}`,
			change: func(*corev1.Pod) {},
			want:   ``,
		},
		"A new map is added with its items.": {
			object: `{"kind":"Pod","metadata":{"name":"a"}}`,
			change: func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", "a/b") },
			want:   `[{"op":"add","path":"/metadata/labels","value":{"team":"a/b"}}]`,
		},
		"A parent that the client left out is added without the empty members that types write.": {
			object: `{"kind":"Pod"}`,
			change: func(pod *corev1.Pod) { pod.Name = "b" },
			want:   `[{"op":"add","path":"/metadata","value":{"name":"b"}}]`,
		},
		"Names of members are escaped.": {
			object: `{"kind":"Pod","metadata":{"labels":{"a/b~c":"old"}}}`,
			change: func(pod *corev1.Pod) { pod.Labels["a/b~c"] = "new" },
			want:   `[{"op":"replace","path":"/metadata/labels/a~1b~0c","value":"new"}]`,
		},
		"A field that is cleared is removed.": {
			object: `{"kind":"Pod","spec":{"nodeName":"n"}}`,
			change: func(pod *corev1.Pod) { pod.Spec.NodeName = "" },
			want:   `[{"op":"remove","path":"/spec/nodeName"}]`,
		},
		"An item in front does not rewrite the list behind it.": {
			object: `{"kind":"Pod","spec":{"containers":[{"name":"a","later":1},{"name":"b"}]}}`,
			change: func(pod *corev1.Pod) {
				pod.Spec.Containers = append([]corev1.Container{{Name: "sidecar"}}, pod.Spec.Containers...)
			},
			want: `[{"op":"add","path":"/spec/containers/0","value":{"name":"sidecar","resources":{}}}]`,
		},
		"A list whose items change places is replaced, and they keep what the types do not know.": {
			object: `{"kind":"Pod","spec":{"containers":[{"name":"a","later":1},{"name":"b","later":2}]}}`,
			change: func(pod *corev1.Pod) {
				c := pod.Spec.Containers
				c[0], c[1] = c[1], c[0]
				c[0].Image = "b:1"
			},
			want: `[{"op":"replace","path":"/spec/containers","value":[{"image":"b:1","later":2,"name":"b"},{"name":"a","later":1}]}]`,
		},
		"A removed item takes only itself away.": {
			object: `{"kind":"Pod","spec":{"containers":[{"name":"a","later":1},{"name":"b","later":2}]}}`,
			change: func(pod *corev1.Pod) {
				pod.Spec.Containers = pod.Spec.Containers[1:]
				pod.Spec.Containers[0].Image = "b:1"
			},
			want: `[{"op":"remove","path":"/spec/containers/0"},{"op":"add","path":"/spec/containers/0/image","value":"b:1"}]`,
		},
		"An item without a name is followed by its position.": {
			object: `{"kind":"Pod","spec":{"tolerations":[{"key":"a","later":1}]}}`,
			change: func(pod *corev1.Pod) { pod.Spec.Tolerations[0].Key = "b" },
			want:   `[{"op":"replace","path":"/spec/tolerations/0/key","value":"b"}]`,
		},
		"A null in the place of an object is replaced.": {
			object: `{"kind":"Pod","metadata":null}`,
			change: func(pod *corev1.Pod) { pod.Name = "b" },
			want:   `[{"op":"replace","path":"/metadata","value":{"name":"b"}}]`,
		},
		"A quantity that the handler left alone keeps its spelling.": {
			object: `{"kind":"Pod","spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1000m"}}}]}}`,
			change: func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "a:1" },
			want:   `[{"op":"add","path":"/spec/containers/0/image","value":"a:1"}]`,
		},
		"An empty object that the types leave out keeps its unknown members.": {
			object: `{"kind":"Pod","metadata":{"labels":{}},"spec":{"securityContext":{"later":1}}}`,
			change: func(pod *corev1.Pod) {
				pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: pointer(int64(9007199254740993))}
			},
			want: `[{"op":"add","path":"/spec/securityContext/runAsUser","value":9007199254740993}]`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			handler := kube.Mutate(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
				tt.change(pod)
				return hostsdk.Allow(), nil
			})
			response, err := handler(t.Context(), request(hosttest.Create(tt.object)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(response.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if tt.want != "" {
				apply(t, []byte(tt.object), response.Patch)
			}
		})
	}
}

func TestMutateKeepsVerdictsThatAreNotAllowed(t *testing.T) {
	failed := errors.New("no")
	tests := map[string]struct {
		response *hostsdk.Response
		err      error
	}{
		"A denial forgets the changes.": {response: hostsdk.Deny("no")},
		"A failure is passed on.":       {err: failed},
		"Nothing is passed on.":         {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			handler := kube.Mutate(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
				pod.Name = "changed"
				return tt.response, tt.err
			})
			response, err := handler(t.Context(), request(hosttest.Create(`{"kind":"Pod"}`)))
			if response != tt.response || !errors.Is(err, tt.err) {
				t.Errorf("got %v, %v", response, err)
			}
			if response != nil && response.Patch != nil {
				t.Errorf("a denial came with the patch %s", response.Patch)
			}
		})
	}
}

func TestMutateRefusesTwoWaysOfChanging(t *testing.T) {
	handler := kube.Mutate(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
		pod.Name = "changed"
		return hostsdk.Patch([]byte(`[]`)), nil
	})
	_, err := handler(t.Context(), request(hosttest.Create(`{"kind":"Pod"}`)))
	if authored := new(hostsdk.Error); !errors.As(err, &authored) {
		t.Errorf("got %v, want an error for the operator", err)
	}
}

func TestInitialize(t *testing.T) {
	failed, authored := errors.New("secret"), new(hostsdk.Error)
	tests := map[string]struct {
		initialize func(pod *corev1.Pod) (*corev1.Pod, error)
		want       *hostsdk.Response
		wantErr    func(err error) bool // nil wants none
	}{
		"The object that was changed is returned.": {
			initialize: func(pod *corev1.Pod) (*corev1.Pod, error) {
				pod.Spec.NodeName = "n"
				return pod, nil
			},
			want: hostsdk.Patch([]byte(`[{"op":"add","path":"/spec/nodeName","value":"n"}]`)),
		},
		"Another object is returned.": {
			initialize: func(pod *corev1.Pod) (*corev1.Pod, error) {
				other := pod.DeepCopy()
				other.Labels = map[string]string{"a": "b"}
				pod.Spec.NodeName = "forgotten"
				return other, nil
			},
			want: hostsdk.Patch([]byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)),
		},
		"An object that is as it should be needs no patch.": {
			initialize: func(pod *corev1.Pod) (*corev1.Pod, error) { return pod, nil },
			want:       hostsdk.Allow(),
		},
		"A failure is passed on.": {
			initialize: func(pod *corev1.Pod) (*corev1.Pod, error) { return pod, failed },
			wantErr:    func(err error) bool { return errors.Is(err, failed) },
		},
		"No object is a failure that says so.": {
			initialize: func(*corev1.Pod) (pod *corev1.Pod, err error) { return pod, err },
			wantErr: func(err error) bool {
				return errors.As(err, &authored) && authored.Message == "the initializer returned no object"
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			handler := kube.Initialize(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*corev1.Pod, error) {
				return tt.initialize(pod)
			})
			got, err := handler(t.Context(), request(hosttest.Create(`{"kind":"Pod","metadata":{"name":"a"},"spec":{"later":1}}`)))
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(hostsdk.Response{})); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if tt.wantErr == nil && err != nil || tt.wantErr != nil && !tt.wantErr(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestAnInitializerIsNotCalledWithoutAnObject: it would have nothing to initialize, and no author expects nil.
func TestAnInitializerIsNotCalledWithoutAnObject(t *testing.T) {
	handler := kube.Initialize(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*corev1.Pod, error) {
		t.Errorf("called with %v", pod)
		return pod, nil
	})
	response, err := handler(t.Context(), request(hosttest.Delete(`{"kind":"Pod"}`)))
	if authored := new(hostsdk.Error); response != nil || !errors.As(err, &authored) {
		t.Errorf("got %v, %v, want an error for the operator", response, err)
	}
}

// TestObjectsOfTheWrongKindAreRefused: decoding them would succeed, and lose everything.
func TestObjectsOfTheWrongKindAreRefused(t *testing.T) {
	scale := hosttest.Update(`{"kind":"Scale"}`, `{"kind":"Scale","spec":{"replicas":3}}`)
	if _, err := kube.Object[appsv1.Deployment](request(scale)); err == nil {
		t.Error("a Scale was decoded into a Deployment")
	}
	if _, err := kube.OldObject[appsv1.Deployment](request(scale)); err == nil {
		t.Error("an old Scale was decoded into a Deployment")
	}
	if _, err := kube.Object[metav1.PartialObjectMetadata](request(scale)); err != nil {
		t.Errorf("metadata of any kind: %v", err)
	}
	object, err := kube.Object[unstructured.Unstructured](request(scale))
	if err != nil || object.GetKind() != "Scale" {
		t.Errorf("an unstructured object: %v, %v", object, err)
	}
}

func TestObjectsThatAreNotJSONAreRefused(t *testing.T) {
	r := hosttest.Create(`{"kind":"Pod"}`)
	r.Object.Raw = []byte("k8s\x00\n\t\n\x02v1\x12\x03Pod")
	if _, err := kube.Object[corev1.Pod](request(r)); err == nil {
		t.Error("protobuf was decoded as JSON")
	}
	if _, err := kube.Object[corev1.Pod](request(hosttest.Create(`{"kind":"Pod","spec":"x"}`))); err == nil {
		t.Error("a string was decoded into a PodSpec")
	}
}

// TestObjectsAreDecodedAsKubernetesDoes: names have one case, and integers beyond 2^53 keep their value.
func TestObjectsAreDecodedAsKubernetesDoes(t *testing.T) {
	r := request(hosttest.Create(`{"kind":"Pod","Spec":{"hostNetwork":true},"n":9007199254740993}`))
	if pod, err := kube.Object[corev1.Pod](r); err != nil || pod.Spec.HostNetwork {
		t.Errorf("Spec was taken for spec: %v, %v", pod, err)
	}
	response, err := kube.Change(r, func(object *map[string]any) error {
		(*object)["copy"] = (*object)["n"]
		return nil
	})
	if err != nil || string(response.Patch) != `[{"op":"add","path":"/copy","value":9007199254740993}]` {
		t.Errorf("%v, %v", response, err)
	}
}

func TestHandlersOfDeleteGetTheOldObject(t *testing.T) {
	handler := kube.Validate(func(_ context.Context, pod *corev1.Pod, r *hostsdk.Request) (*hostsdk.Response, error) {
		old, err := kube.OldObject[corev1.Pod](r)
		if err != nil || pod != nil || old.Name != "a" {
			t.Errorf("object %v, old object %v, %v", pod, old, err)
		}
		return hostsdk.Allow(), nil
	})
	deletion := hosttest.Delete(`{"kind":"Pod","metadata":{"name":"a"}}`)
	if _, err := handler(t.Context(), request(deletion)); err != nil {
		t.Error(err)
	}
	none := kube.Mutate(func(context.Context, *corev1.Pod, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Allow(), nil
	})
	if response, err := none(t.Context(), request(deletion)); err != nil || response.Patch != nil {
		t.Errorf("got %v, %v", response, err)
	}
}

func TestDifferenceKeepsTheSpellingOfWhatIsTheSame(t *testing.T) {
	object := `{"kind":"ConfigMap","data":{"a":"<b>"},"n":1.0,"big":9007199254740993}`
	response, err := kube.Difference(request(hosttest.Create(object)),
		[]byte(`{"kind":"ConfigMap","data":{"a":"<b>","c":"d"},"n":1.0,"big":9007199254740994}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"replace","path":"/big","value":9007199254740994},{"op":"add","path":"/data/c","value":"d"}]`
	if diff := cmp.Diff(want, string(response.Patch)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	if _, err := kube.Difference(request(hosttest.Create(object)), []byte(`{`)); err == nil {
		t.Error("half an object was taken")
	}
	if _, err := kube.Difference(request(hosttest.Delete(object)), []byte(object)); err == nil {
		t.Error("a request without an object was changed")
	}
}

func TestDifferenceEncodesValues(t *testing.T) {
	r := request(hosttest.Create(`{"kind":"ConfigMap","data":{"a":"b"}}`))
	for name, object := range map[string]any{
		"bytes": []byte(`{"kind":"ConfigMap","data":{"a":"c"}}`), "raw": json.RawMessage(`{"kind":"ConfigMap","data":{"a":"c"}}`),
		"a value": map[string]any{"kind": "ConfigMap", "data": map[string]string{"a": "c"}},
	} {
		response, err := kube.Difference(r, object)
		if err != nil || string(response.Patch) != `[{"op":"replace","path":"/data/a","value":"c"}]` {
			t.Errorf("%s: %v, %v", name, response, err)
		}
	}
	if _, err := kube.Difference(r, func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

func TestChange(t *testing.T) {
	object := `{"kind":"Pod","metadata":{"later":1}}`
	// Labels of an object of any kind, by the helpers of client-go.
	response, err := kube.Change(request(hosttest.Create(object)), func(o *unstructured.Unstructured) error {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["team"] = "shop"
		o.SetLabels(labels)
		return nil
	})
	if err != nil || string(response.Patch) != `[{"op":"add","path":"/metadata/labels","value":{"team":"shop"}}]` {
		t.Errorf("%v, %v", response, err)
	}
	if _, err := kube.Change(request(hosttest.Create(object)), func(*corev1.Pod) error { return hostsdk.Denied("no") }); err == nil {
		t.Error("an error of edit is lost")
	}
	if _, err := kube.Change(request(hosttest.Delete(object)), func(*corev1.Pod) error { return nil }); err == nil {
		t.Error("a request without an object was changed")
	}
}

// TestFunctionsOfOperations calls Validator and Mutator with each operation, with and without a function for it.
func TestFunctionsOfOperations(t *testing.T) {
	const before, after = `{"kind":"Pod","metadata":{"name":"before"}}`, `{"kind":"Pod","metadata":{"name":"after"}}`
	connect, noObject, noOld := hosttest.Create(after), hosttest.Create(after), hosttest.Update(before, after)
	connect.Operation, noObject.Object, noOld.OldObject = "CONNECT", nil, nil
	said := func(texts ...string) (*hostsdk.Response, error) { return hostsdk.Deny(fmt.Sprint(texts)), nil }
	create := func(_ context.Context, pod *corev1.Pod, r *hostsdk.Request) (*hostsdk.Response, error) {
		return said(r.Operation(), pod.Name)
	}
	update := func(_ context.Context, old, pod *corev1.Pod, r *hostsdk.Request) (*hostsdk.Response, error) {
		return said(r.Operation(), old.Name, pod.Name)
	}
	validator, mutator := kube.Validator[corev1.Pod]{Create: create, Update: update, Delete: create}, kube.Mutator[corev1.Pod]{Create: create, Update: update}
	tests := map[string]struct {
		handler hostsdk.Handler
		request *admissionv1.AdmissionRequest
		want    string // "" for an error
	}{
		"creates":           {validator.Handle, hosttest.Create(after), "[CREATE after]"},
		"updates":           {validator.Handle, hosttest.Update(before, after), "[UPDATE before after]"},
		"deletes":           {validator.Handle, hosttest.Delete(before), "[DELETE before]"},
		"connects":          {validator.Handle, connect, ""},
		"lacks an object":   {validator.Handle, noObject, ""},
		"lacks the old one": {validator.Handle, noOld, ""},
		"without functions": {kube.Validator[corev1.Pod]{}.Handle, hosttest.Create(after), "allowed"},
		"only updates":      {kube.Validator[corev1.Pod]{Update: update}.Handle, hosttest.Create(after), "allowed"},
		"only creates":      {kube.Validator[corev1.Pod]{Create: create}.Handle, hosttest.Update(before, after), "allowed"},
		"mutates":           {mutator.Handle, hosttest.Create(after), "[CREATE after]"},
		"mutates again":     {mutator.Handle, hosttest.Update(before, after), "[UPDATE before after]"},
		"mutates no more":   {mutator.Handle, hosttest.Delete(before), "allowed"},
	}
	for name, tt := range tests {
		response, err := tt.handler(t.Context(), request(tt.request))
		got := ""
		if err == nil {
			got = verdictOf(response)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q (%v)", name, got, tt.want, err)
		}
	}

	labels := kube.Mutator[corev1.Pod]{Create: func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "a", "b")
		return hostsdk.Allow(), nil
	}}
	response, err := labels.Handle(t.Context(), request(hosttest.Create(after)))
	if err != nil || string(response.Patch) != `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]` {
		t.Errorf("%v, %v", response, err)
	}
}

// verdictOf is the message of a denial, or "allowed".
func verdictOf(r *hostsdk.Response) string {
	if r.Allowed {
		return "allowed"
	}
	return r.Message
}

func request(r *admissionv1.AdmissionRequest) *hostsdk.Request { return hostsdk.NewRequest(r) }

// apply applies a patch as the dispatcher and the API server do.
func apply(t *testing.T, object, patch []byte) []byte {
	t.Helper()
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	changed, err := operations.Apply(object)
	if err != nil {
		t.Fatalf("%s\n%s\n%v", object, patch, err)
	}
	return changed
}
