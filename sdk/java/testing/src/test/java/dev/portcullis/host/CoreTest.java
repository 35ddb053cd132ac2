package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.Cancel;
import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.ConnectResponse;
import dev.portcullis.host.v1.Hello;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Review;
import dev.portcullis.host.v1.Reviews;
import dev.portcullis.host.v1.Verdict;
import dev.portcullis.host.v1.Welcome;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** What no transcript shows: bounds, and the parts of the core by themselves. */
class CoreTest {
  private static Verdict verdict(int bytes) {
    return Outcomes.refused("x".repeat(bytes)).setCallId(1).build();
  }

  private static List<ConnectRequest> drain(Outbox outbox) {
    List<ConnectRequest> out = new ArrayList<>();
    for (ConnectRequest f = outbox.poll(); f != null; f = outbox.poll()) {
      out.add(f);
    }
    return out;
  }

  @Test
  void aFrameOfVerdictsIsBoundedInNumberAndBytes() {
    Outbox outbox = new Outbox();
    outbox.allowBatches(Integer.MAX_VALUE);
    IntStream.range(0, 130).forEach(i -> outbox.add(verdict(1)));
    assertEquals(130, outbox.waiting());
    assertEquals(
        List.of(64, 64, 2),
        drain(outbox).stream().map(f -> f.getVerdicts().getVerdictsCount()).toList());

    IntStream.range(0, 10).forEach(i -> outbox.add(verdict(20 << 10)));
    List<ConnectRequest> frames = drain(outbox);
    assertEquals(4, frames.size());
    frames.forEach(f -> assertTrue(f.getSerializedSize() <= Limits.MAX_BATCH_BYTES));
  }

  @Test
  void framesKeepTheirOrder() {
    Outbox outbox = new Outbox();
    outbox.allowBatches(Integer.MAX_VALUE);
    outbox.add(verdict(1));
    outbox.add(ConnectRequest.getDefaultInstance());
    outbox.add(verdict(1));
    assertEquals(
        List.of("VERDICT", "FRAME_NOT_SET", "VERDICT"),
        drain(outbox).stream().map(f -> f.getFrameCase().name()).toList());
  }

  @Test
  void earlyCancelsAreBoundedByTheHooksThatTheyName() {
    EarlyCancels early = new EarlyCancels();
    for (int call = 1; call <= 2000; call++) {
      early.remember(call, 0, Cancel.newBuilder().setCallId(call).build());
    }
    assertTrue(early.take(0, 976).isEmpty());
    assertEquals(1, early.take(0, 977).size());

    Cancel.Builder huge = Cancel.newBuilder().setCallId(3000);
    IntStream.range(0, Limits.MAX_EARLY_CANCELS).forEach(huge::addHookIndexes);
    early.remember(3000, 0, huge.build());
    assertTrue(early.take(0, 3000).isEmpty());
    assertEquals(1, early.take(0, 978).size(), "one that is too large drives others out");
  }

  @Test
  void aTextIsCutBetweenCharacters() {
    assertEquals("ab", Outcomes.shorten("ab", 2));
    String cut = Outcomes.shorten("\u00e4".repeat(50), 21);
    assertEquals("\u00e4".repeat(5) + " ... (cut)", cut);
    assertEquals("", Outcomes.shorten("abcdefghijkl", 5));
  }

  @Test
  void aDenialThatIsTooLargeStaysOne() {
    Response denial = Response.deny("m".repeat(5000)).cause("f", "t".repeat(5000));
    Verdict fitted =
        Outcomes.fit(Outcomes.returned(denial, Stage.STAGE_VALIDATE, false).build(), 1000);
    assertTrue(fitted.getSerializedSize() <= 1000);
    assertFalse(fitted.getResponse().getAllowed());
    assertEquals(403, fitted.getResponse().getStatus().getCode());
    assertTrue(fitted.getResponse().getStatus().getMessage().endsWith("(cut)"));
  }

  @Test
  void onlyAuthoredTextsLeaveAlsoFromCircularCauses() {
    Exception a = new Exception("secret");
    Exception b = new Exception("secret", a);
    a.initCause(b);
    assertEquals("handler failed", Outcomes.threw(a, false).getError().getMessage());
    assertTimeoutPreemptively(Duration.ofMinutes(1), () -> assertNull(Outcomes.denial(a)));
    Throwable wrapped = new RuntimeException("secret", new HandlerException("down"));
    assertEquals("down", Outcomes.threw(wrapped, false).getError().getMessage());
    assertTrue(Outcomes.threw(wrapped, true).hasCancelled());
    assertTrue(Outcomes.threw(new StackOverflowError(), true).getError().getPanicked());
    String longest = Outcomes.publicText(new HandlerException("x".repeat(5000)), "");
    assertEquals(Limits.MAX_ERROR_BYTES, longest.length());
  }

  @Test
  void theBackOffGrowsAndIsBounded() {
    assertEquals(Limits.BACKOFF_MIN, ConnLoop.backoff(0, 0));
    assertEquals(2 * Limits.BACKOFF_MIN, ConnLoop.backoff(0, 1));
    assertEquals(4 * Limits.BACKOFF_MIN, ConnLoop.backoff(1, 1));
    assertEquals(
        Limits.BACKOFF_MAX,
        ConnLoop.backoff(5, 1) + ConnLoop.backoff(1000, 1) - Limits.BACKOFF_MAX);
  }

  @Test
  void aFrameOfSeveralReviewsIsBounded() {
    SessionCore core =
        new SessionCore(
            0,
            Hello.newBuilder().setMaxFrameBytes(1 << 20).build(),
            Map.of(),
            Limits.DRAIN_TIMEOUT);
    core.frame(
        0, ConnectResponse.newBuilder().setWelcome(Welcome.newBuilder().setProtocol(1)).build());
    Review large =
        Review.newBuilder().setCallId(1).setTraceparent("x".repeat(Limits.MAX_WIRE_BYTES)).build();
    List<Effect> effects =
        core.frame(
            0,
            ConnectResponse.newBuilder()
                .setReviews(Reviews.newBuilder().addReviews(large))
                .build());
    assertTrue(effects.get(0) instanceof Effect.Abort);
    assertEquals(Long.MAX_VALUE, core.wake());
  }

  @Test
  void theValuesOfTheContractHaveTheirNames() {
    for (Stage stage : HookId.STAGES) {
      assertEquals(named(stage, "STAGE_"), dev.portcullis.host.Stage.of(stage).name());
    }
    assertEquals(
        dev.portcullis.host.Stage.UNSPECIFIED,
        dev.portcullis.host.Stage.of(Stage.STAGE_ADMIT)); // It is no stage of a hook.
    for (var mode : dev.portcullis.host.v1.Mode.values()) {
      assertEquals(named(mode, "MODE_"), Mode.of(mode).name());
    }
    for (var state : dev.portcullis.host.v1.State.values()) {
      assertEquals(named(state, "STATE_"), Status.State.of(state).name());
    }
  }

  /** The name that a value has in the SDK: one of a later contract is not known. */
  private static String named(Enum<?> ofContract, String prefix) {
    return ofContract.name().equals("UNRECOGNIZED")
        ? "UNSPECIFIED"
        : ofContract.name().substring(prefix.length());
  }

  private static final HookId HOOK = new HookId("a", Stage.STAGE_VALIDATE);

  /** A session that was welcomed, with one hook. */
  private static SessionCore welcomed(long drainTimeout) {
    Hook hook = new Hook(HOOK, request -> Response.allow(), List.of());
    Hello hello = Hello.newBuilder().setMaxOutstanding(1).setMaxFrameBytes(1 << 20).build();
    SessionCore core = new SessionCore(0, hello, Map.of(HOOK, hook), drainTimeout);
    Welcome.Builder welcome = Welcome.newBuilder().setProtocol(1).setSilenceMs(60_000);
    core.frame(0, ConnectResponse.newBuilder().setWelcome(welcome).build());
    return core;
  }

  private static List<Effect> review(SessionCore core, long id) {
    HookCall call =
        HookCall.newBuilder()
            .setName(HOOK.name())
            .setStage(HOOK.stage())
            .setRemainingMs(1000)
            .build();
    Review.Builder review =
        Review.newBuilder().setCallId(id).addHooks(call).setRequest(Requests.create("{}"));
    return core.frame(0, ConnectResponse.newBuilder().setReview(review).build());
  }

  private static Invocation start(SessionCore core, long id) {
    return ((Effect.Start) review(core, id).get(0)).invocation();
  }

  @Test
  void aCallThatHasEndedIsForgotten() {
    SessionCore core = welcomed(Limits.DRAIN_TIMEOUT);
    long quiet = core.wake();
    Invocation running = start(core, 1);
    assertEquals(TimeUnit.SECONDS.toNanos(1), core.wake());
    assertEquals(List.of(running), core.unfinished());
    core.finished(1, running, Outcomes.returned(Response.allow(), HOOK.stage(), false));
    assertEquals(quiet, core.wake());
    assertTrue(core.unfinished().isEmpty());
    assertTrue(core.tick(TimeUnit.SECONDS.toNanos(2)).isEmpty());
  }

  @Test
  void aHostWhoseCallsHaveEndedIsNotCutOffByTheTimeToDrain() {
    SessionCore core = welcomed(TimeUnit.SECONDS.toNanos(1));
    core.drain(0);
    assertTrue(core.tick(TimeUnit.SECONDS.toNanos(1)).isEmpty());
    Effect end = core.tick(TimeUnit.SECONDS.toNanos(2)).get(0);
    assertEquals(new Effect.Abort("the dispatcher did not end the stream", false), end);
  }

  @Test
  void aHostIsBehindWhenMoreThanAThousandVerdictsWait() {
    SessionCore core = welcomed(Limits.DRAIN_TIMEOUT);
    start(core, 1);
    for (int id = 2; !core.isBehind(); id++) {
      assertTrue(id <= Limits.MAX_OUTBOX + 2, "it takes reviews without end");
      review(core, id); // Each is refused: there is one slot.
    }
    while (core.poll() != null) {
      assertFalse(core.takeClose());
    }
    assertFalse(core.isBehind());
  }

  @Test
  void anInterruptEndsWithItsHandler() {
    Invocation running = start(welcomed(Limits.DRAIN_TIMEOUT), 1);
    assertTrue(running.begin());
    assertFalse(running.stop(Invocation.End.CANCELLED, Runnable::run));
    assertTrue(Thread.currentThread().isInterrupted());
    running.finish();
    assertFalse(Thread.currentThread().isInterrupted());
  }

  @Test
  void aCallThatIsStoppedBeforeItsHandlerNeverRuns() {
    Invocation waiting = start(welcomed(Limits.DRAIN_TIMEOUT), 1);
    assertTrue(waiting.stop(Invocation.End.DEADLINE, Runnable::run));
    assertFalse(waiting.stop(Invocation.End.CANCELLED, Runnable::run));
    assertFalse(waiting.begin());
    assertEquals("no time left", waiting.whyNotStarted());
  }

  @Test
  void afterAFailedWriteNothingIsSent() {
    SessionCore core = new SessionCore(0, Hello.getDefaultInstance(), Map.of(), 1);
    core.unwritable();
    core.drain(0);
    assertNull(core.poll());
    assertFalse(core.takeClose());
  }

  @Test
  void numbersKeepTheirSpellingInADifference() {
    var request =
        Request.of(
            Requests.create("{\"a\": 1.00, \"b\": 123456789012345678901234567890, \"c\": 1e400}"));
    Response same = Response.change(request, object -> {});
    assertTrue(same.message().getPatch().isEmpty());
    for (String number : List.of("1.00", "9007199254740993", "123456789012345678901234567890")) {
      Response copied =
          Response.change(
              Request.of(Requests.create("{\"a\": " + number + "}")),
              object -> object.set("d", object.get("a")));
      assertEquals(
          "[{\"op\":\"add\",\"path\":\"/d\",\"value\":" + number + "}]",
          copied.message().getPatch().toStringUtf8());
    }
    assertTrue(Response.patch(new byte[0]).isAllowed());
  }

  @Test
  void theTreeOfARequestMayBeChangedInPlace() {
    var request = Request.of(Requests.create("{\"a\": 1}"));
    request.object().withObject("/b").put("c", 2);
    assertEquals(
        "[{\"op\":\"add\",\"path\":\"/b\",\"value\":{\"c\":2}}]",
        Response.difference(request, request.object()).message().getPatch().toStringUtf8());
  }

  @Test
  void aTypeIsDecodedByTheCodec() {
    var request = Request.of(Requests.create("{\"name\": \"x\", \"more\": 1}"));
    assertEquals(new Named("x"), request.object(Named.class));
    assertNull(request.oldObject(Named.class));
    assertTrue(request.oldObject().isMissingNode());
  }

  record Named(String name) {}
}
