package cluster

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// The values of --access: the ways in which dispatchers learn facts that reviews do not carry.
const (
	accessNone       = "none"
	accessBridge     = "bridge"
	accessKubeconfig = "kubeconfig" // and "=PATH"
)

// demands are the fields of the Cluster document that a join needs. It leaves other fields alone.
type demands struct {
	cluster string
	// identity is the caller's, of an API server or of a bridge; empty for an API server that shows a capability.
	identity string
	// capability is shown by API servers to dispatchers; nil if they have an identity.
	capability *kinds.Capability
	// access is accessNone, accessBridge or accessKubeconfig.
	access string
	// kubeconfig is the path on dispatchers, for accessKubeconfig.
	kubeconfig string
	// registration has the mesh keep the entries once they are written; nil leaves them to commands.
	registration *kinds.Registration
}

// document returns the document that a join needs: the present document, or a new one if before is nil, with the missing fields. An
// error tells why the present document does not fit.
func (d *demands) document(before *config.Object, now time.Time) (config.Object, error) {
	manifest := map[string]any{"apiVersion": "portcullis.dev/v1", "kind": kinds.ClusterKind, "metadata": map[string]any{"name": d.cluster}}
	current := &kinds.ClusterSpec{}
	if before != nil {
		current = &before.Cluster.Spec
		manifest = map[string]any{}
		if err := utiljson.Unmarshal(before.Manifest, &manifest); err != nil {
			return config.Object{}, err
		}
	}
	if err := errors.Join(d.checkCaller(current, now), d.checkAccess(current)); err != nil {
		return config.Object{}, fmt.Errorf("the Cluster %s in force does not fit: %w", d.cluster, err)
	}
	if err := d.fill(manifest, current); err != nil {
		return config.Object{}, err
	}
	return decoded(manifest)
}

// checkCaller refuses to add another way to be known to those that the document has: each one more caller could send its reviews.
func (d *demands) checkCaller(c *kinds.ClusterSpec, now time.Time) error {
	known := strings.Join(c.Identities, ", ")
	if d.capability == nil {
		switch {
		case slices.Contains(c.Identities, d.identity):
			return nil
		case len(c.Identities) > 0:
			return fmt.Errorf("its callers have the identities %s: name any with --identity, or add %q to spec.identities", known, d.identity)
		case len(c.Capabilities) > 0:
			return fmt.Errorf("its callers show capabilities: leave out --identity, or add %q to spec.identities", d.identity)
		}
		return nil
	}
	if listed := d.listed(c); listed != nil {
		if at := listed.Expires(); !at.IsZero() && now.After(at) {
			return fmt.Errorf("capability %q has expired at %s: remove it from spec.capabilities, and name another --capability-file", listed.Name, listed.NotAfter)
		}
		return nil
	}
	if len(c.Identities) > 0 {
		return fmt.Errorf("its callers have the identities %s, and a capability would let in more: name any with --identity", known)
	}
	if len(c.Capabilities) >= kinds.MaxCapabilities {
		return fmt.Errorf("it has %d capabilities, the most there may be, without the capability of --capability-file: "+
			"remove an unused capability from spec.capabilities", len(c.Capabilities))
	}
	return nil
}

// listed is the capability in the document, if it has it.
func (d *demands) listed(c *kinds.ClusterSpec) *kinds.Capability {
	i := slices.IndexFunc(c.Capabilities, func(k kinds.Capability) bool { return k.SHA256 == d.capability.SHA256 })
	if i < 0 {
		return nil
	}
	return &c.Capabilities[i]
}

func (d *demands) checkAccess(c *kinds.ClusterSpec) error {
	stated := c.Namespaces != nil || c.APIVersions != nil || c.CustomResourceDefinitions != nil
	switch {
	case d.registration != nil && c.Registration != nil && c.Registration.URL != d.registration.URL:
		return fmt.Errorf("the mesh keeps its entries, with the URL %s: use this --url, or change spec.registration", c.Registration.URL)
	case d.access == accessNone:
		return nil
	case stated:
		return fmt.Errorf("it states namespaces, apiVersions or customResourceDefinitions itself: use --access none, or remove these fields")
	case d.access == accessKubeconfig && c.Bridge != nil:
		return errors.New("it has spec.bridge: use --access bridge")
	case d.access == accessBridge && c.Kubeconfig != "":
		return fmt.Errorf("it has the spec.kubeconfig %s: use --access kubeconfig=%s", c.Kubeconfig, c.Kubeconfig)
	case d.access == accessKubeconfig && c.Kubeconfig != "" && c.Kubeconfig != d.kubeconfig:
		return fmt.Errorf("it has the spec.kubeconfig %s: use --access kubeconfig=%s", c.Kubeconfig, c.Kubeconfig)
	}
	return nil
}

// fill adds the missing fields to the manifest.
func (d *demands) fill(manifest map[string]any, c *kinds.ClusterSpec) error {
	var errs []error
	add := func(field string, list []any, element any) {
		errs = append(errs, unstructured.SetNestedSlice(manifest, append(list, element), "spec", field))
	}
	switch {
	case d.capability != nil && d.listed(c) == nil:
		list, _, err := unstructured.NestedSlice(manifest, "spec", "capabilities")
		element, converted := asMap(d.capability)
		errs = append(errs, err, converted)
		add("capabilities", list, element)
	case d.capability == nil && !slices.Contains(c.Identities, d.identity):
		list, _, err := unstructured.NestedSlice(manifest, "spec", "identities")
		errs = append(errs, err)
		add("identities", list, d.identity)
	}
	switch d.access {
	case accessKubeconfig:
		errs = append(errs, unstructured.SetNestedField(manifest, d.kubeconfig, "spec", "kubeconfig"))
	case accessBridge:
		errs = append(errs, unstructured.SetNestedMap(manifest, map[string]any{}, "spec", "bridge"))
	}
	return errors.Join(errs...)
}

// kept is a document whose entries the mesh keeps: with spec.registration.
func (d *demands) kept(o *config.Object) (config.Object, error) {
	return edited(o, func(manifest map[string]any) error {
		registration, err := asMap(d.registration)
		return errors.Join(err, unstructured.SetNestedMap(manifest, registration, "spec", "registration"))
	})
}

// released is a document of a cluster to which the mesh does not write.
func released(o *config.Object) (config.Object, error) {
	return edited(o, func(manifest map[string]any) error {
		unstructured.RemoveNestedField(manifest, "spec", "registration")
		unstructured.RemoveNestedField(manifest, "spec", "follow")
		return nil
	})
}

func edited(o *config.Object, edit func(manifest map[string]any) error) (config.Object, error) {
	manifest := map[string]any{}
	if err := utiljson.Unmarshal(o.Manifest, &manifest); err != nil {
		return config.Object{}, err
	}
	if err := edit(manifest); err != nil {
		return config.Object{}, err
	}
	return decoded(manifest)
}

func decoded(manifest map[string]any) (config.Object, error) {
	data, err := json.Marshal(manifest)
	if err != nil {
		return config.Object{}, err
	}
	objects, problems := configcli.NewDecoder().Decode("", data)
	if err := problems.Err(); err != nil {
		return config.Object{}, err
	}
	return objects[0], nil
}

func asMap(part any) (map[string]any, error) {
	data, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(data, &out)
}

// capabilityEntry is a capability as a document lists it. expires is how long it is accepted; 0 is until it is removed.
func capabilityEntry(secret identity.Capability, expires time.Duration, now time.Time) *kinds.Capability {
	sum := secret.Sum()
	text := hex.EncodeToString(sum[:])
	entry := &kinds.Capability{Name: now.UTC().Format(time.DateOnly) + "-" + text[:8], SHA256: text}
	if expires > 0 {
		entry.NotAfter = now.Add(expires).UTC().Format(time.RFC3339)
	}
	return entry
}

// specText is the spec of a document, for an operator to copy.
func specText(o *config.Object) (string, error) {
	var manifest map[string]any
	if err := utiljson.Unmarshal(o.Manifest, &manifest); err != nil {
		return "", err
	}
	data, err := yaml.Marshal(map[string]any{"spec": manifest["spec"]})
	return string(data), err
}
