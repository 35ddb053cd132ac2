import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { suite, test } from "node:test";
import { createServer } from "node:tls";
import { Code, ConnectError } from "@connectrpc/connect";
import * as x509 from "@peculiar/x509";
import { deferred } from "../src/deferred.js";
import {
  allow,
  CutOffError,
  type Decision,
  Host,
  type HostOptions,
  type Logger,
  plaintext,
  tlsFiles,
  tlsOptions,
} from "../src/index.js";
import { Authority } from "./support/authority.js";
import { createRequest } from "./support/dispatcher.js";
import { GrpcDispatcher } from "./support/grpc_dispatcher.js";

const pod = createRequest({ kind: "Pod" });

/** Logs as lines, and a promise of the first one that matches. */
function listen(): { logger: Logger; line: (pattern: RegExp) => Promise<string> } {
  const seen: string[] = [];
  const waiting: { pattern: RegExp; resolve: (line: string) => void }[] = [];
  const log = (fields: Readonly<Record<string, unknown>>, message: string) => {
    const line = `${message} ${JSON.stringify(fields)}`;
    seen.push(line);
    for (const { pattern, resolve } of waiting) {
      if (pattern.test(line)) {
        resolve(line);
      }
    }
  };
  const line = (pattern: RegExp) => {
    const found = seen.find((l) => pattern.test(l));
    return found === undefined
      ? new Promise<string>((resolve) => waiting.push({ pattern, resolve }))
      : Promise.resolve(found);
  };
  return { logger: { debug: log, info: log, warn: log, error: log }, line };
}

/** Run is a host that runs until it is stopped. */
class Run implements AsyncDisposable {
  readonly line: (pattern: RegExp) => Promise<string>;
  readonly host: Host;
  readonly stop = new AbortController();
  readonly ended: Promise<void>;

  constructor(
    options: Partial<HostOptions>,
    handler: (signal: AbortSignal) => Decision | Promise<Decision> = () => allow(),
  ) {
    const { logger, line } = listen();
    this.line = line;
    this.host = new Host({ name: "test", tls: plaintext(), logger, ...options });
    this.host.validate("v", ({ signal }) => handler(signal));
    this.ended = this.host.run({ signal: this.stop.signal });
    this.ended.catch(() => {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stop.abort();
    await this.ended.catch(() => {});
  }
}

suite("over TLS", () => {
  test("the identity is a SPIFFE name, and an address is dialled by another name", async () => {
    const authority = await Authority.create();
    const identity = { ...(await authority.issue("dns", "mesh.internal")), ca: authority.ca };
    await using mesh = await GrpcDispatcher.listen({ identity });
    const tls = tlsFiles(authority.write(await authority.issue("url", "spiffe://mesh/host")));
    await using run = new Run({ dispatchers: [mesh.address], serverName: "mesh.internal", tls });
    const session = await mesh.accept();
    assert.equal(session.identity, "URI:spiffe://mesh/host");
    assert.equal((await session.review("v", pod)).allowed, true);
    await run.host.ready();
  });

  test("a dispatcher with another name is refused, and so is one of another authority", async () => {
    const [authority, other] = await Promise.all([Authority.create(), Authority.create()]);
    const client = await authority.issue("url", "spiffe://mesh/host");
    await using named = await GrpcDispatcher.listen({
      identity: { ...(await authority.issue("dns", "mesh.internal")), ca: authority.ca },
    });
    await using foreign = await GrpcDispatcher.listen({
      identity: { ...(await other.issue("ip", "127.0.0.1")), ca: authority.ca },
    });
    await using run = new Run({
      dispatchers: [named.address, foreign.address],
      tls: tlsFiles(authority.write(client)),
    });
    assert.match(
      await run.line(new RegExp(`no session.*${named.port}`)),
      /this host refused the dispatcher: Hostname.*altnames/,
    );
    assert.match(
      await run.line(new RegExp(`no session.*${foreign.port}`)),
      /this host refused the dispatcher: .*(self-signed|unable to verify|signature failure)/,
    );
  });

  suite("the log says who refused whom, and why", () => {
    const HOUR = 3_600_000;
    const soon = new Date(Date.now() + HOUR);
    const ago = new Date(Date.now() - HOUR);
    const url = new x509.SubjectAlternativeNameExtension([{ type: "url", value: "spiffe://mesh/host" }]);
    const forServers = new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]);
    const cases: [string, object, RegExp][] = [
      ["expired", { notBefore: new Date(0), notAfter: ago }, /the certificate of this host ended at /],
      ["not yet valid", { notBefore: soon, notAfter: new Date(Date.now() + 2 * HOUR) }, /is not valid before /],
      [
        "of no usage",
        { extensions: [url, forServers] },
        /the certificate of this host is for servers, not for clients/,
      ],
      ["of no identity", { extensions: [] }, /the certificate of this host has no identity/],
    ];
    for (const [name, more, message] of cases) {
      test(`a certificate ${name}`, async () => {
        const authority = await Authority.create();
        const own = await authority.issue("url", "spiffe://mesh/host", more);
        await using run = new Run({
          dispatchers: ["127.0.0.1:1"],
          tls: tlsOptions(() => ({ ...own, ca: authority.ca })),
        });
        assert.match(await run.line(/no session/), message);
      });
    }

    test("a key of another certificate", async () => {
      const authority = await Authority.create();
      const [{ cert }, { key }] = await Promise.all([authority.issue("url", "a:b"), authority.issue("url", "a:b")]);
      await using run = new Run({
        dispatchers: ["127.0.0.1:1"],
        tls: tlsOptions(() => ({ cert, key, ca: authority.ca })),
      });
      assert.match(await run.line(/no session/), /the key of this host is not that of its certificate/);
    });

    test("an alert", async () => {
      const authority = await Authority.create();
      const server = createServer({ ...(await authority.issue("ip", "127.0.0.1")), maxVersion: "TLSv1.2" });
      const listening = deferred();
      server.listen(0, "127.0.0.1", () => listening.resolve());
      await listening.promise;
      const { port } = server.address() as AddressInfo;
      const own = await authority.issue("url", "spiffe://mesh/host");
      {
        const tls = tlsOptions(() => ({ ...own, ca: authority.ca }));
        await using run = new Run({ dispatchers: [`127.0.0.1:${port}`], tls });
        assert.match(await run.line(/no session/), /the dispatcher refused this host: .*alert/);
      }
      server.close();
    });
  });

  test("the files are read anew at each dial", async () => {
    const authority = await Authority.create();
    const identity = { ...(await authority.issue("ip", "127.0.0.1")), ca: authority.ca };
    await using mesh = await GrpcDispatcher.listen({ identity });
    const tls = tlsFiles(authority.write(await authority.issue("url", "spiffe://mesh/old")));
    await using _run = new Run({ dispatchers: [mesh.address], tls });
    const old = await mesh.accept();
    assert.equal(old.identity, "URI:spiffe://mesh/old");
    authority.write(await authority.issue("url", "spiffe://mesh/new"));
    old.close(new ConnectError("expired", Code.Unauthenticated));
    assert.equal((await mesh.accept()).identity, "URI:spiffe://mesh/new");
  });

  test("files that are missing at the start end run", async () => {
    const tls = tlsFiles({ cert: "/none", key: "/none", ca: "/none" });
    await using run = new Run({ dispatchers: ["127.0.0.1:1"], tls });
    await assert.rejects(run.ended, /ENOENT/);
  });
});

suite("over sockets", () => {
  test("every dispatcher has a session, and the capacity is divided", async () => {
    await using a = await GrpcDispatcher.listen({ welcome: { dispatcherId: "a" } });
    await using b = await GrpcDispatcher.listen({ welcome: { dispatcherId: "b" } });
    await using run = new Run({ dispatchers: [a.address, b.address] });
    const [first, second] = await Promise.all([a.accept(), b.accept()]);
    await Promise.all([first.ping(), second.ping()]);
    assert.deepEqual([first.credit, second.credit], [32, 32]);
    assert.deepEqual(
      run.host.status().sessions.map((s) => s.dispatcher),
      ["a", "b"],
    );
  });

  test("a peer that a dispatcher names is dialled, also when it leaves", async () => {
    await using b = await GrpcDispatcher.listen({ welcome: { dispatcherId: "b" } });
    await using a = await GrpcDispatcher.listen({ welcome: { dispatcherId: "a" } });
    await using _run = new Run({ dispatchers: [a.address] });
    const first = await a.accept();
    const peers = [{ $typeName: "portcullis.host.v1.Peer" as const, dispatcherId: "b", addresses: [b.address] }];
    first.send({ case: "drain", value: { $typeName: "portcullis.host.v1.DispatcherDrain", graceMs: 10_000, peers } });
    const second = await b.accept();
    assert.equal((await second.review("v", pod)).allowed, true);
    assert.equal((await first.review("v", pod)).allowed, true);
  });

  test("of two ways to one dispatcher the younger session stays", async () => {
    await using a = await GrpcDispatcher.listen({ welcome: { dispatcherId: "same" } });
    await using b = await GrpcDispatcher.listen({ welcome: { dispatcherId: "same" } });
    await using _run = new Run({ dispatchers: [a.address, b.address] });
    const sessions = await Promise.all([a.accept(), b.accept()]);
    await Promise.race(sessions.map((session) => session.drained));
  });

  test("a dispatcher that was killed is dialled again, and handlers of its time are aborted", async () => {
    const aborted = deferred<unknown>();
    const called = deferred();
    const handler = (signal: AbortSignal) =>
      new Promise<Decision>((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          aborted.resolve(signal.reason);
          reject(signal.reason);
        });
        called.resolve();
      });
    const mesh = await GrpcDispatcher.listen();
    await using _run = new Run({ dispatchers: [mesh.address] }, handler);
    const session = await mesh.accept();
    session.ask("v", pod).catch(() => {});
    await called.promise;
    const { port } = mesh;
    await mesh.kill();
    assert.match(String(await aborted.promise), /the session is lost/);
    await using again = await GrpcDispatcher.listen({ port });
    await (await again.accept()).ping();
  });

  test("a status is logged by its name", async () => {
    await using mesh = await GrpcDispatcher.listen();
    await using run = new Run({ dispatchers: [mesh.address] });
    (await mesh.accept()).close(new ConnectError("kein Recht äöü", Code.PermissionDenied));
    assert.match(await run.line(/session ended/), /PERMISSION_DENIED: kein Recht äöü/);
  });

  test("a review of 3 MB arrives", async () => {
    await using mesh = await GrpcDispatcher.listen();
    await using _run = new Run({ dispatchers: [mesh.address] });
    const session = await mesh.accept();
    const large = createRequest({ kind: "Pod", data: "x".repeat(3_000_000) });
    assert.equal((await session.review("v", large)).allowed, true);
  });

  test("a host that leaves finishes its calls, closes its side and ends", async () => {
    const answer = deferred<Decision>();
    const called = deferred();
    const handler = () => {
      called.resolve();
      return answer.promise;
    };
    await using mesh = await GrpcDispatcher.listen();
    await using run = new Run({ dispatchers: [mesh.address] }, handler);
    const session = await mesh.accept();
    const verdict = session.review("v", pod);
    await called.promise;
    run.stop.abort();
    assert.equal((await session.drained).lastStartedCallId, 1n);
    answer.resolve(allow());
    assert.equal((await verdict).allowed, true);
    assert.equal(await session.ended, undefined);
    await run.ended;
  });

  test("calls that outlast the time to drain are cut off, and run says so", async () => {
    const called = deferred();
    const handler = (signal: AbortSignal) =>
      new Promise<Decision>((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
        called.resolve();
      });
    await using mesh = await GrpcDispatcher.listen();
    await using run = new Run({ dispatchers: [mesh.address], drainTimeoutMs: 50 }, handler);
    const session = await mesh.accept();
    session.ask("v", pod).catch(() => {});
    await called.promise;
    run.stop.abort();
    await assert.rejects(run.ended, CutOffError);
    assert.ok(await session.ended, "it did not look like the end of a drain");
  });

  test("a signal of the process drains, and is not listened to afterwards", async () => {
    await using mesh = await GrpcDispatcher.listen();
    const host = new Host({ name: "test", dispatchers: [mesh.address], tls: plaintext(), logger: listen().logger });
    const ended = host.validate("v", () => allow()).run({ stopOn: ["SIGUSR2"] });
    const session = await mesh.accept();
    process.kill(process.pid, "SIGUSR2");
    await session.drained;
    await ended;
    assert.equal(process.listenerCount("SIGUSR2"), 0);
  });

  test("names that cannot be resolved are tried on, and all their addresses dialled", async () => {
    await using mesh = await GrpcDispatcher.listen();
    let tries = 0;
    const resolve = async () => {
      if (tries++ === 0) {
        throw new Error("no such name");
      }
      return ["127.0.0.1"];
    };
    await using gone = await GrpcDispatcher.listen();
    await using run = new Run({
      dispatchers: [`mesh.test:${mesh.port}`, gone.address],
      resolve: async (host) => (host === "mesh.test" ? resolve() : [host]),
    });
    await run.line(/cannot be resolved/);
    const other = await gone.accept();
    await other.ping();
    other.close(); // A session that is lost resolves all names at once.
    await (await mesh.accept()).ping();
  });
});
