package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

// claimTime is how long an Ingress that was allowed counts before the watch has it.
const claimTime = 10 * time.Second

// maxClaims bounds the claims: users choose how many hosts an Ingress has. Past it names are not claimed, and the watch alone has them.
const maxClaims = 10_000

// byHost is the index of Ingresses by the names of their hosts.
const byHost = "host"

// ingresses are the Ingresses of a cluster.
type ingresses struct {
	store      cache.Indexer
	controller cache.Controller
	now        func() time.Time

	mu     sync.Mutex
	claims map[string]claim // by host
}

// claim is an Ingress that was allowed, and is perhaps not stored yet.
type claim struct {
	namespace string
	until     time.Time
}

// watch lists and watches Ingresses of all namespaces, when run is called.
func watch(client typed.IngressInterface) *ingresses {
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return client.Watch(ctx, o)
			},
		},
		ObjectType: &networkingv1.Ingress{}, Handler: cache.ResourceEventHandlerFuncs{},
		Indexers: cache.Indexers{byHost: func(object any) ([]string, error) {
			ingress, ok := object.(*networkingv1.Ingress)
			if !ok {
				return nil, fmt.Errorf("%T is no Ingress", object)
			}
			return hostsOf(ingress), nil
		}},
	})
	indexer, _ := store.(cache.Indexer) // since there are Indexers
	return &ingresses{store: indexer, controller: controller, now: time.Now, claims: map[string]claim{}}
}

func (i *ingresses) run(ctx context.Context) { i.controller.RunWithContext(ctx) }

// known waits for the first list.
func (i *ingresses) known(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), i.controller.HasSynced)
}

// hostsOf are the names of hosts of an Ingress.
func hostsOf(ingress *networkingv1.Ingress) (all []string) {
	for _, rule := range ingress.Spec.Rules {
		if rule.Host != "" {
			all = append(all, rule.Host)
		}
	}
	return all
}

// newHost has the hook of mesh.yaml.
func newHost(i *ingresses, o hostsdk.Options) (*hostsdk.Host, error) {
	hook := kube.Validator[networkingv1.Ingress]{
		Create: i.validate,
		Update: func(ctx context.Context, _, ingress *networkingv1.Ingress, r *hostsdk.Request) (*hostsdk.Response, error) {
			return i.validate(ctx, ingress, r)
		},
	}
	return hostsdk.New(o, hostsdk.Validate("hosts.ingresses.example.com", hook.Handle))
}

// validate denies a host name that an Ingress of another namespace has. Without a dry run it claims the names: the next request may come before the watch
// tells of this one. Two hosts with this hook do not see the claims of each other.
func (i *ingresses) validate(_ context.Context, ingress *networkingv1.Ingress, r *hostsdk.Request) (*hostsdk.Response, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	maps.DeleteFunc(i.claims, func(_ string, c claim) bool { return now.After(c.until) })
	for n, rule := range ingress.Spec.Rules {
		owner, err := i.ownerOf(rule.Host, r.Namespace())
		if err != nil {
			return nil, err
		}
		if owner != "" {
			return hostsdk.Deny(fmt.Sprintf("an Ingress of namespace %s has the host %s", owner, rule.Host)).
				WithCode(422).WithReason("Invalid").WithCause(fmt.Sprintf("spec.rules[%d].host", n), "is taken"), nil
		}
	}
	if !r.DryRun() {
		hosts := hostsOf(ingress)
		for _, host := range hosts[:min(len(hosts), maxClaims-len(i.claims))] {
			i.claims[host] = claim{r.Namespace(), now.Add(claimTime)}
		}
	}
	return hostsdk.Allow(), nil
}

// ownerOf is another namespace that has a host name; empty for none. mu is held.
func (i *ingresses) ownerOf(host, namespace string) (string, error) {
	if host == "" {
		return "", nil
	}
	if c, ok := i.claims[host]; ok && c.namespace != namespace {
		return c.namespace, nil
	}
	others, err := i.store.ByIndex(byHost, host)
	if err != nil {
		return "", err
	}
	for _, other := range others {
		if o, ok := other.(*networkingv1.Ingress); ok && o.Namespace != namespace {
			return o.Namespace, nil
		}
	}
	return "", nil
}
