package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/portcullis-mesh/portcullis/cluster/registration"
	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
)

// askTimeout bounds each question to a cluster.
const askTimeout = 10 * time.Second

// resourceFamilies are the resources of a cluster, each with all the ways to reach it.
type resourceFamilies [][]conversion.ResourceKind

var _ registration.Equivalents = resourceFamilies(nil)

// Families implements registration.Equivalents.
func (f resourceFamilies) Families() [][]conversion.ResourceKind { return f }

// familiesOf are the resources that the cluster of a document serves, as a dispatcher would know them. If a cluster
// does not answer, it returns all resources that Kubernetes ever served, which does no harm, and the reason as the error.
func familiesOf(ctx context.Context, c *kinds.Cluster) (resourceFamilies, error) {
	if c.Spec.Kubeconfig != "" {
		lists, err := discovered(ctx, c.Spec.Kubeconfig)
		if err != nil {
			return builtin.Known().Families(), err
		}
		return discoveredFamilies(lists), nil
	}
	known := builtin.Known()
	if len(c.Spec.APIVersions) > 0 {
		var versions []schema.GroupVersion
		for _, text := range c.Spec.APIVersions {
			gv, err := schema.ParseGroupVersion(text)
			if err != nil {
				return nil, err // the document is valid
			}
			versions = append(versions, gv)
		}
		known = builtin.Served(versions)
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

func discovered(ctx context.Context, kubeconfig string) ([]*metav1.APIResourceList, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	conf.Timeout = askTimeout
	conf.Wrap(func(next http.RoundTripper) http.RoundTripper { // discovery takes no context
		return transport(func(r *http.Request) (*http.Response, error) { return next.RoundTrip(r.WithContext(ctx)) })
	})
	client, err := discovery.NewDiscoveryClientForConfig(rest.AddUserAgent(conf, "portcullis-register"))
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	if len(lists) == 0 {
		return nil, errors.New("its discovery names no resource")
	}
	return lists, nil
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// discoveredFamilies are the resources in lists. A resource that is not built in is the same in all versions of its group.
func discoveredFamilies(lists []*metav1.APIResourceList) resourceFamilies {
	known := builtin.Discovered(lists)
	families := known.Families()
	at := map[string]int{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			name, sub, _ := strings.Cut(list.APIResources[i].Name, "/")
			way := conversion.ResourceKind{Resource: gv.WithResource(name), Subresource: sub, Kind: gv.WithKind(list.APIResources[i].Kind)}
			if known.For(way.Resource, sub) != nil {
				continue
			}
			key := fmt.Sprint(way.Resource.GroupResource(), "/", sub)
			if _, ok := at[key]; !ok {
				at[key] = len(families)
				families = append(families, nil)
			}
			families[at[key]] = append(families[at[key]], way)
		}
	}
	return families
}
