package e2e

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// chartObjects are the objects of a chart, by kind.
type chartObjects struct {
	names     []string // of ConfigMaps, Secrets and ServiceAccounts: "ConfigMap/portcullis-config"
	workloads map[string]workload
	jobs      map[string]corev1.PodTemplateSpec // of Jobs and CronJobs
	services  []corev1.Service
	budgets   []policyv1.PodDisruptionBudget
	policies  []networkingv1.NetworkPolicy
}

// workload is a Deployment or StatefulSet.
type workload struct {
	replicas int32
	selector *metav1.LabelSelector
	template corev1.PodTemplateSpec
	claims   []string
}

func sortChart(t *testing.T, objects []*unstructured.Unstructured) *chartObjects {
	t.Helper()
	c := &chartObjects{workloads: map[string]workload{}, jobs: map[string]corev1.PodTemplateSpec{}}
	for _, object := range objects {
		switch object.GetKind() {
		case "Deployment":
			d := as[appsv1.Deployment](t, object)
			c.workloads[d.Name] = workload{*d.Spec.Replicas, d.Spec.Selector, d.Spec.Template, nil}
		case "StatefulSet":
			s := as[appsv1.StatefulSet](t, object)
			w := workload{*s.Spec.Replicas, s.Spec.Selector, s.Spec.Template, nil}
			for _, claim := range s.Spec.VolumeClaimTemplates {
				w.claims = append(w.claims, claim.Name)
			}
			c.workloads[s.Name] = w
		case "Job":
			j := as[batchv1.Job](t, object)
			c.jobs["Job "+j.Name] = j.Spec.Template
		case "CronJob":
			j := as[batchv1.CronJob](t, object)
			c.jobs["CronJob "+j.Name] = j.Spec.JobTemplate.Spec.Template
		case "Service":
			c.services = append(c.services, as[corev1.Service](t, object))
		case "PodDisruptionBudget":
			c.budgets = append(c.budgets, as[policyv1.PodDisruptionBudget](t, object))
		case "NetworkPolicy":
			c.policies = append(c.policies, as[networkingv1.NetworkPolicy](t, object))
		default:
			c.names = append(c.names, object.GetKind()+"/"+object.GetName())
		}
	}
	return c
}

// as is an object as its type, without fields that the type does not have.
func as[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

// checkChart checks that the objects fit each other and the program. No API
// server checks that.
func checkChart(t *testing.T, name string, objects []*unstructured.Unstructured) {
	t.Helper()
	c := sortChart(t, objects)
	mesh, exists := c.workloads[name]
	if !exists {
		t.Fatalf("there is no workload %s: %v", name, c.workloads)
	}
	c.checkWorkloads(t)
	for name, pod := range c.jobs {
		t.Run(name, func(t *testing.T) {
			checkPodSecurity(t, &pod)
			checkArgs(t, portcullis, &pod.Spec)
			if account := "ServiceAccount/" + pod.Spec.ServiceAccountName; !slices.Contains(c.names, account) {
				t.Errorf("there is no %s: %v", account, c.names)
			}
			for _, service := range c.services {
				if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
					t.Errorf("Service %s leads to it", service.Name)
				}
			}
		})
	}
	c.checkSelectors(t, name, &mesh)
	checkFlags(t, &mesh.template.Spec)
}

// checkWorkloads checks the requirements on all Pods, whatever their program.
func (c *chartObjects) checkWorkloads(t *testing.T) {
	t.Helper()
	for name, w := range c.workloads {
		t.Run(name, func(t *testing.T) {
			checkSelector(t, name, w.selector, w.template.Labels)
			checkPodSecurity(t, &w.template)
			c.checkVolumes(t, &w)
			if links := w.template.Spec.EnableServiceLinks; links == nil || *links {
				t.Error("Services become variables PORTCULLIS_*, which are flags")
			}
		})
	}
}

func checkSelector(t *testing.T, name string, selector *metav1.LabelSelector, pod map[string]string) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || !s.Matches(labels.Set(pod)) {
		t.Errorf("%s selects %v, and its Pods have %v (error %v)", name, selector, pod, err)
	}
}

// checkPodSecurity wants a Pod that the profile `restricted` lets in.
func checkPodSecurity(t *testing.T, template *corev1.PodTemplateSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec) {
		if !result.Allowed {
			t.Errorf("PodSecurity restricted: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}

// checkSelectors wants Services, budgets and policies to be of the dispatchers,
// and of ports that they have.
func (c *chartObjects) checkSelectors(t *testing.T, ours string, mesh *workload) {
	t.Helper()
	var ports []string
	for _, port := range mesh.template.Spec.Containers[0].Ports {
		ports = append(ports, port.Name)
	}
	for _, service := range c.services {
		checkSelector(t, service.Name, &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, mesh.template.Labels)
		for _, port := range service.Spec.Ports {
			if !slices.Contains(ports, port.TargetPort.StrVal) {
				t.Errorf("Service %s leads to the port %s, and Pods have %v", service.Name, port.TargetPort.StrVal, ports)
			}
		}
	}
	for _, budget := range c.budgets {
		checkSelector(t, budget.Name, budget.Spec.Selector, mesh.template.Labels)
	}
	for _, p := range c.policies {
		checkSelector(t, p.Name, &p.Spec.PodSelector, c.workloads[p.Name].template.Labels)
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				if !slices.Contains(ports, port.Port.StrVal) {
					t.Errorf("NetworkPolicy %s has the port %s, and Pods have %v", p.Name, port.Port.StrVal, ports)
				}
			}
		}
	}
	for name, w := range c.workloads { // a host is not called by API servers
		if name != ours && labels.SelectorFromSet(c.services[0].Spec.Selector).Matches(labels.Set(w.template.Labels)) {
			t.Errorf("Service %s leads to %s too", c.services[0].Name, name)
		}
	}
}

// broughtByUsers are the objects that the values of the test name, and that the
// chart does not make.
var broughtByUsers = []string{
	"Secret/portcullis-tls", "Secret/portcullis-imagepolicy-tls", "Secret/etcd-client", "Secret/api-servers-ca", "Secret/kubeconfigs", "Secret/capability-key",
	"Secret/portcullis-bridge-tls", "Secret/portcullis-bridge-mesh", "Secret/api-servers", "Secret/portcullis-host-tls",
	"ConfigMap/portcullis-config", "ServiceAccount/reader",
}

// checkVolumes wants each file of the arguments to be on a volume, and each
// volume to come from somewhere.
func (c *chartObjects) checkVolumes(t *testing.T, w *workload) {
	t.Helper()
	container, volumes := w.template.Spec.Containers[0], slices.Clone(w.claims)
	for _, volume := range w.template.Spec.Volumes {
		volumes = append(volumes, volume.Name)
		source := ""
		switch {
		case volume.Secret != nil:
			source = "Secret/" + volume.Secret.SecretName
		case volume.ConfigMap != nil:
			source = "ConfigMap/" + volume.ConfigMap.Name
		}
		if source != "" && !slices.Contains(c.names, source) && !slices.Contains(broughtByUsers, source) {
			t.Errorf("the volume %s is of %s: the chart makes %v", volume.Name, source, c.names)
		}
	}
	mounted := func(file string) bool {
		return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == file || m.MountPath == path.Dir(file)
		})
	}
	for _, mount := range container.VolumeMounts {
		if !slices.Contains(volumes, mount.Name) {
			t.Errorf("the mount %s has no volume: %v", mount.Name, volumes)
		}
	}
	for _, arg := range container.Args {
		file := arg // the value of a flag, which may be an argument of its own
		if strings.HasPrefix(arg, "--") {
			_, file, _ = strings.Cut(arg, "=")
		}
		if strings.HasPrefix(file, "/") && arg != "--etcd-prefix="+file && !mounted(file) {
			t.Errorf("%s is on no volume", arg)
		}
	}
	if name := w.template.Spec.ServiceAccountName; name != "" {
		if account := "ServiceAccount/" + name; !slices.Contains(c.names, account) && !slices.Contains(broughtByUsers, account) {
			t.Errorf("there is no %s: %v", account, c.names)
		}
	}
}

// checkArgs has a program parse the arguments.
func checkArgs(t *testing.T, program string, pod *corev1.PodSpec) {
	t.Helper()
	args := pod.Containers[0].Args
	if said, err := exec.CommandContext(t.Context(), program, append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("%s %q: %v\n%s", program, args, err, said)
	}
}

// checkFlags checks the arguments, and compares the program's time to stop with
// the Pod's.
func checkFlags(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	checkArgs(t, portcullis, pod)
	args := pod.Containers[0].Args
	duration := func(flag string) time.Duration {
		for _, arg := range args {
			if value, found := strings.CutPrefix(arg, flag+"="); found {
				d, err := time.ParseDuration(value)
				if err != nil {
					t.Error(err)
				}
				return d
			}
		}
		t.Errorf("there is no %s in %q", flag, args)
		return 0
	}
	needs := duration("--stop-delay") + 2*duration("--drain-timeout")
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= needs {
		t.Errorf("a Pod has %s to stop, and may need %s", grace, needs)
	}
}
