package cluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// askTimeout bounds each question to a cluster.
const askTimeout = 10 * time.Second

// familiesOf are the resources that the cluster of a document serves, as a dispatcher would know them. If a cluster
// does not answer, it returns all resources that Kubernetes ever served, which does no harm, and the reason as the error.
func familiesOf(ctx context.Context, c *kinds.Cluster) (registration.Families, error) {
	if c.Spec.Kubeconfig != "" {
		conf, err := connect.ConfigOf(c.Spec.Kubeconfig)
		if err != nil {
			return equivalents.Known().Families(), err
		}
		return servedBy(ctx, conf)
	}
	known := equivalents.Known()
	if len(c.Spec.APIVersions) > 0 {
		var versions []schema.GroupVersion
		for _, text := range c.Spec.APIVersions {
			gv, err := schema.ParseGroupVersion(text)
			if err != nil {
				return nil, err // the document is valid
			}
			versions = append(versions, gv)
		}
		known = equivalents.Served(versions)
	}
	families := known.Families()
	for i := range c.Spec.CustomResourceDefinitions {
		definition, err := custom.Compile(&c.Spec.CustomResourceDefinitions[i])
		if err != nil {
			return nil, err
		}
		for _, sub := range []string{"", "status", "scale"} {
			if ways := definition.Equivalents(sub); len(ways) > 0 {
				families = append(families, ways)
			}
		}
	}
	return families, nil
}

// servedBy are the resources that a cluster serves, as familiesOf returns them.
func servedBy(ctx context.Context, conf *rest.Config) (registration.Families, error) {
	client, err := rest.HTTPClientFor(rest.AddUserAgent(rest.CopyConfig(conf), "portcullis-register"))
	if err != nil {
		return equivalents.Known().Families(), err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	families, err := registrar.Families(ctx, conf, client)
	if families == nil {
		families = equivalents.Known().Families()
	}
	return families, err
}
