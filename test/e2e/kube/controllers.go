package kube

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

const (
	// controllerWorkers is how many workers each controller has.
	controllerWorkers = 2
	// collectorPeriod is how often the garbage collector looks for new kinds.
	collectorPeriod = time.Second
)

// RunControllers runs the controllers of Deployments and ReplicaSets, and the
// garbage collector, until the test ends. No node runs the Pods that they
// make: each is said to be ready at once.
func (c *Cluster) RunControllers(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	typed := informers.NewSharedInformerFactory(c.client, 0)
	t.Cleanup(func() {
		stop()
		running.Wait()
		typed.Shutdown()
	})
	pods, replicaSets := typed.Core().V1().Pods(), typed.Apps().V1().ReplicaSets()
	deployments, err := deployment.NewDeploymentController(ctx, typed.Apps().V1().Deployments(), replicaSets, pods, c.client)
	if err != nil {
		t.Fatal(err)
	}
	sets := replicaset.NewReplicaSetController(ctx, replicaSets, pods, c.client, replicaset.BurstReplicas)
	ready := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			c.makeReady(ctx, t, pod)
		}
	}
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: ready}); err != nil {
		t.Fatal(err)
	}
	typed.Start(ctx.Done())
	running.Go(func() { deployments.Run(ctx, controllerWorkers) })
	running.Go(func() { sets.Run(ctx, controllerWorkers) })
	c.collectGarbage(ctx, t, &running, typed)
}

// collectGarbage starts the garbage collector.
func (c *Cluster) collectGarbage(ctx context.Context, t testing.TB, running *sync.WaitGroup, typed informers.SharedInformerFactory) {
	t.Helper()
	client, err := metadata.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	close(started)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	all := informerfactory.NewInformerFactory(typed, metadatainformer.NewSharedInformerFactory(client, 0))
	collector, err := garbagecollector.NewGarbageCollector(ctx, c.client, client, mapper, garbagecollector.DefaultIgnoredResources(), all, started)
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() { collector.Run(ctx, controllerWorkers, collectorPeriod) })
	running.Go(func() { collector.Sync(ctx, c.client.Discovery(), collectorPeriod) })
}

// makeReady says in the status of a Pod that it runs, as the kubelet would.
func (c *Cluster) makeReady(ctx context.Context, t testing.TB, pod *corev1.Pod) {
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	_, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Errorf("the status of the Pod %s: %v", pod.Name, err)
	}
}
