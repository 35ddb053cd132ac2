package service

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// MaxHosts is the most hosts of one answer of ListHosts.
const MaxHosts = 500

// ListHosts implements configv1.ConfigServiceServer.
func (s *Service) ListHosts(ctx context.Context, r *configv1.ListHostsRequest) (*configv1.ListHostsResponse, error) {
	leave, err := s.enterReader(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	limit := min(cmp.Or(int(r.GetLimit()), MaxHosts), MaxHosts)
	hosts, more := s.o.Hosts(r.GetHook(), r.GetContinue(), limit)
	for _, h := range hosts {
		h.DispatcherId = s.o.ID
	}
	out := &configv1.ListHostsResponse{Hosts: hosts, DispatcherId: s.o.ID}
	if more && len(hosts) > 0 {
		out.Continue = hosts[len(hosts)-1].GetSessionId()
	}
	return out, nil
}

// ListHooks implements configv1.ConfigServiceServer.
func (s *Service) ListHooks(ctx context.Context, r *configv1.ListHooksRequest) (*configv1.ListHooksResponse, error) {
	leave, err := s.enterReader(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	live, served := s.o.Live.Configuration(), map[match.HookID]HookHosts{}
	out := &configv1.ListHooksResponse{DispatcherId: s.o.ID, Revision: &configv1.Revision{Digest: live.Digest, Sources: live.Sources}}
	add := func(h *match.Hook, hosts HookHosts) {
		if r.GetName() == "" || r.GetName() == h.ID.Name {
			hook := hookOf(h, hosts, &live)
			hook.DispatcherId = s.o.ID
			out.Hooks = append(out.Hooks, hook)
		}
	}
	var removed []HookHosts
	for _, h := range s.o.Hooks() {
		if h.Removed {
			removed = append(removed, h)
		} else {
			served[h.Hook.ID] = h
		}
	}
	if live.Snapshot() != nil {
		for _, h := range live.Snapshot().Hooks() {
			add(h, served[h.ID])
		}
	}
	for _, h := range removed {
		add(h.Hook, h)
	}
	return out, nil
}

// enterReader admits a call of an identity that may read. The store is not read for operators of the flags, who want to look when
// it does not answer. leave has to be called at the end of the call.
func (s *Service) enterReader(ctx context.Context) (leave func(), err error) {
	entered, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	if !s.o.Operators.Includes(s.o.Identity(ctx)) {
		_, err = s.readFor(ctx)
	}
	var done func()
	if err == nil {
		done, err = s.turn(ctx)
	}
	if err != nil {
		entered()
		return nil, err
	}
	return func() { done(); entered() }, nil
}

// HookRefOf names a hook.
func HookRefOf(h *match.Hook) *configv1.HookRef {
	return &configv1.HookRef{Object: keyOf(config.KeyOf(h)), Name: h.ID.Name}
}

// hookOf returns a hook as the contract has it.
func hookOf(h *match.Hook, hosts HookHosts, live *store.Configuration) *configv1.Hook {
	out := &configv1.Hook{
		Hook: HookRefOf(h), Stage: match.StageName(h.ID.Stage), FailurePolicy: string(h.FailurePolicy), Clusters: h.Route.Clusters, ExceptClusters: h.Except,
		Timeout: durationpb.New(h.Timeout), State: hookState(h, hosts), Streamed: h.Route.Stream,
		ReinvocationPolicy: string(h.Reinvocation), SideEffects: string(h.SideEffects), Speculates: h.Route.Speculate, AllDenials: h.Route.AllDenials,
		Batch: uint32(h.Batch),
	}
	if o, ok := live.Objects[config.KeyOf(h)]; ok {
		if out.Source = o.Source; o.Source != etcdstore.SourceName {
			out.Origin = o.Origin()
		}
	}
	switch {
	case !h.HasHosts():
		out.Url = webhookURL(h)
		return out
	case !h.Route.Stream:
		return out
	}
	out.Hosts, out.Slots, out.Unserved = uint32(hosts.Hosts), uint32(hosts.Slots), hosts.Unserved
	switch {
	case hosts.Pending != "":
		out.Message = hosts.Pending
	case hosts.Unserved:
		out.Message = connectHost(h)
	}
	return out
}

func hookState(h *match.Hook, hosts HookHosts) configv1.Hook_State {
	switch {
	case hosts.Removed:
		return configv1.Hook_STATE_REMOVED
	case h.Pending:
		return configv1.Hook_STATE_PENDING
	case h.Route.Shadow:
		return configv1.Hook_STATE_SHADOW
	}
	return configv1.Hook_STATE_IN_ROTATION
}

// webhookURL is where a webhook over HTTPS is.
func webhookURL(h *match.Hook) string {
	c := &h.ClientConfig
	switch {
	case c.URL != nil:
		return *c.URL
	case c.Service == nil:
		return ""
	}
	port, path := int32(443), ""
	if c.Service.Port != nil {
		port = *c.Service.Port
	}
	if c.Service.Path != nil {
		path = "/" + strings.TrimPrefix(*c.Service.Path, "/")
	}
	return hostOf(c) + ":" + strconv.Itoa(int(port)) + path
}
