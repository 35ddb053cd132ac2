package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.GroupVersionKind;
import dev.portcullis.admission.v1.GroupVersionResource;
import dev.portcullis.admission.v1.UserInfo;
import dev.portcullis.initializer.v1.DeleteRequest;
import dev.portcullis.initializer.v1.DeleteResponse;
import dev.portcullis.initializer.v1.EventType;
import dev.portcullis.initializer.v1.GetRequest;
import dev.portcullis.initializer.v1.GetResponse;
import dev.portcullis.initializer.v1.InitializerServiceGrpc;
import dev.portcullis.initializer.v1.ListRequest;
import dev.portcullis.initializer.v1.ListResponse;
import dev.portcullis.initializer.v1.StagedKey;
import dev.portcullis.initializer.v1.StagedObject;
import dev.portcullis.initializer.v1.UpdateRequest;
import dev.portcullis.initializer.v1.UpdateResponse;
import dev.portcullis.initializer.v1.WatchRequest;
import dev.portcullis.initializer.v1.WatchResponse;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerCredentials;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Holds objects on loopback as InitializerService does, for callers of any name: with versions, a
 * history to watch from, and conflicts. Its methods may be called from any thread.
 */
final class StagedService extends InitializerServiceGrpc.InitializerServiceImplBase
    implements AutoCloseable {
  static final long PATIENCE = 60; // seconds

  private record Change(long version, StagedObject before, StagedObject after) {}

  private record Watch(WatchRequest request, StreamObserver<WatchResponse> to) {}

  final LinkedBlockingQueue<WatchRequest> watched = new LinkedBlockingQueue<>();
  final LinkedBlockingQueue<StagedObject> updated = new LinkedBlockingQueue<>();
  final LinkedBlockingQueue<DeleteRequest> deleted = new LinkedBlockingQueue<>();
  private final Server server;
  private final int port;

  // Guarded by this.
  private final Map<String, StagedObject> objects = new TreeMap<>(); // by name
  private final List<Change> history = new ArrayList<>();
  private final List<Watch> watches = new ArrayList<>();
  private final Queue<Runnable> beforeUpdates = new ArrayDeque<>();
  private final Queue<Runnable> afterUpdates = new ArrayDeque<>();
  private final Queue<Status> watchFaults = new ArrayDeque<>();
  private long version = 100;

  private StagedService(int port, ServerCredentials credentials) throws IOException {
    InetSocketAddress loopback = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
    server =
        NettyServerBuilder.forAddress(loopback, credentials)
            .permitKeepAliveTime(5, TimeUnit.SECONDS) // as dispatchers do
            .addService(this)
            .build()
            .start();
    this.port = server.getPort();
  }

  static StagedService listen() throws IOException {
    return listen(0, InsecureServerCredentials.create());
  }

  static StagedService listen(int port, ServerCredentials credentials) throws IOException {
    return new StagedService(port, credentials);
  }

  String address() {
    return "127.0.0.1:" + port;
  }

  int port() {
    return port;
  }

  /** Holds an object, or another one in the place of an older one. */
  StagedObject stage(String name, String object, String... pending) {
    return stage(name, object, TimeUnit.SECONDS.toMillis(PATIENCE), pending);
  }

  /** Holds an object for a time in milliseconds. */
  synchronized StagedObject stage(String name, String object, long remaining, String... pending) {
    StagedObject staged =
        StagedObject.newBuilder()
            .setKey(
                StagedKey.newBuilder()
                    .setCluster("c")
                    .setResource(
                        GroupVersionResource.newBuilder().setVersion("v1").setResource("pods"))
                    .setNamespace("shop")
                    .setName(name))
            .setUid("uid " + name + " " + version)
            .setKind(GroupVersionKind.newBuilder().setVersion("v1").setKind("Pod"))
            .setCreator(UserInfo.newBuilder().setUsername("jane"))
            .setRemainingMs((int) remaining)
            .setReviewUid("review")
            .addAllPending(List.of(pending))
            .setObject(raw(object))
            .build();
    return write(StagedObject.getDefaultInstance(), staged);
  }

  /** Changes an object as another caller does. */
  synchronized StagedObject change(String name, String object) {
    StagedObject now = now(name);
    return write(now, now.toBuilder().setObject(raw(object)).build());
  }

  /** Has an object wait for others, as another caller does. */
  synchronized void pend(String name, String... pending) {
    StagedObject now = now(name);
    write(now, now.toBuilder().clearPending().addAllPending(List.of(pending)).build());
  }

  /** Ends the hold of an object. */
  synchronized void end(String name) {
    StagedObject gone = now(name);
    objects.remove(name);
    record(gone, StagedObject.getDefaultInstance());
  }

  synchronized StagedObject now(String name) {
    return objects.getOrDefault(name, StagedObject.getDefaultInstance());
  }

  /** Has something happen between the next Update and the object. */
  synchronized void beforeUpdate(Runnable action) {
    beforeUpdates.add(action);
  }

  /** Has something happen between the next Update of an object and its answer. */
  synchronized void afterUpdate(Runnable action) {
    afterUpdates.add(action);
  }

  /** Has the next Watch end like this before its bookmark. */
  synchronized void failWatch(Status status) {
    watchFaults.add(status);
  }

  /** Ends the streams that are open. */
  synchronized void breakWatches(Status status) {
    watches.forEach(watch -> watch.to().onError(status.asRuntimeException()));
    watches.clear();
  }

  @Override
  public synchronized void get(GetRequest request, StreamObserver<GetResponse> to) {
    StagedObject now = now(request.getKey().getName());
    if (now.getUid().isEmpty()) {
      to.onError(Status.NOT_FOUND.asRuntimeException());
    } else {
      answer(to, GetResponse.newBuilder().setObject(now).build());
    }
  }

  @Override
  public synchronized void list(ListRequest request, StreamObserver<ListResponse> to) {
    answer(
        to,
        ListResponse.newBuilder()
            .addAllObjects(objects.values().stream().filter(o -> selects(request, o)).toList())
            .setResourceVersion("" + version)
            .build());
  }

  @Override
  public synchronized void watch(WatchRequest request, StreamObserver<WatchResponse> to) {
    watched.add(request);
    Watch watch = new Watch(request, to);
    Status fault = watchFaults.poll();
    if (request.getResourceVersion().isEmpty()) {
      for (StagedObject object : objects.values()) {
        if (selects(request.getSelection(), object)) {
          to.onNext(event(EventType.EVENT_TYPE_ADDED, object));
        }
      }
      if (fault == null && request.getBookmarks()) {
        to.onNext(bookmark().toBuilder().setInitialEventsEnd(true).build());
      }
    } else {
      long after = Long.parseLong(request.getResourceVersion());
      history.stream().filter(c -> c.version() > after).forEach(change -> send(watch, change));
    }
    if (fault != null) {
      to.onError(fault.asRuntimeException());
      return;
    }
    watches.add(watch);
    ((ServerCallStreamObserver<WatchResponse>) to).setOnCancelHandler(() -> forget(watch));
  }

  private synchronized void forget(Watch watch) {
    watches.remove(watch);
  }

  /** How many streams are open. */
  synchronized int watching() {
    return watches.size();
  }

  /** Sends a bookmark to each stream that wants some. */
  synchronized void bookmarkAll() {
    version++;
    watches.stream()
        .filter(w -> w.request().getBookmarks())
        .forEach(w -> w.to().onNext(bookmark()));
  }

  @Override
  public void update(UpdateRequest request, StreamObserver<UpdateResponse> to) {
    Runnable before;
    synchronized (this) {
      before = beforeUpdates.poll();
    }
    try {
      if (before != null) {
        before.run();
      }
      StagedObject after = updated(request);
      Runnable then;
      synchronized (this) {
        then = afterUpdates.poll();
      }
      if (then != null) {
        then.run();
      }
      answer(to, UpdateResponse.newBuilder().setObject(after).build());
    } catch (RuntimeException e) {
      to.onError(e);
    }
  }

  private synchronized StagedObject updated(UpdateRequest request) {
    StagedObject now = now(request.getKey().getName());
    if (now.getUid().isEmpty()) {
      throw Status.NOT_FOUND.asRuntimeException();
    }
    if (!request.getResourceVersion().equals(now.getResourceVersion())) {
      throw Status.ABORTED.withDescription("the object has changed").asRuntimeException();
    }
    StagedObject.Builder next = now.toBuilder();
    if (request.hasResult()) {
      next.setResult(request.getResult());
    } else {
      next.clearPending().addAllPending(request.getPendingList());
      if (request.hasObject()) {
        next.setObject(request.getObject());
      }
    }
    StagedObject written = write(now, next.build());
    updated.add(written);
    return written;
  }

  @Override
  public synchronized void delete(DeleteRequest request, StreamObserver<DeleteResponse> to) {
    deleted.add(request);
    StagedObject now = now(request.getKey().getName());
    if (!request.getUid().equals(now.getUid())) {
      to.onError(Status.ABORTED.withDescription("the object has another uid").asRuntimeException());
      return;
    }
    end(request.getKey().getName());
    answer(to, DeleteResponse.newBuilder().setObject(now).build());
  }

  private StagedObject write(StagedObject before, StagedObject after) {
    StagedObject written = after.toBuilder().setResourceVersion("" + (version + 1)).build();
    objects.put(written.getKey().getName(), written);
    record(before, written);
    return written;
  }

  private synchronized void record(StagedObject before, StagedObject after) {
    Change change = new Change(++version, before, after);
    history.add(change);
    watches.forEach(watch -> send(watch, change));
  }

  private static void send(Watch watch, Change change) {
    boolean was = selects(watch.request().getSelection(), change.before());
    boolean is = selects(watch.request().getSelection(), change.after());
    if (is) {
      EventType type = was ? EventType.EVENT_TYPE_MODIFIED : EventType.EVENT_TYPE_ADDED;
      watch.to().onNext(event(type, change.after()));
    } else if (was) {
      StagedObject gone =
          change.before().toBuilder().setResourceVersion("" + change.version()).build();
      watch.to().onNext(event(EventType.EVENT_TYPE_DELETED, gone));
    }
  }

  private static boolean selects(ListRequest selection, StagedObject object) {
    return !object.getUid().isEmpty()
        && (selection.getFirstPending().isEmpty()
            || (object.getPendingCount() > 0
                && selection.getFirstPending().equals(object.getPending(0))));
  }

  private WatchResponse bookmark() {
    return event(
        EventType.EVENT_TYPE_BOOKMARK,
        StagedObject.newBuilder().setResourceVersion("" + version).build());
  }

  static WatchResponse event(EventType type, StagedObject object) {
    return WatchResponse.newBuilder().setType(type).setObject(object).build();
  }

  private static dev.portcullis.admission.v1.Object raw(String object) {
    return dev.portcullis.admission.v1.Object.newBuilder()
        .setRaw(ByteString.copyFromUtf8(object))
        .build();
  }

  private static <T> void answer(StreamObserver<T> to, T message) {
    to.onNext(message);
    to.onCompleted();
  }

  /** Waits for the next one of a queue. */
  static <T> T take(LinkedBlockingQueue<T> queue) throws InterruptedException {
    @Nullable T next = queue.poll(PATIENCE, TimeUnit.SECONDS);
    assertNotNull(next, "nothing came");
    return next;
  }

  /** Waits for the next update, which has to leave these initializers pending. */
  String takeUpdated(String... pending) throws InterruptedException {
    StagedObject next = take(updated);
    assertEquals(List.of(pending), next.getPendingList());
    return next.getObject().getRaw().toStringUtf8();
  }

  @Override
  public void close() {
    try {
      server.shutdownNow().awaitTermination(); // The port is free then.
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
