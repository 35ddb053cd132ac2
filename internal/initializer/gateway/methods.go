package gateway

import (
	"context"
	"encoding/json"
	"net/http"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/conversion"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// get answers with an object, or where the caller does not ask for those that are not initialized, with 202 and a Status.
func (g *Gateway) get(ctx context.Context, a *answer, q *query) error {
	found, err := g.o.Service.Get(ctx, &initializerv1.GetRequest{Key: a.target.key()})
	if err != nil {
		return err
	}
	if o := found.GetObject(); !q.uninitialized {
		s := &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, ListMeta: metav1.ListMeta{ResourceVersion: o.GetResourceVersion()},
			Status: metav1.StatusFailure, Reason: ReasonUninitialized, Code: http.StatusAccepted, Details: a.target.details(),
			Message: "the name is taken by an object that is being initialized: ask with includeUninitialized=true to see it",
		}
		s.Details.UID = types.UID(o.GetUid())
		a.status(s)
		return nil
	}
	return g.object(ctx, a, found.GetObject())
}

// object answers with an object.
func (g *Gateway) object(ctx context.Context, a *answer, o *initializerv1.StagedObject) error {
	raw, err := g.encode(ctx, nil, o)
	if err == nil {
		a.write(http.StatusOK, raw)
	}
	return err
}

// encode is an object as Kubernetes would show it, made in a turn of the caller; nil for an object that a query does not select.
func (g *Gateway) encode(ctx context.Context, q *query, o *initializerv1.StagedObject) ([]byte, error) {
	done, err := g.o.Service.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if q != nil && !q.selects(o) {
		return nil, nil
	}
	return encode(o)
}

// list is a List of Kubernetes.
type list struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ListMeta   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

// list answers with the objects one by one, so that a single object is in memory as JSON at a time.
func (g *Gateway) list(ctx context.Context, a *answer, q *query) error {
	found, err := g.o.Service.List(ctx, a.target.list())
	if err != nil {
		return err
	}
	out := list{
		APIVersion: a.target.apiVersion(), Kind: "List", Items: []json.RawMessage{},
		Metadata: metav1.ListMeta{ResourceVersion: found.GetResourceVersion()},
	}
	raw, err := marshal(out)
	if err != nil {
		return err
	}
	begin, end := raw[:len(raw)-len("]}")], raw[len(raw)-len("]}"):]
	a.write(http.StatusOK, begin)
	comma := ""
	for _, o := range found.GetObjects() {
		raw, err := g.encode(ctx, q, o)
		if err == nil && raw == nil {
			continue
		}
		if err != nil || !a.more(append([]byte(comma), raw...)) {
			return nil //nolint:nilerr // the answer has begun: without its end it is no JSON
		}
		comma = ","
	}
	a.more(end)
	return nil
}

// put replaces an object.
func (g *Gateway) put(ctx context.Context, a *answer, media string, body []byte) error {
	if media != jsonType {
		return unsupported(media, jsonType)
	}
	now, err := g.o.Service.Get(ctx, &initializerv1.GetRequest{Key: a.target.key()})
	if err != nil {
		return err
	}
	done, err := g.o.Service.Turn(ctx)
	if err != nil {
		return err
	}
	r, err := decode(now.GetObject(), body)
	done()
	if err != nil {
		return err
	}
	if r.GetResourceVersion() == "" {
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.resourceVersion: must be specified for an update")
	}
	changed, err := g.o.Service.Update(ctx, r)
	if err != nil {
		return err
	}
	return g.object(ctx, a, changed.GetObject())
}

// patch changes an object. A patch that names no version is repeated when another caller has changed the object in the meantime.
func (g *Gateway) patch(ctx context.Context, a *answer, media string, body []byte) error {
	apply, err := patcher(media)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		changed, err := g.patchOnce(ctx, a.target, apply, body)
		if grpcstatus.Code(err) == codes.Aborted && try < patchTries {
			continue
		}
		if err != nil {
			return err
		}
		return g.object(ctx, a, changed)
	}
}

func (g *Gateway) patchOnce(
	ctx context.Context, t target, apply func(object, patch []byte) ([]byte, error), body []byte,
) (*initializerv1.StagedObject, error) {
	found, err := g.o.Service.Get(ctx, &initializerv1.GetRequest{Key: t.key()})
	if err != nil {
		return nil, err
	}
	now := found.GetObject()
	r, err := g.patched(ctx, now, apply, body)
	if err != nil {
		return nil, err
	}
	if version := r.GetResourceVersion(); version != "" && version != now.GetResourceVersion() {
		return nil, conflict("metadata.resourceVersion is %s, and the object's is %s", version, now.GetResourceVersion())
	}
	r.ResourceVersion = now.GetResourceVersion()
	changed, err := g.o.Service.Update(ctx, r)
	return changed.GetObject(), err
}

// patched is the update that a patch of an object makes.
func (g *Gateway) patched(
	ctx context.Context, now *initializerv1.StagedObject, apply func(object, patch []byte) ([]byte, error), body []byte,
) (*initializerv1.UpdateRequest, error) {
	done, err := g.o.Service.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	shown, err := encode(now)
	if err != nil {
		return nil, err
	}
	patched, err := apply(shown, body)
	if err != nil {
		return nil, failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "the patch: %v", err)
	}
	return decode(now, patched)
}

// patcher applies patches of a media type.
func patcher(media string) (func(object, patch []byte) ([]byte, error), error) {
	switch types.PatchType(media) { //nolint:exhaustive // the others are refused
	case types.MergePatchType:
		return jsonpatch.MergePatch, nil
	case types.JSONPatchType:
		return func(object, patch []byte) ([]byte, error) {
			patched, err := conversion.ApplyPatch(object, patch)
			return patched.Raw, err
		}, nil
	}
	return nil, unsupported(media, string(types.MergePatchType)+" or "+string(types.JSONPatchType))
}

// delete ends the hold of an object.
func (g *Gateway) delete(ctx context.Context, a *answer, media string, body []byte) error {
	var o metav1.DeleteOptions
	if len(body) > 0 {
		if media != jsonType {
			return unsupported(media, jsonType)
		}
		if err := json.Unmarshal(body, &o); err != nil {
			return badRequest("the body: DeleteOptions are wanted: %v", err)
		}
	}
	if len(o.DryRun) > 0 {
		return badRequest("dryRun: a change of a staged object cannot be tried")
	}
	r := &initializerv1.DeleteRequest{Key: a.target.key()}
	if p := o.Preconditions; p != nil {
		if p.UID != nil {
			r.Uid = string(*p.UID)
		}
		if p.ResourceVersion != nil {
			r.ResourceVersion = *p.ResourceVersion
		}
	}
	gone, err := g.o.Service.Delete(ctx, r)
	if err != nil {
		return err
	}
	s := &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusOK, Details: a.target.details(),
	}
	s.Details.UID = types.UID(gone.GetObject().GetUid())
	a.status(s)
	return nil
}
