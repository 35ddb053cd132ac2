package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.Hello;
import dev.portcullis.host.v1.Verdict;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Plays the transcripts of sdk/conformance/vectors against the core, under a fake clock. */
class VectorTest {
  @TestFactory
  Stream<DynamicTest> theCoreAnswersAsTheTranscriptsSay() throws IOException {
    List<Vector> vectors = Vector.all().toList();
    assertFalse(vectors.isEmpty(), "there are no transcripts");
    return vectors.stream().map(v -> dynamicTest(v.name(), () -> play(v)));
  }

  private static void play(Vector vector) throws Exception {
    Stage stage = new Stage();
    int number = 0;
    for (Vector.Step step : vector.steps()) {
      stage.play(step);
      String where = "step " + number++ + ", " + step.action();
      Happened happened = stage.happened();
      Happened expected = new Happened();
      for (Vector.Event event : step.expect()) {
        expected.add(event);
      }
      assertEquals(expected.describe(), happened.describe(), where);
    }
  }

  /** What a host did in one step. */
  private static final class Happened {
    final List<String> started = new ArrayList<>();
    final List<String> frames = new ArrayList<>();
    boolean closed;
    String ended = "no";

    void add(Vector.Event event) throws IOException {
      if (event.started() != null) {
        started.add(event.started());
      } else if (event.frame() != null) {
        add(event.message());
      } else if (event.closed()) {
        closed = true;
      } else {
        end(event.ended() == null || event.ended().isEmpty());
      }
    }

    void end(boolean cleanly) {
      ended = cleanly ? "cleanly" : "in error";
    }

    void add(ConnectRequest frame) {
      if (frame.hasVerdicts()) {
        for (Verdict verdict : frame.getVerdicts().getVerdictsList()) {
          frames.add("verdict " + verdict);
        }
      } else if (frame.hasVerdict()) {
        frames.add("verdict " + frame.getVerdict());
      } else if (frame.hasHello()) {
        Hello hello = frame.getHello().toBuilder().clearSdk().clearSdkVersion().build();
        frames.add("hello " + hello);
      } else {
        frames.add(frame.toString());
      }
    }

    /**
     * Handlers run at the same time: the order of their starts and of successive verdicts means
     * nothing.
     */
    String describe() {
      StringBuilder out = new StringBuilder();
      started.stream().sorted().forEach(hook -> out.append("started ").append(hook).append('\n'));
      TreeSet<String> run = new TreeSet<>();
      for (String frame : frames) {
        if (!frame.startsWith("verdict ")) {
          flush(run, out);
          out.append(frame);
        } else {
          run.add(frame);
        }
      }
      flush(run, out);
      return out.append("closed ").append(closed).append(", ended ").append(ended).toString();
    }

    private static void flush(Set<String> run, StringBuilder out) {
      run.forEach(out::append);
      run.clear();
    }
  }

  /** A host whose handlers are played by the test. */
  private static final class Stage {
    private final TranscriptHooks hooks = new TranscriptHooks();
    private Happened happened = new Happened();
    private SessionCore core = new SessionCore(0, Hello.getDefaultInstance(), hooks.none(), 0);
    private long now = 1_000_000_000L;
    private boolean over;

    /** What happened since the last call. */
    Happened happened() {
      Happened out = happened;
      happened = new Happened();
      return out;
    }

    void play(Vector.Step step) throws IOException {
      switch (step.action()) {
        case "host" -> enter(step);
        case "send" -> {
          for (var frame : step.messages()) {
            if (!over) {
              carryOut(core.frame(now, frame));
            }
          }
        }
        case "advance" -> advance(now + step.ms() * 1_000_000L);
        case "release" -> {
          hooks.release(String.valueOf(step.hook()));
          settle();
        }
        case "drain" -> core.drain(now);
        case "end" -> end(step.code() == null);
        default -> throw new IllegalArgumentException(step.action());
      }
      settle();
    }

    private void enter(Vector.Step step) {
      HostBuilder builder =
          Host.builder("imagepolicy")
              .instance("imagepolicy-1")
              .dispatchers("127.0.0.1:1")
              .tls(Tls.plaintext());
      if (step.maxOutstanding() > 0) {
        builder.maxOutstanding(step.maxOutstanding());
      }
      step.hooks().forEach(hook -> hooks.register(builder, hook));
      Settings settings = builder.settings();
      long drain =
          step.drainTimeoutMs() > 0 ? step.drainTimeoutMs() * 1_000_000L : settings.drainTimeout();
      Hello hello =
          settings.hello().toBuilder().setMaxOutstanding(settings.maxOutstanding()).build();
      core = new SessionCore(now, hello, settings.hooks(), drain);
    }

    private void advance(long until) {
      while (!over && core.wake() <= until) {
        now = core.wake();
        carryOut(core.tick(now));
        settle();
      }
      now = until;
    }

    private void end(boolean cleanly) {
      if (!over) {
        over = true;
        happened.end(cleanly);
      }
    }

    private void carryOut(List<Effect> effects) {
      for (Effect effect : effects) {
        if (effect instanceof Effect.Start start) {
          hooks.start(start.invocation(), now, happened.started);
        } else if (effect instanceof Effect.Stop stop) {
          hooks.stop(stop.invocation(), stop.why());
        } else if (effect instanceof Effect.Check check) {
          core.probed(check.probe().getSeq(), hooks.notReady(check.probe().getHook()));
        } else if (effect instanceof Effect.Abort) {
          end(false);
        }
      }
    }

    /** Sends what waits, and has the handlers return that can. */
    private void settle() {
      do {
        for (ConnectRequest f = core.poll(); f != null && !over; f = core.poll()) {
          happened.add(f);
        }
        happened.closed |= !over && core.takeClose();
      } while (hooks.returnOne(core, now));
    }
  }
}
