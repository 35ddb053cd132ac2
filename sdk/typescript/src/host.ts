import { randomBytes } from "node:crypto";
import { lookup } from "node:dns/promises";
import { hostname } from "node:os";
import { create } from "@bufbuild/protobuf";
import { splitAddress } from "./address.js";
import { Board, type Status } from "./board.js";
import { Budget } from "./budget.js";
import { type Clock, systemClock } from "./clock.js";
import { hookKey } from "./core/calls.js";
import { CAPABILITY_BATCHES, CAPABILITY_CHUNKS, PROTOCOL } from "./core/session.js";
import { HostError } from "./error.js";
import { HelloSchema } from "./gen/portcullis/host/v1/host_pb.js";
import {
  type Handler,
  type Handlers,
  type Hook,
  type HookOptions,
  handlerOf,
  type Initializer,
  initializing,
  type MutateOptions,
  wireStage,
} from "./hook.js";
import {
  DEFAULT_DRAIN_TIMEOUT,
  DEFAULT_MAX_FRAME_BYTES,
  DEFAULT_MAX_OUTSTANDING,
  HANDLER_GRACE,
  MAX_HOOKS,
} from "./limits.js";
import { consoleLogger, type Logger } from "./logger.js";
import { Manager } from "./manager.js";
import type { KubernetesObject, Stage } from "./request.js";
import { Runner } from "./runner.js";
import { Session, type SessionParts } from "./session.js";
import type { OpenStream } from "./stream.js";
import { type Providers, Telemetry } from "./telemetry.js";
import type { Security } from "./tls.js";

const SDK = "portcullis-typescript";
const SDK_VERSION = "0.1.0";

/** OLDEST_NODE is the major version of Node.js that package.json asks for. npm only warns of an older one. */
const OLDEST_NODE = 22;

/** What a host is, and where its dispatchers are. */
export interface HostOptions extends Providers {
  /** Name of the program, the same for all its replicas, for example `imagepolicy`. */
  readonly name: string;
  /** Addresses of the dispatchers, host:port. Each IP address of a host is a dispatcher of its own. Required for `run`. */
  readonly dispatchers?: readonly string[];
  /** How sessions are secured: `tlsFiles`, `tlsOptions`, or `plaintext` in tests. Required for `run`. */
  readonly tls?: Security;
  /** The name that every dispatcher's certificate must carry; that of its address if absent. */
  readonly serverName?: string;
  /** Names this process among its replicas; the host name and a random suffix if absent. */
  readonly instance?: string;
  /** Failure domain that the process runs in. */
  readonly zone?: string;
  /** Clusters that the host wants to serve; all that it is granted if absent. */
  readonly clusters?: readonly string[];
  /** How many calls the host takes at a time, over all its sessions; 64 if absent. */
  readonly maxOutstanding?: number;
  /** The largest review that the host takes, in bytes; 16 MiB if absent. */
  readonly maxFrameBytes?: number;
  /** How long the calls in flight may take once the host leaves, in milliseconds; 10,000 if absent. */
  readonly drainTimeoutMs?: number;
  /** Receives what the operator of the host should know; `console` if absent. */
  readonly logger?: Logger;
  /** Turns the host of an address into IP addresses; the system's resolver if absent. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
  /** The time; for tests. */
  readonly clock?: Clock;
}

/** When a host leaves. */
export interface RunOptions {
  /** The host drains when it aborts. */
  readonly signal?: AbortSignal;
  /** The host drains when the process gets one of these, for example `["SIGTERM", "SIGINT"]`. A second one ends the process. */
  readonly stopOn?: readonly NodeJS.Signals[];
}

/** Host serves hooks. Register them with `validate`, `mutate` and `initialize`, then call `run` once. */
export class Host {
  readonly #options: HostOptions;
  readonly #logger: Logger;
  readonly #clock: Clock;
  readonly #board: Board;
  readonly #hooks = new Map<string, Hook>();
  #started: SessionParts | undefined;

  /** Makes a host without hooks. It connects to nothing yet. Throws a HostError if an option is wrong. */
  constructor(options: HostOptions) {
    check(options);
    this.#options = options;
    this.#logger = options.logger ?? consoleLogger;
    this.#clock = options.clock ?? systemClock;
    this.#board = new Board(this.#logger);
  }

  /**
   * validate registers a validating hook, by the name that the hook has in its configuration: with a handler, or with one for each operation.
   * `T` is the type of its objects. Throws a HostError if it cannot be registered.
   */
  validate<T extends object = KubernetesObject>(
    name: string,
    handler: Handler<T> | Handlers<T>,
    options: HookOptions = {},
  ): this {
    return this.#register("validate", name, handlerOf(handler), options);
  }

  /** mutate registers a mutating hook, likewise. */
  mutate<T extends object = KubernetesObject>(
    name: string,
    handler: Handler<T> | Handlers<T>,
    options: MutateOptions = {},
  ): this {
    return this.#register("mutate", name, handlerOf(handler), options);
  }

  /**
   * initialize registers an initializer, by the name that it has in its InitializerConfiguration. It is called for objects to be created
   * only, and before the mutating hooks. Each object is initialized by one replica; another takes it over if that one is lost.
   */
  initialize<T extends object = KubernetesObject>(
    name: string,
    initializer: Initializer<T>,
    options: HookOptions = {},
  ): this {
    return this.#register("initialize", name, initializing(initializer), options);
  }

  /**
   * run serves the hooks on a session to every dispatcher, until it is told to stop. Then it announces that it leaves, and finishes
   * the calls in flight. Lost and refused sessions are logged and dialled again. It rejects with a HostError if the host cannot
   * start, and with a CutOffError if calls were cut off at the end.
   */
  async run(options: RunOptions = {}): Promise<void> {
    const { dispatchers = [], tls, serverName = "", resolve = resolveAll } = this.#options;
    if (dispatchers.length === 0) {
      throw new HostError("options.dispatchers is empty: name the dispatchers, host:port");
    }
    if (!tls) {
      throw new HostError("options.tls is not set: use tlsFiles, or plaintext in tests");
    }
    const parts = this.#start();
    // A fault at the start is thrown at once; a later one may be corrected while the host runs.
    await tls.load();
    const stop = new AbortController();
    const forget = abortOn(stop, options);
    try {
      const manager = new Manager({ dispatchers, serverName, tls, resolve, parts, board: this.#board });
      await manager.serve(stop.signal);
    } finally {
      forget();
      await this.#handlersReturned(parts);
    }
  }

  /**
   * serve serves the hooks on one stream, until it ends, or until `stop` aborts and the session has drained. It rejects if the end is
   * not clean. For transports other than gRPC, and for tests; `run` does all that a host in production needs.
   */
  async serve(open: OpenStream, stop: AbortSignal): Promise<void> {
    const parts = this.#start();
    try {
      await new Session(parts, this.#board).serve(open, stop);
    } finally {
      await this.#handlersReturned(parts);
    }
  }

  /** ready resolves once every hook is in rotation with at least one dispatcher. A readiness check of the Pod should wait for it. */
  ready(): Promise<void> {
    return this.#board.ready;
  }

  /** status is how the host stands with its dispatchers now. */
  status(): Status {
    return this.#board.status();
  }

  #register<T extends object>(stage: Stage, name: string, handler: Handler<T>, options: MutateOptions): this {
    const key = hookKey(name, wireStage(stage));
    if (this.#started) {
      throw new HostError(`hook ${JSON.stringify(name)} was registered after the host had started`);
    }
    if (name === "" || !name.isWellFormed()) {
      throw new HostError(`hook name ${JSON.stringify(name)} is empty or not valid Unicode`);
    }
    if (this.#hooks.has(key)) {
      throw new HostError(`hook ${JSON.stringify(name)} was registered twice to ${stage}`);
    }
    if (this.#hooks.size >= MAX_HOOKS) {
      throw new HostError(`hook ${JSON.stringify(name)} is one more than the ${MAX_HOOKS} that a host may offer`);
    }
    this.#hooks.set(key, { ...options, name, stage, handler: handler as unknown as Handler<never> });
    return this;
  }

  /** Fixes the hooks. */
  #start(): SessionParts {
    if (this.#hooks.size === 0) {
      throw new HostError("the host has no hooks: register some with validate, mutate or initialize");
    }
    this.#board.expect(this.#hooks.keys());
    this.#started ??= this.#parts();
    return this.#started;
  }

  #parts(): SessionParts {
    const o = this.#options;
    const slots = o.maxOutstanding ?? DEFAULT_MAX_OUTSTANDING;
    const hello = create(HelloSchema, {
      protocolMin: PROTOCOL,
      protocolMax: PROTOCOL,
      host: o.name,
      instance: o.instance || `${hostname()}-${randomBytes(4).toString("hex")}`,
      sdk: SDK,
      sdkVersion: SDK_VERSION,
      hooks: [...this.#hooks.values()].map(({ name, stage, speculate = false }) => {
        return { name, stage: wireStage(stage), speculate };
      }),
      maxFrameBytes: o.maxFrameBytes ?? DEFAULT_MAX_FRAME_BYTES,
      clusters: [...(o.clusters ?? [])],
      capabilities: [CAPABILITY_BATCHES, CAPABILITY_CHUNKS],
      zone: o.zone ?? "",
    });
    return {
      hello,
      hooks: this.#hooks,
      drainTimeout: o.drainTimeoutMs ?? DEFAULT_DRAIN_TIMEOUT,
      budget: new Budget(slots),
      runner: new Runner(slots, this.#clock, this.#logger, new Telemetry(o)),
      clock: this.#clock,
      logger: this.#logger,
    };
  }

  /** Waits for handlers whose signals have aborted. */
  #handlersReturned({ runner }: SessionParts): Promise<void> {
    return new Promise((resolve) => {
      const stop = this.#clock.after(HANDLER_GRACE, () => {
        this.#logger.warn({ handlers: runner.running }, "handlers did not return although their signals had aborted");
        resolve();
      });
      runner.whenIdle(() => {
        stop();
        resolve();
      });
    });
  }
}

function check(o: HostOptions): void {
  const { node } = process.versions;
  if (Number.parseInt(node, 10) < OLDEST_NODE) {
    throw new HostError(`Node.js ${node} is too old: @portcullis-mesh/host needs ${OLDEST_NODE} or newer`);
  }
  if (!o.name) {
    throw new HostError('options.name is empty: name the program, for example "imagepolicy"');
  }
  for (const name of ["dispatchers", "clusters"] as const) {
    if (typeof o[name] === "string") {
      throw new HostError(`options.${name} is a text: want a list`);
    }
  }
  for (const text of [o.name, o.instance ?? "", o.zone ?? "", ...(o.clusters ?? [])]) {
    if (!text.isWellFormed()) {
      throw new HostError(`options: ${JSON.stringify(text)} is not valid Unicode`);
    }
  }
  for (const address of o.dispatchers ?? []) {
    if (!splitAddress(address)) {
      throw new HostError(`options.dispatchers: ${JSON.stringify(address)}: want host:port`);
    }
  }
  for (const name of ["maxOutstanding", "maxFrameBytes", "drainTimeoutMs"] as const) {
    const limit = o[name] ?? 1;
    if (!(Number.isInteger(limit) && limit > 0 && limit < 2 ** 31)) {
      throw new HostError(
        `options.${name} is ${limit}: want a whole number from 1 to 2^31 - 1, or none for the default`,
      );
    }
  }
}

async function resolveAll(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}

/** Aborts `stop` on what the options say. The result forgets them. */
function abortOn(stop: AbortController, { signal, stopOn = [] }: RunOptions): () => void {
  const leave = (): void => stop.abort();
  if (signal?.aborted) {
    leave();
  }
  signal?.addEventListener("abort", leave, { once: true });
  for (const name of stopOn) {
    process.once(name, leave);
  }
  return () => {
    signal?.removeEventListener("abort", leave);
    for (const name of stopOn) {
      process.removeListener(name, leave);
    }
  };
}
