// Package checks has the four checks that Portcullis and its peers are compared by, in Go.
package checks

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// MostReplicas is the bound of a Deployment's replicas.
const MostReplicas = 10

// Deployment is an error unless each image has a tag other than latest, the Deployment has the label team, no container is privileged, and
// there are not too many replicas.
func Deployment(d *appsv1.Deployment) error {
	if _, labelled := d.Labels["team"]; !labelled {
		return fmt.Errorf("deployment %s has no label team", d.Name)
	}
	if d.Spec.Replicas != nil && *d.Spec.Replicas > MostReplicas {
		return fmt.Errorf("deployment %s has more than %d replicas", d.Name, MostReplicas)
	}
	for _, containers := range [][]corev1.Container{d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers} {
		for i := range containers {
			if err := container(&containers[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func container(c *corev1.Container) error {
	_, tag, _ := strings.Cut(c.Image[strings.LastIndexByte(c.Image, '/')+1:], ":")
	if tag == "" || tag == "latest" {
		return fmt.Errorf("image %s has no tag other than latest", c.Image)
	}
	if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
		return fmt.Errorf("container %s is privileged", c.Name)
	}
	return nil
}
