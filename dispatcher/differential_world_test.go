package dispatcher_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// world is a cluster and how its hooks are reached. It is data: a laboratory runs it.
type world struct {
	Configurations []configuration
	// Namespaces are those that exist.
	Namespaces map[string]map[string]string
	// Custom makes objects of every kind custom resources. Otherwise built-in kinds have the types of the API server.
	Custom bool
	// Focus is the resource that most requests and rules are about.
	Focus string
	// Versions are the group versions of built-in kinds that the API server serves, in its order.
	Versions []schema.GroupVersion
	// Definition is the definition of widgets, which are custom resources everywhere.
	Definition *apiextensionsv1.CustomResourceDefinition
	// Authorizer is whether there is one.
	Authorizer bool
	// Streams carries the calls over real sessions, instead of in process, except calls of webhooks.
	Streams bool
}

// configuration is a webhook configuration of either kind.
type configuration struct {
	Name      string
	Stage     admissionv1.Stage
	HTTPS     bool                                      // the hooks are ordinary webhooks
	Speculate bool                                      // they may be asked ahead of their turn
	Webhooks  []admissionregistrationv1.MutatingWebhook // those that validate leave reinvocationPolicy alone
}

// has reports whether there is a hook of a name.
func (c *configuration) has(name string) bool {
	return slices.ContainsFunc(c.Webhooks, func(h admissionregistrationv1.MutatingWebhook) bool { return h.Name == name })
}

// validating is the configuration as its kind, of hooks that validate.
func (c *configuration) validating() *admissionregistrationv1.ValidatingWebhookConfiguration {
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
	for i := range c.Webhooks {
		h := c.Webhooks[i].DeepCopy()
		v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
			NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects,
			TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions,
		})
	}
	return v
}

// mutating is the configuration as its kind, of hooks that mutate.
func (c *configuration) mutating() *admissionregistrationv1.MutatingWebhookConfiguration {
	m := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
	for i := range c.Webhooks {
		m.Webhooks = append(m.Webhooks, *c.Webhooks[i].DeepCopy())
	}
	return m
}

// experiment is one request in a world, and the scripts of its hooks.
type experiment struct {
	world    *world
	Stage    admissionv1.Stage
	Request  *admissionv1.AdmissionRequest
	Scripts  map[string]script // by key; hooks without one allow
	Deadline time.Duration     // of the whole review; 0 is none
	Explain  bool

	named bool // kube-apiserver is asked without the rules that have wildcards for resources
}

// clone copies everything that shrinking changes.
func (e *experiment) clone() *experiment {
	c, w := *e, *e.world
	c.world, c.Scripts = &w, maps.Clone(e.Scripts)
	w.Configurations = slices.Clone(w.Configurations)
	for i := range w.Configurations {
		w.Configurations[i].Webhooks = w.Configurations[i].mutating().Webhooks
	}
	return &c
}

// named is the world without the names of resources that begin with a wildcard.
func (w *world) named() *world {
	e := (&experiment{world: w}).clone()
	for _, c := range e.world.Configurations {
		for i := range c.Webhooks {
			for j := range c.Webhooks[i].Rules {
				r := &c.Webhooks[i].Rules[j]
				r.Resources = slices.DeleteFunc(r.Resources, func(name string) bool { return strings.HasPrefix(name, "*") })
			}
		}
	}
	return e.world
}

// String is the experiment for a person who has to understand it.
func (e *experiment) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s of %s\n", e.Stage, e.Request)
	fmt.Fprintf(&out, "custom %t, streams %t, authorizer %t, deadline %s, explain %t, namespaces %v, versions %v\n",
		e.world.Custom, e.world.Streams, e.world.Authorizer, e.Deadline, e.Explain, e.world.Namespaces, e.world.Versions)
	for _, h := range e.world.hooks(e.Stage) {
		fmt.Fprintf(&out, "hook %s, https %t, ahead %t, %s\n", h.key, h.https, h.ahead, canonical(h.MutatingWebhook))
		for _, s := range e.Scripts[h.key] {
			fmt.Fprintf(&out, "    %s\n", s)
		}
	}
	return out.String()
}

// scripted is a hook and its key: configuration, name, and how many of the name come before it.
type scripted struct {
	*admissionregistrationv1.MutatingWebhook

	key   string
	https bool
	ahead bool // it may be asked ahead of its turn
}

// hooks are the hooks of a stage, in the order of Kubernetes.
func (w *world) hooks(stage admissionv1.Stage) []scripted {
	var all []scripted
	for _, c := range slices.SortedFunc(slices.Values(w.Configurations), func(a, b configuration) int { return strings.Compare(a.Name, b.Name) }) {
		if c.Stage != stage {
			continue
		}
		seen := map[string]int{}
		for i := range c.Webhooks {
			h := &c.Webhooks[i]
			all = append(all, scripted{h, oracle.Key(c.Name, h.Name, seen[h.Name]), c.HTTPS, c.Speculate})
			seen[h.Name]++
		}
	}
	return all
}

// keyOf is the key of a compiled hook.
func keyOf(h *match.Hook) string { return oracle.Key(h.ID.Configuration, h.ID.Name, h.ID.Index) }

// snapshot is the world's configuration as the dispatcher has it: with the API server's defaults, and all hooks served
// over streams but the webhooks.
func (w *world) snapshot() *match.Snapshot {
	in := match.Input{Revision: "r1"}
	for _, c := range w.Configurations {
		o := match.Object{Mutating: c.mutating()}
		if c.Stage == validate {
			o = match.Object{Validating: c.validating()}
			legacyscheme.Scheme.Default(o.Validating)
		} else {
			legacyscheme.Scheme.Default(o.Mutating)
		}
		in.Objects = append(in.Objects, o)
		if c.HTTPS {
			continue
		}
		in.Routes = append(in.Routes, match.RouteBinding{
			Configuration: c.Name, Stage: c.Stage, Route: match.Route{Stream: true, Hosts: []string{"host"}, Speculate: c.Speculate},
		})
	}
	snapshot, _ := match.Compile(in) // findings are expected: not every selector can be parsed
	return snapshot
}
