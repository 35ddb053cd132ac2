package serve

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/dynamic"

	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/follow"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// followActor writes the copies of followed objects, in the history of the store.
const followActor = "portcullis-follow"

// newFollow makes the manager that follows the webhook configurations of clusters.
func (a *app) newFollow(stores *stores, o follow.Options) (*follow.Manager, error) {
	o.ID, o.Logger, o.API, o.Lists, o.Memory = a.config.id, a.log, a.clusters.API, a.clusters.Lists, a.memory
	o.Documents = func() (clusters []*kinds.Cluster, copies map[string]bool) {
		now := a.store.Configuration()
		for _, x := range now.Objects {
			if x.Cluster != nil {
				clusters = append(clusters, x.Cluster)
			}
		}
		return clusters, follow.Copies(now.Objects)
	}
	o.Next = func() (revision string, next <-chan struct{}) {
		now := a.store.Configuration()
		return now.Digest, now.Next()
	}
	writer := a.control.service.Writer(followActor)
	switch reach := (reachable{a.webhooks}); {
	case stores.objects != nil:
		o.Mesh = &followMesh{reachable: reach, live: a.store, writer: writer}
	case stores.custom != nil:
		client, err := dynamic.NewForConfigAndClient(stores.custom.clients.Config, stores.custom.clients.HTTP)
		if err != nil {
			return nil, err
		}
		o.Mesh = &followResources{
			reachable: reach, live: a.store, check: writer.Apply, client: client, now: time.Now, since: map[config.Key]inForceSince{},
		}
	}
	return follow.New(o)
}

// reachable asks for webhooks as they are called.
type reachable struct{ webhooks *outbound.Client }

// Reach implements follow.Mesh.
func (r reachable) Reach(ctx context.Context, cluster string, c *admissionregistrationv1.WebhookClientConfig) error {
	return r.webhooks.Reach(ctx, cluster, c)
}

// followMesh writes copies to the store.
type followMesh struct {
	reachable

	live   *store.Store
	writer *service.Writer
}

var _ follow.Mesh = (*followMesh)(nil)

// Live implements follow.Mesh.
func (m *followMesh) Live(ctx context.Context) (follow.Live, bool, error) {
	now := m.live.Configuration()
	if !now.Fresh || now.Snapshot() == nil {
		return follow.Live{}, false, nil
	}
	everywhere, err := m.writer.Everywhere(ctx)
	return follow.Live{Snapshot: now.Snapshot(), Objects: now.Objects, Everywhere: everywhere}, true, err
}

// Write implements follow.Mesh.
func (m *followMesh) Write(ctx context.Context, cluster string, documents []follow.Document) error {
	r := &configv1.ApplyRequest{}
	for _, d := range documents {
		r.Manifests = append(r.Manifests, &admissionv1.Object{Raw: d.Manifest})
	}
	_, err := m.writer.Apply(ctx, cluster, r)
	return refusedCopy(err)
}

// refusedCopy is the error of an apply: a RefusedError if the objects are not valid, or dangerous.
func refusedCopy(err error) error {
	if code := status.Code(err); code == codes.InvalidArgument || code == codes.FailedPrecondition {
		return &follow.RefusedError{Reason: "the mesh does not take the copy: " + strings.TrimSpace(status.Convert(err).Message())}
	}
	return err
}

// Remove implements follow.Mesh.
func (m *followMesh) Remove(ctx context.Context, cluster string, keys []config.Key) error {
	for _, key := range keys {
		if err := m.writer.Remove(ctx, cluster, key); err != nil {
			return err
		}
	}
	return nil
}

// reportFollows are the followed objects for the report: those that are not followed are named, those with something to mend first.
func reportFollows(all []follow.ClusterStatus) []*configv1.Follow {
	var reported []*configv1.Follow
	for _, c := range all[:min(len(all), maxFollows)] {
		f := &configv1.Follow{Cluster: c.Cluster, Error: quoted(c.Error, maxFollowMessage)}
		var others, waiting []*configv1.FollowedObject
		for _, o := range c.Objects {
			x := &configv1.FollowedObject{Object: o.Object, Waiting: o.State == follow.Waiting, Message: quoted(o.Message, maxFollowMessage)}
			switch {
			case o.State == follow.Followed:
				f.Followed++
			case x.GetWaiting():
				waiting = append(waiting, x)
			default:
				others = append(others, x)
			}
		}
		others = append(others, waiting...)
		f.Others = others[:min(len(others), maxFollowed)]
		f.OthersMore = uint32(len(others) - len(f.GetOthers()))
		reported = append(reported, f)
	}
	return reported
}
