// Package audit judges the objects that a cluster has by policies: it lists the resources that policies are about, page by page, and judges each object as
// though it were created now. The answers of the API server are bounded as in a mesh (package answers), one page is in memory at a time, and a [Report]
// counts everything and keeps some findings.
package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/kubekinds"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

const (
	// connectTimeout bounds the time until the resources, namespaces and CustomResourceDefinitions of the cluster are known.
	connectTimeout = 30 * time.Second
	// connectPoll is how often that is looked at.
	connectPoll = 20 * time.Millisecond
	// maxNamespaceBytes bounds the memory of the Namespaces that are kept for policies that read them, in bytes. The others are read one by one.
	maxNamespaceBytes = 32 << 20
)

// Cluster is a connection to the API server of a cluster. Its methods may be called concurrently.
type Cluster struct {
	name     string
	registry *cluster.Registry
	lists    rest.Interface
	config   *rest.Config
	client   *http.Client
	end      func()

	namespacesOnce sync.Once
	namespaces     map[string]*unstructured.Unstructured
}

// Connect connects to an API server, which gets at most so many requests a second, and waits until the information that reviews need is there. The caller
// closes the connection.
func Connect(ctx context.Context, name string, config *rest.Config, perSecond float64) (*Cluster, error) {
	config = rest.CopyConfig(config)
	limit := rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next, limit} })
	c := &Cluster{name: name, registry: cluster.New(cluster.Options{
		Builtin: kubekinds.Kinds{Codec: builtin.New(builtin.Options{})},
		Reach:   func(string) (*rest.Config, error) { return rest.CopyConfig(config), nil },
	})}
	c.registry.Update([]*kinds.Cluster{{Metadata: kinds.Metadata{Name: name}}})
	running, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() { _ = c.registry.Run(running) }) // always nil
	c.end = func() {
		cancel()
		ended.Wait()
	}
	if err := c.connect(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection.
func (c *Cluster) Close() { c.end() }

// limited sends so many requests a second.
type limited struct {
	http.RoundTripper

	limit *rate.Limiter
}

// RoundTrip implements [http.RoundTripper].
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.limit.Wait(r.Context()); err != nil {
		return nil, fmt.Errorf("waiting to ask the API server: %w", err)
	}
	return l.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper has client-go find the transport below, whose idle connections it closes.
func (l limited) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// connect waits for the cluster. Its CustomResourceDefinitions may be forbidden: then objects of such kinds have no verdict where it depends on them.
func (c *Cluster) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if c.lists, err = c.registry.Lists(ctx, c.name); err != nil {
		return err //nolint:wrapcheck // it names the cluster
	}
	if c.config, c.client, err = c.registry.API(ctx, c.name); err != nil {
		return err //nolint:wrapcheck // as above
	}
	err = c.lists.Get().AbsPath("/version").Do(ctx).Error()
	if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) { // no API server answers: waiting does not help
		return fmt.Errorf("the API server %s: %w", c.config.Host, err)
	}
	for {
		missing := c.missing()
		if missing == nil {
			return nil
		}
		if final := (*apierrors.StatusError)(nil); errors.As(missing, &final) || !clock.Sleep(ctx, connectPoll) {
			return fmt.Errorf("the API server %s: %w", c.config.Host, missing)
		}
	}
}

// missing is why a part of the information about the cluster is not there.
func (c *Cluster) missing() error {
	for _, part := range c.registry.Status()[0].Parts {
		if part.Err != nil && (part.Name != cluster.PartCustomResources || !apierrors.IsForbidden(part.Err) && !apierrors.IsNotFound(part.Err)) {
			return withRule(part.Err, watched()[part.Name], "list, watch")
		}
	}
	return nil
}

// watched are the resources that tell the parts of the information about the cluster.
func watched() map[string]schema.GroupResource {
	return map[string]schema.GroupResource{
		cluster.PartNamespaces: {Resource: "namespaces"},
		cluster.PartResources:  {Group: "apiregistration.k8s.io", Resource: "apiservices"},
	}
}

// Facts are the things that policies ask the cluster of an object. Checks of permissions are sent to it if asked is set, and else have no answer, as
// for a user without permissions.
func (c *Cluster) Facts(asked bool) match.Cluster {
	return &facts{Cluster: c.registry.Cluster(c.name), of: c, asked: asked}
}

type facts struct {
	match.Cluster

	of    *Cluster
	asked bool
}

// Authorizer implements [match.Cluster].
func (f *facts) Authorizer() authorizer.Authorizer {
	if f.asked {
		return f.Cluster.Authorizer()
	}
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// Objects implements [match.Cluster]. The Namespaces are listed once.
func (f *facts) Objects(ctx context.Context, s match.Selection) ([]*unstructured.Unstructured, error) {
	if s.Kind == match.NamespaceKind && s.Name != "" {
		f.of.namespacesOnce.Do(func() { f.of.namespaces = f.of.readNamespaces(ctx) })
		if n := f.of.namespaces[s.Name]; n != nil {
			return []*unstructured.Unstructured{n}, nil
		}
	}
	return f.Cluster.Objects(ctx, s) //nolint:wrapcheck // it names the cluster and the kind
}

// readNamespaces returns as many Namespaces as there is room for. Others, and all after an error, are read one by one.
func (c *Cluster) readNamespaces(ctx context.Context) map[string]*unstructured.Unstructured {
	found, bytes := map[string]*unstructured.Unstructured{}, int64(0)
	of := Resource{GroupVersionResource: match.NamespaceKind.GroupVersion().WithResource("namespaces"), Kind: match.NamespaceKind.Kind}
	full := errors.New("there is no more room")
	_ = c.walk(ctx, list{Resource: of}, position{}, DefaultPageSize, func(p page) error {
		for _, raw := range p.items {
			if bytes += conversion.ExtentOf(raw).Untyped(); bytes > maxNamespaceBytes {
				return full
			}
			o := &unstructured.Unstructured{}
			if utiljson.Unmarshal(raw, &o.Object) == nil {
				o.SetGroupVersionKind(match.NamespaceKind)
				found[o.GetName()] = o
			}
		}
		return nil
	})
	return found
}
