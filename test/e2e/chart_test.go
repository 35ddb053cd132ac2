package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
)

// chartValues are values by which the chart is rendered, by name.
var chartValues = map[string][]string{
	"default values":             nil,
	"one replica":                {"replicas=1"},
	"three replicas":             {"replicas=3", "podDisruptionBudget.maxUnavailable=50%"},
	"embedded store":             {"store.kind=embedded", "replicas=1", "operators={spiffe://ops/ann}"},
	"embedded store, class":      {"store.kind=embedded", "replicas=1", "store.embedded.storageClassName=fast", "store.embedded.size=10Gi"},
	"external etcd":              {"store.kind=etcd", "store.etcd.endpoints={https://etcd-0:2379,https://etcd-1:2379}", "store.etcd.secretName=etcd-client"},
	"external etcd, first start": {"store.kind=etcd", "store.etcd.endpoints={http://etcd:2379}", "store.etcd.create=true", "operators={ann,bob}", "operatorAuthorities={spiffe://ops}"},
	"cert-manager":               {"certificates.certManager.enabled=true", "exampleHost.enabled=true", "certificates.certManager.ipAddresses={10.0.0.7}"},
	"cert-manager, own issuer":   {"certificates.certManager.enabled=true", "certificates.certManager.issuerRef.name=corp", "certificates.certManager.issuerRef.kind=ClusterIssuer"},
	"own certificates": {
		"certificates.self.enabled=true", "exampleHost.enabled=true", "certificates.self.ipAddresses={10.0.0.7}", "certificates.self.dnsNames={mesh.example.com}",
		"certificates.self.clients[0].secretName=operator", "certificates.self.clients[0].identity=spiffe://mesh/operator",
		"image.pullSecrets={regcred}", "nodeSelector.role=mesh", "tolerations[0].operator=Exists",
	},
	"example host":           {"exampleHost.enabled=true", "cluster.name=prod-1"},
	"capability":             {"cluster.name=prod-1", "cluster.capabilities[0].name=a", "cluster.capabilities[0].sha256=" + strings.Repeat("0a", 32)},
	"entries are kept":       {"cluster.name=prod-1", "cluster.registration.url=https://10.0.0.7:443", "cluster.registration.name=mesh"},
	"capabilities elsewhere": {"serve.allowCapabilities=true"},
	"made capabilities": {
		"cluster.name=prod-1", "cluster.registration.url=https://10.0.0.7:443", "cluster.rotateCapability=720h", "capabilityKey.secretName=capability-key",
	},
	"this cluster is not read":  {"cluster.read=false"},
	"ConfigMaps of a namespace": {"configuration.namespace=NAMESPACE", "cluster.read=false"},
	"custom resources":          {"configuration.customResources=true", "cluster.read=false"},
	"own ConfigMap":             {"configuration.existingConfigMap=portcullis-config"},
	"own namespace object":      {"namespace.create=true"},
	"monitored": {
		"serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus",
		"networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring",
	},
	"load balancer": {
		"service.type=LoadBalancer", "service.exposeHosts=true", "service.annotations.example\\.com/internal=yes", "service.loadBalancerClass=example.com/internal",
		"service.loadBalancerSourceRanges={10.0.0.0/8}",
	},
	"no policy, no budget": {"networkPolicy.enabled=false", "podDisruptionBudget.enabled=false", "spreadOver={topology.kubernetes.io/zone}", "priorityClassName="},
	"everything further": {
		"image.digest=sha256:" + strings.Repeat("0a", 32), "image.pullSecrets={regcred}", "nodeSelector.role=mesh",
		"tolerations[0].key=role", "tolerations[0].operator=Exists", "podLabels.team=platform", "podAnnotations.example\\.com/a=b",
		"serve.extraArgs={--webhook-service=policy/imagepolicy=10.0.0.9:8443,--reflection}", "serve.stopDelaySeconds=20",
		"serve.extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "serve.extraEnv[0].value=http://collector:4318",
		"extraVolumes[0].name=clusters", "extraVolumes[0].secret.secretName=kubeconfigs",
		"extraVolumeMounts[0].name=clusters", "extraVolumeMounts[0].mountPath=/etc/portcullis/clusters",
		"certificates.apiServersCASecretName=api-servers-ca", "serviceAccount.annotations.example\\.com/a=b",
	},
}

// TestTheChartIsAcceptedByTheAPIServer renders the chart with many values, and
// has the API server judge every object strictly, without storing it.
func TestTheChartIsAcceptedByTheAPIServer(t *testing.T) {
	citest.Soak(t, "installs the chart with each set of values: 23 s")
	apply := newDryApply(t)
	for name, set := range chartValues {
		t.Run(name, func(t *testing.T) { newChart(t, "portcullis").check(t, apply, set) })
	}
}

// bridgeValues are values by which the chart of bridges is rendered, by name,
// beside those that it needs.
var bridgeValues = map[string][]string{
	"capability":         {"callers.capabilitySecretName=api-servers"},
	"client certificate": {"callers.identities={kube-apiserver}", "callers.caSecretName=api-servers-ca", "clusterAPI=false"},
	"everything further": {
		"callers.capabilitySecretName=api-servers", "dispatchers={mesh-0:8444,mesh-1:8444}", "replicas=3", "service.type=LoadBalancer",
		"extraArgs={--memory-budget=134217728}", "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
		"tolerations[0].operator=Exists", "nodeSelector.role=mesh", "image.pullSecrets={regcred}", "podLabels.team=platform",
	},
}

// TestTheChartOfBridgesIsAcceptedByTheAPIServer does the same with the chart
// for clusters whose dispatchers are elsewhere.
func TestTheChartOfBridgesIsAcceptedByTheAPIServer(t *testing.T) {
	citest.Gate(t, "covers the chart: a second")
	apply := newDryApply(t)
	for name, set := range bridgeValues {
		set = append([]string{"cluster=prod-1", "dispatchers={mesh.example.com:8444}"}, set...)
		t.Run(name, func(t *testing.T) { newChart(t, "portcullis-bridge").check(t, apply, set) })
	}
}

// hostValues are values by which the chart of hosts is rendered, by name.
var hostValues = map[string][]string{
	"default values": {"image.repository=imagepolicy"},
	"cert-manager":   {"image.repository=imagepolicy", "certificate.certManager.enabled=true", "certificate.certManager.identity=spiffe://mesh/imagepolicy"},
	"its hooks":      {"image.repository=imagepolicy", "configuration.files.hooks\\.yaml=x", "configuration.namespace=NAMESPACE"},
	"no probe": {
		"image.repository=imagepolicy", "readyPort=0", "networkPolicy.enabled=false", "podDisruptionBudget.enabled=false", "spreadOver={kubernetes.io/hostname}",
	},
	"everything further": {
		"image.repository=imagepolicy", "image.digest=sha256:" + strings.Repeat("0a", 32), "image.pullSecrets={regcred}", "replicas=3",
		"dispatchers={mesh-0:8444,mesh-1:8444}", "serviceAccountName=reader", "extraArgs={--cert,/etc/host/tls/other.crt}", "nodeSelector.role=mesh",
		"tolerations[0].operator=Exists", "podLabels.team=platform", "podAnnotations.example\\.com/a=b", "priorityClassName=",
		"extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "extraEnv[0].value=http://collector:4318", "podDisruptionBudget.maxUnavailable=50%",
	},
}

// TestTheChartOfHostsIsAcceptedByTheAPIServer does the same with the chart of
// hosts. The example of Go takes the arguments that it makes.
func TestTheChartOfHostsIsAcceptedByTheAPIServer(t *testing.T) {
	citest.Gate(t, "covers the chart: 3 s")
	program, err := findTree(t).ImagePolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	apply := newDryApply(t)
	for name, set := range hostValues {
		t.Run(name, func(t *testing.T) {
			c := newChart(t, "portcullis-host")
			objects := sortChart(t, c.accepted(t, apply, set))
			objects.checkWorkloads(t)
			host := objects.workloads[c.name]
			objects.checkSelectors(t, c.name, &host)
			checkArgs(t, program, &host.template.Spec)
		})
	}
}

// check renders the chart, has the API server judge the objects, and compares
// them with each other.
func (c *chart) check(t *testing.T, apply *dryApply, set []string) {
	t.Helper()
	checkChart(t, c.name, c.accepted(t, apply, set))
}

// accepted are the objects of the chart, which the API server has judged.
func (c *chart) accepted(t *testing.T, apply *dryApply, set []string) []*unstructured.Unstructured {
	t.Helper()
	objects := c.render(t, apply.namespace, set...)
	for _, object := range objects {
		if isForeign(object) {
			t.Logf("%s %s: its kind is not served here; deploy/render checks it by the types of its project", object.GetKind(), object.GetName())
			continue
		}
		if err := apply.do(t, object); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	return objects
}

// chart is a Helm chart and the program that renders it.
type chart struct{ program, name, dir string }

func newChart(t *testing.T, name string) *chart {
	t.Helper()
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program, err := tree.Render(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &chart{program: program, name: name, dir: filepath.Join(tree.Root, "deploy", "chart", name)}
}

// render is the output of `helm template` for the chart.
func (c *chart) render(t *testing.T, namespace string, set ...string) []*unstructured.Unstructured {
	t.Helper()
	args := []string{"template", c.name, c.dir, "--namespace", namespace, "--include-crds"}
	for _, value := range set {
		args = append(args, "--set", strings.ReplaceAll(value, "NAMESPACE", namespace))
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), c.program, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("render: %v\n%s", err, &stderr)
	}
	return decodeObjects(t, &stdout)
}

// decodeObjects are the objects of a stream of YAML documents.
func decodeObjects(t *testing.T, in io.Reader) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLReader(bufio.NewReader(in)); ; {
		document, err := decoder.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		var object unstructured.Unstructured
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil { // a key that stands twice is an error
			t.Fatalf("%v:\n%s", err, document)
		}
		if object.Object != nil {
			objects = append(objects, &object)
		}
	}
}

// isForeign reports whether an object is of a kind that another project defines.
func isForeign(object *unstructured.Unstructured) bool {
	group, _, _ := strings.Cut(object.GetAPIVersion(), "/")
	return slices.Contains([]string{"cert-manager.io", "monitoring.coreos.com"}, group)
}

// dryApply applies objects as `kubectl apply --server-side --dry-run=server`
// does.
type dryApply struct {
	namespace string
	client    *dynamic.DynamicClient
	resources []*restmapper.APIGroupResources
}

func newDryApply(t *testing.T) *dryApply {
	t.Helper()
	resources, err := restmapper.GetAPIGroupResources(cluster.Client().Discovery())
	if err != nil {
		t.Fatal(err)
	}
	return &dryApply{namespace: cluster.Namespace(t, nil), client: cluster.Dynamic(t), resources: resources}
}

func (a *dryApply) do(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := restmapper.NewDiscoveryRESTMapper(a.resources).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "e2e", FieldValidation: metav1.FieldValidationStrict}
	_, err = a.client.Resource(mapping.Resource).Namespace(object.GetNamespace()).
		Patch(t.Context(), object.GetName(), types.ApplyPatchType, data, options)
	return err
}
