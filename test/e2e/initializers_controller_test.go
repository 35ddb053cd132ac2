package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// podResource is the resource that is initialized here.
func podResource() schema.GroupVersionResource { return corev1.SchemeGroupVersion.WithResource("pods") }

// staging is a client of staged objects, with the identity of a controller.
func (i *initialized) staging(t *testing.T, options ...func(*rest.Config)) *dynamic.DynamicClient {
	t.Helper()
	cert, key := i.Certify(t, hostName)
	config := &rest.Config{
		Host: i.bridge + initializers.Path(clusterName), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: i.AuthorityFile(), CertFile: cert, KeyFile: key},
	}
	for _, o := range options {
		o(config)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// uninitialized has a client see objects that are not initialized.
func uninitialized(c *rest.Config) { c.Wrap(initializers.IncludeUninitialized) }

// controller runs an initializer that watches staged Pods with client-go, as controllers do, until the test ends. act changes an object whose
// first pending initializer it is; its name is taken off the list then, unless act has refused the object.
func (i *initialized) controller(t *testing.T, name string, act func(pod *unstructured.Unstructured) error) {
	t.Helper()
	client := i.staging(t, uninitialized)
	informer := dynamicinformer.NewFilteredDynamicInformer(client, podResource(), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	handle := func(object any) {
		pod, ok := object.(*unstructured.Unstructured)
		if !ok || initializers.First(pod) != name {
			return
		}
		pod = pod.DeepCopy()
		if err := act(pod); err != nil {
			t.Error(err)
			return
		}
		initializers.Done(pod)
		_, err := client.Resource(podResource()).Namespace(pod.GetNamespace()).Update(t.Context(), pod, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			t.Errorf("%s updates a Pod: %v", name, err)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	eventually(t, name+" has listed what is staged", func() error {
		if !informer.HasSynced() {
			return http.ErrNoLocation
		}
		return nil
	})
}

// TestTheFlowOfTheProposal is the flow of a success of the proposal (spec/1), step by step: two controllers watch, a client creates a Pod, the
// first initializer changes resources and clears its name, the second one changes the environment, and only then the Pod exists.
func TestTheFlowOfTheProposal(t *testing.T) {
	const first, second, added = "resources.example.com", "environment.example.com", "added.example.com"
	documents := append(initializersOf("a", "Fail", "", first), initializersOf("b", "Fail", "", second)...)
	documents = append(documents, strings.ReplaceAll(strings.Join(initializersOf("never", "Fail", "", added), "\n---\n"), "resources: [pods]", "resources: [nothing]"))
	i := newInitialized(t, documents...)
	steps := make(chan string, 8)
	i.controller(t, first, func(pod *unstructured.Unstructured) error {
		steps <- first
		if creator := initializers.Creator(pod); creator.Username == "" || pod.GetUID() == "" || pod.GetCreationTimestamp() == (metav1.Time{}) {
			t.Errorf("the Pod has creator %+v, uid %q and creationTimestamp %v", creator, pod.GetUID(), pod.GetCreationTimestamp())
		}
		if policy, _, _ := unstructured.NestedString(pod.Object, "spec", "restartPolicy"); policy != "Always" {
			t.Errorf("restartPolicy is %q: want the default", policy)
		}
		if _, err := i.getPod(t, "pod"); !apierrors.IsNotFound(err) {
			t.Errorf("get the Pod before it is initialized: %v, want it not found", err)
		}
		pod.SetAnnotations(map[string]string{"resources": "small", initializers.CreatorAnnotation: pod.GetAnnotations()[initializers.CreatorAnnotation]})
		pod.SetFinalizers([]string{"example.com/finalizer"})
		initializers.Add(pod, added)
		return nil
	})
	i.controller(t, added, func(*unstructured.Unstructured) error { steps <- added; return nil })
	i.controller(t, second, func(pod *unstructured.Unstructured) error {
		steps <- second
		containers, _, err := unstructured.NestedSlice(pod.Object, "spec", "containers")
		if err != nil {
			return err
		}
		containers[0].(map[string]any)["env"] = []any{map[string]any{"name": "SET_BY", "value": second}}
		return unstructured.SetNestedSlice(pod.Object, containers, "spec", "containers")
	})

	created, err := cluster.CreatePod(t.Context(), kube.Pod(i.namespace, "pod"))
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{first, added, second} {
		if got := <-steps; got != want {
			t.Errorf("%s acted where %s had to", got, want)
		}
	}
	env := created.Spec.Containers[0].Env
	if len(env) != 1 || env[0].Value != second || len(created.Annotations) != 1 || created.Annotations["resources"] != "small" {
		t.Errorf("the Pod has environment %v and annotations %v", env, created.Annotations)
	}
	if len(created.Finalizers) != 1 {
		t.Errorf("finalizers %v: want that of the initializer", created.Finalizers)
	}
	i.wantNothingStaged(t)
	_, err = cluster.Client().CoreV1().Pods(i.namespace).Patch(t.Context(), "pod", "application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Error(err)
	}
}

// TestTheFailingFlowOfTheProposal is its flow of a failure: the second initializer sets the result, the client gets it, and watchers see the
// deletion.
func TestTheFailingFlowOfTheProposal(t *testing.T) {
	citest.Gate(t, "covers controllers that initialize: a second")
	const first, second = "resources.example.com", "environment.example.com"
	i := newInitialized(t, append(initializersOf("a", "Ignore", "", first), initializersOf("b", "Ignore", "", second)...)...)
	events, err := i.staging(t, uninitialized).Resource(podResource()).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	i.controller(t, first, func(*unstructured.Unstructured) error { return nil })
	i.controller(t, second, func(pod *unstructured.Unstructured) error {
		return initializers.Refuse(pod, metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "failed to retrieve object"})
	})

	_, err = cluster.CreatePod(t.Context(), kube.Pod(i.namespace, "pod"))

	wantError(t, err, http.StatusUnprocessableEntity, `initializer "`+second+`"`, "failed to retrieve object")
	var last string
	for event := range events.ResultChan() {
		if last = string(event.Type); last == "DELETED" {
			break
		}
	}
	if last != "DELETED" {
		t.Errorf("the last event is %s: want the deletion", last)
	}
	if _, err := i.getPod(t, "pod"); !apierrors.IsNotFound(err) {
		t.Errorf("get the Pod: %v, want it not found", err)
	}
	i.wantNothingStaged(t)
}

// TestAHeldPod is looked at, created again and deleted while it is held.
func TestAHeldPod(t *testing.T) {
	citest.Gate(t, "covers controllers that initialize: a second")
	const name = "absent.example.com"
	i := newInitialized(t, initializersOf("a", "Fail", ", timeout: 9s", name)...)
	created := make(chan error, 1)
	go func() {
		_, err := cluster.CreatePod(t.Context(), kube.Pod(i.namespace, "pod"))
		created <- err
	}()
	held := i.staging(t, uninitialized).Resource(podResource()).Namespace(i.namespace)
	var uid string
	eventually(t, "the Pod is held", func() error {
		pod, err := held.Get(t.Context(), "pod", metav1.GetOptions{})
		if err == nil {
			uid = string(pod.GetUID())
		}
		return err
	})

	if list, err := i.staging(t).Resource(podResource()).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("a client that does not ask for uninitialized objects lists %v, %v", list, err)
	}
	_, err := cluster.CreatePod(t.Context(), kube.Pod(i.namespace, "pod"))
	wantError(t, err, http.StatusConflict, "is being initialized", name)
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("error = %v, want AlreadyExists", err)
	}

	if err := held.Delete(t.Context(), "pod", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(uid)}); err != nil {
		t.Errorf("delete the held Pod: %v", err)
	}
	wantError(t, <-created, http.StatusConflict, "deleted")
	i.wantNothingStaged(t)
}
