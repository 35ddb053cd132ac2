package connect

import (
	"cmp"
	"errors"
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
	config, err := a.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no kubeconfig: name the cluster by --kubeconfig FILE and --kube-context NAME, or set KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}

// Context returns the name of the context; empty without a kubeconfig.
func (a *APIServer) Context() (string, error) {
	file, err := a.loader().RawConfig()
	if err != nil {
		return "", fmt.Errorf("--kubeconfig: %w", err)
	}
	return cmp.Or(a.context, file.CurrentContext), nil
}

func (a *APIServer) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.context})
}
