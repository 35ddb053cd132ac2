package dev.portcullis.host;

import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.ConnectResponse;
import dev.portcullis.host.v1.Credit;
import dev.portcullis.host.v1.DispatcherDrain;
import dev.portcullis.host.v1.Hello;
import dev.portcullis.host.v1.HostDrain;
import dev.portcullis.host.v1.Ping;
import dev.portcullis.host.v1.Pong;
import dev.portcullis.host.v1.Probe;
import dev.portcullis.host.v1.ProbeResult;
import dev.portcullis.host.v1.Reviews;
import dev.portcullis.host.v1.Verdict;
import dev.portcullis.host.v1.Welcome;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Decides what one session does. It is pure: no thread, no clock, no I/O. Time comes in as a
 * parameter, in nanoseconds from any beginning. Each step returns what the shell has to do, and
 * leaves frames to send in the outbox. One caller at a time.
 */
final class SessionCore {
  private static final long NEVER = Long.MAX_VALUE;

  /** The seq of a Pong that answers no Ping. */
  private static final long UNASKED = 0;

  private final Map<HookId, Hook> hooks;
  private final long drainTimeout;
  private final Outbox outbox = new Outbox();
  private final Calls calls;

  // From the welcome.
  private boolean welcomed;
  private long silence = Limits.SILENCE;
  private int maxVerdict = Limits.VERDICT_BYTES;

  // Life of the session.
  private final long opened;
  private long lastFrame;
  private long owing = NEVER; // time of the first frame since the host's last one
  private boolean useful; // a frame came after the welcome
  private long ignored; // frames of unknown types
  private int announced; // the bound on calls announced last
  private int probing; // checks of hooks that have not returned

  // The end.
  private boolean draining;
  private boolean finishing; // nothing is sent after the frames in the outbox
  private boolean mute; // nothing can be sent
  private boolean over; // aborted
  private long drainUntil = NEVER;
  private long endUntil = NEVER;

  /** Starts a session; hello is its first frame. */
  SessionCore(long now, Hello hello, Map<HookId, Hook> hooks, long drainTimeout) {
    this.hooks = hooks;
    this.drainTimeout = drainTimeout;
    this.opened = now;
    this.lastFrame = now;
    this.announced = hello.getMaxOutstanding();
    this.calls = new Calls(hooks, announced, hello.getMaxFrameBytes(), this::sendVerdict);
    outbox.add(ConnectRequest.newBuilder().setHello(hello).build());
  }

  /** Takes a frame of the dispatcher. */
  List<Effect> frame(long now, ConnectResponse frame) {
    lastFrame = now;
    List<Effect> effects;
    try {
      effects = received(now, frame);
    } catch (BrokenContractException e) {
      effects = List.of(abort(e.getMessage(), false));
    }
    finishWhenDrained(now);
    stayAlive(now);
    return effects;
  }

  private List<Effect> received(long now, ConnectResponse frame) throws BrokenContractException {
    ConnectResponse.FrameCase kind = frame.getFrameCase();
    if (kind == ConnectResponse.FrameCase.WELCOME) {
      return welcome(frame.getWelcome());
    }
    if (kind == ConnectResponse.FrameCase.FRAME_NOT_SET) {
      return ignore();
    }
    if (!welcomed) {
      throw new BrokenContractException("%s came before Welcome", kind);
    }
    useful = true;
    return switch (kind) {
      case REVIEW -> calls.whole(now, silence, List.of(frame.getReview()));
      case REVIEWS -> reviews(now, frame.getReviews());
      case CHUNK -> calls.chunk(now, silence, frame.getChunk());
      case CANCEL -> calls.cancel(now, silence, frame.getCancel());
      case PING -> ping(frame.getPing());
      case DRAIN -> leave(now, frame.getDrain());
      case HOOK_STATE -> List.of(new Effect.HookChanged(frame.getHookState()));
      case PROBE -> probe(frame.getProbe());
      default -> ignore();
    };
  }

  private List<Effect> reviews(long now, Reviews reviews) throws BrokenContractException {
    int size = reviews.getSerializedSize();
    if (size > Limits.MAX_WIRE_BYTES) {
      throw new BrokenContractException(
          "a frame of several reviews has %s bytes, this host takes %s",
          size, Limits.MAX_WIRE_BYTES);
    }
    return calls.whole(now, silence, reviews.getReviewsList());
  }

  private List<Effect> ping(Ping ping) {
    send(pong(ping.getSeq()));
    return List.of();
  }

  private List<Effect> ignore() {
    ignored++;
    return List.of();
  }

  /** Takes the answer to Hello. A later Welcome has a new list of peers. */
  private List<Effect> welcome(Welcome welcome) {
    if (welcome.getProtocol() != Limits.PROTOCOL) {
      String chosen = Integer.toUnsignedString(welcome.getProtocol());
      String why = "the dispatcher chose protocol " + chosen + ", this host speaks ";
      return List.of(abort(why + Limits.PROTOCOL, false));
    }
    welcomed = true;
    silence = welcome.getSilenceMs() == 0 ? silence : nanos(welcome.getSilenceMs());
    if (welcome.getMaxVerdictBytes() != 0) {
      maxVerdict =
          (int) Math.min(Integer.MAX_VALUE, Integer.toUnsignedLong(welcome.getMaxVerdictBytes()));
    }
    if (welcome.getCapabilitiesList().contains(Limits.BATCHES)) {
      outbox.allowBatches(maxVerdict);
    }
    return List.of(new Effect.Welcome(welcome));
  }

  private List<Effect> probe(Probe probe) {
    if (HookId.STAGES.stream()
        .noneMatch(stage -> hooks.containsKey(new HookId(probe.getHook(), stage)))) {
      send(probeResult(probe.getSeq(), Outcomes.UNKNOWN_HOOK));
      return List.of();
    }
    if (probing >= Limits.MAX_PROBES) {
      send(probeResult(probe.getSeq(), "too many probes at a time"));
      return List.of();
    }
    probing++;
    return List.of(new Effect.Check(probe));
  }

  /** Sends the result of a check; null means ready. */
  void probed(long seq, @Nullable String notReady) {
    probing--;
    send(probeResult(seq, notReady));
  }

  /** Takes the verdict of a handler that has returned. */
  void finished(long now, Invocation invocation, Verdict.Builder outcome) {
    calls.finished(invocation, outcome);
    finishWhenDrained(now);
  }

  /** Announces a new bound on outstanding calls. */
  void credit(int most) {
    if (draining || most == announced) {
      return;
    }
    announced = most;
    calls.raiseLimit(most);
    send(ConnectRequest.newBuilder().setCredit(Credit.newBuilder().setMaxOutstanding(most)));
  }

  /** Announces that the host takes no new calls. Those in flight finish. */
  void drain(long now) {
    if (draining) {
      return;
    }
    draining = true;
    drainUntil = now + drainTimeout;
    calls.drain();
    send(
        ConnectRequest.newBuilder()
            .setDrain(HostDrain.newBuilder().setLastStartedCallId(calls.lastStarted())));
    finishWhenDrained(now);
  }

  /** Ends a draining session once all calls have their verdicts. */
  private void finishWhenDrained(long now) {
    if (draining && !finishing && !calls.owed()) {
      finishing = true;
      drainUntil = NEVER;
      endUntil = Math.min(endUntil, now + Limits.CLOSE_TIMEOUT);
    }
  }

  /**
   * Bounds the rest of a session whose dispatcher drains: it ends the stream after the calls in
   * flight.
   */
  private List<Effect> leave(long now, DispatcherDrain drain) {
    endUntil = Math.min(endUntil, now + nanos(drain.getGraceMs()) + Limits.CLOSE_TIMEOUT);
    return List.of(new Effect.Leaving(drain));
  }

  /**
   * Sends an unasked Pong when frames have come for a while and the host has sent none: on a slow
   * link a Ping may be stuck behind them. Without frames it sends nothing: a host that receives
   * nothing must get no calls.
   */
  private void stayAlive(long now) {
    if (outbox.waiting() > 0) {
      return; // A frame will be sent anyway.
    }
    if (owing == NEVER) {
      owing = now;
    } else if (now - owing >= Limits.ALIVE_INTERVAL) {
      send(pong(UNASKED));
      owing = now;
    }
  }

  private void send(ConnectRequest.Builder frame) {
    if (!finishing && !mute) {
      owing = NEVER;
      outbox.add(frame.build());
    }
  }

  private void sendVerdict(Verdict verdict) {
    owing = NEVER;
    if (!finishing && !mute) {
      outbox.add(Outcomes.fit(verdict, maxVerdict));
    }
  }

  /** Takes the next frame to send; null if there is none. */
  @Nullable ConnectRequest poll() {
    return outbox.poll();
  }

  /** Whether the host's side of the stream is to be closed now; true once. */
  boolean takeClose() {
    if (!finishing || mute || outbox.waiting() > 0) {
      return false;
    }
    mute = true;
    return true;
  }

  /** Notes that a write has failed. The reader may still learn why. */
  void unwritable() {
    mute = true;
    outbox.clear();
  }

  /** Whether so many frames wait that no more should be read. */
  boolean isBehind() {
    return outbox.waiting() > Limits.MAX_OUTBOX;
  }

  /**
   * Stops the calls whose time is over, and aborts the session when a time of its own has passed.
   */
  List<Effect> tick(long now) {
    if (over) {
      return List.of();
    }
    if (now >= lifeUntil()) {
      String silent = "the dispatcher fell silent";
      return List.of(abort(welcomed ? silent : "the dispatcher sent no welcome in time", false));
    }
    if (now >= drainUntil) {
      return List.of(abort("calls were still running when the time to drain was over", true));
    }
    if (now >= endUntil) {
      return List.of(abort("the dispatcher did not end the stream", false));
    }
    return calls.expire(now);
  }

  /** When the next tick is due; Long.MAX_VALUE if there is none. */
  long wake() {
    return over
        ? NEVER
        : Math.min(Math.min(lifeUntil(), calls.nextDeadline()), Math.min(drainUntil, endUntil));
  }

  private long lifeUntil() {
    return welcomed ? lastFrame + silence : opened + Limits.CONNECT_TIMEOUT;
  }

  private Effect abort(@Nullable String why, boolean cutOff) {
    over = true;
    return new Effect.Abort(String.valueOf(why), cutOff);
  }

  /** The handlers that have not returned. */
  List<Invocation> unfinished() {
    return calls.unfinished();
  }

  /** Whether the dispatcher sent anything after its welcome. */
  boolean wasUseful() {
    return useful;
  }

  /** Frames of types that this SDK does not know. */
  long ignored() {
    return ignored;
  }

  private static long nanos(int milliseconds) {
    return TimeUnit.MILLISECONDS.toNanos(Integer.toUnsignedLong(milliseconds));
  }

  private static ConnectRequest.Builder pong(long seq) {
    return ConnectRequest.newBuilder().setPong(Pong.newBuilder().setSeq(seq));
  }

  private static ConnectRequest.Builder probeResult(long seq, @Nullable String notReady) {
    ProbeResult.Builder result = ProbeResult.newBuilder().setSeq(seq).setReady(notReady == null);
    if (notReady != null) {
      result.setMessage(notReady);
    }
    return ConnectRequest.newBuilder().setProbeResult(result);
  }
}
