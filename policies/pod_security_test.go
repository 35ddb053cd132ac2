package policies_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// TestPodSecurityDecidesAsKubernetes asks Kubernetes' own plugin at its latest version about each of its fixtures, for every level and version. Pod
// templates have the answer of their Pod.
func TestPodSecurityDecidesAsKubernetes(t *testing.T) {
	c := newComparison(t)
	for file, pod := range fixtures(t) {
		for _, request := range workloads(pod) {
			c.ask(t, file, request, pod)
		}
	}
	if c.asked < 3*4000 {
		t.Errorf("there were %d requests only", c.asked)
	}
	c.log(t)
}

// comparison compares the policies with Kubernetes' plugin.
type comparison struct {
	plugin                 policy.Evaluator
	levels                 map[api.Level]match.Policy
	asked, refused, differ int
	known                  map[string]bool
}

func newComparison(t *testing.T) *comparison {
	t.Helper()
	plugin, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &comparison{plugin: plugin, known: map[string]bool{}, levels: map[api.Level]match.Policy{
		api.LevelBaseline: compiled(t, "pod-security-baseline"), api.LevelRestricted: compiled(t, "pod-security-restricted"),
	}}
}

// ask asks the plugin about a Pod, and the policies about a request that makes it. Many versions have the same fixtures, which are judged once.
func (c *comparison) ask(t *testing.T, name string, request *admissionv1.AdmissionRequest, pod *corev1.Pod) {
	t.Helper()
	c.asked++
	key := request.GetKind().GetKind() + string(request.GetObject().GetRaw())
	if c.known[key] {
		return
	}
	c.known[key] = true
	for level, p := range c.levels {
		version := api.LevelVersion{Level: level, Version: api.LatestVersion()}
		want := policy.AggregateCheckResults(c.plugin.EvaluatePod(version, &pod.ObjectMeta, &pod.Spec))
		got, err := p.Judge(t.Context(), match.NewAttributes(request, match.Unknown{}), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !want.Allowed {
			c.refused++
		}
		if got.GetAllowed() != want.Allowed {
			c.differ++
			t.Errorf("%s, level %s, %s: allowed %v (%s); Kubernetes: %v (%s)\n%s", name, level, request.GetKind().GetKind(), got.GetAllowed(),
				got.GetStatus().GetMessage(), want.Allowed, want.ForbiddenDetail(), request.GetObject().GetRaw())
		}
	}
}

func (c *comparison) log(t *testing.T) {
	t.Helper()
	t.Logf("%d requests, of which %d are different, at %d levels: %d refused, %d answers differ", c.asked, len(c.known), len(c.levels), c.refused, c.differ)
}

// workloads are a Pod, and objects with a template of it.
func workloads(pod *corev1.Pod) []*admissionv1.AdmissionRequest {
	template := corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	return []*admissionv1.AdmissionRequest{
		create(corev1.SchemeGroupVersion, "Pod", "pods", pod),
		create(appsv1.SchemeGroupVersion, "Deployment", "deployments", &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}),
		create(batchv1.SchemeGroupVersion, "CronJob", "cronjobs", &batchv1.CronJob{Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		}}),
	}
}

// create is the creation of an object, as an API server sends it.
func create(version schema.GroupVersion, kind, resource string, object runtime.Object) *admissionv1.AdmissionRequest {
	object.GetObjectKind().SetGroupVersionKind(version.WithKind(kind))
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	k := &admissionv1.GroupVersionKind{Group: version.Group, Version: version.Version, Kind: kind}
	r := &admissionv1.GroupVersionResource{Group: version.Group, Version: version.Version, Resource: resource}
	return &admissionv1.AdmissionRequest{
		Uid: "u", Operation: "CREATE", Namespace: "default", Name: "x", Object: &admissionv1.Object{Raw: raw},
		Kind: k, RequestKind: k, Resource: r, RequestResource: r,
	}
}

// fixtures are the Pods of Kubernetes' tests, by their files.
func fixtures(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(strings.TrimSpace(string(module)), "test", "testdata")
	pods := map[string]*corev1.Pod{}
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		pods[name] = &corev1.Pod{}
		return yaml.UnmarshalStrict(text, pods[name])
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// compiled is the policy of a folder as a mesh judges it.
func compiled(t *testing.T, folder string) match.Policy {
	t.Helper()
	snapshot, findings := config.Compile("files", []config.Object{read(t, folder)})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return snapshot.Hooks()[0].Policy
}
