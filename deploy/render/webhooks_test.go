package main

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// TestWebhooksAreNotCalledAtTheService: where its address is chosen, dispatchers know it.
func TestWebhooksAreNotCalledAtTheService(t *testing.T) {
	for set, want := range map[string]bool{"service.clusterIP=10.96.0.9": true, "service.clusterIP=None": false, "service.clusterIP=": false} {
		r, err := render(t, set)
		if err != nil {
			t.Fatal(err)
		}
		var dispatchers appsv1.Deployment
		objectOf(t, r, "Deployment", "portcullis", &dispatchers)
		args := dispatchers.Spec.Template.Spec.Containers[0].Args
		if got := slices.Contains(args, "--webhook-refuse=10.96.0.9"); got != want {
			t.Errorf("--set %s: %q", set, args)
		}
	}
}
