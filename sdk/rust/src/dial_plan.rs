//! Which dispatchers a host dials: every address that the configured names resolve to, and every peer that a dispatcher
//! names. Of two sessions to one dispatcher the younger stays. It is pure; each method returns what is to be started and
//! stopped. A stopped loop drains its session.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::limits;
use crate::proto::host::v1::Peer;

/// Where a dispatcher listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// host:port.
    pub(crate) address: String,
    /// The name that its certificate must carry.
    pub(crate) server_name: String,
}

/// One dispatcher to hold a session to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The address that a name resolved to, or the id of a peer.
    pub(crate) key: String,
    /// They are tried in turn.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Comes before the first dial.
    pub(crate) delay: Duration,
    /// The id of the dispatcher if another one named it, else empty.
    peer: String,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) start: Vec<Target>,
    /// Keys.
    pub(crate) stop: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct DialPlan {
    /// For all dispatchers, if the host sets one.
    server_name: Option<String>,
    /// By configured name.
    targets: BTreeMap<String, Vec<Target>>,
    /// Running loops, by key.
    loops: BTreeMap<String, Loop>,
    /// The id of the dispatcher that was last met, by key.
    met: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Loop {
    /// Of the session; empty when there is none.
    dispatcher: String,
    /// That this dispatcher named.
    peers: Vec<Target>,
    stopping: bool,
}

impl Loop {
    fn holds(&self, dispatcher: &str) -> bool {
        !dispatcher.is_empty() && self.dispatcher == dispatcher && !self.stopping
    }
}

impl DialPlan {
    pub(crate) fn new(server_name: Option<String>) -> Self {
        Self { server_name, targets: BTreeMap::new(), loops: BTreeMap::new(), met: BTreeMap::new() }
    }

    /// Sets the addresses that a configured name, host:port, has resolved to.
    pub(crate) fn resolved(&mut self, name: &str, addresses: &[SocketAddr]) -> Changes {
        let host = host_of(name).unwrap_or_default();
        let server_name = self.server_name.clone().unwrap_or_else(|| host.to_owned());
        let target = |address: &SocketAddr| {
            let endpoint = Endpoint { address: address.to_string(), server_name: server_name.clone() };
            Target { key: address.to_string(), endpoints: vec![endpoint], delay: Duration::ZERO, peer: String::new() }
        };
        self.targets.insert(name.to_owned(), addresses.iter().map(target).collect());
        self.reconcile()
    }

    /// Sets the dispatcher that a loop has met at an endpoint, and the peers that it names. It stops an older session to the
    /// same dispatcher.
    pub(crate) fn welcomed(&mut self, key: &str, at: &Endpoint, dispatcher: &str, peers: &[Peer]) -> Changes {
        let peers = self.peer_targets(at, peers, limits::PEER_DELAY);
        let Some(met) = self.loops.get_mut(key).filter(|met| !met.stopping) else { return Changes::default() };
        dispatcher.clone_into(&mut met.dispatcher);
        met.peers = peers;
        self.met.insert(key.to_owned(), dispatcher.to_owned());
        let mut older = Vec::new();
        for (other, held) in &mut self.loops {
            if other != key && held.holds(dispatcher) {
                held.stopping = true;
                older.push(other.clone());
            }
        }
        let mut changes = self.reconcile();
        changes.stop.splice(0..0, older);
        changes
    }

    /// Sets the peers that a dispatcher names as it leaves. They are dialled at once.
    pub(crate) fn leaving(&mut self, key: &str, at: &Endpoint, peers: &[Peer]) -> Changes {
        let peers = self.peer_targets(at, peers, Duration::ZERO);
        match self.loops.get_mut(key).filter(|left| !left.stopping && !peers.is_empty()) {
            None => Changes::default(),
            Some(left) => {
                left.peers = peers;
                self.reconcile()
            }
        }
    }

    /// Notes that a loop has lost its session, or failed to get one.
    pub(crate) fn ended(&mut self, key: &str) -> Changes {
        if let Some(lost) = self.loops.get_mut(key) {
            lost.dispatcher.clear();
            lost.peers.clear();
        }
        self.reconcile()
    }

    /// Removes a loop that has stopped.
    pub(crate) fn gone(&mut self, key: &str) -> Changes {
        self.loops.remove(key);
        self.reconcile()
    }

    /// Compares the loops with the targets. It never stops a session because its address is no longer named: the dispatcher
    /// there still wants to be served.
    fn reconcile(&mut self) -> Changes {
        let wanted = self.wanted();
        let mut changes = Changes::default();
        for (key, running) in &mut self.loops {
            if !wanted.contains_key(key) && running.dispatcher.is_empty() && !running.stopping {
                running.stopping = true;
                changes.stop.push(key.clone());
            }
        }
        let named: BTreeSet<&str> = self.targets.values().flatten().map(|target| target.key.as_str()).collect();
        self.met.retain(|key, _| wanted.contains_key(key) || named.contains(&**key) || self.loops.contains_key(key));
        for (key, target) in wanted {
            if !self.loops.contains_key(&key) && self.loops.len() < limits::TARGETS {
                self.loops.insert(key, Loop::default());
                changes.start.push(target);
            }
        }
        changes
    }

    /// The targets that should have a loop, by key.
    fn wanted(&self) -> BTreeMap<String, Target> {
        let mut wanted = BTreeMap::new();
        let mut addresses = BTreeSet::new();
        for target in self.targets.values().flatten() {
            addresses.insert(target.key.as_str());
            let met = self.met.get(&target.key).map_or("", String::as_str);
            if !self.elsewhere(&target.key, met) {
                wanted.entry(target.key.clone()).or_insert_with(|| target.clone());
            }
        }
        for target in self.loops.values().flat_map(|running| &running.peers) {
            let known = target.endpoints.iter().any(|endpoint| addresses.contains(&*endpoint.address));
            if !known && !self.elsewhere(&target.key, &target.peer) {
                wanted.insert(target.key.clone(), target.clone());
            }
        }
        wanted
    }

    /// Whether a loop other than `key` has a session to the dispatcher.
    fn elsewhere(&self, key: &str, dispatcher: &str) -> bool {
        self.loops.iter().any(|(other, running)| other != key && running.holds(dispatcher))
    }

    /// The targets of peers that the dispatcher at an endpoint names.
    fn peer_targets(&self, at: &Endpoint, peers: &[Peer], delay: Duration) -> Vec<Target> {
        let endpoint = |address: &String| {
            let server_name = self.peer_name(host_of(address)?, &at.server_name);
            Some(Endpoint { address: address.clone(), server_name })
        };
        let target = |peer: &Peer| Target {
            key: format!("peer {}", peer.dispatcher_id),
            endpoints: peer.addresses.iter().take(limits::TARGETS).filter_map(endpoint).collect(),
            delay,
            peer: peer.dispatcher_id.clone(),
        };
        let targets = peers.iter().take(limits::TARGETS).map(target);
        targets.filter(|target| !target.endpoints.is_empty()).collect()
    }

    /// The name that the certificate of a peer must carry. Certificates seldom hold the addresses of Pods: a peer that is
    /// known by its IP address alone carries the name of the dispatcher that named it.
    fn peer_name(&self, host: &str, namer: &str) -> String {
        let is_ip = |name: &str| name.parse::<IpAddr>().is_ok();
        let name = if is_ip(host) && !is_ip(namer) { namer } else { host };
        self.server_name.clone().unwrap_or_else(|| name.to_owned())
    }
}

/// The host of host:port, without the brackets of an IPv6 address; `None` if it is not that.
pub(crate) fn host_of(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']').filter(|v6| v6.parse::<IpAddr>().is_ok()),
        None => Some(host).filter(|host| !host.is_empty() && !host.contains(':')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> DialPlan {
        DialPlan::new(None)
    }

    fn addresses(ips: &[&str]) -> Vec<SocketAddr> {
        ips.iter().map(|ip| format!("{ip}:8444").parse().unwrap()).collect()
    }

    fn started(changes: &Changes) -> Vec<&str> {
        assert_eq!(changes.stop, Vec::<String>::new());
        changes.start.iter().map(|target| target.key.as_str()).collect()
    }

    fn at(address: &str) -> Endpoint {
        Endpoint { address: address.into(), server_name: "mesh.example".into() }
    }

    fn peer(id: &str, address: &str) -> Peer {
        Peer { dispatcher_id: id.into(), addresses: vec![address.into()] }
    }

    #[test]
    fn every_address_of_a_name_is_a_dispatcher() {
        let mut plan = plan();
        let changes = plan.resolved("mesh.example:8444", &addresses(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(started(&changes), ["10.0.0.1:8444", "10.0.0.2:8444"]);
        assert_eq!(changes.start[0].endpoints[0], at("10.0.0.1:8444"));
        let changes = plan.resolved("mesh.example:8444", &addresses(&["10.0.0.2", "10.0.0.3"]));
        assert_eq!(changes.stop, ["10.0.0.1:8444"], "no session there");
        assert_eq!(changes.start[0].key, "10.0.0.3:8444");
    }

    #[test]
    fn a_session_stays_when_its_address_is_no_longer_named() {
        let mut plan = plan();
        plan.resolved("mesh.example:8444", &addresses(&["10.0.0.1"]));
        plan.welcomed("10.0.0.1:8444", &at("10.0.0.1:8444"), "d1", &[]);
        assert_eq!(plan.resolved("mesh.example:8444", &addresses(&["10.0.0.2"])).stop, Vec::<String>::new());
        assert_eq!(plan.ended("10.0.0.1:8444").stop, ["10.0.0.1:8444"]);
    }

    #[test]
    fn of_two_sessions_to_one_dispatcher_the_younger_stays() {
        let mut plan = plan();
        plan.resolved("a.example:8444", &addresses(&["10.0.0.1"]));
        plan.resolved("b.example:8444", &addresses(&["10.0.0.2"]));
        plan.welcomed("10.0.0.1:8444", &at("10.0.0.1:8444"), "d1", &[]);
        let changes = plan.welcomed("10.0.0.2:8444", &at("10.0.0.2:8444"), "d1", &[]);
        assert_eq!(changes, Changes { start: vec![], stop: vec!["10.0.0.1:8444".into()] });
        // The address is dialled again only when the dispatcher is no longer met elsewhere.
        assert_eq!(started(&plan.gone("10.0.0.1:8444")), [""; 0]);
        assert_eq!(started(&plan.ended("10.0.0.2:8444")), ["10.0.0.1:8444"]);
    }

    #[test]
    fn peers_are_dialled_later_and_under_the_name_of_who_named_them() {
        let mut plan = plan();
        plan.resolved("mesh.example:8444", &addresses(&["10.0.0.1"]));
        let peers = [peer("d2", "10.0.0.2:8444"), peer("d3", "d3.example:8444"), peer("d4", "nonsense")];
        let changes = plan.welcomed("10.0.0.1:8444", &at("10.0.0.1:8444"), "d1", &peers);
        assert_eq!(started(&changes), ["peer d2", "peer d3"]);
        assert_eq!(changes.start[0].endpoints, [at("10.0.0.2:8444")]);
        assert_eq!(changes.start[1].endpoints[0].server_name, "d3.example");
        assert_eq!(changes.start[0].delay, limits::PEER_DELAY);
        // A peer that a name resolves to needs no loop of its own.
        let changes = plan.resolved("mesh.example:8444", &addresses(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(changes.stop, ["peer d2"]);
        assert_eq!(changes.start[0].key, "10.0.0.2:8444");
    }

    #[test]
    fn peers_of_a_dispatcher_that_leaves_are_dialled_at_once() {
        let mut plan = plan();
        plan.resolved("mesh.example:8444", &addresses(&["10.0.0.1"]));
        plan.welcomed("10.0.0.1:8444", &at("10.0.0.1:8444"), "d1", &[]);
        let changes = plan.leaving("10.0.0.1:8444", &at("10.0.0.1:8444"), &[peer("d2", "10.0.0.2:8444")]);
        assert_eq!((started(&changes), changes.start[0].delay), (vec!["peer d2"], Duration::ZERO));
    }

    #[test]
    fn the_number_of_dispatchers_is_bounded() {
        let mut plan = plan();
        plan.resolved("mesh.example:8444", &addresses(&["10.0.0.1"]));
        let peers: Vec<Peer> = (0..200).map(|i| peer(&format!("p{i}"), "10.0.0.2:8444")).collect();
        let changes = plan.welcomed("10.0.0.1:8444", &at("10.0.0.1:8444"), "d1", &peers);
        assert_eq!(changes.start.len(), limits::TARGETS - 1);
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        assert_eq!(host_of("mesh.example:8444"), Some("mesh.example"));
        assert_eq!(host_of("[::1]:8444"), Some("::1"));
        for wrong in ["mesh.example", "mesh.example:http", ":8444", "::1:8444", "[mesh]:1"] {
            assert_eq!(host_of(wrong), None, "{wrong}");
        }
    }
}
