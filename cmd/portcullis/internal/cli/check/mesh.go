package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

const (
	configuration = "configuration"
	hooks         = "hooks"
	entries       = "entries"
)

// mesh checks the configuration in force. It returns the error of a call.
func (r *report) mesh(ctx context.Context, client configv1.ConfigServiceClient) error {
	dispatchers, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return err
	}
	r.dispatchers(dispatchers)
	r.store(dispatchers.GetStore())
	objects, err := client.List(ctx, &configv1.ListRequest{})
	if err != nil {
		return err
	}
	r.objects(objects.GetObjects())
	if err := r.hooks(ctx, client); err != nil {
		return err
	}
	r.served(objects.GetObjects())
	r.entries(objects.GetObjects())
	return nil
}

// dispatchers checks that each judges by a configuration that is fresh and current.
func (r *report) dispatchers(answer *configv1.ListDispatchersResponse) {
	const hint = "`portcullis get dispatchers` shows how far each is; its log names the source that it cannot read"
	if len(answer.GetDispatchers()) == 0 {
		r.fail(configuration, "a dispatcher is live", errors.New("none has reported to the store"), "start one, and look whether it reaches the store")
	}
	for _, d := range answer.GetDispatchers() {
		description := fmt.Sprintf("dispatcher %s judges by a fresh configuration", d.GetDispatcherId())
		switch {
		case !d.GetJudging():
			r.fail(configuration, description, errors.New(mesh.Standing(d)), hint)
		case d.GetServesStaleUntil() != nil, len(d.GetDiverging()) > 0, slices.Contains(answer.GetBehind(), d.GetDispatcherId()):
			r.warn(configuration, description, mesh.Standing(d), hint)
		default:
			r.ok(configuration, description, "version "+d.GetVersion())
		}
	}
}

// store checks that etcd takes writes, and has room for more.
func (r *report) store(u *configv1.StoreUsage) {
	const description = "the store has room"
	detail := fmt.Sprintf("%d of %d bytes in use", u.GetInUseBytes(), u.GetQuotaBytes())
	switch {
	case u == nil:
	case u.GetFull():
		r.fail(configuration, description, errors.New("etcd has the alarm NOSPACE and takes no writes, "+detail),
			"an embedded store makes room within a minute, or needs a larger --store-quota; of an external etcd compact and defragment the members, "+
				"or raise --quota-backend-bytes, then `etcdctl alarm disarm`")
	case u.GetInUseBytes() > u.GetQuotaBytes()/2:
		r.warn(configuration, description, detail+": above half no CREATE is held for initializers",
			"compact more often (--auto-compaction-retention), or raise the quota")
	default:
		r.ok(configuration, description, detail)
	}
}

// objects checks that each document is valid.
func (r *report) objects(objects []*configv1.ConfigObject) {
	bad := 0
	for _, o := range objects {
		if c := mesh.Condition(o, "Accepted"); c.GetStatus() == "False" {
			bad++
			r.fail(configuration, named(o)+" is valid", errors.New(c.GetMessage()), explain(o))
		}
	}
	if bad == 0 {
		r.ok(configuration, "all objects are valid", fmt.Sprintf("%d objects", len(objects)))
	}
}

// hooks checks that each hook of the dispatcher that answers can be called.
func (r *report) hooks(ctx context.Context, client configv1.ConfigServiceClient) error {
	answer, err := client.ListHooks(ctx, &configv1.ListHooksRequest{})
	if err != nil {
		return err
	}
	called, controlled, bad := 0, 0, 0
	for _, h := range answer.GetHooks() {
		if h.GetState() != configv1.Hook_STATE_REMOVED {
			called++
			if mesh.ByControllers(h) {
				controlled++
			}
		}
		if r.hook(h) {
			bad++
		}
	}
	if bad == 0 {
		detail := fmt.Sprintf("%d hooks", called)
		if controlled > 0 {
			detail += fmt.Sprintf("; %d of them are initializers of controllers, of which the mesh does not know whether they run", controlled)
		}
		r.ok(hooks, "every hook in force has a host or a webhook", detail)
	}
	return nil
}

// hook reports a hook that is not called, or that no host serves.
func (r *report) hook(h *configv1.Hook) (bad bool) {
	ref := h.GetHook()
	description := fmt.Sprintf("hook %s of %s/%s has a host", ref.GetName(), ref.GetObject().GetKind(), ref.GetObject().GetName())
	const hint = "`portcullis get hosts` shows the connected hosts and their hooks; start the host of this hook"
	switch {
	case h.GetState() == configv1.Hook_STATE_PENDING:
		r.warn(hooks, description, "it is not called yet: "+h.GetMessage(), hint)
	case !h.GetUnserved() && (!h.GetStreamed() || h.GetHosts() > 0), h.GetState() == configv1.Hook_STATE_REMOVED:
		return false
	case h.GetFailurePolicy() == "Fail":
		r.fail(hooks, description, fmt.Errorf("none on dispatcher %s, and it fails closed: its requests are refused", h.GetDispatcherId()), hint)
	case mesh.Initializes(h):
		r.warn(hooks, description, fmt.Sprintf("none on dispatcher %s, and it fails open: objects are created without it", h.GetDispatcherId()), hint)
	default:
		r.warn(hooks, description, fmt.Sprintf("none on dispatcher %s, and it fails open: its requests pass unseen", h.GetDispatcherId()), hint)
	}
	return true
}

// served reports objects with hooks that some other dispatcher has no host for.
func (r *report) served(objects []*configv1.ConfigObject) {
	for _, o := range objects {
		c := mesh.Condition(o, "Served")
		if c.GetStatus() != "False" || r.names(o) || o.GetKey().GetKind() == kinds.HookRouteKind { // its configuration has it too
			continue
		}
		r.warn(hooks, "all hooks of "+named(o)+" have a host everywhere", c.GetMessage(), explain(o))
	}
}

// names reports whether a check about a hook of the object is not a success.
func (r *report) names(o *configv1.ConfigObject) bool {
	return slices.ContainsFunc(r.lines, func(l line) bool {
		return l.Category == hooks && l.Result != ok && strings.Contains(l.Description, " of "+named(o)+" ")
	})
}

// entries checks that the entries of each cluster were made from the configuration in force.
func (r *report) entries(objects []*configv1.ConfigObject) {
	for _, o := range objects {
		if o.GetKey().GetKind() != kinds.ClusterKind {
			continue
		}
		description := "the entries of cluster " + o.GetKey().GetName() + " are current"
		drift := slices.IndexFunc(o.GetFindings(), func(f *configv1.Finding) bool {
			return f.GetCode() == service.CodeEntryDrift || f.GetCode() == service.CodeEntriesUnseen
		})
		if drift < 0 {
			r.ok(entries, description, "as far as its API servers have called")
			continue
		}
		r.warn(entries, description, o.GetFindings()[drift].GetMessage(), "`portcullis cluster register` makes them anew: docs/clusters.md, entries")
	}
}

func named(o *configv1.ConfigObject) string { return o.GetKey().GetKind() + "/" + o.GetKey().GetName() }

func explain(o *configv1.ConfigObject) string {
	return "`portcullis explain " + named(o) + "` shows more"
}
