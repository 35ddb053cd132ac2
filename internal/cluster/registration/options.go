package registration

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	// DefaultName is the name of both objects.
	DefaultName = "portcullis"
	// WriteTimeout is the time that an API server gives a whole write, with all of its admission.
	WriteTimeout = 34 * time.Second
	// Overhead is how much longer an entry's timeoutSeconds are than the time of its hooks, so that these have all of theirs: for
	// the way to the mesh and back, the conversion of objects, and the answer.
	Overhead = time.Second
	// DefaultMutateTimeout is for the whole mutating chain.
	DefaultMutateTimeout = 12 * time.Second
	// DefaultReinvokeTimeout is for one reinvocation.
	DefaultReinvokeTimeout = 4 * time.Second
	// DefaultValidateTimeout is for the validating hooks. With the Overhead of each entry the defaults are WriteTimeout.
	DefaultValidateTimeout = 10 * time.Second
	// maxTimeout leaves Overhead of the largest timeoutSeconds that Kubernetes accepts, 30.
	maxTimeout = 30*time.Second - Overhead
)

// Options describe the way from the cluster to the mesh.
type Options struct {
	// Name is metadata.name of both objects, and ends the names of the entries; empty is DefaultName. API servers call mutating webhooks
	// in the order of the names of their objects.
	Name string
	// URL is where the cluster's API servers reach the bridge: https, a host, and perhaps a path. Required.
	URL string
	// CABundle are the authorities of the bridge's certificate, in PEM; empty is the API server's system trust.
	CABundle []byte
	// Capability is shown in the path of each entry, for a cluster whose API servers have no client certificate; the objects are then
	// as secret as it is. Zero shows none.
	Capability identity.Capability
	// OwnNamespace is where the mesh itself runs in the cluster. It is exempt, since the mesh could not start there while
	// it does not run. Empty exempts nothing: right when the mesh runs elsewhere.
	OwnNamespace string
	// Timeouts bound the time of the hooks of an entry.
	Timeouts Timeouts
	// Equivalents knows which resources the cluster may serve in several ways; nil knows none. Of an unknown resource the versions that
	// hooks name count.
	Equivalents Equivalents
}

// Equivalents knows which resources of a cluster are the same.
type Equivalents interface {
	// Families are the ways to reach each resource, or subresource, that is known; perhaps one. They are not changed.
	Families() [][]conversion.ResourceKind
}

// Families are known resources, each with all the ways to reach it. They are Equivalents.
type Families [][]conversion.ResourceKind

// Families implements Equivalents.
func (f Families) Families() [][]conversion.ResourceKind { return f }

// Timeouts are the longest that the hooks of one entry of each stage may take, in whole seconds from 1 to 29; 0 is the default.
// A write meets one entry of each stage, the reinvoked one twice, and all of that, with the Overhead of each, must fit
// WriteTimeout.
type Timeouts struct {
	// Mutate is for the whole mutating chain; the default is DefaultMutateTimeout.
	Mutate time.Duration
	// Reinvoke is for one reinvocation; the default is 4 s.
	Reinvoke time.Duration
	// Validate is for the validating hooks, which run at the same time; the default is 10 s.
	Validate time.Duration
}

// complete fills in defaults and checks the options.
func (o Options) complete(cluster string) (Options, error) {
	o.Name = cmp.Or(o.Name, DefaultName)
	o.URL = strings.TrimRight(o.URL, "/")
	o.Timeouts = Timeouts{
		Mutate:   cmp.Or(o.Timeouts.Mutate, DefaultMutateTimeout),
		Reinvoke: cmp.Or(o.Timeouts.Reinvoke, DefaultReinvokeTimeout),
		Validate: cmp.Or(o.Timeouts.Validate, DefaultValidateTimeout),
	}
	return o, errors.Join(
		named("cluster", cluster, validation.IsDNS1123Subdomain(cluster)),
		named("name", o.Name, validation.IsDNS1123Subdomain(o.Name)),
		o.checkURL(), o.checkBundle(), o.checkNamespace(), o.Timeouts.check(),
	)
}

func named(what, name string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s %q: %s", what, name, strings.Join(problems, "; "))
}

// capabilitySegments are the segments of a path after the cluster if there is a capability.
func (o Options) capabilitySegments() string {
	if o.Capability.IsZero() {
		return ""
	}
	return capabilitySegment + "/" + o.Capability.Reveal() + "/"
}

// checkURL checks the URL as ValidateWebhookURL of k8s.io/apiserver does.
func (o Options) checkURL() error {
	u, err := url.Parse(o.URL)
	switch {
	case o.URL == "":
		return errors.New("url: say where the cluster's API servers reach the bridge, for example https://portcullis.example.com:8443")
	case err != nil:
		return fmt.Errorf("url: %w", err)
	case u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("url %q: must be https:// and a host", o.URL)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("url %q: must have no user, query or fragment", o.URL)
	}
	return nil
}

// checkBundle sees that the bundle is certificates: a key that slips into it would be readable by everybody.
func (o Options) checkBundle() error {
	if len(o.CABundle) == 0 {
		return nil
	}
	if _, err := certs.ParseBundle(o.CABundle); err != nil {
		return fmt.Errorf("CA bundle: %w", err)
	}
	return nil
}

func (o Options) checkNamespace() error {
	if o.OwnNamespace == "" {
		return nil
	}
	return named("own namespace", o.OwnNamespace, validation.IsDNS1123Label(o.OwnNamespace))
}

func (t Timeouts) check() error {
	for _, d := range []time.Duration{t.Mutate, t.Reinvoke, t.Validate} {
		if d < time.Second || d > maxTimeout || d%time.Second != 0 {
			return fmt.Errorf("timeout %s: must be whole seconds from 1s to %s", d, maxTimeout)
		}
	}
	if sum := t.Mutate + 2*t.Reinvoke + t.Validate + 4*Overhead; sum > WriteTimeout {
		return fmt.Errorf("timeouts: mutate, twice reinvoke and validate, each with %s for the mesh, are %s together; an API server gives a write %s",
			Overhead, sum, WriteTimeout)
	}
	return nil
}
