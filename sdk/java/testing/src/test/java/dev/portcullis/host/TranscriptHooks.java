package dev.portcullis.host;

import dev.portcullis.host.v1.HandlerError;
import dev.portcullis.host.v1.Verdict;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The hooks that transcripts ask: their names say what they do. */
final class TranscriptHooks {
  private record Running(Invocation invocation, long started) {
    String name() {
      return invocation.hook().id().name();
    }
  }

  private record Returned(Invocation invocation, long started, Verdict.Builder outcome) {}

  private final List<Running> held = new ArrayList<>();
  private final ArrayDeque<Returned> returned = new ArrayDeque<>();

  Map<HookId, Hook> none() {
    return Map.of();
  }

  void register(HostBuilder host, String name) {
    Handler handler = request -> handle(name, request);
    switch (name) {
      case "patch" -> host.mutate(name, handler);
      case "initialize" -> host.initialize(name, handler);
      case "unready" ->
          host.validate(
              name,
              handler,
              HookOption.ready(
                  () -> {
                    throw new HandlerException("cache is empty");
                  }));
      default -> host.validate(name, handler);
    }
  }

  private static Response handle(String name, Request request) throws Exception {
    return switch (name) {
      case "allow", "unready" -> Response.allow();
      case "deny" -> Response.deny("no").cause("spec.image", "latest");
      case "deny-at-length" -> Response.deny("no ".repeat(100));
      case "patch", "stray-patch", "initialize" ->
          Response.patch(request.admission().getObject().getRaw().toByteArray())
              .warnings("patched in round " + request.round());
      case "name-configuration" -> Response.allow().audit("configuration", request.configuration());
      case "name-mode" -> Response.allow().audit("mode", "MODE_" + request.mode());
      case "fail" -> throw new Exception("password is hunter2");
      case "fail-in-public" ->
          throw new IllegalStateException(
              "wrapped",
              new HandlerException("registry is down", new Exception("password is hunter2")));
      case "panic" -> throw new AssertionError("password is hunter2");
      default -> throw new IllegalArgumentException(name);
    };
  }

  /** Calls a handler. Those that wait return later. */
  void start(Invocation invocation, long now, List<String> started) {
    Running running = new Running(invocation, now);
    switch (running.name()) {
      case "wait", "stubborn" -> {
        started.add(running.name());
        held.add(running);
      }
      case "say-nothing" -> finish(running, null);
      case "exit" -> // Go's handlers can end their goroutine; in Java there is nothing like it.
          returned.add(
              new Returned(
                  invocation,
                  now,
                  Verdict.newBuilder()
                      .setError(
                          HandlerError.newBuilder()
                              .setMessage("handler ended its goroutine")
                              .setPanicked(true))));
      default -> call(running);
    }
  }

  private void call(Running running) {
    Invocation invocation = running.invocation();
    Request request =
        new Request(
            invocation.review(),
            invocation.call(),
            Codec.jackson(),
            new RunningCall(invocation, () -> 0, Runnable::run));
    try {
      finish(running, invocation.hook().handler().handle(request));
    } catch (Throwable t) {
      returned.add(new Returned(invocation, running.started(), Outcomes.threw(t, false)));
    }
  }

  private void finish(Running running, @Nullable Response response) {
    Invocation invocation = running.invocation();
    returned.add(
        new Returned(
            invocation,
            running.started(),
            Outcomes.returned(response, invocation.call().getStage(), invocation.isStopped())));
  }

  void stop(Invocation invocation, Invocation.End why) {
    invocation.stop(why, Runnable::run);
    held.removeIf(
        running -> {
          boolean heeds = running.invocation() == invocation && running.name().equals("wait");
          if (heeds) {
            returned.add(
                new Returned(
                    invocation,
                    running.started(),
                    Outcomes.threw(new InterruptedException(), true)));
          }
          return heeds;
        });
  }

  void release(String name) {
    held.removeIf(
        running -> {
          boolean released = running.name().equals(name);
          if (released) {
            finish(running, Response.allow());
          }
          return released;
        });
  }

  @Nullable String notReady(String name) {
    return name.equals("unready") ? "cache is empty" : null;
  }

  /** Hands the verdict of one handler that has returned to the core; false if there is none. */
  boolean returnOne(SessionCore core, long now) {
    Returned next = returned.poll();
    if (next == null) {
      return false;
    }
    int micros = (int) ((now - next.started()) / 1000);
    core.finished(now, next.invocation(), next.outcome().setHandleUs(micros));
    return true;
  }
}
