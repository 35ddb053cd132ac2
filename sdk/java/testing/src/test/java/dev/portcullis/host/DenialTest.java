package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.portcullis.admission.v1.AdmissionResponse;
import dev.portcullis.admission.v1.Stage;
import dev.portcullis.admission.v1.Status;
import dev.portcullis.host.testing.Answer;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Verdict;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SpanProcessor;
import java.io.IOException;
import java.text.MessageFormat;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.ResourceBundle;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** A denial stays one, whatever goes with it. */
class DenialTest {
  private static final String POD = "{\"kind\": \"Pod\"}";

  /** The text of an exception that has none. */
  private static @Nullable String silent() {
    return new IllegalStateException().getMessage();
  }

  private static AdmissionResponse sent(Response response) throws Exception {
    Verdict verdict = Outcomes.returned(response, Stage.STAGE_MUTATE, true).build();
    assertTrue(verdict.hasResponse(), verdict.toString());
    AdmissionResponse sent = Verdict.parseFrom(verdict.toByteArray()).getResponse();
    assertFalse(sent.getAllowed());
    assertEquals("Failure", sent.getStatus().getStatus());
    return sent;
  }

  private static Status status(Response response) throws Exception {
    return sent(response).getStatus();
  }

  @Test
  void aTextThatIsNullIsEmpty() throws Exception {
    assertEquals("", status(Response.deny(silent())).getMessage());
    Response denial = Response.deny("no").reason(null).cause("f", null).cause(null, "m", null);
    assertEquals("Forbidden", status(denial).getReason());
    assertEquals("f", status(denial).getDetails().getCauses(0).getField());
    assertEquals("m", status(denial).getDetails().getCauses(1).getMessage());
    assertEquals("", denial.leftOut());
  }

  @Test
  void whatIsNullIsLeftOut() throws Exception {
    Response denial =
        Response.deny("no")
            .warnings((String[]) null)
            .warnings((String) null, "w")
            .audit(null, "v")
            .audit("k", null)
            .audit("k", "v")
            .cause(null, null);
    AdmissionResponse sent = sent(denial);
    assertEquals("no", sent.getStatus().getMessage());
    assertEquals(List.of("w"), sent.getWarningsList());
    assertEquals(Map.of("k", "v"), sent.getAuditAnnotationsMap());
    assertEquals(0, sent.getStatus().getDetails().getCausesCount());
    assertEquals("audit, causes, warnings", denial.leftOut());
  }

  @Test
  void aCodeThatIsNoneOfHttpsErrorsIs403() throws Exception {
    int[] foreign = {Integer.MIN_VALUE, -422, 200, 399, 600, 1000, Integer.MAX_VALUE};
    for (int code : foreign) {
      Response denial = Response.deny("no").code(422).code(code).warnings("w");
      assertEquals(403, status(denial).getCode(), "code " + code);
      assertEquals("Forbidden", status(denial).getReason());
      assertEquals("code", denial.leftOut());
    }
    for (int code : new int[] {400, 422, 599}) {
      assertEquals(code, status(Response.deny("no").code(code)).getCode());
    }
    assertEquals(403, status(Response.deny("no").code(0)).getCode());
    assertEquals("", Response.deny("no").code(0).leftOut());
  }

  @Test
  void aTextThatIsNoUnicodeIsSent() throws Exception {
    AdmissionResponse sent = sent(Response.deny("n\ud800").warnings("\udfff").audit("\ud800", "v"));
    assertEquals("n?", sent.getStatus().getMessage());
    assertEquals(List.of("?"), sent.getWarningsList());
    assertEquals(Map.of("?", "v"), sent.getAuditAnnotationsMap());
  }

  @Test
  void aRefusalWithoutATextOrAResponseIsADenial() throws Exception {
    String none = silent();
    assertEquals("", status(new DeniedException(none).response()).getMessage());
    assertEquals(403, status(new DeniedException((Response) null).response()).getCode());
    Response silent = Response.deny(none).code(422);
    assertEquals(422, status(new DeniedException(silent).response()).getCode());
    assertThrows(IllegalArgumentException.class, () -> new DeniedException(Response.allow()));
  }

  @Test
  void whatIsThrownIsADenialAtEveryStage() {
    Handler plain =
        request -> {
          throw new DeniedException("no");
        };
    Handler wrapped =
        request -> {
          HandlerException failure = new HandlerException("down", new DeniedException("no"));
          throw new IOException(failure);
        };
    Handler bug =
        request -> {
          throw new AssertionError("a bug", new DeniedException("no"));
        };
    Handler late =
        request -> {
          while (!request.isCancelled()) {
            Thread.onSpinWait();
          }
          throw new DeniedException(Response.deny("no").code(422));
        };
    for (Handler handler : List.of(plain, wrapped, bug, late)) {
      try (FakeDispatcher mesh =
          FakeDispatcher.serving(
              Host.builder("test")
                  .validate("v", handler)
                  .mutate("m", handler)
                  .initialize("i", handler))) {
        for (String hook : List.of("v", "m", "i")) {
          Verdict verdict = Verdict.getDefaultInstance();
          // On a busy machine the time may be over before the handler has begun.
          for (int ms = 50; !verdict.hasResponse(); ms *= 2) {
            HookCall call =
                mesh.session().call(hook, Duration.ofMillis(handler == late ? ms : 60_000));
            verdict = mesh.session().post(Requests.create(POD), call).get(0).join();
            assertFalse(verdict.hasError() || verdict.hasCancelled(), verdict.toString());
          }
          assertFalse(verdict.getResponse().getAllowed());
          assertEquals("no", verdict.getResponse().getStatus().getMessage());
        }
      }
    }
  }

  private static final @Nullable String[] TEXTS = {
    null, "", "x", "\0", "n\ud800", "\udfff", "ü🚢", "w".repeat(1 << 20)
  };

  private static Response decorated(Response response, Random random) {
    String first = TEXTS[random.nextInt(TEXTS.length)];
    String second = TEXTS[random.nextInt(TEXTS.length)];
    return switch (random.nextInt(6)) {
      case 0 -> response.code(random.nextInt());
      case 1 -> response.reason(first);
      case 2 -> response.cause(first, second, first);
      case 3 -> response.warnings(first, second);
      case 4 -> response.audit(first, second);
      default -> new DeniedException(response).response();
    };
  }

  /** Whatever the public API can build is sent as a denial, however little the dispatcher takes. */
  @Test
  void anyDenialIsSentAsADenial() throws Exception {
    for (int seed = 0; seed < 100; seed++) {
      Random random = new Random(seed);
      Response response = Response.deny(TEXTS[random.nextInt(TEXTS.length)]);
      for (int i = random.nextInt(12); i > 0; i--) {
        response = decorated(response, random);
      }
      sent(response);
      int limit = 200 + random.nextInt(1 << (8 + random.nextInt(14)));
      Verdict fit =
          Outcomes.fit(Outcomes.returned(response, Stage.STAGE_VALIDATE, false).build(), limit);
      assertTrue(fit.hasResponse() && !fit.getResponse().getAllowed(), "seed " + seed);
      assertTrue(fit.getSerializedSize() <= limit, "seed " + seed);
    }
  }

  @Test
  void moreThanADispatcherTakesIsLeftOut() throws Exception {
    Response denial = Response.deny("no");
    for (int i = 0; i < 4094; i++) {
      denial = denial.warnings("w" + i);
    }
    denial = denial.cause("a", "b").audit("a", "b");
    assertEquals("", denial.leftOut());
    denial = denial.warnings("w").cause("c", "d").audit("c", "d");
    assertEquals("audit, causes, warnings", denial.leftOut());
    AdmissionResponse sent = sent(denial);
    assertEquals(4094, sent.getWarningsCount());
    assertEquals(1, sent.getStatus().getDetails().getCausesCount());
    assertEquals(1, sent.getAuditAnnotationsCount());
  }

  /** A log, which may have a defect. */
  private record Log(List<String> lines, boolean broken) implements System.Logger {
    @Override
    public String getName() {
      return "test";
    }

    @Override
    public boolean isLoggable(Level level) {
      return true;
    }

    @Override
    public void log(
        Level level, @Nullable ResourceBundle bundle, String text, @Nullable Throwable thrown) {
      add(level, text);
    }

    @Override
    public void log(
        Level level, @Nullable ResourceBundle bundle, String format, @Nullable Object... of) {
      add(level, of == null ? format : MessageFormat.format(format, of));
    }

    private void add(Level level, String text) {
      if (level.compareTo(Level.WARNING) < 0) {
        return;
      }
      synchronized (lines) {
        lines.add(text);
      }
      if (broken) {
        throw new IllegalStateException("the disk is full");
      }
    }
  }

  /** Telemetry with a defect. */
  private static final class Broken implements SpanProcessor {
    @Override
    public void onStart(Context parent, ReadWriteSpan span) {}

    @Override
    public boolean isStartRequired() {
      return false;
    }

    @Override
    public void onEnd(ReadableSpan span) {
      throw new IllegalStateException("hunter2");
    }

    @Override
    public boolean isEndRequired() {
      return true;
    }
  }

  @Test
  void whatItLacksIsLoggedOnceASecond() {
    Log log = new Log(new ArrayList<>(), false);
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            Host.builder("test")
                .logger(log)
                .validate("v", request -> Response.deny("no").code(200)))) {
      for (int i = 0; i < 5; i++) {
        assertFalse(mesh.review("v", Requests.create(POD)).allowed());
      }
    }
    assertEquals(
        1,
        log.lines().stream()
            .filter(
                line ->
                    line.startsWith("a part of the verdict cannot be sent: hook=v stage=validate")
                        && line.contains("error=\"code\""))
            .count(),
        log.lines().toString());
  }

  @Test
  void logsAndTelemetryThatThrowCostNoDenial() {
    SdkTracerProvider spans = SdkTracerProvider.builder().addSpanProcessor(new Broken()).build();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            Host.builder("test")
                .logger(new Log(new ArrayList<>(), true))
                .openTelemetry(OpenTelemetrySdk.builder().setTracerProvider(spans).build())
                .validate("v", request -> Response.deny("no").code(200)))) {
      for (int i = 0; i < 3; i++) {
        Answer verdict = mesh.review("v", Requests.create(POD));
        assertFalse(verdict.allowed());
        assertEquals("no", verdict.message());
      }
    }
  }
}
