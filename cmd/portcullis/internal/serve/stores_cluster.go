package serve

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/portcullis-mesh/portcullis/internal/config"
	configkubernetes "github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
)

// clusterQPS is the most requests in a second to the API server that holds the configuration: a listing of all custom resources
// takes two for each kind, each second and after each change.
const clusterQPS = 100

// openCluster adds the sources of the configuration that a cluster holds, if the flags name any.
func (s *stores) openCluster(c *storeConfig) error {
	if c.namespace == "" && !c.custom {
		return nil
	}
	restConfig, namespace, err := c.clusterConfig()
	if err != nil {
		return fmt.Errorf("--config-kubeconfig: %w", err)
	}
	clients, err := configkubernetes.NewClients(restConfig)
	if err != nil {
		return fmt.Errorf("--config-kubeconfig: %w", err)
	}
	if c.namespace != "" {
		source, err := c.configMaps(clients, s.decoder)
		if err != nil {
			return fmt.Errorf("--config-namespace: %w", err)
		}
		s.sources = append(s.sources, source)
	}
	if c.custom {
		source, err := customResources(clients, s.decoder)
		if err != nil {
			return fmt.Errorf("--config-custom-resources: %w", err)
		}
		s.sources = append(s.sources, source)
		s.custom = &customCluster{source: source, clients: clients, namespace: namespace}
	}
	return nil
}

// clusterConfig is how the cluster that holds configuration is reached, and the namespace of its context, or of this Pod.
func (c *storeConfig) clusterConfig() (restConfig *rest.Config, namespace string, err error) {
	if c.kubeconfig != "" {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.kubeconfig}
		loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
		if namespace, _, err = loaded.Namespace(); err == nil {
			restConfig, err = loaded.ClientConfig()
		}
	} else {
		namespace = cmp.Or(ownNamespace(), metav1.NamespaceDefault)
		restConfig, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, "", err
	}
	restConfig.QPS, restConfig.Burst = clusterQPS, clusterQPS
	return restConfig, namespace, nil
}

func (c *storeConfig) configMaps(clients *configkubernetes.Clients, decoder *config.Decoder) (config.Source, error) {
	client, err := coreclient.NewForConfigAndClient(clients.Config, clients.HTTP)
	if err != nil {
		return nil, err
	}
	return configkubernetes.New(configkubernetes.Options{Client: client, Lists: clients.Lists, Namespace: c.namespace, Decoder: decoder})
}

func customResources(clients *configkubernetes.Clients, decoder *config.Decoder) (*configkubernetes.CustomResources, error) {
	client, err := dynamic.NewForConfigAndClient(clients.Config, clients.HTTP)
	if err != nil {
		return nil, err
	}
	definitions, err := metadata.NewForConfigAndClient(clients.Config, clients.HTTP)
	if err != nil {
		return nil, err
	}
	return configkubernetes.NewCustomResources(configkubernetes.CustomResourcesOptions{
		Client: client, Lists: clients.Lists, Metadata: definitions, Decoder: decoder,
	})
}
