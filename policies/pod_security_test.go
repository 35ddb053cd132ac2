package policies_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// TestPodSecurityDecidesAsKubernetes asks Kubernetes' own plugin about each of its fixtures, for every level: in the version of the fixture, and in the
// latest. Pod templates, asked about in the latest, have the answer of their Pod.
func TestPodSecurityDecidesAsKubernetes(t *testing.T) {
	all, versions, folders := fixtures(t), []string{latest}, map[string]bool{}
	for _, f := range all {
		folders[filepath.Join(string(f.level), f.version, f.result)] = true
		if !slices.Contains(versions, f.version) {
			versions = append(versions, f.version)
		}
	}
	if own := len(versions) - 1; own < 36 || len(folders) != 4*own {
		t.Errorf("there are Pods in %d folders of %d versions, want some that pass and some that fail at both levels in each version", len(folders), own)
	}
	c := newComparison(t, versions)
	for file, f := range all {
		if allowed := c.kubernetes(t, f.level, f.version, f.pod).Allowed; allowed != (f.result == "pass") {
			t.Errorf("%s: Kubernetes: allowed %v", file, allowed)
		}
		requests := workloads(f.pod)
		c.ask(t, file, f.version, requests[0], f.pod)
		for _, request := range requests {
			c.ask(t, file, latest, request, f.pod)
		}
	}
	if c.asked < 4*4000 {
		t.Errorf("there were %d requests only", c.asked)
	}
	c.log(t)
}

// TestPodSecurityTakesTheVersionsOfKubernetes: with a parameter that is no version, each policy refuses all Pods, and names the values that there are.
func TestPodSecurityTakesTheVersionsOfKubernetes(t *testing.T) {
	request := create(corev1.SchemeGroupVersion, "Pod", "pods", restrictedPod())
	decoder := configtest.NewDecoder()
	for _, folder := range []string{"pod-security-baseline", "pod-security-restricted"} {
		for _, version := range []string{
			"latest", "v1.0", "v1.9", "v1.10", "v1.36", "v1.100", `""`, "Latest", `"latest "`, "newest", "1.25", `"1.25"`, "v1", "v1.", "v1.x", "v1.025", "v1.-1",
			"v1.25.3", "v2.0", "vv1.25",
		} {
			_, invalid := api.ParseVersion(strings.Trim(version, `"`))
			hooks := compiled(t, decoder, folder, fmt.Sprintf("{name: version, default: %s}", version))
			got, err := hooks[0].Policy.Judge(t.Context(), match.NewAttributes(request, match.Unknown{}), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			const says = "the parameter version of this policy must be latest or v1.MINOR, such as v1.25"
			if got.GetAllowed() != (invalid == nil) || invalid != nil && !strings.HasSuffix(got.GetStatus().GetMessage(), says) {
				t.Errorf("%s, version %s: allowed %v (%s); Kubernetes: %v", folder, version, got.GetAllowed(), got.GetStatus().GetMessage(), invalid)
			}
		}
	}
}

// latest is the version of the newest rules.
const latest = "latest"

// comparison compares the policies with Kubernetes' plugin.
type comparison struct {
	plugin                 policy.Evaluator
	levels                 map[api.Level]map[string]match.Policy // by version
	asked, refused, differ int
	known                  map[string]bool
}

func newComparison(t *testing.T, versions []string) *comparison {
	t.Helper()
	plugin, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &comparison{plugin: plugin, known: map[string]bool{}, levels: map[api.Level]map[string]match.Policy{
		api.LevelBaseline: byVersion(t, "pod-security-baseline", versions), api.LevelRestricted: byVersion(t, "pod-security-restricted", versions),
	}}
}

// kubernetes is the answer of the plugin about a Pod.
func (c *comparison) kubernetes(t *testing.T, level api.Level, version string, pod *corev1.Pod) policy.AggregateCheckResult {
	t.Helper()
	parsed, err := api.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return policy.AggregateCheckResults(c.plugin.EvaluatePod(api.LevelVersion{Level: level, Version: parsed}, &pod.ObjectMeta, &pod.Spec))
}

// ask asks the plugin about a Pod, and the policies about a request that makes it. Fixtures that are the same are judged once in a version.
func (c *comparison) ask(t *testing.T, name, version string, request *admissionv1.AdmissionRequest, pod *corev1.Pod) {
	t.Helper()
	c.asked++
	key := version + request.GetKind().GetKind() + string(request.GetObject().GetRaw())
	if c.known[key] {
		return
	}
	c.known[key] = true
	for level, policies := range c.levels {
		want := c.kubernetes(t, level, version, pod)
		got, err := policies[version].Judge(t.Context(), match.NewAttributes(request, match.Unknown{}), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !want.Allowed {
			c.refused++
		}
		if got.GetAllowed() != want.Allowed {
			c.differ++
			t.Errorf("%s, level %s, version %s, %s: allowed %v (%s); Kubernetes: %v (%s)\n%s", name, level, version, request.GetKind().GetKind(),
				got.GetAllowed(), got.GetStatus().GetMessage(), want.Allowed, want.ForbiddenDetail(), request.GetObject().GetRaw())
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

// fixture is a Pod of Kubernetes' tests.
type fixture struct {
	level           api.Level
	version, result string // "v1.25", "pass" or "fail"
	pod             *corev1.Pod
}

// fixtures are the Pods of Kubernetes' tests, by their files.
func fixtures(t *testing.T) map[string]fixture {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(strings.TrimSpace(string(module)), "test", "testdata")
	all := map[string]fixture{}
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
		folders := strings.Split(filepath.ToSlash(name), "/") // LEVEL/VERSION/RESULT/FILE
		if len(folders) != 4 {
			return fmt.Errorf("%s: its path has no level, version and result", name)
		}
		all[name] = fixture{api.Level(folders[0]), folders[1], folders[2], &corev1.Pod{}}
		return unmarshal(text, all[name].pod)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unmarshal reads a Pod. As on an API server, a volume that names no type is an emptyDir.
func unmarshal(text []byte, pod *corev1.Pod) error {
	err := yaml.UnmarshalStrict(text, pod)
	for i := range pod.Spec.Volumes {
		if source := &pod.Spec.Volumes[i].VolumeSource; *source == (corev1.VolumeSource{}) {
			source.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
	return err
}

// byVersion is the policy of a folder as a mesh judges it in clusters with these versions.
func byVersion(t *testing.T, folder string, versions []string) map[string]match.Policy {
	t.Helper()
	clusters := map[string]string{}
	for i, version := range versions {
		clusters[fmt.Sprintf("cluster-%d", i)] = version
	}
	values, err := json.Marshal(clusters)
	if err != nil {
		t.Fatal(err)
	}
	policies := map[string]match.Policy{}
	for _, hook := range compiled(t, configtest.NewDecoder(), folder, fmt.Sprintf("{name: version, default: latest, byCluster: %s}", values)) {
		policies[clusters[hook.ID.Scope]] = hook.Policy // of clusters that are not named too
	}
	return policies
}

// compiled are the hooks of the policy of a folder with another declaration of its parameter.
func compiled(t *testing.T, decoder *config.Decoder, folder, parameter string) []*match.Hook {
	t.Helper()
	const declared = "{name: version, default: latest}"
	document := text(t, folder, "policy.yaml")
	if !strings.Contains(document, declared) {
		t.Fatalf("%s: there is no parameter %s", folder, declared)
	}
	objects, problems := decoder.Decode(folder, []byte(strings.Replace(document, declared, parameter, 1)))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, findings := config.Compile("files", objects)
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return snapshot.Hooks()
}
