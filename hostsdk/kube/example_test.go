package kube_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

// A mutating handler changes the object in place. The fields that the host's types have never heard of ("shinyNew" here)
// are not touched.
func ExampleMutate() {
	teamLabel := func(_ context.Context, pod *corev1.Pod, r *hostsdk.Request) (*hostsdk.Response, error) {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", "team-of-"+r.Namespace())
		return hostsdk.Allow(), nil
	}
	host, err := hostsdk.New(hostsdk.Options{Name: "labels"}, hostsdk.Mutate("team-label.example.com", kube.Mutate(teamLabel)))
	if err != nil {
		fmt.Println(err)
		return
	}

	ask(host, "team-label.example.com", `{"kind": "Pod", "metadata": {"namespace": "shop"}, "spec": {"shinyNew": 1}}`)
	// Output: allowed: [{"op":"add","path":"/metadata/labels","value":{"team":"team-of-shop"}}]
}

// An initializer returns the object as it should be created, or refuses it. It is called for objects to be created only.
func ExampleInitialize() {
	addProxy := func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*corev1.Pod, error) {
		if pod.Spec.HostNetwork {
			return nil, hostsdk.Denied("the sidecar has no place in the network of the node")
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy", Image: "registry.example.com/proxy:1"})
		return pod, nil
	}
	host, err := hostsdk.New(hostsdk.Options{Name: "sidecar"}, hostsdk.Initialize("sidecar.example.com", kube.Initialize(addProxy)))
	if err != nil {
		fmt.Println(err)
		return
	}

	ask(host, "sidecar.example.com", `{"kind": "Pod", "spec": {"containers": [{"name": "a", "image": "a"}], "shinyNew": 1}}`)
	ask(host, "sidecar.example.com", `{"kind": "Pod", "spec": {"hostNetwork": true}}`)
	// Output:
	// allowed: [{"op":"add","path":"/spec/containers/1","value":{"name":"proxy","image":"registry.example.com/proxy:1","resources":{}}}]
	// denied: the sidecar has no place in the network of the node
}

// A validating handler reads the object.
func ExampleValidate() {
	noHostNetwork := func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
		if pod != nil && pod.Spec.HostNetwork {
			return hostsdk.Deny("hostNetwork is not allowed here").WithCause("spec.hostNetwork", "must be false"), nil
		}
		return hostsdk.Allow(), nil
	}
	host, err := hostsdk.New(hostsdk.Options{Name: "privileges"}, hostsdk.Validate("host-network.example.com", kube.Validate(noHostNetwork)))
	if err != nil {
		fmt.Println(err)
		return
	}

	ask(host, "host-network.example.com", `{"kind": "Pod", "spec": {"hostNetwork": true}}`)
	// Output: denied: hostNetwork is not allowed here
}

// ask runs the host, puts one request to a hook, and prints the verdict.
func ask(host *hostsdk.Host, hook, object string) {
	session, stop, err := hosttest.Connect(context.Background(), host)
	if err != nil {
		fmt.Println(err)
		return
	}
	verdict, err := session.Review(context.Background(), hook, hosttest.Create(object))
	switch {
	case err != nil:
		fmt.Println(err)
	case verdict.Allowed:
		fmt.Printf("allowed: %s\n", verdict.Patch)
	default:
		fmt.Printf("denied: %s\n", verdict.Message)
	}
	if err := stop(); err != nil {
		fmt.Println(err)
	}
}
