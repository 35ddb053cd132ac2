package dev.portcullis.host.testing;

import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.host.Host;
import dev.portcullis.host.HostBuilder;
import dev.portcullis.host.Tls;
import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.ConnectResponse;
import dev.portcullis.host.v1.HookOffer;
import dev.portcullis.host.v1.HostServiceGrpc;
import dev.portcullis.host.v1.Verdict;
import dev.portcullis.host.v1.Welcome;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerCredentials;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** A dispatcher on loopback, for tests of hosts. Its methods may be called from any thread. */
public final class FakeDispatcher implements AutoCloseable {
  private static final int MAX_MESSAGE_BYTES = 64 << 20;

  private final Server server;
  private final LinkedBlockingQueue<FakeSession> sessions = new LinkedBlockingQueue<>();
  private @Nullable Host host; // of serving
  private @Nullable FakeSession session; // of serving

  private FakeDispatcher(Welcome welcome, ServerCredentials credentials) {
    InetSocketAddress loopback = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    server =
        NettyServerBuilder.forAddress(loopback, credentials)
            .maxInboundMessageSize(MAX_MESSAGE_BYTES)
            .addService(new Service(welcome))
            .build();
    try {
      server.start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Starts a dispatcher without TLS.
   *
   * @return the dispatcher
   */
  public static FakeDispatcher listen() {
    return listen(Welcome.getDefaultInstance(), InsecureServerCredentials.create());
  }

  /**
   * Starts a dispatcher.
   *
   * @param welcome the answer to hosts; what is empty in it is filled
   * @param credentials how it is secured
   * @return the dispatcher
   */
  public static FakeDispatcher listen(Welcome welcome, ServerCredentials credentials) {
    return new FakeDispatcher(welcome, credentials);
  }

  /**
   * Starts a dispatcher, and a host that serves it until the dispatcher is closed.
   *
   * @param builder of the host; its dispatchers and its TLS are set
   * @return the dispatcher, after the host has come
   */
  public static FakeDispatcher serving(HostBuilder builder) {
    FakeDispatcher dispatcher = listen();
    dispatcher.host =
        builder.dispatchers(dispatcher.address()).tls(Tls.plaintext()).build().start();
    dispatcher.session = dispatcher.accept();
    return dispatcher;
  }

  /**
   * Where it listens.
   *
   * @return ip:port
   */
  public String address() {
    return "127.0.0.1:" + server.getPort();
  }

  /**
   * Waits for the next session of a host.
   *
   * @return the session
   * @throws IllegalStateException if none comes in {@link FakeSession#PATIENCE}
   */
  public FakeSession accept() {
    try {
      FakeSession next = sessions.poll(FakeSession.PATIENCE.toMillis(), TimeUnit.MILLISECONDS);
      if (next != null) {
        return next;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    throw new IllegalStateException("no host has connected");
  }

  /**
   * The session of the host of {@link #serving}.
   *
   * @return the session
   * @throws IllegalStateException if there is no such host
   */
  public FakeSession session() {
    if (session == null) {
      throw new IllegalStateException("the dispatcher was not started with a host");
    }
    return session;
  }

  /**
   * Puts a request to a hook of the host of {@link #serving}.
   *
   * @param hook its name
   * @param request the request
   * @return the verdict
   * @throws IllegalStateException if the hook gives no verdict
   */
  public Answer review(String hook, AdmissionRequest request) {
    Verdict verdict = session().ask(hook, request);
    if (!verdict.hasResponse()) {
      String why =
          switch (verdict.getOutcomeCase()) {
            case ERROR -> verdict.getError().getMessage();
            case REFUSED -> "refused: " + verdict.getRefused().getReason();
            default -> "the call was cancelled";
          };
      throw new IllegalStateException("hook \"" + hook + "\" gave no verdict: " + why);
    }
    return Answer.of(request, verdict.getResponse());
  }

  /**
   * Puts a request to the one hook of the host of {@link #serving}.
   *
   * @param request the request
   * @return the verdict
   * @throws IllegalStateException if the hook gives no verdict, or the host has several
   */
  public Answer review(AdmissionRequest request) {
    List<HookOffer> hooks = session().hello().getHooksList();
    if (hooks.size() != 1) {
      throw new IllegalStateException("the host has " + hooks.size() + " hooks: name one");
    }
    return review(hooks.get(0).getName(), request);
  }

  /** Breaks all sessions, as the death of a dispatcher does. It does not come back. */
  public void kill() {
    server.shutdownNow();
  }

  /**
   * Drains the host of {@link #serving}, and ends.
   *
   * @throws IllegalStateException if the host did not drain cleanly
   */
  @Override
  public void close() {
    boolean clean = true;
    try {
      if (host != null) {
        host.drain();
        clean = host.awaitTermination();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } finally {
      kill();
    }
    if (!clean) {
      throw new IllegalStateException("the host cut calls off");
    }
  }

  private final class Service extends HostServiceGrpc.HostServiceImplBase {
    private final Welcome welcome;

    Service(Welcome welcome) {
      this.welcome = welcome;
    }

    @Override
    public StreamObserver<ConnectRequest> connect(StreamObserver<ConnectResponse> toHost) {
      return new FromHost(welcome, toHost);
    }
  }

  /** Reads the frames of one host. */
  private final class FromHost implements StreamObserver<ConnectRequest> {
    private final Welcome welcome;
    private final StreamObserver<ConnectResponse> toHost;
    private @Nullable FakeSession accepted; // gRPC calls from one thread at a time

    FromHost(Welcome welcome, StreamObserver<ConnectResponse> toHost) {
      this.welcome = welcome;
      this.toHost = toHost;
    }

    @Override
    public void onNext(ConnectRequest frame) {
      if (accepted != null) {
        accepted.take(frame);
      } else if (frame.hasHello()) {
        accepted = new FakeSession(frame.getHello(), toHost);
        accepted.welcome(welcome);
        sessions.add(accepted);
      } else {
        toHost.onError(Status.INVALID_ARGUMENT.asRuntimeException());
      }
    }

    @Override
    public void onError(Throwable thrown) {
      if (accepted != null) {
        accepted.fail(thrown);
      }
    }

    @Override
    public void onCompleted() {
      if (accepted != null) {
        accepted.close();
      } else {
        toHost.onCompleted();
      }
    }
  }
}
