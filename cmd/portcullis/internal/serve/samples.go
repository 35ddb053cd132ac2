package serve

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

// sampleHooks are the hooks of the sample configuration. It is there to be edited, and its rules may come to cover
// DELETE, where there is no object.
func sampleHooks() []hostsdk.Hook {
	return []hostsdk.Hook{
		hostsdk.Validate("pinned-images.portcullis.dev", kube.Validate(pinnedImages)),
		hostsdk.Mutate("owner.portcullis.dev", kube.Mutate(owner)),
		hostsdk.Mutate("cost-center.portcullis.dev", kube.Mutate(costCenter)),
	}
}

func pinnedImages(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
	if pod == nil {
		return hostsdk.Allow(), nil
	}
	for i, c := range pod.Spec.Containers {
		name := c.Image[strings.LastIndex(c.Image, "/")+1:]
		_, tag, tagged := strings.Cut(name, ":")
		if !tagged || tag == "latest" {
			return hostsdk.Deny(fmt.Sprintf("image %q is not pinned: name a digest, or a tag other than latest", c.Image)).
				WithCause(fmt.Sprintf("spec.containers[%d].image", i), "not pinned"), nil
		}
	}
	return hostsdk.Allow(), nil
}

func owner(_ context.Context, pod *corev1.Pod, r *hostsdk.Request) (*hostsdk.Response, error) {
	if pod == nil {
		return hostsdk.Allow(), nil
	}
	label(pod, "portcullis.dev/owner", strings.Map(labelRune, r.Username()))
	return hostsdk.Allow(), nil
}

// costCenter sees the label that owner has set: mutating hooks run in order.
func costCenter(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
	if pod == nil {
		return hostsdk.Allow(), nil
	}
	label(pod, "portcullis.dev/cost-center", "of-"+pod.Labels["portcullis.dev/owner"])
	return hostsdk.Allow(), nil
}

func label(pod *corev1.Pod, key, value string) {
	if pod.Labels == nil {
		pod.Labels = make(map[string]string)
	}
	if len(value) > 63 {
		value = value[:63]
	}
	pod.Labels[key] = strings.Trim(value, "-_.")
}

func labelRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
		return r
	}
	return '_'
}
