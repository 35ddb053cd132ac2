package registrar

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/internal/cluster/discovery"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// Families are the resources that a cluster serves, each with all the ways to reach it, by its discovery. If a part of the cluster
// does not answer, such as an aggregated API server, both results are there: the families of the others, and the error.
func Families(ctx context.Context, config *rest.Config, client *http.Client) (registration.Families, error) {
	served, err := discovery.Ask(ctx, config, cmp.Or(client.Transport, http.DefaultTransport))
	if err != nil {
		return nil, err
	}
	return discoveredFamilies(served.Lists), served.Err()
}

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
