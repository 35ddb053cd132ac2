package connect

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// APIServer is the way to the API server of a cluster, as the flags name it.
type APIServer struct{ kubeconfig, context string }

// Bind makes the flags.
func (a *APIServer) Bind(f *pflag.FlagSet) {
	f.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: as kubectl finds it)")
	f.StringVar(&a.context, "kube-context", "", "context in it (default: its current one)")
}

// Config returns the configuration of a client of the API server.
func (a *APIServer) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}
