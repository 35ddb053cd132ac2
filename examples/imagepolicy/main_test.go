package main

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestEveryImageOfAPodIsLookedAt(t *testing.T) {
	const pinned, loose = "nginx@sha256:0a", "nginx:1.29"
	container := func(image string) corev1.Container { return corev1.Container{Image: image} }
	ephemeral := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: loose}}
	for name, c := range map[string]struct {
		spec  corev1.PodSpec
		allow bool
	}{
		"by digest":              {corev1.PodSpec{Containers: []corev1.Container{container(pinned)}}, true},
		"by tag":                 {corev1.PodSpec{Containers: []corev1.Container{container(pinned), container(loose)}}, false},
		"by tag, at the start":   {corev1.PodSpec{InitContainers: []corev1.Container{container(loose)}}, false},
		"by tag, for a debugger": {corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{ephemeral}}, false},
	} {
		response, err := byDigest(t.Context(), &corev1.Pod{Spec: c.spec}, nil)
		if err != nil || response.Allowed != c.allow {
			t.Errorf("%s: %+v, %v", name, response, err)
		}
	}
	if response, err := byDigest(t.Context(), nil, nil); err != nil || !response.Allowed {
		t.Errorf("DELETE: %+v, %v", response, err)
	}
}

func TestItSaysWhatIsMissing(t *testing.T) {
	if err := run(t.Context(), nil, io.Discard); err == nil || !strings.Contains(err.Error(), "--dispatchers") {
		t.Errorf("without flags: %v", err)
	}
}
