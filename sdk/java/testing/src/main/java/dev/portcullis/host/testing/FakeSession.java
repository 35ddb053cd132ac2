package dev.portcullis.host.testing;

import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.AdmissionRequest;
import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.v1.Chunk;
import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.ConnectResponse;
import dev.portcullis.host.v1.Hello;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.HookState;
import dev.portcullis.host.v1.HostDrain;
import dev.portcullis.host.v1.Ping;
import dev.portcullis.host.v1.Probe;
import dev.portcullis.host.v1.ProbeResult;
import dev.portcullis.host.v1.Review;
import dev.portcullis.host.v1.State;
import dev.portcullis.host.v1.Verdict;
import dev.portcullis.host.v1.Welcome;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** A session with one host, seen from the dispatcher. Its methods may be called from any thread. */
public final class FakeSession {
  /** How long a host may take for anything. */
  public static final Duration PATIENCE = Duration.ofSeconds(10);

  private static final int MAX_WHOLE = 128 << 10;
  private static final int CHUNK_BYTES = 64 << 10;

  private record VerdictKey(long call, int hook) {}

  private final Hello hello;
  private final StreamObserver<ConnectResponse> toHost; // guarded by this
  private final Map<VerdictKey, CompletableFuture<Verdict>> verdicts = new ConcurrentHashMap<>();
  private final Map<Long, CompletableFuture<Void>> pongs = new ConcurrentHashMap<>();
  private final Map<Long, CompletableFuture<ProbeResult>> probes = new ConcurrentHashMap<>();
  private final CompletableFuture<HostDrain> drained = new CompletableFuture<>();
  private final CompletableFuture<Void> ended = new CompletableFuture<>();
  private volatile int credit;
  private long lastId; // guarded by this

  FakeSession(Hello hello, StreamObserver<ConnectResponse> toHost) {
    this.hello = hello;
    this.toHost = toHost;
    this.credit = hello.getMaxOutstanding();
  }

  /** Fills a welcome for the host, where it is empty, and sends it. */
  void welcome(Welcome given) {
    Welcome.Builder welcome = given.toBuilder();
    if (given.getSessionId().isEmpty()) {
      welcome.setSessionId("session-of-" + hello.getInstance());
    }
    if (given.getDispatcherId().isEmpty()) {
      welcome.setDispatcherId("testing");
    }
    if (given.getProtocol() == 0) {
      welcome.setProtocol(1);
    }
    if (given.getSilenceMs()
        == 0) { // Nothing is sent by itself, so silence must not end the session.
      welcome.setSilenceMs(Integer.MAX_VALUE);
    }
    if (given.getHooksCount() == 0) {
      hello
          .getHooksList()
          .forEach(
              hook ->
                  welcome.addHooks(
                      HookState.newBuilder()
                          .setName(hook.getName())
                          .setStage(hook.getStage())
                          .setState(State.STATE_IN_ROTATION)));
    }
    send(ConnectResponse.newBuilder().setWelcome(welcome).build());
  }

  /** Takes a frame of the host. */
  void take(ConnectRequest frame) {
    switch (frame.getFrameCase()) {
      case VERDICT -> take(frame.getVerdict());
      case VERDICTS -> frame.getVerdicts().getVerdictsList().forEach(this::take);
      case PONG -> complete(pongs.remove(frame.getPong().getSeq()));
      case PROBE_RESULT -> {
        CompletableFuture<ProbeResult> probe = probes.remove(frame.getProbeResult().getSeq());
        if (probe != null) {
          probe.complete(frame.getProbeResult());
        }
      }
      case CREDIT -> credit = frame.getCredit().getMaxOutstanding();
      case DRAIN -> drained.complete(frame.getDrain());
      default -> {}
    }
  }

  private void take(Verdict verdict) {
    CompletableFuture<Verdict> waiting =
        verdicts.remove(new VerdictKey(verdict.getCallId(), verdict.getHookIndex()));
    if (waiting != null) {
      waiting.complete(verdict);
    }
  }

  private static void complete(@Nullable CompletableFuture<Void> future) {
    if (future != null) {
      future.complete(null);
    }
  }

  /** Notes that the host has closed its side, and ends the stream. */
  void close() {
    ended.complete(null);
    end(Status.OK);
  }

  /** Notes that the stream has broken. */
  void fail(Throwable thrown) {
    List<CompletableFuture<?>> waiting = new ArrayList<>(verdicts.values());
    waiting.addAll(pongs.values());
    waiting.addAll(probes.values());
    waiting.add(drained);
    waiting.add(ended);
    waiting.forEach(future -> future.completeExceptionally(thrown));
  }

  /**
   * How the host introduced itself.
   *
   * @return its first frame
   */
  public Hello hello() {
    return hello;
  }

  /**
   * How many calls the host takes on this session now.
   *
   * @return its last credit
   */
  public int credit() {
    return credit;
  }

  /**
   * Sends any frame to the host.
   *
   * @param frame the frame
   */
  public synchronized void send(ConnectResponse frame) {
    toHost.onNext(frame);
  }

  /**
   * Sends a request to several hooks, in one frame, or in chunks if it is large. The calls go as
   * they are, with the time that they say is left.
   *
   * @param request the request
   * @param calls of the hooks
   * @return the verdicts in the order of the calls, each when it comes
   */
  public List<CompletableFuture<Verdict>> post(AdmissionRequest request, HookCall... calls) {
    return post(Review.newBuilder().setRequest(request).addAllHooks(List.of(calls)));
  }

  /**
   * Sends a review, under an id of its own.
   *
   * @param review with all but the id
   * @return the verdicts in the order of the hooks, each when it comes
   */
  public synchronized List<CompletableFuture<Verdict>> post(Review.Builder review) {
    Review sent = review.setCallId(++lastId).build();
    List<CompletableFuture<Verdict>> answers = new ArrayList<>();
    for (int i = 0; i < sent.getHooksCount(); i++) {
      CompletableFuture<Verdict> answer = new CompletableFuture<>();
      verdicts.put(new VerdictKey(sent.getCallId(), i), answer);
      answers.add(answer);
    }
    if (sent.getSerializedSize() <= MAX_WHOLE) {
      send(ConnectResponse.newBuilder().setReview(sent).build());
      return answers;
    }
    ByteString encoded = sent.toByteString();
    for (int from = 0; from < encoded.size(); from += CHUNK_BYTES) {
      Chunk.Builder chunk =
          Chunk.newBuilder()
              .setCallId(sent.getCallId())
              .setTotalBytes(encoded.size())
              .setHooks(sent.getHooksCount())
              .setData(encoded.substring(from, Math.min(encoded.size(), from + CHUNK_BYTES)));
      send(ConnectResponse.newBuilder().setChunk(chunk).build());
    }
    return answers;
  }

  /**
   * Puts a request to one hook, with {@link #PATIENCE} as its time, and waits for its verdict.
   *
   * @param hook its name
   * @param request the request
   * @return how the call ended
   * @throws IllegalArgumentException if the host does not offer the hook, or for several stages
   * @throws IllegalStateException if the host does not answer
   */
  public Verdict ask(String hook, AdmissionRequest request) {
    return await(post(request, call(hook, PATIENCE)).get(0));
  }

  /**
   * A call of a hook that the host offers.
   *
   * @param hook its name
   * @param time that is left for its verdict
   * @return the call
   * @throws IllegalArgumentException if the host does not offer the hook, or for both stages
   */
  public HookCall call(String hook, Duration time) {
    List<Stage> stages =
        hello.getHooksList().stream()
            .filter(offer -> offer.getName().equals(hook))
            .map(offer -> offer.getStage())
            .toList();
    if (stages.size() != 1) {
      List<String> offers =
          hello.getHooksList().stream()
              .map(offer -> offer.getName() + " " + offer.getStage())
              .toList();
      throw new IllegalArgumentException(
          String.format("want one hook of the name \"%s\", the host offers %s", hook, offers));
    }
    return HookCall.newBuilder()
        .setName(hook)
        .setStage(stages.get(0))
        .setConfiguration("testing")
        .setRemainingMs((int) time.toMillis())
        .build();
  }

  /**
   * Asks for a sign of life and waits for it.
   *
   * @throws IllegalStateException if the host does not answer
   */
  public void ping() {
    CompletableFuture<Void> pong = new CompletableFuture<>();
    long seq = nextId();
    pongs.put(seq, pong);
    send(ConnectResponse.newBuilder().setPing(Ping.newBuilder().setSeq(seq)).build());
    await(pong);
  }

  /**
   * Asks whether a hook is ready.
   *
   * @param hook its name
   * @return the answer
   * @throws IllegalStateException if the host does not answer
   */
  public ProbeResult probe(String hook) {
    CompletableFuture<ProbeResult> result = new CompletableFuture<>();
    long seq = nextId();
    probes.put(seq, result);
    Probe.Builder probe = Probe.newBuilder().setSeq(seq).setHook(hook);
    send(ConnectResponse.newBuilder().setProbe(probe).build());
    return await(result);
  }

  /**
   * Waits until the host drains.
   *
   * @return what it says
   * @throws IllegalStateException if it does not, in {@link #PATIENCE}
   */
  public HostDrain awaitDrain() {
    return await(drained);
  }

  /**
   * Waits until the host has closed its side, as it does after a drain.
   *
   * @throws IllegalStateException if it does not, in {@link #PATIENCE}, or breaks the stream
   */
  public void awaitEnd() {
    await(ended);
  }

  /**
   * Ends the stream.
   *
   * @param status OK for a clean end
   */
  public synchronized void end(Status status) {
    try {
      if (status.isOk()) {
        toHost.onCompleted();
      } else {
        toHost.onError(status.asRuntimeException());
      }
    } catch (IllegalStateException e) {
      return; // It has ended already.
    }
  }

  private synchronized long nextId() {
    return ++lastId;
  }

  static <T> T await(CompletableFuture<T> answer) {
    try {
      return answer.copy().orTimeout(PATIENCE.toMillis(), TimeUnit.MILLISECONDS).join();
    } catch (CompletionException e) {
      throw new IllegalStateException("the host does not answer", e.getCause());
    }
  }
}
