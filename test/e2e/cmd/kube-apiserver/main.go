// Command kube-apiserver is the real API server of Kubernetes, built from its
// Go module at the version that go.mod pins, so that the tests need no
// downloaded binary.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers client-go's metrics, as upstream's main does
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the version metric, as upstream's main does
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
