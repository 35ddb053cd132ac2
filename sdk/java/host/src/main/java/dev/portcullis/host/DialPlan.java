package dev.portcullis.host;

import dev.portcullis.host.v1.Peer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Decides which dispatchers a host dials: every address that the configured names resolve to, and
 * every peer that a dispatcher names. Of two sessions to one dispatcher the younger stays. It is
 * pure; one caller at a time.
 *
 * <p>Each method returns the loops to start and to stop. A stopped loop drains its session.
 */
final class DialPlan {
  /**
   * Where a dispatcher listens.
   *
   * @param serverName that its certificate must carry
   */
  record Endpoint(HostPort address, String serverName) {}

  /**
   * One dispatcher to hold a session to.
   *
   * @param key the address that a name resolved to, or the id of a peer
   * @param endpoints are tried in turn
   * @param delay comes before the first dial, in nanoseconds
   * @param peer the id of the dispatcher if another one named it, else empty
   */
  record Target(String key, List<Endpoint> endpoints, long delay, String peer) {}

  /** What to do. */
  record Changes(List<Target> start, List<String> stop) {
    static final Changes NONE = new Changes(List.of(), List.of());
  }

  /** A running loop in the plan. */
  private static final class Loop {
    String dispatcher = ""; // of the session; empty when there is none
    List<Target> peers = List.of(); // that this dispatcher named
    boolean stopping;

    boolean holds(String id) {
      return !id.isEmpty() && dispatcher.equals(id) && !stopping;
    }
  }

  private final String serverName; // for all; may be empty
  private final List<HostPort> names;
  private final Map<HostPort, List<Target>> resolved = new HashMap<>();
  private final TreeMap<String, Loop> loops = new TreeMap<>(); // by key
  private final Map<String, String> met = new HashMap<>(); // id of the dispatcher met last, by key

  DialPlan(List<HostPort> names, String serverName) {
    this.names = names;
    this.serverName = serverName;
  }

  /** Sets the IP addresses of a configured name. */
  Changes resolved(HostPort name, List<String> ips) {
    String expected = serverName.isEmpty() ? name.host() : serverName;
    List<Target> targets = new ArrayList<>();
    for (String ip : ips) {
      HostPort address = new HostPort(ip, name.port());
      Endpoint endpoint = new Endpoint(address, expected);
      targets.add(new Target(address.toString(), List.of(endpoint), 0, ""));
    }
    resolved.put(name, targets);
    return reconcile();
  }

  /**
   * Sets the dispatcher that a loop has met at an endpoint, and the peers that it names. It stops
   * an older session to the same dispatcher.
   */
  Changes welcomed(String key, Endpoint at, String dispatcher, List<Peer> peers) {
    Loop loop = loops.get(key);
    if (loop == null || loop.stopping) {
      return Changes.NONE;
    }
    loop.dispatcher = dispatcher;
    loop.peers = peerTargets(at, peers, Limits.PEER_DELAY);
    met.put(key, dispatcher);
    List<String> stop = new ArrayList<>();
    loops.forEach(
        (otherKey, other) -> {
          if (!otherKey.equals(key) && other.holds(dispatcher)) {
            other.stopping = true;
            stop.add(otherKey);
          }
        });
    Changes changes = reconcile();
    stop.addAll(changes.stop());
    return new Changes(changes.start(), stop);
  }

  /** Sets the peers that a dispatcher names as it leaves. They are dialled at once. */
  Changes leaving(String key, Endpoint at, List<Peer> peers) {
    Loop loop = loops.get(key);
    if (loop == null || loop.stopping || peers.isEmpty()) {
      return Changes.NONE;
    }
    loop.peers = peerTargets(at, peers, 0);
    return reconcile();
  }

  /** Notes that a loop has lost its session, or failed to get one. */
  Changes ended(String key) {
    Loop loop = loops.get(key);
    if (loop != null) {
      loop.dispatcher = "";
      loop.peers = List.of();
    }
    return reconcile();
  }

  /** Removes a loop that has stopped. */
  Changes gone(String key) {
    loops.remove(key);
    return reconcile();
  }

  /** The loops and the dispatchers that they have met, for tests. */
  List<String> describe() {
    List<String> out = new ArrayList<>();
    loops.forEach(
        (key, loop) -> {
          String state = loop.dispatcher.isEmpty() ? "dialling" : loop.dispatcher;
          out.add(String.format("%s (%s%s)", key, state, loop.stopping ? ", stopping" : ""));
        });
    return out;
  }

  /** How much the plan remembers, for tests. */
  int size() {
    return loops.size() + met.size();
  }

  /**
   * Compares the loops with the targets. It never stops a session because its address is no longer
   * named: the dispatcher there still wants to be served.
   */
  private Changes reconcile() {
    Map<String, Target> wanted = wanted();
    List<String> stop = new ArrayList<>();
    loops.forEach(
        (key, loop) -> {
          if (!wanted.containsKey(key) && loop.dispatcher.isEmpty() && !loop.stopping) {
            loop.stopping = true;
            stop.add(key);
          }
        });
    List<Target> start = new ArrayList<>();
    wanted.forEach(
        (key, target) -> {
          if (!loops.containsKey(key) && loops.size() < Limits.MAX_TARGETS) {
            loops.put(key, new Loop());
            start.add(target);
          }
        });
    forget(wanted);
    return new Changes(start, stop);
  }

  /** The targets that should have a loop, by key. */
  private Map<String, Target> wanted() {
    TreeMap<String, Target> wanted = new TreeMap<>();
    Set<String> addresses = new HashSet<>();
    for (HostPort name : names) {
      for (Target target : resolved.getOrDefault(name, List.of())) {
        addresses.add(target.key());
        if (!elsewhere(target.key(), met.getOrDefault(target.key(), ""))) {
          wanted.putIfAbsent(target.key(), target);
        }
      }
    }
    for (Loop loop : loops.values()) {
      for (Target peer : loop.peers) {
        boolean known =
            peer.endpoints().stream().anyMatch(e -> addresses.contains(e.address().toString()));
        if (!known && !elsewhere(peer.key(), peer.peer())) {
          wanted.put(peer.key(), peer);
        }
      }
    }
    return wanted;
  }

  /** Whether another loop has a session to the dispatcher. */
  private boolean elsewhere(String key, String dispatcher) {
    return loops.entrySet().stream()
        .anyMatch(other -> !other.getKey().equals(key) && other.getValue().holds(dispatcher));
  }

  /** Drops the ids met at addresses that are no longer named. */
  private void forget(Map<String, Target> wanted) {
    Set<String> named = new HashSet<>(wanted.keySet());
    named.addAll(loops.keySet());
    resolved.values().forEach(targets -> targets.forEach(target -> named.add(target.key())));
    met.keySet().retainAll(named);
  }

  /** The targets of peers that the dispatcher at an endpoint names. */
  private List<Target> peerTargets(Endpoint at, List<Peer> peers, long delay) {
    List<Target> targets = new ArrayList<>();
    for (Peer peer : peers.subList(0, Math.min(peers.size(), Limits.MAX_TARGETS))) {
      List<Endpoint> endpoints =
          peer.getAddressesList().stream()
              .limit(Limits.MAX_TARGETS)
              .flatMap(text -> HostPort.parse(text).stream())
              .map(address -> new Endpoint(address, peerName(address, at.serverName())))
              .toList();
      if (!endpoints.isEmpty()) {
        String id = peer.getDispatcherId();
        targets.add(new Target("peer " + id, endpoints, delay, id));
      }
    }
    return targets;
  }

  /**
   * The name that the certificate of a peer must carry. Certificates seldom hold the addresses of
   * Pods: a peer that is known by its IP address alone carries the name of the dispatcher that
   * named it.
   */
  private String peerName(HostPort peer, String namer) {
    if (!serverName.isEmpty()) {
      return serverName;
    }
    return HostPort.isIp(peer.host()) && !HostPort.isIp(namer) ? namer : peer.host();
  }
}
