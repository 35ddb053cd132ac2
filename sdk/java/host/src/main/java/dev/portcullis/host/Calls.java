package dev.portcullis.host;

import dev.portcullis.host.v1.Cancel;
import dev.portcullis.host.v1.Cancelled;
import dev.portcullis.host.v1.Chunk;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import dev.portcullis.host.v1.Verdict;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The calls of one session: which handlers start, are stopped, and owe a verdict. It is pure; one
 * caller at a time.
 */
final class Calls {
  private final Map<HookId, Hook> hooks;
  private final Consumer<Verdict> verdicts;

  private final Map<Long, Invocation[]> running = new HashMap<>(); // by call, then by hook index
  private final TreeSet<Invocation> byDeadline = // those whose time is not over
      new TreeSet<>(
          Comparator.comparingLong(Invocation::deadline)
              .thenComparingLong(Invocation::callId)
              .thenComparingInt(Invocation::index));
  private final EarlyCancels early = new EarlyCancels();
  private final Assembly assembly;
  private int outstanding;
  private int
      limit; // the highest bound ever announced: the dispatcher may not know a lower one yet
  private boolean draining;
  private long highest; // of all reviews
  private long lastWhole; // of those that came whole
  private boolean anyWhole;
  private long lastStarted;

  Calls(Map<HookId, Hook> hooks, int limit, long maxReviewBytes, Consumer<Verdict> verdicts) {
    this.hooks = hooks;
    this.limit = limit;
    this.assembly = new Assembly(maxReviewBytes);
    this.verdicts = verdicts;
  }

  void raiseLimit(int announced) {
    limit = Math.max(limit, announced);
  }

  /** Refuses all calls from now on. */
  void drain() {
    draining = true;
  }

  long lastStarted() {
    return lastStarted;
  }

  /**
   * Whether verdicts are owed. An incomplete review needs one if a call with a greater id was
   * started: by HostDrain the dispatcher takes it as started too.
   */
  boolean owed() {
    return outstanding > 0
        || (assembly.isAssembling() && Long.compareUnsigned(assembly.call(), lastStarted) < 0);
  }

  /** The handlers that have not returned. */
  List<Invocation> unfinished() {
    return running.values().stream().flatMap(Arrays::stream).filter(Objects::nonNull).toList();
  }

  /** The next deadline of a call; Long.MAX_VALUE if there is none. */
  long nextDeadline() {
    return byDeadline.isEmpty() ? Long.MAX_VALUE : byDeadline.first().deadline();
  }

  /** Stops the calls whose time is over. */
  List<Effect> expire(long now) {
    List<Effect> effects = new ArrayList<>();
    while (nextDeadline() <= now) {
      effects.add(new Effect.Stop(byDeadline.pollFirst(), Invocation.End.DEADLINE));
    }
    return effects;
  }

  List<Effect> chunk(long now, long silence, Chunk chunk) throws BrokenContractException {
    if (running.containsKey(chunk.getCallId())) {
      throw twice(chunk.getCallId());
    }
    Review whole = assembly.add(now, chunk);
    noteHighest(chunk.getCallId());
    return whole == null ? List.of() : take(now, assembly.began(), silence, List.of(whole));
  }

  /**
   * Takes reviews that come in one piece. Their ids increase, so that a call that comes again is
   * noticed also after its end. Reviews in chunks have an order of their own.
   */
  List<Effect> whole(long now, long silence, List<Review> reviews) throws BrokenContractException {
    for (Review review : reviews) {
      if (anyWhole && Long.compareUnsigned(review.getCallId(), lastWhole) <= 0) {
        throw BrokenContractException.order(review.getCallId(), lastWhole);
      }
      lastWhole = review.getCallId();
      anyWhole = true;
    }
    return take(now, now, silence, reviews);
  }

  /** Starts handlers, and refuses the calls that cannot start. Their time counts from written. */
  private List<Effect> take(long now, long written, long silence, List<Review> reviews)
      throws BrokenContractException {
    List<Effect> effects = new ArrayList<>();
    for (Review review : reviews) {
      long id = review.getCallId();
      if (running.containsKey(id) || assembly.isAssembling(id)) {
        throw twice(id);
      }
      Assembly.checkHooks(id, review.getHooksCount());
      noteHighest(id);
      List<Cancel> cancels = early.take(now - silence, id);
      for (int i = 0; i < review.getHooksCount(); i++) {
        HookCall call = review.getHooks(i);
        Hook hook = hooks.get(new HookId(call.getName(), call.getStage()));
        String refusal = refusal(review, call, hook, EarlyCancels.name(cancels, i));
        if (hook == null || refusal != null) {
          String reason = refusal == null ? Outcomes.UNKNOWN_HOOK : refusal;
          verdicts.accept(named(Outcomes.refused(reason), id, i));
          continue;
        }
        long time = TimeUnit.MILLISECONDS.toNanos(Integer.toUnsignedLong(call.getRemainingMs()));
        effects.add(start(new Invocation(review, i, hook, now, written + time)));
      }
    }
    return effects;
  }

  /** The reason not to start the handler of a hook; null if it starts. */
  private @Nullable String refusal(
      Review review, HookCall call, @Nullable Hook hook, boolean cancelled) {
    if (draining) {
      return Outcomes.DRAINING;
    } else if (hook == null) {
      return Outcomes.UNKNOWN_HOOK;
    } else if (!review.hasRequest()) {
      return Outcomes.EMPTY;
    } else if (cancelled) {
      return Outcomes.CANCELLED;
    } else if (call.getRemainingMs() == 0) {
      return Outcomes.NO_TIME;
    }
    return outstanding >= limit ? Outcomes.OVERLOADED : null;
  }

  private Effect start(Invocation invocation) {
    running
            .computeIfAbsent(
                invocation.callId(), id -> new Invocation[invocation.review().getHooksCount()])[
            invocation.index()] =
        invocation;
    byDeadline.add(invocation);
    outstanding++;
    if (Long.compareUnsigned(invocation.callId(), lastStarted) > 0) {
      lastStarted = invocation.callId();
    }
    return new Effect.Start(invocation);
  }

  /**
   * Cancels running handlers. A cancellation before its review is remembered; one after the verdict
   * is ignored.
   */
  List<Effect> cancel(long now, long silence, Cancel cancel) {
    long id = cancel.getCallId();
    if (assembly.isAssembling(id)) {
      cancelChunks(now, silence, cancel);
      return List.of();
    }
    Invocation[] of = running.get(id);
    if (of == null) {
      if (Long.compareUnsigned(id, highest) > 0) {
        early.remember(now, now - silence, cancel);
      }
      return List.of();
    }
    List<Effect> effects = new ArrayList<>();
    for (int i = 0; i < of.length; i++) {
      if (of[i] != null && EarlyCancels.name(List.of(cancel), i)) {
        effects.add(new Effect.Stop(of[i], Invocation.End.CANCELLED));
      }
    }
    return effects;
  }

  /**
   * Cancels a review that has come in part. If all its hooks are cancelled, no more chunks come; if
   * some are, the cancellation is remembered, since the others still need the review.
   */
  private void cancelChunks(long now, long silence, Cancel cancel) {
    if (!assembly.isCoveredBy(cancel)) {
      early.remember(now, now - silence, cancel);
      return;
    }
    int hooksOfCall = assembly.drop();
    for (int i = 0; i < hooksOfCall; i++) {
      verdicts.accept(
          named(
              Verdict.newBuilder().setCancelled(Cancelled.getDefaultInstance()),
              cancel.getCallId(),
              i));
    }
  }

  /**
   * Takes the verdict of a handler that has returned. It is sent also for a cancelled call: it
   * alone frees the slot.
   */
  void finished(Invocation invocation, Verdict.Builder outcome) {
    Invocation[] of = running.get(invocation.callId());
    if (of == null || of[invocation.index()] != invocation) {
      return;
    }
    of[invocation.index()] = null;
    byDeadline.remove(invocation);
    outstanding--;
    boolean last = true;
    for (Invocation other : of) {
      last &= other == null;
    }
    if (last) {
      running.remove(invocation.callId());
    }
    verdicts.accept(named(outcome, invocation.callId(), invocation.index()));
  }

  private static Verdict named(Verdict.Builder outcome, long call, int hook) {
    return outcome.setCallId(call).setHookIndex(hook).build();
  }

  private void noteHighest(long call) {
    if (Long.compareUnsigned(call, highest) > 0) {
      highest = call;
    }
  }

  private static BrokenContractException twice(long call) {
    return new BrokenContractException("call %s came twice", Long.toUnsignedString(call));
  }
}
