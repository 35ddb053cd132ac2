// Package discovery asks an API server which resources it serves. Its answers count as hostile, as in package answers: client-go sends a request for each
// version that an older API server names, all at once, and copies the name of a resource for each of its subresources.
package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	client "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Bounds of a discovery. Its answers together have at most answers.MaxBytes, and answers.MaxParts objects and arrays.
const (
	// MaxVersions bounds the versions of groups that are asked for one by one, of an API server that does not answer in one document (Kubernetes before
	// 1.26). 2,000 CustomResourceDefinitions are in a few hundred groups.
	MaxVersions = 2000
	// MaxInFlight bounds the requests for them at a time.
	MaxInFlight = 8
	// MaxTextBytes bounds each text in an answer, in bytes as they are written: a group has at most 253, and a version 63.
	MaxTextBytes = 512
	// maxShown bounds the versions that Err names.
	maxShown = 10
)

// Served has the resources of an API server. It is the caller's.
type Served struct {
	// Groups are in the order of the API server, without the versions of an answer in one document that are in Failed.
	Groups []metav1.APIGroup
	// Lists are the resources of each version, once, in the order of Groups and their Versions. It is never empty.
	Lists []*metav1.APIResourceList
	// Failed are the versions whose resources the API server did not tell, and why.
	Failed map[schema.GroupVersion]error
}

// Err is the error about the versions that have failed, of which it names the first; nil if there are none.
func (s *Served) Err() error {
	if len(s.Failed) == 0 {
		return nil
	}
	failed := slices.SortedFunc(maps.Keys(s.Failed), func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	})
	var shown []string
	for _, gv := range failed[:min(len(failed), maxShown)] {
		shown = append(shown, fmt.Sprintf("%s: %v", gv, s.Failed[gv]))
	}
	return fmt.Errorf("the API server does not tell the resources of %d versions of groups: %s", len(failed), strings.Join(shown, "; "))
}

// resourceBytes is the memory of a resource, or of a version that has failed, without its texts, in an index of them.
const resourceBytes = 512

// Bytes is the memory of an index of the resources and of the errors. It is no more than was booked for reading them.
func (s *Served) Bytes() int64 {
	kept := 0
	for _, list := range s.Lists {
		for i := range list.APIResources {
			r := &list.APIResources[i]
			kept += resourceBytes + len(r.Name) + len(r.Group) + len(r.Version) + len(r.Kind)
		}
	}
	for gv, err := range s.Failed {
		kept += resourceBytes + len(gv.Group) + len(gv.Version) + len(err.Error())
	}
	return int64(kept)
}

// Ask asks an API server until ctx ends. A version without an answer by then has failed. over is the way to it, which bounds each answer
// (answers.Transport). The rate of a configuration does not count: the requests are of a bounded number. An API server that serves no resource is an error.
func Ask(ctx context.Context, config *rest.Config, over http.RoundTripper) (*Served, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	whole, end := context.WithCancelCause(ctx)
	defer end(nil)
	asked, err := client.NewDiscoveryClientForConfigAndClient(config, &http.Client{Transport: &bounded{over: over, ctx: whole, end: end}})
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	s, err := ask(whole, asked)
	if ctx.Err() == nil {
		err = cmp.Or(context.Cause(whole), err) // of the bound
	}
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return s, nil
}

func ask(ctx context.Context, asked *client.DiscoveryClient) (*Served, error) {
	groups, lists, failed, err := asked.GroupsAndMaybeResources()
	if err != nil {
		return nil, err
	}
	s := &Served{Groups: groups.Groups, Failed: failed}
	versions := s.versions()
	if lists == nil {
		if len(versions) > MaxVersions {
			return nil, fmt.Errorf("the API server names %d versions of groups, and answers for each apart: at most %d are asked for", len(versions), MaxVersions)
		}
		lists = s.ask(ctx, asked, versions)
	}
	for _, gv := range versions {
		if list := lists[gv]; list != nil {
			s.Lists = append(s.Lists, list)
		}
	}
	if len(s.Lists) == 0 {
		return nil, errors.Join(errors.New("the answer names no resource: is there an API server behind the address?"), s.Err())
	}
	return s, nil
}

// versions are the versions of all groups, in their order, each once.
func (s *Served) versions() (all []schema.GroupVersion) {
	seen := map[schema.GroupVersion]bool{}
	for i := range s.Groups {
		for _, v := range s.Groups[i].Versions {
			gv := schema.GroupVersion{Group: s.Groups[i].Name, Version: v.Version}
			if !seen[gv] {
				seen[gv] = true
				all = append(all, gv)
			}
		}
	}
	return all
}

// ask asks for the resources of each version.
func (s *Served) ask(ctx context.Context, asked *client.DiscoveryClient, versions []schema.GroupVersion) map[schema.GroupVersion]*metav1.APIResourceList {
	lists, errs := make([]*metav1.APIResourceList, len(versions)), make([]error, len(versions))
	var all errgroup.Group
	all.SetLimit(MaxInFlight)
	for i, gv := range versions {
		all.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				lists[i], errs[i] = asked.ServerResourcesForGroupVersion(gv.String())
			}
			return nil
		})
	}
	_ = all.Wait() // the errors are in errs
	of := make(map[schema.GroupVersion]*metav1.APIResourceList, len(versions))
	for i, gv := range versions {
		if errs[i] != nil {
			s.Failed[gv] = errs[i]
			continue
		}
		lists[i].GroupVersion = gv.String() // whatever the answer says
		of[gv] = lists[i]
	}
	return of
}
