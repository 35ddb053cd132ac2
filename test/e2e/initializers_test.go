package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	hostkube "github.com/portcullis-mesh/portcullis/hostsdk/kube"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// initializersOf is an InitializerConfiguration for Pods, with a route for each initializer: over streams, or for controllers.
func initializersOf(configuration, policy, route string, names ...string) []string {
	var list strings.Builder
	routes := []string{""}
	for _, name := range names {
		fmt.Fprintf(&list, "- {name: %s, failurePolicy: %s, rules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}]}\n", name, policy)
		routes = append(routes, fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: %s}
spec: {configuration: %s, hook: %s, stage: initialize, hosts: [%s]%s}
`, name, configuration, name, hostName, route))
	}
	routes[0] = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: ` + configuration + `}
initializers:
` + list.String()
	return routes
}

// initialized is a road whose dispatchers stage objects.
type initialized struct {
	*road

	balancer *mesh.Balancer // in front of the dispatchers
	prefix   string         // of their keys in etcd
}

// newInitialized starts a dispatcher that stages objects, and has the API server send it its reviews.
func newInitialized(t *testing.T, documents ...string) *initialized {
	t.Helper()
	i := &initialized{prefix: "/" + rand.Text() + "/"}
	i.road = newRoadWith(t, mesh.Options{OneAuthority: true, Documents: documents, Args: []string{
		"--etcd=http://" + cluster.EtcdAddress(), "--etcd-create", "--etcd-prefix=" + i.prefix, "--operator=operator", "--ready-timeout=1ns",
	}})
	i.balancer = mesh.Balance(t, mesh.BridgePort, i.dispatcher)
	eventually(t, "the balancer uses the dispatcher", func() error { return i.balancer.Uses(i.dispatcher) })
	i.bridge = "https://" + i.balancer.Address
	i.mutate(t)
	return i
}

// wantNothingStaged fails the test unless all that was staged is gone, at the latest with its lease.
func (i *initialized) wantNothingStaged(t *testing.T) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + cluster.EtcdAddress()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	eventually(t, "nothing is staged", func() error {
		staged, err := client.Get(t.Context(), i.prefix+"staged/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil && len(staged.Kvs) > 0 {
			err = fmt.Errorf("%d objects, the first is %s", len(staged.Kvs), staged.Kvs[0].Key)
		}
		return err
	})
}

// marks is an initializer that writes its name behind those that have acted before.
func marks(name string) hostsdk.Handler {
	return hostkube.Initialize(func(_ context.Context, pod *labelled, _ *hostsdk.Request) (*labelled, error) {
		before := pod.Metadata.Labels["initialized-by"]
		pod.set("initialized-by", strings.TrimPrefix(before+"-"+name, "-"))
		return pod, nil
	})
}

// TestAPodAppearsInitialized creates a Pod with two initializers and a mutating hook behind them. A client that watches from before sees it once,
// as they have left it.
func TestAPodAppearsInitialized(t *testing.T) {
	const first, second, hook = "first.example.com", "second.example.com", "labels.example.com"
	// The configuration of the second one comes first in the document, and later by name.
	all := append(initializersOf("b", "Ignore", ", stream: {}", second), initializersOf("a", "Ignore", ", stream: {}", first)...)
	all = append(all, documents(t, kube.Mutating("0-labels", onPods(hook)))...)
	i := newInitialized(t, all...)
	i.host(t,
		hostsdk.Initialize(second, marks("second")),
		hostsdk.Initialize(first, marks("first")),
		hostsdk.Mutate(hook, hostkube.Mutate(func(_ context.Context, pod *labelled, _ *hostsdk.Request) (*hostsdk.Response, error) {
			pod.set("hook-saw", pod.Metadata.Labels["initialized-by"])
			return hostsdk.Allow(), nil
		})),
	)
	pods := cluster.Client().CoreV1().Pods(i.namespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	created, err := cluster.CreatePod(t.Context(), kube.Pod(i.namespace, "pod"))
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{"initialized-by": "first-second", "hook-saw": "first-second"}
	if diff := cmp.Diff(want, created.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(created.Annotations) != 0 {
		t.Errorf("annotations %v: none is the client's", created.Annotations)
	}
	event := <-events.ResultChan()
	if pod, ok := event.Object.(*corev1.Pod); event.Type != watch.Added || !ok || pod.UID != created.UID || !cmp.Equal(pod.Labels, want) {
		t.Errorf("the first event is %s %v: want the Pod, initialized", event.Type, event.Object)
	}
}

// TestInitializersActAtTheSameTime has two initializers that wait for each other, and a third one behind them.
func TestInitializersActAtTheSameTime(t *testing.T) {
	citest.Gate(t, "covers initializers: a second")
	const first, second, third = "first.example.com", "second.example.com", "third.example.com"
	all := append(initializersOf("a", "Fail", ", stream: {}, parallel: true", first, second), initializersOf("b", "Fail", ", stream: {}", third)...)
	i := newInitialized(t, all...)
	called := map[string]chan struct{}{first: make(chan struct{}, 1), second: make(chan struct{}, 1)}
	meets := func(own, other string, change func(*labelled)) hostsdk.Handler {
		return hostkube.Initialize(func(ctx context.Context, pod *labelled, _ *hostsdk.Request) (*labelled, error) {
			called[own] <- struct{}{}
			select {
			case <-called[other]:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			change(pod)
			return pod, nil
		})
	}
	i.host(t,
		hostsdk.Initialize(first, meets(first, second, func(pod *labelled) {
			pod.set("first", "yes")
			pod.set("contended", pod.Metadata.Labels["wanted-by-first"])
		})),
		hostsdk.Initialize(second, meets(second, first, func(pod *labelled) {
			pod.set("second", "yes")
			pod.set("contended", pod.Metadata.Labels["wanted-by-second"])
		})),
		hostsdk.Initialize(third, hostkube.Initialize(func(_ context.Context, pod *labelled, _ *hostsdk.Request) (*labelled, error) {
			pod.set("third-saw", pod.Metadata.Labels["first"]+"-"+pod.Metadata.Labels["second"])
			return pod, nil
		})),
	)

	pod := kube.Pod(i.namespace, "agree")
	pod.Labels = map[string]string{"wanted-by-first": "x", "wanted-by-second": "x"}
	created, err := cluster.CreatePod(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"wanted-by-first": "x", "wanted-by-second": "x", "contended": "x", "first": "yes", "second": "yes", "third-saw": "yes-yes",
	}
	if diff := cmp.Diff(want, created.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}

	pod = kube.Pod(i.namespace, "contend")
	pod.Labels = map[string]string{"wanted-by-first": "x", "wanted-by-second": "y"}
	_, err = cluster.CreatePod(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), `"first.example.com" and "second.example.com" act at the same time and change metadata.labels.contended`) {
		t.Errorf("two change the same field: %v", err)
	}
	i.wantNothingStaged(t)
}

// TestAnInitializerRefusesAPod: the client gets its Status, and nothing is created.
func TestAnInitializerRefusesAPod(t *testing.T) {
	const name = "picky.example.com"
	i := newInitialized(t, initializersOf("a", "Ignore", ", stream: {}", name)...)
	i.host(t, hostsdk.Initialize(name, hostkube.Initialize(func(context.Context, *labelled, *hostsdk.Request) (*labelled, error) {
		denial := hostsdk.Deny("no such Pod here").WithCode(http.StatusUnprocessableEntity).WithReason("Invalid")
		return nil, &hostsdk.DeniedError{Response: denial.WithCause("metadata.name", "is bad")}
	})))

	_, err := cluster.CreatePod(t.Context(), kube.Pod(i.namespace, "pod"))

	wantError(t, err, http.StatusUnprocessableEntity, `initializer "`+name+`" denied the request: no such Pod here`)
	if cause, ok := apierrors.StatusCause(err, ""); !ok || cause.Field != "metadata.name" {
		t.Errorf("cause = %+v, want the field at fault", cause)
	}
	if _, err := i.getPod(t, "pod"); !apierrors.IsNotFound(err) {
		t.Errorf("get the refused Pod: %v, want it not found", err)
	}
}

// TestAnInitializerThatDoesNotAct times out: with Ignore the Pod is created without it, with Fail the client gets a timeout that names the
// staged object.
func TestAnInitializerThatDoesNotAct(t *testing.T) {
	citest.Gate(t, "covers initializers: 2 s")
	const absent, present = "absent.example.com", "present.example.com"
	for policy, check := range map[string]func(t *testing.T, created *corev1.Pod, err error){
		"Ignore": func(t *testing.T, created *corev1.Pod, err error) {
			if err != nil || created.Labels["initialized-by"] != "present" {
				t.Errorf("created %v, %v: want a Pod that the other initializer has initialized", created.Labels, err)
			}
		},
		"Fail": func(t *testing.T, _ *corev1.Pod, err error) {
			wantError(t, err, http.StatusGatewayTimeout, absent)
			cause, ok := apierrors.StatusCause(err, "Uninitialized")
			if !apierrors.IsTimeout(err) || !ok || !strings.Contains(cause.Message, "resourceVersion ") || !strings.Contains(cause.Message, "uid ") {
				t.Errorf("error = %v with cause %+v, want a timeout with uid and resourceVersion of the staged object", err, cause)
			}
		},
	} {
		t.Run(policy, func(t *testing.T) {
			i := newInitialized(t, append(initializersOf("a", policy, ", timeout: 500ms", absent), initializersOf("b", policy, ", stream: {}", present)...)...)
			i.host(t, hostsdk.Initialize(present, marks("present")))
			created, err := cluster.CreatePod(t.Context(), kube.Pod(i.namespace, "pod"))
			check(t, created, err)
		})
	}
}

// TestAClientBypassesInitializers with an empty list, which needs the verb initialize.
func TestAClientBypassesInitializers(t *testing.T) {
	citest.Gate(t, "covers initializers: a second")
	const name = "marks.example.com"
	i := newInitialized(t, initializersOf("a", "Fail", ", stream: {}", name)...)
	i.host(t, hostsdk.Initialize(name, marks("marks")))
	bypassing := func(name string) *corev1.Pod {
		pod := kube.Pod(i.namespace, name)
		pod.Annotations = map[string]string{"initializers.portcullis.dev/pending": "[]", "other": "kept"}
		return pod
	}

	created, err := cluster.CreatePod(t.Context(), bypassing("by-an-administrator"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"other": "kept"}, created.Annotations); diff != "" || len(created.Labels) != 0 {
		t.Errorf("labels %v, annotations (-want +got):\n%s", created.Labels, diff)
	}

	author := i.userWhoMay(t, "author", false, "")
	_, err = author.CoreV1().Pods(i.namespace).Create(t.Context(), bypassing("by-an-author"), metav1.CreateOptions{})
	wantError(t, err, http.StatusForbidden, "may not initialize pods")
	created, err = author.CoreV1().Pods(i.namespace).Create(t.Context(), kube.Pod(i.namespace, "by-an-author"), metav1.CreateOptions{})
	if err != nil || created.Labels["initialized-by"] != "marks" {
		t.Errorf("labels %v, error %v: want an initialized Pod", created.Labels, err)
	}
}

// TestADryRunStagesNothing and warns, since its answer is not the object that would be created.
func TestADryRunStagesNothing(t *testing.T) {
	const name = "marks.example.com"
	i := newInitialized(t, initializersOf("a", "Fail", ", timeout: 20s", name)...) // nobody acts
	var e ear
	config := cluster.Config()
	config.WarningHandler = &e
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Pods(i.namespace).Create(t.Context(), kube.Pod(i.namespace, dryPod), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if all := e.heard(); err != nil || len(all) != 1 || !strings.Contains(all[0], name) {
		t.Errorf("warnings %q, error %v: want one about the initializer", all, err)
	}
}

// TestAPodWithAGeneratedNameIsInitialized, as are the Pods that a controller makes of a ReplicaSet.
func TestAPodWithAGeneratedNameIsInitialized(t *testing.T) {
	citest.Gate(t, "covers initializers: a second")
	const name = "marks.example.com"
	i := newInitialized(t, initializersOf("a", "Fail", ", stream: {}", name)...)
	i.host(t, hostsdk.Initialize(name, marks("marks")))
	pods := cluster.Client().CoreV1().Pods(i.namespace)

	pod := kube.Pod(i.namespace, "")
	pod.GenerateName = "generated-"
	created, err := cluster.CreatePod(t.Context(), pod)
	if err != nil || created.Labels["initialized-by"] != "marks" || !strings.HasPrefix(created.Name, "generated-") {
		t.Errorf("created %q with %v, %v: want an initialized Pod with a generated name", created.Name, created.Labels, err)
	}

	cluster.RunControllers(t)
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: kube.Pod("", "").Spec},
		},
	}
	if _, err := cluster.Client().AppsV1().Deployments(i.namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pods of the Deployment are there, initialized", func() error {
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=web,initialized-by=marks"})
		if err == nil && len(list.Items) != 3 {
			err = fmt.Errorf("%d Pods", len(list.Items))
		}
		return err
	})
}

// TestAnotherReplicaTakesAnObjectOver when the replica that has it is killed: the object is initialized once.
func TestAnotherReplicaTakesAnObjectOver(t *testing.T) {
	citest.Gate(t, "covers initializers: a second")
	const name = "marks.example.com"
	i := newInitialized(t, initializersOf("a", "Fail", ", stream: {}, timeout: 20s", name)...)
	p := newPairIn(t, i.road, nil, nil, "-initialize="+name, `-patch=[{"op":"add","path":"/metadata/labels","value":{"initialized-by":"marks"}}]`)
	p.holdBack(t)
	p.send(t, p.createOf)

	if err := p.one.Kill(); err != nil {
		t.Fatal(err)
	}
	p.release(t)

	p.wantAnswers(t, inFlight)
	i.wantInitialized(t, inFlight)
	i.wantNothingStaged(t)
}

// TestADispatcherIsKilledWhileItHoldsAPod: the client gets an error, the Pod is not created, the staged object goes with its lease, and the
// next attempt passes by another dispatcher.
func TestADispatcherIsKilledWhileItHoldsAPod(t *testing.T) {
	citest.Gate(t, "covers initializers: 6 s")
	const name = "marks.example.com"
	i := newInitialized(t, initializersOf("a", "Fail", ", stream: {}, timeout: 20s", name)...)
	p := newPairIn(t, i.road, nil, nil, "-initialize="+name, `-patch=[{"op":"add","path":"/metadata/labels","value":{"initialized-by":"marks"}}]`)
	p.holdBack(t)
	p.send(t, p.createOf)
	other := i.Serve(t)
	eventually(t, "the other dispatcher has hosts", func() error { return other.Ready(t.Context()) })
	i.balancer.Add(other)

	i.dispatcher.Kill(t)
	i.balancer.Remove(i.dispatcher)
	for range inFlight {
		if err := <-p.answers; err == nil {
			t.Error("a Pod was created although its dispatcher was killed")
		}
	}
	p.release(t)

	i.wantNothingStaged(t)
	eventually(t, "the Pods are created by the other dispatcher", func() error {
		for n := range inFlight {
			if err := p.createOf(t.Context(), n); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return nil
	})
	i.wantInitialized(t, inFlight)
}

// wantInitialized fails the test unless so many Pods are there, each of them initialized once.
func (i *initialized) wantInitialized(t *testing.T, n int) {
	t.Helper()
	list, err := cluster.Client().CoreV1().Pods(i.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != n {
		t.Errorf("%d Pods, %v: want %d", len(list.Items), err, n)
	}
	for _, pod := range list.Items {
		if pod.Labels["initialized-by"] != "marks" {
			t.Errorf("Pod %s has labels %v", pod.Name, pod.Labels)
		}
	}
}

// TestEntriesBringTheCreatesOfAnInitializer: nobody writes entries but the mesh. Once `apply --wait` of an initializer has returned, each Pod is
// initialized.
func TestEntriesBringTheCreatesOfAnInitializer(t *testing.T) {
	citest.Gate(t, "covers initializers: 9 s")
	const name = "marks.example.com"
	k := newPairOfKeepers(t)
	k.StartHost(t, hostName, hostsdk.Initialize(name, marks("marks")))

	k.apply(t, initializersOf("a", "Ignore", ", stream: {}, rotation: Immediate", name), "--wait", "--timeout=1m")

	for n := range 10 {
		pod, err := cluster.CreatePod(t.Context(), kube.Pod(k.namespace, fmt.Sprintf("pod-%d", n)))
		if err != nil || pod.Labels["initialized-by"] != "marks" {
			t.Fatalf("Pod %d has labels %v, %v", n, pod.Labels, err)
		}
	}
}
