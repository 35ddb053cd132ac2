/** The test host of the conformance suite: sdk/conformance/README.md says what it is asked and what it answers. */

import { Console } from "node:console";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { AlwaysOnSampler, BasicTracerProvider, type ReadableSpan } from "@opentelemetry/sdk-trace-base";
import { parse, stringify } from "lossless-json";
import {
  allow,
  type Cause,
  change,
  type Decision,
  Denied,
  deny,
  difference,
  type Extras,
  HandlerError,
  Host,
  type HostOptions,
  type KubernetesObject,
  type Operation,
  patch,
  plaintext,
  type Request,
  setLabel,
  type TLSFiles,
  tlsFiles,
} from "../src/index.js";

interface Config {
  readonly name: string;
  readonly instance: string;
  readonly zone: string;
  readonly clusters: readonly string[];
  readonly dispatchers: readonly string[];
  readonly serverName: string;
  readonly tls: TLSFiles | null;
  readonly maxOutstanding: number;
  readonly maxFrameBytes: number;
  readonly drainTimeoutMs: number;
  readonly validate: readonly string[];
  readonly mutate: readonly string[];
  readonly initialize: readonly string[];
  readonly speculate: readonly string[];
  readonly unready: readonly string[];
}

interface Script {
  readonly hold?: string;
  readonly waitMs?: number;
  readonly blockMs?: number;
  readonly deny?: {
    readonly message: string;
    readonly thrown?: boolean;
    readonly code?: number;
    readonly reason?: string;
    readonly causes?: Cause[];
  };
  readonly patch?: readonly Operation[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly become?: object;
  readonly error?: string;
  readonly fail?: string;
  readonly panic?: string;
  readonly warnings?: readonly string[];
  readonly audit?: Readonly<Record<string, string>>;
  readonly echo?: boolean;
}

const config = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as Config;
const released = new Set<string>();
const held = new Map<string, Set<() => void>>();
const unready = new Set(config.unready);
const stop = new AbortController();

function say(event: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function release(name: string): void {
  released.add(name);
  for (const resolve of held.get(name) ?? []) {
    resolve();
  }
  held.delete(name);
}

/** Waits until a name is released, and throws when the signal aborts. */
function hold(name: string, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  if (released.has(name)) {
    return Promise.resolve();
  }
  return new Promise((resolve, reject) => {
    const waiting = held.get(name) ?? new Set();
    held.set(name, waiting.add(resolve));
    signal.addEventListener("abort", () => {
      waiting.delete(resolve);
      reject(signal.reason);
    });
  });
}

function handle(request: Request): Promise<Decision> {
  const remaining = Math.floor(request.remainingMs);
  return follow(request, (script) =>
    decide(request, script, {
      ...(script.warnings ? { warnings: script.warnings } : {}),
      ...(script.audit ? { audit: script.audit } : {}),
      ...(script.echo ? { audit: { ...script.audit, ...echo(request, remaining) } } : {}),
    }),
  );
}

/** An initializer does what the script says, as far as that is about the object. */
function initialize(object: KubernetesObject, request: Request): Promise<KubernetesObject | Decision> {
  return follow(request, ({ patch: _, ...script }) => {
    if (script.labels && !script.deny) {
      label(object, script.labels);
      return object;
    }
    if (script.become && !script.deny) {
      return script.become;
    }
    const decision = decide(request, script, {});
    return decision.allowed ? object : decision;
  });
}

/** Waits as the script says, and answers. */
async function follow<T>(request: Request, answer: (script: Script) => T): Promise<T> {
  say({ event: "called", hook: request.hook });
  let cancelled = false;
  try {
    const script = ((request.object ?? request.oldObject)?.script ?? {}) as Script;
    try {
      if (script.hold !== undefined) {
        await hold(script.hold, request.signal);
      }
      if (script.waitMs !== undefined) {
        await sleep(script.waitMs, undefined, { signal: request.signal });
      }
    } catch (error) {
      cancelled = request.signal.aborted;
      throw error;
    }
    if (script.blockMs !== undefined) {
      await sleep(script.blockMs);
    }
    return answer(script);
  } finally {
    say({ event: "returned", hook: request.hook, cancelled });
  }
}

function decide(request: Request, script: Script, extras: Extras): Decision {
  if (script.deny) {
    const { message, thrown, ...options } = script.deny;
    if (thrown === true) {
      throw new Denied(message, { ...options, ...extras });
    }
    return deny(message, { ...options, ...extras });
  }
  if (script.patch) {
    return patch(losslessPatch(request), extras);
  }
  if (script.labels) {
    const { labels } = script;
    return change(request, (object) => label(object, labels), extras);
  }
  if (script.become) {
    return difference(request, script.become, extras);
  }
  if (script.error !== undefined) {
    throw new HandlerError(script.error);
  }
  if (script.fail !== undefined) {
    throw new Error(script.fail);
  }
  if (script.panic !== undefined) {
    throw new TypeError(script.panic);
  }
  return allow(extras);
}

function label(object: KubernetesObject, labels: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(labels)) {
    setLabel(object, name, value);
  }
}

/** The patch of the script, with integers beyond 2^53 as they were written. */
function losslessPatch(request: Request): string {
  const raw = new TextDecoder().decode(request.rawObject ?? request.rawOldObject);
  const { script } = parse(raw) as { script: { patch: unknown } };
  return stringify(script.patch) ?? "[]";
}

function echo(request: Request, remaining: number): Record<string, string> {
  const span = trace.getActiveSpan() as Partial<ReadableSpan> | undefined;
  const parent = span?.parentSpanContext;
  return {
    uid: request.uid,
    cluster: request.cluster,
    namespace: request.namespace,
    name: request.name,
    operation: request.operation,
    username: request.username,
    "dry-run": String(request.dryRun),
    round: String(request.round),
    mode: `MODE_${request.mode.toUpperCase()}`,
    configuration: request.configuration,
    "object-sha256": digest(request.rawObject),
    "old-object-sha256": digest(request.rawOldObject),
    "remaining-ms": String(remaining),
    traceparent: parent ? `${parent.traceId}-${parent.spanId}` : "",
  };
}

function digest(raw: Uint8Array | undefined): string {
  return raw ? createHash("sha256").update(raw).digest("hex") : "";
}

/** A 0 means the default, and logs go to standard error. */
function hostOptions(): HostOptions {
  const { tls, validate: _v, mutate: _m, initialize: _i, speculate: _s, unready: _u, ...rest } = config;
  const options = Object.entries(rest).filter(([, value]) => value !== 0);
  const logger = { ...new Console(process.stderr), debug() {} };
  return { ...(Object.fromEntries(options) as typeof rest), tls: tls ? tlsFiles(tls) : plaintext(), logger };
}

function newHost(): Host {
  const host = new Host(hostOptions());
  for (const name of config.validate) {
    host.validate(name, handle, optionsOf(name));
  }
  for (const name of config.mutate) {
    host.mutate(name, handle, optionsOf(name));
  }
  for (const name of config.initialize) {
    host.initialize(name, initialize, optionsOf(name));
  }
  return host;
}

function optionsOf(name: string): { speculate: boolean; ready?: () => void } {
  const speculate = config.speculate.includes(name);
  return config.unready.includes(name) ? { speculate, ready: () => whenReady(name) } : { speculate };
}

function whenReady(name: string): void {
  if (unready.has(name)) {
    throw new HandlerError("not ready");
  }
}

function listen(): void {
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const command = JSON.parse(line) as { do: string; name?: string; hook?: string };
    switch (command.do) {
      case "release":
        release(command.name ?? "");
        break;
      case "ready":
        unready.delete(command.hook ?? "");
        break;
      case "drain":
        stop.abort();
    }
  });
  lines.on("close", () => process.exit(3));
}

/** Spans need a provider to have parents, and handlers a context manager to know their span. */
function traced(): void {
  trace.setGlobalTracerProvider(new BasicTracerProvider({ sampler: new AlwaysOnSampler() }));
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
}

async function main(): Promise<void> {
  traced();
  listen();
  let error = "";
  try {
    const host = newHost();
    void host.ready().then(() => say({ event: "ready" }));
    await host.run({ signal: stop.signal, stopOn: ["SIGTERM"] });
  } catch (e) {
    error = String(e);
  }
  process.stdout.write(`${JSON.stringify({ event: "ended", error })}\n`, () => process.exit(error === "" ? 0 : 1));
}

await main();
