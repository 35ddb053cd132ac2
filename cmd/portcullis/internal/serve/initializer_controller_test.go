package serve

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	kubeinitializers "github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
)

const controlledInitializer = `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: sidecars}
initializers:
- name: sidecar.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [widgets]}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: sidecars}
spec: {configuration: sidecars, stage: initialize, hosts: [` + devAPIServer + `], timeout: 30s}
`

const createWidget = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",
"kind":{"group":"","version":"v1","kind":"Widget"},"resource":{"group":"","version":"v1","resource":"widgets"},
"namespace":"shop","operation":"CREATE","userInfo":{"username":"jane"},
"object":{"apiVersion":"v1","kind":"Widget","metadata":{"generateName":"web-","namespace":"shop"},"spec":{"n":1}}}}`

// TestAControllerInitializesAHeldCreate: a review of a CREATE waits for a controller with an informer of client-go, and its patch has the
// change of the controller and nothing of staging.
func TestAControllerInitializesAHeldCreate(t *testing.T) {
	_, _, info := appWithStore(t, func(*dev, *serveConfig) {})
	ready := readyFileOf(t, info)
	if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(controlledInitializer), "-f", "-", "--wait", "--ready-file", ready,
		"--acknowledge", "danger-kube-system"); r.Code != 0 {
		t.Fatal(r)
	}
	startController(t, info)
	r := clitest.Execute(t, reviewcli.NewCommand(), strings.NewReader(createWidget), "-f", "-", "--stage", "mutate", "--cluster", devCluster,
		"--timeout", "30s", "-o", "json", "--ready-file", ready)
	var answer struct {
		Stages []struct {
			Patch any `json:"patch"`
		} `json:"stages"`
	}
	if err := json.Unmarshal([]byte(r.Out), &answer); err != nil || len(answer.Stages) != 1 {
		t.Fatal(r, err)
	}
	want := []any{map[string]any{"op": "add", "path": "/metadata/labels", "value": map[string]any{"for": "jane"}}}
	if diff := cmp.Diff(any(want), answer.Stages[0].Patch); diff != "" {
		t.Error(diff)
	}
}

// startController runs a controller for the initializer until the test ends.
func startController(t *testing.T, info listen.ReadyInfo) {
	t.Helper()
	runController(t, info, func(err error) { t.Error(err) })
}

// runController is startController, and passes on the errors of updates.
func runController(t *testing.T, info listen.ReadyInfo, failed func(error)) {
	t.Helper()
	config := &rest.Config{
		Host:            info.Bridge + kubeinitializers.Path(devCluster),
		TLSClientConfig: rest.TLSClientConfig{CAFile: info.CA, CertFile: info.ClientCert, KeyFile: info.ClientKey},
	}
	config.Wrap(kubeinitializers.IncludeUninitialized)
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.CloseIdleConnections)
	client, err := dynamic.NewForConfigAndClient(config, web)
	if err != nil {
		t.Fatal(err)
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "widgets"}
	widgets := client.Resource(resource)
	ctx, stop := context.WithCancel(t.Context())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	t.Cleanup(factory.Shutdown)
	t.Cleanup(stop)
	informer := factory.ForResource(resource).Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		o, ok := object.(*unstructured.Unstructured)
		if !ok || kubeinitializers.First(o) != "sidecar.example.com" {
			t.Errorf("not to be initialized: %v", object)
			return
		}
		o = o.DeepCopy()
		o.SetLabels(map[string]string{"for": kubeinitializers.Creator(o).Username})
		kubeinitializers.Done(o)
		if _, err := widgets.Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil { // the test may end with the review, before this answer
			failed(err)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the cache is not filled")
	}
}
