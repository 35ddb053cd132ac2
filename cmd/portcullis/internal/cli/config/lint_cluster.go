package config

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
)

const (
	// definitionsPage is how many definitions an API server sends at a time: few have 1 MiB.
	definitionsPage = 50
	// maxDefinitions is how many definitions lint reads at most.
	maxDefinitions = 5000
	// definitionsTimeout is how long it reads them.
	definitionsTimeout = time.Minute
)

// definitionsOf lists the CustomResourceDefinitions of a cluster.
func definitionsOf(ctx context.Context, server *connect.APIServer) ([]apiextensionsv1.CustomResourceDefinition, error) {
	conf, err := server.Config()
	if err != nil {
		return nil, err
	}
	client, err := apiextensionsclient.NewForConfig(rest.AddUserAgent(rest.CopyConfig(conf), "portcullis-lint"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, definitionsTimeout)
	defer cancel()
	var all []apiextensionsv1.CustomResourceDefinition
	for next := ""; ; {
		page, err := client.CustomResourceDefinitions().List(ctx, metav1.ListOptions{Limit: definitionsPage, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("customresourcedefinitions of the cluster: %w", err)
		}
		if all = append(all, page.Items...); len(all) > maxDefinitions {
			return nil, fmt.Errorf("the cluster has more than %d CustomResourceDefinitions: write the ones that you want into a Cluster document, "+
				"and lint without --kube-context", maxDefinitions)
		}
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}
