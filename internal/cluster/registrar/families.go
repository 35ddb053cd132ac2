package registrar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// Families are the resources that a cluster serves, each with all the ways to reach it, by its discovery. If a part of the cluster
// does not answer, such as an aggregated API server, both results are there: the families of the others, and the error.
func Families(ctx context.Context, config *rest.Config, client *http.Client) (registration.Families, error) {
	bound := *client // discovery takes no context
	next := client.Transport
	bound.Transport = roundTripper(func(r *http.Request) (*http.Response, error) { return next.RoundTrip(r.WithContext(ctx)) })
	asked, err := discovery.NewDiscoveryClientForConfigAndClient(config, &bound)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	_, lists, err := asked.ServerGroupsAndResources()
	if len(lists) == 0 {
		return nil, errors.Join(errors.New("its discovery names no resource"), err)
	}
	return discoveredFamilies(lists), err
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// discoveredFamilies are the resources in lists. A resource that is not built in is the same in all versions of its group.
func discoveredFamilies(lists []*metav1.APIResourceList) registration.Families {
	known := equivalents.Discovered(lists)
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
