package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

// newHost is the host with its hooks. Options say where they are served.
func newHost(o hostsdk.Options) (*hostsdk.Host, error) {
	o.Name = "imagepolicy"
	return hostsdk.New(o,
		hostsdk.Validate("imagepolicy.example.com", kube.Validate(byDigest)),
		hostsdk.Mutate("team-label.example.com", kube.Mutate(teamLabel), hostsdk.Speculate()),
	)
}

// byDigest denies a Pod with an image that is not named by digest.
func byDigest(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
	if pod == nil { // DELETE
		return hostsdk.Allow(), nil
	}
	for field, image := range images(&pod.Spec) {
		if !strings.Contains(image, "@sha256:") {
			return hostsdk.Deny("images are named by digest here: "+image).WithCause(field, "has no digest"), nil
		}
	}
	return hostsdk.Allow(), nil
}

// images yields the images of all containers of a Pod, each after the path of its field.
func images(spec *corev1.PodSpec) iter.Seq2[string, string] {
	return func(yield func(field, image string) bool) {
		for i := range spec.InitContainers {
			if !yield(fmt.Sprintf("spec.initContainers[%d].image", i), spec.InitContainers[i].Image) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(fmt.Sprintf("spec.containers[%d].image", i), spec.Containers[i].Image) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(fmt.Sprintf("spec.ephemeralContainers[%d].image", i), spec.EphemeralContainers[i].Image) {
				return
			}
		}
	}
}

// teamLabel labels a Pod that has no team with its namespace.
func teamLabel(_ context.Context, pod *corev1.Pod, request *hostsdk.Request) (*hostsdk.Response, error) {
	if pod == nil { // DELETE
		return hostsdk.Allow(), nil
	}
	if _, labelled := pod.Labels["team"]; labelled {
		return hostsdk.Allow(), nil
	}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", request.Namespace())
	return hostsdk.Allow(), nil // with the difference as the patch
}
