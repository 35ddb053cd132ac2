package dev.portcullis.host;

import dev.portcullis.initializer.v1.DeleteRequest;
import dev.portcullis.initializer.v1.GetRequest;
import dev.portcullis.initializer.v1.InitializerServiceGrpc;
import dev.portcullis.initializer.v1.InitializerServiceGrpc.InitializerServiceBlockingStub;
import dev.portcullis.initializer.v1.ListRequest;
import dev.portcullis.initializer.v1.ListResponse;
import dev.portcullis.initializer.v1.StagedKey;
import dev.portcullis.initializer.v1.StagedObject;
import dev.portcullis.initializer.v1.UpdateRequest;
import dev.portcullis.initializer.v1.WatchRequest;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * A client of staged objects, for controllers that initialize them instead of a host.
 *
 * <pre>{@code
 * try (StagedClient client =
 *     StagedClient.builder("portcullis-hosts.portcullis-system.svc:8444")
 *         .tls(Tls.files(Path.of("/tls/tls.crt"), Path.of("/tls/tls.key"), Path.of("/tls/ca.crt")))
 *         .build()) {
 *   client.initialize(
 *       "sidecar.example.com",
 *       Initializer.ofTree(
 *           (call, request, pod) -> {
 *             pod.withArray("/spec/containers").addObject().put("name", "proxy");
 *             return pod;
 *           }));
 * }
 * }</pre>
 *
 * <p>{@link #initialize} does all that an initializer needs. The other methods are those of
 * InitializerService, with which {@link Staged} helps.
 *
 * <p>A call that fails throws a {@link StatusRuntimeException}, whose code says what to do: {@code
 * NOT_FOUND} that the hold has ended, {@code UNAVAILABLE} and {@code RESOURCE_EXHAUSTED} to ask
 * again. That an object has changed is a {@link ConflictException}. Calls share a connection, and a
 * watch has one of its own. One that fails is replaced by one to the next address of the
 * dispatchers, for which the files of the TLS are read anew.
 *
 * <p>All methods may be called from any thread.
 */
public final class StagedClient implements AutoCloseable {
  private final Settings settings;
  private final HostPort address;
  private final AtomicInteger dials = new AtomicInteger();
  private final CountDownLatch closed = new CountDownLatch(1);

  // Guarded by this.
  private final Set<ManagedChannel> channels = new HashSet<>(); // which may have calls
  private final Set<Initializing> initializing = new HashSet<>();
  private @Nullable ManagedChannel shared; // by calls; null if the next one dials

  StagedClient(Settings settings, HostPort address) {
    this.settings = settings;
    this.address = address;
  }

  /**
   * Begins a client.
   *
   * @param address host:port where dispatchers serve hosts; of the addresses of a name one is in
   *     use at a time
   * @return its builder
   * @throws IllegalArgumentException if it is not host:port
   */
  public static StagedClientBuilder builder(String address) {
    return new StagedClientBuilder(address);
  }

  /**
   * Runs an initializer over the staged objects until the client is closed: over those that wait
   * for it now, and over each that comes to wait for it. It is the initializer that a host could
   * serve, and is called as the host would call it, on threads of the client. Its call ends with
   * the hold of the object. Warnings and audit annotations of its responses go nowhere.
   *
   * <p>When an object has changed meanwhile, it is read again, and the initializer called again if
   * the object still waits. When the initializer fails, or the dispatcher cannot be asked, that is
   * logged and tried again, until the hold ends.
   *
   * @param name of the initializer, as in its InitializerConfiguration
   * @param handler completes objects, see {@link Initializer#of}
   * @throws InterruptedException if this thread is interrupted; the client stays open
   * @throws IllegalArgumentException if the name is empty
   * @throws IllegalStateException if the client was closed before
   */
  public void initialize(String name, Handler handler) throws InterruptedException {
    Initializing run = new Initializing(this, settings, name, handler);
    synchronized (this) {
      checkOpen();
      initializing.add(run);
    }
    try {
      run.run();
    } finally {
      synchronized (this) {
        initializing.remove(run);
      }
    }
  }

  /**
   * Returns one object.
   *
   * @param key which one
   * @return the object as it is now
   * @throws StatusRuntimeException as above
   */
  public StagedObject get(StagedKey key) {
    GetRequest request = GetRequest.newBuilder().setKey(key).build();
    return call(stub -> stub.get(request)).getObject();
  }

  /**
   * Returns the objects of a selection.
   *
   * @param selection the default instance selects all that the caller may see
   * @return the objects, and the version to watch from
   * @throws StatusRuntimeException as above
   */
  public ListResponse list(ListRequest selection) {
    return call(stub -> stub.list(selection));
  }

  /**
   * Watches what changes after a version; without one each object comes first, as added. The watch
   * connects when its first event is asked for, and has to be closed.
   *
   * @param request bookmarks are sent only if it asks for them
   * @return the events
   * @throws IllegalStateException if the client was closed before
   */
  public StagedWatch watch(WatchRequest request) {
    synchronized (this) {
      checkOpen();
    }
    return new StagedWatch(this, request, StagedWatch.LASTING);
  }

  /**
   * Changes an object.
   *
   * @param request one of {@link Staged#done} or {@link Staged#refused}, or any other
   * @return the object after the change
   * @throws ConflictException if the object has changed, or another replica was faster
   * @throws StatusRuntimeException as above
   */
  public StagedObject update(UpdateRequest request) {
    return call(stub -> stub.update(request)).getObject();
  }

  /**
   * Ends the hold of exactly this object: its creator is refused.
   *
   * @param staged as it was read; later changes of it do not matter
   * @throws ConflictException if another object has its name now
   * @throws StatusRuntimeException as above
   */
  public void delete(StagedObject staged) {
    DeleteRequest request =
        DeleteRequest.newBuilder().setKey(staged.getKey()).setUid(staged.getUid()).build();
    Object unused = call(stub -> stub.delete(request));
  }

  /**
   * Ends all: the watches have no more events, {@link #initialize} returns, and calls fail. Later
   * calls of this method do nothing.
   */
  @Override
  public void close() {
    closed.countDown();
    Set<Initializing> runs;
    synchronized (this) {
      channels.forEach(ManagedChannel::shutdownNow);
      runs = Set.copyOf(initializing);
    }
    runs.forEach(Initializing::stop);
  }

  boolean isClosed() {
    return closed.getCount() == 0;
  }

  /** Waits for the client to be closed; false if that does not happen in time. */
  boolean awaitClose(long nanos) throws InterruptedException {
    return closed.await(nanos, TimeUnit.NANOSECONDS);
  }

  Settings settings() {
    return settings;
  }

  HostPort address() {
    return address;
  }

  /**
   * Makes a connection to the next address, which {@link #hangUp} ends.
   *
   * @throws StatusRuntimeException if there is no address, or a file of TLS is at fault
   */
  ManagedChannel dial() {
    ManagedChannel channel;
    try {
      List<String> ips = settings.resolver().resolve(address.host());
      if (ips.isEmpty()) {
        throw new IOException("the name has no addresses");
      }
      String ip = ips.get(Math.floorMod(dials.getAndIncrement(), ips.size()));
      String name = settings.serverName().isEmpty() ? address.host() : settings.serverName();
      channel =
          Dialer.builder(settings, new DialPlan.Endpoint(new HostPort(ip, address.port()), name))
              .keepAliveTime(Limits.KEEPALIVE, TimeUnit.NANOSECONDS)
              .keepAliveTimeout(Limits.KEEPALIVE, TimeUnit.NANOSECONDS)
              .build();
    } catch (IOException e) {
      throw Status.UNAVAILABLE
          .withDescription("no connection to " + address + ": " + e.getMessage())
          .withCause(e)
          .asRuntimeException();
    }
    synchronized (this) {
      channels.removeIf(ManagedChannel::isTerminated);
      channels.add(channel);
      if (isClosed()) {
        channel.shutdownNow();
      }
    }
    return channel;
  }

  /** Ends a connection, and its calls. */
  synchronized void hangUp(ManagedChannel channel) {
    channel.shutdownNow();
    channels.remove(channel);
  }

  private <T> T call(Function<InitializerServiceBlockingStub, T> method) {
    ManagedChannel channel = connected();
    try {
      return method.apply(InitializerServiceGrpc.newBlockingStub(channel));
    } catch (StatusRuntimeException e) {
      switch (e.getStatus().getCode()) {
        case ABORTED -> throw new ConflictException(e);
        case UNAVAILABLE -> replace(channel);
        default -> {}
      }
      throw e;
    }
  }

  private ManagedChannel connected() {
    synchronized (this) {
      checkOpen();
      if (shared != null) {
        return shared;
      }
    }
    ManagedChannel dialled = dial(); // Resolving may take its time.
    ManagedChannel first;
    synchronized (this) {
      if (shared == null) {
        shared = dialled;
      }
      first = shared;
    }
    if (first != dialled) {
      hangUp(dialled);
    }
    return first;
  }

  /** Has the next call dial. Other calls of the connection may succeed yet. */
  private synchronized void replace(ManagedChannel channel) {
    channel.shutdown();
    if (shared == channel) {
      shared = null;
    }
  }

  private void checkOpen() {
    if (isClosed()) {
      throw new IllegalStateException("the client is closed");
    }
  }
}
