package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/follow"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// followMargin is added to the maximum age of the configuration: for the clocks of two dispatchers, and for reviews that have begun.
const followMargin = time.Second

// followResources writes copies as custom resources.
type followResources struct {
	reachable

	live   *store.Store
	check  func(_ context.Context, cluster string, _ *configv1.ApplyRequest) (*configv1.ApplyResponse, error) // a dry run
	client dynamic.Interface
	now    func() time.Time

	mu    sync.Mutex
	since map[config.Key]inForceSince
}

// inForceSince is when a version of an object was first seen to be in force here.
type inForceSince struct {
	digest string
	at     time.Time
}

var _ follow.Mesh = (*followResources)(nil)

// Live implements follow.Mesh. Dispatchers without a store do not know each other. But each of them lists the configuration at least as
// often as its maximum age, or judges nothing: after that time all of them have the version in force here.
func (m *followResources) Live(context.Context) (follow.Live, bool, error) {
	c := m.live.Configuration()
	if !c.Fresh || c.Snapshot() == nil {
		return follow.Live{}, false, nil
	}
	m.note(c.Objects)
	age := max(store.DefaultMaxAge, c.MaxAge()) + followMargin
	objects := maps.Clone(c.Objects)
	for key, o := range objects {
		if follow.IsCopy(&o) {
			o.Manifest = inKind(o.Manifest, "admissionregistration.k8s.io/v1", key.Kind)
			objects[key] = o
		}
	}
	everywhere := func(key config.Key) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		seen, ok := m.since[key]
		return ok && m.now().Sub(seen.at) >= age
	}
	return follow.Live{Snapshot: c.Snapshot(), Objects: objects, Everywhere: everywhere}, true, nil
}

// note remembers since when copies have been in force.
func (m *followResources) note(objects map[config.Key]config.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.since, func(key config.Key, _ inForceSince) bool { _, ok := objects[key]; return !ok })
	for key, o := range objects {
		if follow.IsCopy(&o) && m.since[key].digest != o.Digest {
			m.since[key] = inForceSince{o.Digest, m.now()}
		}
	}
}

// Write implements follow.Mesh. The route goes first: the source lists all kinds as of one moment.
func (m *followResources) Write(ctx context.Context, cluster string, documents []follow.Document) error {
	r := &configv1.ApplyRequest{DryRun: true}
	for _, d := range documents {
		r.Manifests = append(r.Manifests, &admissionv1.Object{Raw: d.Manifest})
	}
	answer, err := m.check(ctx, cluster, r)
	if err != nil {
		return refusedCopy(err)
	}
	for _, f := range answer.GetFindings() {
		if lint.IsDanger(f.GetCode()) {
			return &follow.RefusedError{Reason: fmt.Sprintf("the mesh does not take the copy: %s: %s", f.GetCode(), f.GetMessage())}
		}
	}
	for _, d := range documents {
		resource, kind := resourceOf(d.Key)
		_, err := m.client.Resource(resource).Patch(ctx, d.Key.Name, types.ApplyPatchType, inKind(d.Manifest, kinds.APIVersion, kind), metav1.PatchOptions{
			FieldManager: follow.FieldManager, Force: ptr.To(true), FieldValidation: metav1.FieldValidationStrict,
		})
		switch {
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
			return &follow.RefusedError{Reason: "the cluster of the configuration does not take the copy: " + err.Error()}
		case err != nil:
			return err
		}
	}
	return nil
}

// Remove implements follow.Mesh.
func (m *followResources) Remove(ctx context.Context, _ string, keys []config.Key) error {
	for _, key := range keys {
		resource, _ := resourceOf(key)
		if err := m.client.Resource(resource).Delete(ctx, key.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// resourceOf is the custom resource that holds an object, and its kind.
func resourceOf(key config.Key) (resource schema.GroupVersionResource, kind string) {
	r := kinds.ResourceOf(key.Kind)
	return schema.GroupVersionResource{Group: kinds.Group, Version: kinds.Version, Resource: r.Plural}, r.Kind
}

// inKind is a webhook configuration as another kind of the same content; any other manifest stays.
func inKind(manifest []byte, apiVersion, kind string) []byte {
	var content map[string]json.RawMessage
	if json.Unmarshal(manifest, &content) != nil || content["webhooks"] == nil {
		return manifest
	}
	version, err := json.Marshal(apiVersion)
	name, wrong := json.Marshal(kind)
	content["apiVersion"], content["kind"] = version, name
	out, last := json.Marshal(content)
	if errors.Join(err, wrong, last) != nil {
		return manifest
	}
	return out
}
