package follow

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

// mark is the annotation that the later write of an original leaves (package touch): none once it is on, so that nothing of the mesh
// stays in it.
func (v *view) mark() string {
	if v.conditions == On {
		return ""
	}
	return touch.Mark(v.original)
}

// writeEntriesAgain writes the entries of the cluster once more that are due. It returns the kinds of those that are still to be written:
// an API server may have missed their last change, and not call the mesh for an original that is off.
func (f *follower) writeEntriesAgain(ctx context.Context, objects []*observed) (unknown map[string]bool) {
	before, now := f.entries, f.now()
	f.entries, unknown = map[types.UID]*touch.Rewrite{}, map[string]bool{}
	for _, o := range objects {
		if of, ours := registration.MadeFor(o); !ours || of != f.cluster {
			continue
		}
		change := before[o.GetUID()]
		if change == nil {
			change = &touch.Rewrite{Delay: f.lag}
		}
		f.entries[o.GetUID()] = change
		if change.Due(o, touch.Mark(o), now) && f.leads() && now.Sub(f.failedAt) >= failurePause {
			if err := f.writeAgain(ctx, o.Unstructured, touch.Mark(o), change); err != nil {
				f.failedAt = now
				f.log.Warn("entries are not written once more", "object", o.GetKind()+"/"+o.GetName(), "error", err)
			}
		}
		if change.Pending(o, touch.Mark(o)) {
			unknown[o.GetKind()] = true
		}
	}
	return unknown
}

// writeAgain changes the annotation of an object, and nothing else. A conflict with another writer is no error: there is a change to come.
func (f *follower) writeAgain(ctx context.Context, o *unstructured.Unstructured, mark string, c *touch.Rewrite) error {
	var annotation any // nil removes it
	if mark != "" {
		annotation = mark
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "annotations": map[string]any{touch.Annotation: annotation},
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, err = f.client.Resource(resourceOf(o.GetKind())).
		Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.Wrote()
	}
	return err
}
