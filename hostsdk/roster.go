package hostsdk

import (
	"maps"
	"net"
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// endpoint is where a dispatcher listens.
type endpoint struct {
	address    string // host:port
	serverName string // that its certificate must carry
}

// target is one dispatcher to hold a session to.
type target struct {
	// key tells targets apart: the address that a name resolved to, or the id of a peer.
	key string
	// endpoints are tried in turn.
	endpoints []endpoint
	// delay is waited before the first dial.
	delay time.Duration
	// peer is the id of the dispatcher if another one named it, else empty.
	peer string
}

// roster decides which dispatchers a host dials: every address that the configured names resolve to, and every peer
// that a dispatcher names. A dispatcher that is reached on two ways keeps the younger session. The roster is pure; one
// caller at a time.
//
// Each method returns what to do: links to start, and links to stop. A stopped link with a session lets it drain.
type roster struct {
	serverName string // for all, from Options
	names      []string
	resolved   map[string][]target  // by configured name
	links      map[string]*linkView // by key
	met        map[string]string    // id of the dispatcher that was last met, by key
}

// linkView is what the roster knows of a running link.
type linkView struct {
	target
	dispatcher string   // of the session; empty when there is none
	peers      []target // that this dispatcher named
	stopping   bool
}

// plan is what to do after something changed.
type plan struct {
	start []target
	stop  []string
}

func newRoster(names []string, serverName string) *roster {
	return &roster{
		serverName: serverName,
		names:      names,
		resolved:   map[string][]target{},
		links:      map[string]*linkView{},
		met:        map[string]string{},
	}
}

// resolve takes the IP addresses that a configured name, host:port, stands for now.
func (r *roster) resolve(name string, ips []string) plan {
	host, port, err := net.SplitHostPort(name)
	if err != nil { // New has checked it.
		return plan{}
	}
	targets := make([]target, 0, len(ips))
	for _, ip := range ips {
		address := net.JoinHostPort(ip, port)
		targets = append(targets, target{key: address, endpoints: []endpoint{{address, r.nameOf(host)}}})
	}
	r.resolved[name] = targets
	return r.reconcile()
}

// welcomed takes the dispatcher that a link has met, where it was, and the peers that it names. An older session to the
// same dispatcher is stopped.
func (r *roster) welcomed(key string, at endpoint, dispatcher string, peers []*hostv1.Peer) plan {
	link := r.links[key]
	if link == nil || link.stopping {
		return plan{}
	}
	link.dispatcher = dispatcher
	link.peers = r.targets(at, peers, peerDelay)
	r.met[key] = dispatcher
	var out plan
	for _, other := range slices.Sorted(maps.Keys(r.links)) {
		if view := r.links[other]; other != key && view.holds(dispatcher) {
			view.stopping = true
			out.stop = append(out.stop, other)
		}
	}
	return out.and(r.reconcile())
}

// leaving takes the peers that a dispatcher names as it leaves. They are dialled at once.
func (r *roster) leaving(key string, at endpoint, peers []*hostv1.Peer) plan {
	link := r.links[key]
	if link == nil || link.stopping || len(peers) == 0 {
		return plan{}
	}
	link.peers = r.targets(at, peers, 0)
	return r.reconcile()
}

// ended says that a link has lost its session, or failed to get one.
func (r *roster) ended(key string) plan {
	if link := r.links[key]; link != nil {
		link.dispatcher, link.peers = "", nil
	}
	return r.reconcile()
}

// gone says that a stopped link is no more.
func (r *roster) gone(key string) plan {
	delete(r.links, key)
	return r.reconcile()
}

// reconcile compares the links that there are with those that there should be. A session is never stopped because its
// address is no longer named: whoever is there still wants to be served.
func (r *roster) reconcile() plan {
	wanted := r.wanted()
	var out plan
	for _, key := range slices.Sorted(maps.Keys(r.links)) {
		link := r.links[key]
		if _, ok := wanted[key]; !ok && link.dispatcher == "" && !link.stopping {
			link.stopping = true
			out.stop = append(out.stop, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if r.links[key] == nil && len(r.links) < maxTargets {
			r.links[key] = &linkView{target: wanted[key]}
			out.start = append(out.start, wanted[key])
		}
	}
	r.forget(wanted)
	return out
}

// wanted are the targets that should have a link, by key.
func (r *roster) wanted() map[string]target {
	wanted := map[string]target{}
	addresses := map[string]bool{}
	for _, name := range r.names {
		for _, t := range r.resolved[name] {
			addresses[t.key] = true
			if _, named := wanted[t.key]; !named && !r.elsewhere(t.key, r.met[t.key]) {
				wanted[t.key] = t
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.links)) {
		for _, t := range r.links[key].peers {
			known := slices.ContainsFunc(t.endpoints, func(e endpoint) bool { return addresses[e.address] })
			if !known && !r.elsewhere(t.key, t.peer) {
				wanted[t.key] = t
			}
		}
	}
	return wanted
}

// elsewhere says whether a link other than key has a session to the dispatcher.
func (r *roster) elsewhere(key, dispatcher string) bool {
	for other, link := range r.links {
		if other != key && link.holds(dispatcher) {
			return true
		}
	}
	return false
}

// forget drops what was met at addresses that nobody names any more.
func (r *roster) forget(wanted map[string]target) {
	named := map[string]bool{}
	for _, targets := range r.resolved {
		for _, t := range targets {
			named[t.key] = true
		}
	}
	for key := range r.met {
		if _, ok := wanted[key]; !ok && !named[key] && r.links[key] == nil {
			delete(r.met, key)
		}
	}
}

func (l *linkView) holds(dispatcher string) bool {
	return dispatcher != "" && l.dispatcher == dispatcher && !l.stopping
}

// targets are the peers that a dispatcher names.
func (r *roster) targets(at endpoint, peers []*hostv1.Peer, delay time.Duration) []target {
	var out []target
	for _, p := range peers[:min(len(peers), maxTargets)] {
		t := target{key: "peer " + p.GetDispatcherId(), delay: delay, peer: p.GetDispatcherId()}
		for _, address := range p.GetAddresses()[:min(len(p.GetAddresses()), maxTargets)] {
			if host, _, err := net.SplitHostPort(address); err == nil {
				t.endpoints = append(t.endpoints, endpoint{address, r.peerName(host, at.serverName)})
			}
		}
		if len(t.endpoints) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// nameOf is the name that the certificate of a dispatcher at host must carry.
func (r *roster) nameOf(host string) string {
	if r.serverName != "" {
		return r.serverName
	}
	return host
}

// peerName is the name that the certificate of a peer at host must carry. Certificates seldom hold the addresses of
// Pods: a peer that is known by its IP address alone carries the name by which the host knows the mesh.
func (r *roster) peerName(host, namer string) string {
	if net.ParseIP(host) != nil && net.ParseIP(namer) == nil {
		return r.nameOf(namer)
	}
	return r.nameOf(host)
}

func (p plan) and(q plan) plan {
	return plan{start: append(p.start, q.start...), stop: append(p.stop, q.stop...)}
}
