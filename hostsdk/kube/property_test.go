package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

const podForProperties = `{
	"apiVersion": "v1", "kind": "Pod",
	"metadata": {"name": "a", "labels": {"app": "a"}, "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "u"}]},
	"spec": {
		"containers": [
			{"name": "a", "image": "a:1", "ports": [{"containerPort": 80}, {"containerPort": 81}],
				"env": [{"name": "X", "value": "1"}, {"name": "Y", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
				"resources": {"limits": {"cpu": "1000m"}},
				"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/w"}]},
			{"name": "b", "image": "b:1", "securityContext": {"capabilities": {"drop": ["ALL"]}}},
			{"name": "c", "image": "c:1", "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}
		],
		"tolerations": [{"key": "k"}, {"operator": "Exists"}, {"key": "k", "effect": "NoExecute"}],
		"volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}],
		"affinity": {"nodeAffinity": {}}
	},
	"status": {}
}`

// TestUnknownFieldsSurvive puts made-up fields into a Pod wherever the types have a structure, lets a handler change it
// at random, and looks for them in the patched object. The handler's own view must be exactly its result.
func TestUnknownFieldsSurvive(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		object, fields := withMadeUpFields(t, random)
		var want *corev1.Pod
		var removed []string
		handler := kube.Mutate(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
			for range 1 + random.IntN(6) {
				removed = append(removed, changeSomething(random, pod)...)
			}
			want = pod.DeepCopy()
			return hostsdk.Allow(), nil
		})
		response, err := handler(t.Context(), request(hosttest.Create(string(object))))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		changed := object
		if len(response.Patch) > 0 {
			changed = apply(t, object, response.Patch)
		}
		for _, field := range fields {
			gone := slices.ContainsFunc(removed, func(owner string) bool { return strings.Contains(field.within, owner) })
			if !gone && !strings.Contains(string(changed), field.text) {
				t.Fatalf("seed %d: %s in %s is lost\n%s\n%s", seed, field.text, field.within, response.Patch, changed)
			}
		}
		if got := decodePod(t, changed); !cmp.Equal(jsonOf(t, want), jsonOf(t, got)) {
			t.Fatalf("seed %d: the patched object differs from the handler's:\n%s\n%s",
				seed, response.Patch, cmp.Diff(jsonOf(t, want), jsonOf(t, got)))
		}
	}
}

// changeSomething makes a change that a handler may make, and returns the names of the items that it removed.
func changeSomething(random *rand.Rand, pod *corev1.Pod) (removed []string) {
	containers := pod.Spec.Containers
	changes := []func(){
		func() { metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", fmt.Sprint(random.IntN(3))) },
		func() { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "a/b~c", "d") },
		func() { delete(pod.Labels, "app") },
		func() { pod.Spec.NodeName = fmt.Sprint(random.IntN(3)) },
		func() { pod.Spec.HostNetwork = !pod.Spec.HostNetwork },
		func() { pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{} },
		func() { pod.Status.Phase = corev1.PodRunning },
		func() { pod.OwnerReferences[0].Controller = pointer(true) },
		func() { random.Shuffle(len(containers), swap(containers)) },
		func() { random.Shuffle(len(pod.Spec.Volumes), swap(pod.Spec.Volumes)) },
		func() {
			sidecar := corev1.Container{Name: fmt.Sprintf("sidecar-%d", random.IntN(100)), Image: "s:1"}
			pod.Spec.Containers = slices.Insert(containers, random.IntN(len(containers)+1), sidecar)
		},
		func() {
			if len(containers) > 1 {
				i := random.IntN(len(containers))
				removed = append(removed, "/container-"+containers[i].Name+"/")
				pod.Spec.Containers = slices.Delete(containers, i, i+1)
			}
		},
		func() { pod.Spec.Tolerations[random.IntN(len(pod.Spec.Tolerations))].Value = "v" },
		func() { pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "new"}) },
		func() {
			pod.Spec.Volumes = append([]corev1.Volume{{Name: fmt.Sprintf("w%d", random.IntN(100))}}, pod.Spec.Volumes...)
		},
		func() { changeContainer(random, &containers[random.IntN(len(containers))]) },
	}
	changes[random.IntN(len(changes))]()
	return removed
}

func changeContainer(random *rand.Rand, c *corev1.Container) {
	changes := []func(){
		func() { c.Image = fmt.Sprintf("i:%d", random.IntN(3)) },
		func() { c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("Z%d", random.IntN(100)), Value: "z"}) },
		func() { random.Shuffle(len(c.Env), swap(c.Env)) },
		func() {
			c.Ports = append([]corev1.ContainerPort{{ContainerPort: random.Int32N(1000) + 1000}}, c.Ports...)
		},
		func() {
			if len(c.VolumeMounts) > 0 {
				c.VolumeMounts[0].ReadOnly = true
			}
		},
		func() {
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			c.SecurityContext.RunAsNonRoot = pointer(true)
		},
	}
	changes[random.IntN(len(changes))]()
}

func swap[T any](items []T) func(i, j int) {
	return func(i, j int) { items[i], items[j] = items[j], items[i] }
}

// madeUp is a field that no type knows.
type madeUp struct {
	text   string // as it stands in the object
	within string // the path to it, items by their kind and name
}

// withMadeUpFields returns the Pod with such fields in about half of its structures.
func withMadeUpFields(t *testing.T, random *rand.Rand) ([]byte, []madeUp) {
	t.Helper()
	var tree any
	if err := json.Unmarshal([]byte(podForProperties), &tree); err != nil {
		t.Fatal(err)
	}
	var fields []madeUp
	sprinkle(random, tree, "/", &fields)
	object, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return object, fields
}

// maps of the types hold values of one kind: nothing can be made up in them.
var typedMaps = []string{"labels", "limits"}

func sprinkle(random *rand.Rand, tree any, within string, fields *[]madeUp) {
	switch node := tree.(type) {
	case []any:
		for _, item := range node {
			sprinkle(random, item, within, fields)
		}
	case map[string]any:
		if name, ok := node["name"].(string); ok && node["image"] != nil {
			within += "container-" + name + "/"
		}
		for name, child := range node {
			if !slices.Contains(typedMaps, name) {
				sprinkle(random, child, within+name+"/", fields)
			}
		}
		if random.IntN(2) == 0 {
			value := fmt.Sprintf("made-up-%d-%d.", len(*fields), random.Uint32())
			node["later"] = map[string]any{"items": []any{value}}
			*fields = append(*fields, madeUp{text: value, within: within})
		}
	}
}

func decodePod(t *testing.T, object []byte) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(object, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func jsonOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDifferenceReachesAnyObject compares nothing but ends: whatever the way, the patch must lead there.
func TestDifferenceReachesAnyObject(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		from, to := randomObject(t, random), randomObject(t, random)
		response, err := kube.Difference(request(hosttest.Create(string(from))), to)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got := from
		if len(response.Patch) > 0 {
			got = apply(t, from, response.Patch)
		}
		if diff := cmp.Diff(untyped(t, to), untyped(t, got)); diff != "" {
			t.Fatalf("seed %d: %s\n%s\n%s\n%s", seed, from, to, response.Patch, diff)
		}
	}
}

func randomObject(t *testing.T, random *rand.Rand) []byte {
	t.Helper()
	object, err := json.Marshal(map[string]any{"a": randomValue(random, 4), "b": randomValue(random, 4)})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// randomValue draws from few values, so that lists hold many that are alike.
func randomValue(random *rand.Rand, depth int) any {
	if depth == 0 {
		return []any{nil, true, "x", "", 1, json.Number("1.0")}[random.IntN(6)]
	}
	switch random.IntN(4) {
	case 0:
		return randomValue(random, 0)
	case 1:
		object := map[string]any{}
		for range random.IntN(4) {
			object[[]string{"name", "key", "a/b", "c~d", ""}[random.IntN(5)]] = randomValue(random, depth-1)
		}
		return object
	default:
		list := []any{}
		for range random.IntN(5) {
			list = append(list, randomValue(random, depth-1))
		}
		return list
	}
}

func untyped(t *testing.T, object []byte) any {
	t.Helper()
	var tree any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(object, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

func pointer[T any](value T) *T { return &value }
