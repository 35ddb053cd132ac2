import assert from "node:assert/strict";
import { createSecureServer, type Http2SecureServer, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { suite, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { deferred } from "../src/deferred.js";
import {
  type DeleteRequest,
  EventType,
  InitializerService,
  StagedObjectSchema,
  type WatchRequest,
} from "../src/gen/portcullis/initializer/v1/initializer_pb.js";
import { deny, tlsFiles } from "../src/index.js";
import { done, objectOf, refused, StagedClient, StatusError, waits } from "../src/staged.js";
import { Authority } from "./support/authority.js";

const NAME = "sidecar.example.com";

/** Service holds one object, as InitializerService does, over TLS and by another gRPC than that of the SDK. */
class Service implements AsyncDisposable {
  readonly object = create(StagedObjectSchema, {
    key: { cluster: "c", resource: { version: "v1", resource: "pods" }, namespace: "shop", name: "web" },
    uid: "u",
    resourceVersion: "1",
    pending: [NAME, "podimage.example.com"],
    object: { raw: new TextEncoder().encode('{"kind":"Pod","spec":{"containers":[]}}') },
  });
  readonly watched: WatchRequest[] = [];
  readonly deleted: DeleteRequest[] = [];
  readonly #connections = new Set<ServerHttp2Session>();
  #server: Http2SecureServer | undefined;
  #changed = deferred();
  old = false;

  async listen(): Promise<StagedClient> {
    const authority = await Authority.create();
    const handler = connectNodeAdapter({
      connect: false,
      grpcWeb: false,
      routes: (router) =>
        router.service(InitializerService, {
          get: ({ key }) => {
            if (key?.name !== this.object.key?.name) {
              throw new ConnectError("nothing is held", Code.NotFound);
            }
            return { object: this.object };
          },
          list: () => ({ objects: [this.object], resourceVersion: "1" }),
          watch: (request) => this.#watch(request),
          update: ({ resourceVersion, object, pending, result }) => {
            if (resourceVersion !== this.object.resourceVersion) {
              throw new ConnectError("the object has changed", Code.Aborted);
            }
            Object.assign(this.object, { resourceVersion: `${resourceVersion}1` });
            Object.assign(this.object, result ? { result } : { object, pending });
            this.change();
            return { object: this.object };
          },
          delete: (request) => {
            this.deleted.push(request);
            return { object: this.object };
          },
        }),
    });
    const identity = { ...(await authority.issue("dns", "mesh.internal")), ca: authority.ca };
    this.#server = createSecureServer({ ...identity, requestCert: true, minVersion: "TLSv1.3" }, handler);
    this.#server.on("session", (session) => this.#connections.add(session));
    const listening = deferred();
    this.#server.listen(0, "127.0.0.1", () => listening.resolve());
    await listening.promise;
    const tls = tlsFiles(authority.write(await authority.issue("url", "spiffe://mesh/controller")));
    const { port } = this.#server.address() as AddressInfo;
    return new StagedClient({ address: `127.0.0.1:${port}`, serverName: "mesh.internal", tls });
  }

  change(): void {
    const changed = this.#changed;
    this.#changed = deferred();
    changed.resolve();
  }

  async *#watch(request: WatchRequest) {
    this.watched.push(request);
    for (let type = EventType.ADDED; ; type = EventType.MODIFIED) {
      const changed = this.#changed.promise;
      yield { type, object: this.object };
      await changed;
      if (this.old) {
        throw new ConnectError("the version is too old", Code.OutOfRange);
      }
    }
  }

  breakConnections(): void {
    for (const connection of this.#connections) {
      connection.destroy();
    }
    this.#connections.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = deferred();
    this.#server?.close(() => closed.resolve());
    this.breakConnections();
    await closed.promise;
  }
}

async function codeOf(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => undefined,
    (e: unknown) => e,
  );
  assert.ok(error instanceof StatusError, String(error));
  return error.code;
}

suite("staged objects", () => {
  test("a controller initializes what waits for it", async () => {
    await using service = new Service();
    using client = await service.listen();
    const selection = { firstPending: NAME };
    assert.equal((await client.list(selection)).objects.length, 1);
    const stop = new AbortController();
    const events = client.watch({ selection, bookmarks: true }, stop.signal);
    const { value: event } = await events.next();
    assert.ok(event?.object && waits(event));
    const pod = objectOf<{ spec: { containers: object[] } }>(event.object);
    pod.spec.containers.push({ name: "proxy" });
    const updated = await client.update(done(event.object, pod));
    assert.deepEqual(updated.pending, ["podimage.example.com"]);
    assert.deepEqual(objectOf(updated), { kind: "Pod", spec: { containers: [{ name: "proxy" }] } });
    assert.deepEqual((await events.next()).value?.object, updated);
    assert.deepEqual(await client.get(updated.key ?? {}), updated);
    assert.deepEqual(
      service.watched.map((request) => [request.selection?.firstPending, request.bookmarks]),
      [[NAME, true]],
    );
    stop.abort();
    assert.equal((await events.next()).done, true);
  });

  test("a controller refuses", async () => {
    await using service = new Service();
    using client = await service.listen();
    const staged = await client.get(service.object.key ?? {});
    const events = client.watch();
    await events.next();
    const denial = deny("no", { code: 422, causes: [{ field: "spec", message: "bad" }] });
    const { result } = await client.update(refused(staged, denial));
    assert.deepEqual([result?.status, result?.message, result?.code], ["Failure", "no", 422]);
    assert.equal(result?.details?.causes[0]?.field, "spec");
    const { value: again } = await events.next();
    assert.ok(again && !waits(again));
    await events.return();
    await client.delete(staged);
    assert.deepEqual(
      service.deleted.map(({ key, uid }) => [key?.name, uid]),
      [["web", "u"]],
    );
  });

  test("errors say what to do, and a lost connection is made anew", async () => {
    await using service = new Service();
    using client = await service.listen();
    const staged = await client.get(service.object.key ?? {});
    await client.update(done(staged, {}));
    assert.equal(await codeOf(client.update(done(staged, {}))), "ABORTED");
    assert.equal(await codeOf(client.get({ name: "other" })), "NOT_FOUND");
    const events = client.watch();
    await events.next();
    service.old = true;
    service.change();
    assert.equal(await codeOf(events.next()), "OUT_OF_RANGE");
    service.breakConnections();
    const list = () => client.list();
    const again = await list().catch(list); // The first one may find the connection lost.
    assert.equal(again.objects.length, 1);
    client.close();
    await assert.rejects(list);
  });
});
