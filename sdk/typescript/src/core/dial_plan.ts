import { isAddress, joinAddress, splitAddress } from "../address.js";
import type { Peer } from "../gen/portcullis/host/v1/host_pb.js";
import { MAX_TARGETS, PEER_DELAY } from "../limits.js";

/** Where a dispatcher listens. */
export interface Endpoint {
  /** host:port */
  readonly address: string;
  /** The name that its certificate must carry. */
  readonly serverName: string;
}

/** One dispatcher to hold a session to. */
export interface DialTarget {
  /** The address that a name resolved to, or the id of a peer. */
  readonly key: string;
  /** They are tried in turn. */
  readonly endpoints: readonly Endpoint[];
  /** Comes before the first dial, in milliseconds. */
  readonly delay: number;
  /** The id of the dispatcher if another one named it, else empty. */
  readonly peer: string;
}

/** Which loops to start and to stop. A stopped loop drains its session. */
export interface DialChanges {
  readonly start: readonly DialTarget[];
  readonly stop: readonly string[]; // Keys.
}

/** A loop that keeps a session to one dispatcher. */
interface Loop {
  readonly target: DialTarget;
  dispatcher: string; // Of the session; empty when there is none.
  peers: readonly DialTarget[]; // That this dispatcher named.
  stopping: boolean;
}

const NOTHING: DialChanges = { start: [], stop: [] };

/**
 * DialPlan decides which dispatchers a host dials: every address that the configured names resolve to, and every peer that a
 * dispatcher names. Of two sessions to one dispatcher the younger stays. Pure.
 */
export class DialPlan {
  readonly #names: readonly string[];
  readonly #serverName: string; // For all, from the options.
  readonly #targets = new Map<string, DialTarget[]>(); // By configured name.
  readonly #loops = new Map<string, Loop>(); // By key.
  readonly #met = new Map<string, string>(); // Id of the dispatcher that was last met, by key.

  constructor(names: readonly string[], serverName: string) {
    this.#names = names;
    this.#serverName = serverName;
  }

  /** resolved sets the IP addresses of a configured name, host:port. */
  resolved(name: string, ips: readonly string[]): DialChanges {
    const { host = "", port = "" } = splitAddress(name) ?? {};
    const targets = ips.map((ip) => {
      const address = joinAddress(ip, port);
      return { key: address, endpoints: [{ address, serverName: this.#serverName || host }], delay: 0, peer: "" };
    });
    this.#targets.set(name, targets);
    return this.#reconcile();
  }

  /** welcomed sets the dispatcher that a loop has met, and the peers that it names. An older session to the same one stops. */
  welcomed(key: string, at: Endpoint, dispatcher: string, peers: readonly Peer[]): DialChanges {
    const loop = this.#loops.get(key);
    if (!loop || loop.stopping) {
      return NOTHING;
    }
    loop.dispatcher = dispatcher;
    loop.peers = this.#peerTargets(at, peers, PEER_DELAY);
    this.#met.set(key, dispatcher);
    const older = this.#sorted().filter(([other, l]) => other !== key && holds(l, dispatcher));
    for (const [, l] of older) {
      l.stopping = true;
    }
    const { start, stop } = this.#reconcile();
    return { start, stop: [...older.map(([other]) => other), ...stop] };
  }

  /** leaving sets the peers that a dispatcher names as it leaves. They are dialled at once. */
  leaving(key: string, at: Endpoint, peers: readonly Peer[]): DialChanges {
    const loop = this.#loops.get(key);
    if (!loop || loop.stopping || peers.length === 0) {
      return NOTHING;
    }
    loop.peers = this.#peerTargets(at, peers, 0);
    return this.#reconcile();
  }

  /** ended notes that a loop has lost its session, or failed to get one. */
  ended(key: string): DialChanges {
    const loop = this.#loops.get(key);
    if (loop) {
      loop.dispatcher = "";
      loop.peers = [];
    }
    return this.#reconcile();
  }

  /** gone removes a loop that has stopped. */
  gone(key: string): DialChanges {
    this.#loops.delete(key);
    return this.#reconcile();
  }

  /** The state of the loops, for tests. */
  toString(): string {
    const loops = this.#sorted().map(([key, { dispatcher, stopping }]) => {
      return `${key} (${dispatcher || "dialling"}${stopping ? ", stopping" : ""})`;
    });
    return loops.join("; ");
  }

  /** A session never stops because its address is no longer named: the dispatcher there still wants to be served. */
  #reconcile(): DialChanges {
    const wanted = this.#wanted();
    const stop: string[] = [];
    for (const [key, loop] of this.#sorted()) {
      if (!wanted.has(key) && loop.dispatcher === "" && !loop.stopping) {
        loop.stopping = true;
        stop.push(key);
      }
    }
    const start: DialTarget[] = [];
    for (const [key, target] of [...wanted].sort(byKey)) {
      if (!this.#loops.has(key) && this.#loops.size < MAX_TARGETS) {
        this.#loops.set(key, { target, dispatcher: "", peers: [], stopping: false });
        start.push(target);
      }
    }
    this.#forget(wanted);
    return { start, stop };
  }

  /** The targets that should have a loop, by key. */
  #wanted(): Map<string, DialTarget> {
    const wanted = new Map<string, DialTarget>();
    const addresses = new Set<string>();
    for (const target of this.#names.flatMap((name) => this.#targets.get(name) ?? [])) {
      addresses.add(target.key);
      if (!wanted.has(target.key) && !this.#isElsewhere(target.key, this.#met.get(target.key) ?? "")) {
        wanted.set(target.key, target);
      }
    }
    for (const peer of this.#sorted().flatMap(([, loop]) => loop.peers)) {
      const known = peer.endpoints.some((e) => addresses.has(e.address));
      if (!known && !this.#isElsewhere(peer.key, peer.peer)) {
        wanted.set(peer.key, peer);
      }
    }
    return wanted;
  }

  /** Whether a loop other than `key` has a session to the dispatcher. */
  #isElsewhere(key: string, dispatcher: string): boolean {
    return [...this.#loops].some(([other, loop]) => other !== key && holds(loop, dispatcher));
  }

  /** Drops the ids met at addresses that are no longer named. */
  #forget(wanted: ReadonlyMap<string, DialTarget>): void {
    const named = new Set([...this.#targets.values()].flat().map((t) => t.key));
    for (const key of this.#met.keys()) {
      if (!wanted.has(key) && !named.has(key) && !this.#loops.has(key)) {
        this.#met.delete(key);
      }
    }
  }

  #peerTargets(at: Endpoint, peers: readonly Peer[], delay: number): DialTarget[] {
    return peers.slice(0, MAX_TARGETS).flatMap(({ dispatcherId, addresses }) => {
      const endpoints = addresses.slice(0, MAX_TARGETS).flatMap((address) => {
        const host = splitAddress(address)?.host;
        return host === undefined ? [] : [{ address, serverName: this.#peerName(host, at.serverName) }];
      });
      return endpoints.length === 0 ? [] : [{ key: `peer ${dispatcherId}`, endpoints, delay, peer: dispatcherId }];
    });
  }

  /** Certificates seldom hold the addresses of Pods: a peer known by its IP address alone carries the name of who named it. */
  #peerName(host: string, namer: string): string {
    return this.#serverName || (isAddress(host) && !isAddress(namer) ? namer : host);
  }

  #sorted(): [string, Loop][] {
    return [...this.#loops].sort(byKey);
  }
}

function holds(loop: Loop, dispatcher: string): boolean {
  return dispatcher !== "" && loop.dispatcher === dispatcher && !loop.stopping;
}

function byKey([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : 1;
}
