package main

import (
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const hostDir = "../chart/portcullis-host"

// hostValues are those without which the chart of hosts does not render.
const hostValues = "image.repository=imagepolicy"

// renderHost renders the chart of hosts with values.
func renderHost(t *testing.T, set ...string) (*Rendered, error) {
	t.Helper()
	return Render(Options{Chart: hostDir, Release: "imagepolicy", Namespace: "policy", Set: set, Notes: true})
}

// TestBadValuesOfAHostAreRefused: with some of them no Pod would start, or no write would be reviewed.
func TestBadValuesOfAHostAreRefused(t *testing.T) {
	for set, want := range map[string]string{
		"replicas=2": "image.repository is missing",
		hostValues + ",certificate.certManager.enabled=true":         "certificate.certManager.identity is missing",
		hostValues + ",certificate.certManager.identity=imagepolicy": "at '/certificate/certManager/identity'",
		hostValues + ",certificate.certManager.duration=90d":         "at '/certificate/certManager/duration'",
		hostValues + ",certificate.secret=x":                         "additional properties 'secret' not allowed",
		hostValues + ",dispatchers={mesh}":                           "at '/dispatchers/0'",
		hostValues + ",dispatchers={mesh:8444\\,other:8444}":         "at '/dispatchers/0'",
		hostValues + ",dispatchers=":                                 "at '/dispatchers'",
		hostValues + ",replicas=0":                                   "at '/replicas'",
		hostValues + ",readyPort=70000":                              "at '/readyPort'",
		hostValues + ",terminationGracePeriodSeconds=13":             "at '/terminationGracePeriodSeconds'",
		hostValues + ",configuration.files.hooks\\.txt=x":            "hooks.txt",
		hostValues + ",podDisruptionBudget.maxUnavailable=0":         "at '/podDisruptionBudget/maxUnavailable'",
		hostValues + ",networkPolicy.hostsFrom=x":                    "additional properties 'hostsFrom' not allowed",
	} {
		if _, err := renderHost(t, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: error %v, want one that says %s", set, err, want)
		}
	}
	if _, err := renderHost(t, hostValues); err != nil {
		t.Error(err)
	}
}

// TestARolloutOfHostsWaitsForTheirHooks: by the port that the host opens, unless there is none.
func TestARolloutOfHostsWaitsForTheirHooks(t *testing.T) {
	for set, want := range map[string]string{"readyPort=9000": "--ready-port 9000", "readyPort=0": ""} {
		r, err := renderHost(t, hostValues, set)
		if err != nil {
			t.Fatal(err)
		}
		var deployment appsv1.Deployment
		objectOf(t, r, "Deployment", "imagepolicy", &deployment)
		container := &deployment.Spec.Template.Spec.Containers[0]
		_, args, _ := strings.Cut(strings.Join(container.Args, " "), "ca.crt")
		if probe := container.ReadinessProbe; strings.TrimSpace(args) != want || (probe != nil) != (want != "") {
			t.Errorf("%s: the arguments end in %q, and the probe is %v", set, args, probe)
		}
		if probe := container.ReadinessProbe; probe != nil && (probe.TCPSocket.Port.StrVal != container.Ports[0].Name || container.Ports[0].ContainerPort != 9000) {
			t.Errorf("%s: the probe asks %v, and the ports are %v", set, probe.TCPSocket, container.Ports)
		}
	}
}

// TestTheExamplesHaveValues: each its own image, and all the same hooks.
func TestTheExamplesHaveValues(t *testing.T) {
	files, err := filepath.Glob("../../examples/imagepolicy*/values.yaml")
	if err != nil || len(files) != 5 {
		t.Fatalf("values are in %v, want those of five languages (error %v)", files, err)
	}
	var hooks string
	for _, file := range files {
		r, err := Render(Options{Chart: hostDir, Release: "imagepolicy", Namespace: "policy", ValuesFiles: []string{file}})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var deployment appsv1.Deployment
		objectOf(t, r, "Deployment", "imagepolicy", &deployment)
		if want := filepath.Base(filepath.Dir(file)) + ":dev"; deployment.Spec.Template.Spec.Containers[0].Image != want {
			t.Errorf("%s: the image is %s, want %s, as its README builds it", file, deployment.Spec.Template.Spec.Containers[0].Image, want)
		}
		var configuration corev1.ConfigMap
		objectOf(t, r, "ConfigMap", "imagepolicy-hooks", &configuration)
		if configuration.Namespace != "policy" || configuration.Labels["portcullis.dev/configuration"] != "true" {
			t.Errorf("%s: no dispatcher reads the ConfigMap with the labels %v in %s", file, configuration.Labels, configuration.Namespace)
		}
		if hooks == "" {
			hooks = configuration.Data["imagepolicy.yaml"]
		}
		if got := configuration.Data["imagepolicy.yaml"]; got != hooks || len(configuration.Data) != 1 {
			t.Errorf("%s has other hooks than %s:\n%s", file, files[0], got)
		}
	}
}
