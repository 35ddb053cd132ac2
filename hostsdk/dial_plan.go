package hostsdk

import (
	"cmp"
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

// dialTarget is one dispatcher to hold a session to.
type dialTarget struct {
	// key is the address that a name resolved to, or the id of a peer.
	key string
	// endpoints are tried in turn.
	endpoints []endpoint
	// delay comes before the first dial.
	delay time.Duration
	// peer is the id of the dispatcher if another one named it, else empty.
	peer string
}

// dialPlan decides which dispatchers a host dials: every address that the configured names resolve to, and every peer
// that a dispatcher names. Of two sessions to one dispatcher the younger stays. The plan is pure; one caller at a time.
//
// Each method returns the loops to start and to stop. A stopped loop drains its session.
type dialPlan struct {
	serverName string // for all, from Options
	names      []string
	targets    map[string][]dialTarget // by configured name
	loops      map[string]*plannedLoop // by key
	met        map[string]string       // id of the dispatcher that was last met, by key
}

// plannedLoop is a running connLoop in the plan.
type plannedLoop struct {
	dialTarget
	dispatcher string       // of the session; empty when there is none
	peers      []dialTarget // that this dispatcher named
	stopping   bool
}

type dialChanges struct {
	start []dialTarget
	stop  []string // keys
}

func newDialPlan(names []string, serverName string) *dialPlan {
	return &dialPlan{
		serverName: serverName,
		names:      names,
		targets:    map[string][]dialTarget{},
		loops:      map[string]*plannedLoop{},
		met:        map[string]string{},
	}
}

// resolved sets the IP addresses of a configured name, host:port.
func (p *dialPlan) resolved(name string, ips []string) dialChanges {
	host, port, _ := net.SplitHostPort(name) // New has checked it.
	targets := make([]dialTarget, 0, len(ips))
	for _, ip := range ips {
		address := net.JoinHostPort(ip, port)
		targets = append(targets, dialTarget{key: address, endpoints: []endpoint{{address, cmp.Or(p.serverName, host)}}})
	}
	p.targets[name] = targets
	return p.reconcile()
}

// welcomed sets the dispatcher that a loop has met at an endpoint, and the peers that it names. It stops an older session to
// the same dispatcher.
func (p *dialPlan) welcomed(key string, at endpoint, dispatcher string, peers []*hostv1.Peer) dialChanges {
	loop := p.loops[key]
	if loop == nil || loop.stopping {
		return dialChanges{}
	}
	loop.dispatcher = dispatcher
	loop.peers = p.peerTargets(at, peers, peerDelay)
	p.met[key] = dispatcher
	var older []string
	for _, other := range slices.Sorted(maps.Keys(p.loops)) {
		if loop := p.loops[other]; other != key && loop.holds(dispatcher) {
			loop.stopping = true
			older = append(older, other)
		}
	}
	changes := p.reconcile()
	changes.stop = append(older, changes.stop...)
	return changes
}

// leaving sets the peers that a dispatcher names as it leaves. They are dialled at once.
func (p *dialPlan) leaving(key string, at endpoint, peers []*hostv1.Peer) dialChanges {
	loop := p.loops[key]
	if loop == nil || loop.stopping || len(peers) == 0 {
		return dialChanges{}
	}
	loop.peers = p.peerTargets(at, peers, 0)
	return p.reconcile()
}

// ended notes that a loop has lost its session, or failed to get one.
func (p *dialPlan) ended(key string) dialChanges {
	if loop := p.loops[key]; loop != nil {
		loop.dispatcher, loop.peers = "", nil
	}
	return p.reconcile()
}

// gone removes a loop that has stopped.
func (p *dialPlan) gone(key string) dialChanges {
	delete(p.loops, key)
	return p.reconcile()
}

// reconcile compares the loops with the targets. It never stops a session because its address is no longer named: the
// dispatcher there still wants to be served.
func (p *dialPlan) reconcile() dialChanges {
	wanted := p.wanted()
	var changes dialChanges
	for _, key := range slices.Sorted(maps.Keys(p.loops)) {
		loop := p.loops[key]
		if _, ok := wanted[key]; !ok && loop.dispatcher == "" && !loop.stopping {
			loop.stopping = true
			changes.stop = append(changes.stop, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if p.loops[key] == nil && len(p.loops) < maxTargets {
			p.loops[key] = &plannedLoop{dialTarget: wanted[key]}
			changes.start = append(changes.start, wanted[key])
		}
	}
	p.forget(wanted)
	return changes
}

// wanted returns the targets that should have a loop, by key.
func (p *dialPlan) wanted() map[string]dialTarget {
	wanted := map[string]dialTarget{}
	addresses := map[string]bool{}
	for _, name := range p.names {
		for _, t := range p.targets[name] {
			addresses[t.key] = true
			if _, named := wanted[t.key]; !named && !p.elsewhere(t.key, p.met[t.key]) {
				wanted[t.key] = t
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.loops)) {
		for _, t := range p.loops[key].peers {
			known := slices.ContainsFunc(t.endpoints, func(e endpoint) bool { return addresses[e.address] })
			if !known && !p.elsewhere(t.key, t.peer) {
				wanted[t.key] = t
			}
		}
	}
	return wanted
}

// elsewhere reports whether a loop other than key has a session to the dispatcher.
func (p *dialPlan) elsewhere(key, dispatcher string) bool {
	for other, loop := range p.loops {
		if other != key && loop.holds(dispatcher) {
			return true
		}
	}
	return false
}

// forget drops the ids met at addresses that are no longer named.
func (p *dialPlan) forget(wanted map[string]dialTarget) {
	named := map[string]bool{}
	for _, targets := range p.targets {
		for _, t := range targets {
			named[t.key] = true
		}
	}
	maps.DeleteFunc(p.met, func(key, _ string) bool {
		_, ok := wanted[key]
		return !ok && !named[key] && p.loops[key] == nil
	})
}

func (l *plannedLoop) holds(dispatcher string) bool {
	return dispatcher != "" && l.dispatcher == dispatcher && !l.stopping
}

// peerTargets returns the targets of peers that the dispatcher at an endpoint names.
func (p *dialPlan) peerTargets(at endpoint, peers []*hostv1.Peer, delay time.Duration) []dialTarget {
	var targets []dialTarget
	for _, peer := range peers[:min(len(peers), maxTargets)] {
		t := dialTarget{key: "peer " + peer.GetDispatcherId(), delay: delay, peer: peer.GetDispatcherId()}
		for _, address := range peer.GetAddresses()[:min(len(peer.GetAddresses()), maxTargets)] {
			if host, _, err := net.SplitHostPort(address); err == nil {
				t.endpoints = append(t.endpoints, endpoint{address, p.peerName(host, at.serverName)})
			}
		}
		if len(t.endpoints) > 0 {
			targets = append(targets, t)
		}
	}
	return targets
}

// peerName returns the name that the certificate of a peer at host must carry. Certificates seldom hold the addresses of
// Pods: a peer that is known by its IP address alone carries the name of the dispatcher that named it.
func (p *dialPlan) peerName(host, namer string) string {
	if net.ParseIP(host) != nil && net.ParseIP(namer) == nil {
		host = namer
	}
	return cmp.Or(p.serverName, host)
}
