package connect

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// APIServer is the way to the API server of a cluster, as the flags name it.
type APIServer struct{ kubeconfig, context string }

// Bind makes the flags.
func (a *APIServer) Bind(f *pflag.FlagSet) {
	f.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: as kubectl finds it)")
	f.StringVar(&a.context, "kube-context", "", "context in it (default: its current one)")
}

// Config returns the configuration of clients of the API server. They read its answers within bounds ([answers.Transport]): the owner of a cluster
// chooses the answers, and an operator runs the command.
func (a *APIServer) Config() (*rest.Config, error) {
	return a.bound(answers.Transport{WholeErrors: true})
}

// Lists is Config for lists that [answers.Page] reads item by item.
func (a *APIServer) Lists() (*rest.Config, error) {
	return a.bound(answers.Transport{ItemByItem: true, WholeErrors: true})
}

func (a *APIServer) bound(by answers.Transport) (*rest.Config, error) {
	config, err := a.Unbounded()
	if err == nil {
		by.Bound(config)
	}
	return config, err
}

// ConfigOf is [APIServer.Config] for a kubeconfig that a document names.
func ConfigOf(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		answers.Transport{WholeErrors: true}.Bound(config)
	}
	return config, err
}

// Anonymous returns a configuration for the API server of another configuration, with a token in place of its credentials.
func Anonymous(config *rest.Config, token string) *rest.Config {
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token
	answers.Transport{WholeErrors: true}.Bound(config)
	return config
}

// Unbounded is Config for code that brings an [answers.Transport] of its own.
func (a *APIServer) Unbounded() (*rest.Config, error) {
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
