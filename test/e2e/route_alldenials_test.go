package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// TestAllDenialsAreToldAtOnce has a second hook that denies when the first
// one has, and a third that does not mind.
func TestAllDenialsAreToldAtOnce(t *testing.T) {
	citest.Gate(t, "covers all denials at once: a second")
	const image, owner, mind = "image.example.com", "owner.example.com", "mind.example.com"
	r := newRoadWith(t, mesh.Options{Documents: routes("policies", "allDenials: true", owner)},
		kube.Validating("policies", onPods(image), onPods(owner), onPods(mind)))
	denied := make(chan struct{}, 1)
	r.host(t,
		hostsdk.Validate(image, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			defer func() { denied <- struct{}{} }()
			return hostsdk.Deny("the image has no digest").WithCode(http.StatusUnprocessableEntity), nil
		}),
		hostsdk.Validate(owner, func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
			select {
			case <-denied:
				return hostsdk.Deny("nobody owns the pod"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}),
		hostsdk.Validate(mind, allow),
	)
	r.validate(t)

	_, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod"))

	wantError(t, err, http.StatusUnprocessableEntity, entryName, "2 hooks denied the request",
		`hook "`+image+`" denied the request: the image has no digest`, `hook "`+owner+`" denied the request: nobody owns the pod`)
}
