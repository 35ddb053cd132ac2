package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.ExtraValue;
import dev.portcullis.host.testing.Answer;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.FakeSession;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.Cancel;
import dev.portcullis.host.v1.ConnectResponse;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.Verdict;
import dev.portcullis.host.v1.Welcome;
import io.grpc.InsecureServerCredentials;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** A host and a dispatcher over real sockets. */
class HostTest {
  private static final String POD =
      "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\", \"namespace\":"
          + " \"b\"}}";
  private static final Duration LONG = Duration.ofSeconds(60);

  private final CountDownLatch called = new CountDownLatch(1);
  private final CountDownLatch release = new CountDownLatch(1);
  private final CompletableFuture<Boolean> interrupted = new CompletableFuture<>();

  private static HostBuilder host() {
    return Host.builder("test");
  }

  /** Waits until it is released or interrupted. */
  private Response hold(Request request) throws InterruptedException {
    called.countDown();
    try {
      release.await();
      interrupted.complete(false);
      return Response.allow();
    } catch (InterruptedException e) {
      interrupted.complete(true);
      throw e;
    }
  }

  private void awaitCalled() throws InterruptedException {
    assertTrue(called.await(10, TimeUnit.SECONDS), "the handler was not called");
  }

  @Test
  void aMutatingHookChangesTheObjectAsTheDifferenceOfTwoDocuments() {
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .mutate(
                    "team",
                    request ->
                        Response.change(
                            request,
                            pod ->
                                pod.withObject("/metadata/labels")
                                    .put("team", request.namespace()))))) {
      Answer answer = mesh.review("team", Requests.create(POD));
      assertEquals(
          "[{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"team\":\"b\"}}]",
          answer.patch().toString());
      assertTrue(String.valueOf(answer.object()).contains("\"labels\":{\"team\":\"b\"}"));
      assertTrue(mesh.review("team", Requests.delete(POD)).patch().isEmpty());
    }
  }

  @Test
  void theFakeDispatcherSaysWhyThereIsNoVerdict() {
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .validate(
                    "patch", request -> Response.patch("[]".getBytes(StandardCharsets.UTF_8))))) {
      Exception failed =
          assertThrows(
              IllegalStateException.class, () -> mesh.review("patch", Requests.create(POD)));
      assertEquals(
          "hook \"patch\" gave no verdict: a validating hook returned a patch",
          failed.getMessage());
      Exception unknown =
          assertThrows(
              IllegalArgumentException.class, () -> mesh.review("taem", Requests.create(POD)));
      assertEquals(
          "want one hook of the name \"taem\", the host offers [patch STAGE_VALIDATE]",
          unknown.getMessage());
    }
  }

  @Test
  void aLargeReviewComesInChunksAndItsBytesAreUntouched() {
    String large = "{\"data\": \"" + "x".repeat(1 << 20) + "\",\n \"n\": 1.00}";
    CompletableFuture<String> seen = new CompletableFuture<>();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .validate(
                    "a",
                    request -> {
                      seen.complete(request.admission().getObject().getRaw().toStringUtf8());
                      return Response.allow();
                    }))) {
      assertTrue(mesh.review("a", Requests.create(large)).allowed());
      assertEquals(large, seen.join());
    }
  }

  @Test
  void theThreadOfAHandlerIsInterruptedAtTheDeadline() {
    try (FakeDispatcher mesh = FakeDispatcher.serving(host().validate("hold", this::hold))) {
      FakeSession session = mesh.session();
      Verdict verdict = Verdict.getDefaultInstance();
      // On a busy machine the time may be over before the handler has begun.
      for (int ms = 50; !verdict.hasCancelled(); ms *= 2) {
        HookCall call = session.call("hold", Duration.ofMillis(ms));
        verdict = session.post(Requests.create(POD), call).get(0).join();
        assertFalse(verdict.hasResponse(), verdict.toString());
      }
      assertTrue(interrupted.join());
    }
  }

  @Test
  void aCancelledHandlerIsInterruptedAndItsActionsRun() throws Exception {
    CompletableFuture<Boolean> stopped = new CompletableFuture<>();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .validate(
                    "hold",
                    request -> {
                      assertTrue(request.remaining().compareTo(Duration.ofSeconds(30)) > 0);
                      request.onCancel(() -> stopped.complete(request.isCancelled()));
                      return hold(request);
                    }))) {
      FakeSession session = mesh.session();
      CompletableFuture<Verdict> verdict =
          session.post(Requests.create(POD), session.call("hold", LONG)).get(0);
      awaitCalled();
      session.send(
          ConnectResponse.newBuilder().setCancel(Cancel.newBuilder().setCallId(1)).build());
      assertTrue(verdict.join().hasCancelled());
      assertTrue(stopped.join());
    }
  }

  @Test
  void anInterruptIsNotLeftToTheNextHandlerOfTheThread() throws Exception {
    ExecutorService one = Executors.newSingleThreadExecutor();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .executor(one)
                .validate(
                    "a",
                    request -> {
                      boolean first = called.getCount() > 0;
                      called.countDown();
                      while (first && !Thread.currentThread().isInterrupted()) {
                        Thread.onSpinWait();
                      }
                      return Response.allow()
                          .audit("interrupted", "" + Thread.currentThread().isInterrupted());
                    }))) {
      FakeSession session = mesh.session();
      CompletableFuture<Verdict> first =
          session.post(Requests.create(POD), session.call("a", LONG)).get(0);
      awaitCalled();
      session.send(
          ConnectResponse.newBuilder().setCancel(Cancel.newBuilder().setCallId(1)).build());
      assertEquals("true", first.join().getResponse().getAuditAnnotationsOrThrow("interrupted"));
      Verdict second = session.ask("a", Requests.create(POD));
      assertEquals("false", second.getResponse().getAuditAnnotationsOrThrow("interrupted"));
    } finally {
      one.shutdown();
    }
  }

  @Test
  void aPingIsAnsweredWhileAllHandlersAreBusy() throws Exception {
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(host().maxOutstanding(1).validate("hold", this::hold))) {
      FakeSession session = mesh.session();
      CompletableFuture<Verdict> verdict =
          session.post(Requests.create(POD), session.call("hold", LONG)).get(0);
      awaitCalled();
      session.ping();
      assertFalse(verdict.isDone());
      release.countDown();
      assertTrue(verdict.join().getResponse().getAllowed());
    }
  }

  @Test
  void manyCallsAreAnsweredOnce() {
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host().maxOutstanding(1000).validate("a", request -> Response.allow()))) {
      FakeSession session = mesh.session();
      HookCall call = session.call("a", LONG);
      List<CompletableFuture<Verdict>> verdicts =
          IntStream.range(0, 1000)
              .mapToObj(i -> session.post(Requests.create(POD), call).get(0))
              .toList();
      for (CompletableFuture<Verdict> verdict : verdicts) {
        assertTrue(verdict.orTimeout(10, TimeUnit.SECONDS).join().getResponse().getAllowed());
      }
    }
  }

  @Test
  void aHostThatDrainsFinishesItsCalls() throws Exception {
    FakeDispatcher mesh = FakeDispatcher.listen();
    Host host =
        host()
            .dispatchers(mesh.address())
            .tls(Tls.plaintext())
            .validate("hold", this::hold)
            .build()
            .start();
    FakeSession session = mesh.accept();
    CompletableFuture<Verdict> running =
        session.post(Requests.create(POD), session.call("hold", LONG)).get(0);
    awaitCalled();
    host.drain();
    assertEquals(1, session.awaitDrain().getLastStartedCallId());
    Verdict late = session.post(Requests.create(POD), session.call("hold", LONG)).get(0).join();
    assertEquals("draining", late.getRefused().getReason());
    release.countDown();
    assertTrue(running.join().getResponse().getAllowed());
    session.awaitEnd();
    assertTrue(host.awaitTermination());
    mesh.close();
  }

  @Test
  void callsThatDoNotFinishInTimeAreCutOff() throws Exception {
    FakeDispatcher mesh = FakeDispatcher.listen();
    Host host =
        host()
            .dispatchers(mesh.address())
            .tls(Tls.plaintext())
            .drainTimeout(Duration.ofMillis(20))
            .validate("hold", this::hold)
            .build()
            .start();
    FakeSession session = mesh.accept();
    session.post(Requests.create(POD), session.call("hold", LONG));
    awaitCalled();
    host.drain();
    assertFalse(host.awaitTermination());
    assertTrue(interrupted.join());
    mesh.close();
  }

  @Test
  void aHookIsReadyWhenItSaysSo() {
    AtomicInteger asked = new AtomicInteger();
    HookOption option =
        HookOption.ready(
            () -> {
              if (asked.getAndIncrement() == 0) {
                throw new HandlerException("cache is empty");
              }
              if (asked.get() == 2) {
                throw new IllegalStateException("password is hunter2");
              }
            });
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(host().validate("a", request -> Response.allow(), option))) {
      FakeSession session = mesh.session();
      assertEquals("cache is empty", session.probe("a").getMessage());
      assertEquals("the hook is not ready", session.probe("a").getMessage());
      assertTrue(session.probe("a").getReady());
      assertEquals("unknown hook", session.probe("b").getMessage());
    }
  }

  @Test
  void twoSessionsShareTheBudget() {
    try (FakeDispatcher first = FakeDispatcher.listen();
        FakeDispatcher second =
            FakeDispatcher.listen(
                Welcome.newBuilder().setDispatcherId("second").build(),
                InsecureServerCredentials.create());
        Host host =
            host()
                .maxOutstanding(10)
                .dispatchers(first.address(), second.address())
                .tls(Tls.plaintext())
                .validate("a", request -> Response.allow())
                .build()
                .start()) {
      FakeSession one = first.accept();
      FakeSession other = second.accept();
      host.ready().orTimeout(10, TimeUnit.SECONDS).join();
      one.ping(); // What was to be said before is said.
      other.ping();
      assertEquals(5, one.credit());
      assertEquals(5, other.credit());

      second.kill();
      one.ask("a", Requests.create(POD));
      while (one.credit() != 10) {
        one.ping();
      }
    }
  }

  @Test
  void aLostSessionIsDialledAgain() {
    try (FakeDispatcher mesh = FakeDispatcher.listen();
        Host host =
            host()
                .dispatchers(mesh.address())
                .tls(Tls.plaintext())
                .validate("a", request -> Response.allow())
                .build()
                .start()) {
      mesh.accept().end(io.grpc.Status.UNAVAILABLE);
      FakeSession second = mesh.accept();
      assertTrue(second.ask("a", Requests.create(POD)).getResponse().getAllowed());
      assertEquals(
          List.of(new Status.Hook("a", Stage.VALIDATE, List.of(), Status.State.IN_ROTATION, "")),
          host.status().sessions().stream().flatMap(s -> s.hooks().stream()).toList());
    }
  }

  @Test
  void ofTwoSessionsToOneDispatcherTheYoungerStays() throws Exception {
    CountDownLatch known = new CountDownLatch(1);
    Resolver resolver =
        name -> {
          try {
            return name.equals("younger") && !known.await(10, TimeUnit.SECONDS)
                ? List.of()
                : List.of("127.0.0.1");
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return List.of();
          }
        };
    try (FakeDispatcher older = FakeDispatcher.listen();
        FakeDispatcher younger = FakeDispatcher.listen(); // says the same id
        Host host =
            host()
                .dispatchers(
                    older.address().replace("127.0.0.1", "older"),
                    younger.address().replace("127.0.0.1", "younger"))
                .resolver(resolver)
                .tls(Tls.plaintext())
                .validate("a", request -> Response.allow())
                .build()
                .start()) {
      FakeSession first = older.accept();
      first.ping();
      known.countDown();
      FakeSession second = younger.accept();
      first.awaitDrain();
      first.awaitEnd();
      assertFalse(host.status().sessions().isEmpty());
      assertTrue(second.ask("a", Requests.create(POD)).getResponse().getAllowed());
    }
  }

  @Test
  void aHostSaysWhatItIs() {
    FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .instance("i")
                .zone("z")
                .clusters("c")
                .maxFrameBytes(1000)
                .mutate("m", request -> Response.allow(), HookOption.speculate()));
    try (mesh) {
      var hello = mesh.session().hello();
      assertEquals("portcullis-java 0.1.0", hello.getSdk() + " " + hello.getSdkVersion());
      assertEquals(
          "test i z", String.join(" ", hello.getHost(), hello.getInstance(), hello.getZone()));
      assertEquals(List.of("c"), hello.getClustersList());
      assertEquals(1000, hello.getMaxFrameBytes());
      assertEquals(64, hello.getMaxOutstanding());
      assertTrue(hello.getHooks(0).getSpeculate());
    }
  }

  @Test
  void aHostThatCannotStartSaysWhy() {
    HostBuilder builder = host();
    assertThrows(IllegalStateException.class, () -> builder.build(), "no hooks");
    builder.validate("a", request -> Response.allow());
    assertThrows(IllegalStateException.class, () -> builder.build(), "no dispatchers");
    builder.dispatchers("127.0.0.1:1");
    assertThrows(IllegalStateException.class, () -> builder.build(), "no TLS");
    assertThrows(IllegalArgumentException.class, () -> builder.dispatchers("127.0.0.1"));
    assertThrows(
        IllegalArgumentException.class, () -> builder.validate("a", request -> Response.allow()));
    builder.tls(Tls.plaintext());
    Host never = builder.build();
    never.close();
    assertThrows(IllegalStateException.class, never::start);
  }

  @Test
  void aFutureIsWaitedForAndCancelled() throws Exception {
    CompletableFuture<Response> never = new CompletableFuture<>();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .validate(
                    "later",
                    Handler.async(
                        request -> CompletableFuture.supplyAsync(() -> Response.deny("no"))))
                .validate(
                    "denied",
                    Handler.async(
                        request -> CompletableFuture.failedFuture(new DeniedException("thrown"))))
                .validate(
                    "bug",
                    Handler.async(
                        request -> CompletableFuture.failedFuture(new AssertionError("bug"))))
                .validate(
                    "never",
                    Handler.async(
                        request -> {
                          called.countDown();
                          return never;
                        })))) {
      assertEquals("no", mesh.review("later", Requests.create(POD)).message());
      assertEquals("thrown", mesh.review("denied", Requests.create(POD)).message());
      FakeSession session = mesh.session();
      assertTrue(session.ask("bug", Requests.create(POD)).getError().getPanicked());
      var verdict = session.post(Requests.create(POD), session.call("never", LONG)).get(0);
      awaitCalled();
      session.send(
          ConnectResponse.newBuilder().setCancel(Cancel.newBuilder().setCallId(4)).build());
      assertTrue(verdict.join().hasCancelled());
      assertTrue(never.isCancelled());
    }
  }

  @Test
  void anExecutorThatRejectsStallsNothing() {
    AtomicInteger tasks = new AtomicInteger();
    FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .maxOutstanding(1)
                .executor(
                    task -> {
                      if (tasks.incrementAndGet() % 2 == 1) {
                        throw new RejectedExecutionException("full");
                      }
                      task.run();
                    })
                .validate("a", request -> Response.allow()));
    try (mesh) {
      for (int i = 0; i < 4; i++) {
        Verdict verdict = mesh.session().ask("a", Requests.create(POD));
        assertEquals(i % 2 == 0 ? "overloaded" : "", verdict.getRefused().getReason());
        assertEquals(i % 2 == 1, verdict.getResponse().getAllowed());
      }
    }
  }

  @Test
  void aRequestSaysWhatTheReviewSays() {
    var admission =
        Requests.update(POD, POD).toBuilder()
            .setDryRun(true)
            .setSubResource("status")
            .setOptions(
                dev.portcullis.admission.v1.Object.newBuilder()
                    .setRaw(ByteString.copyFromUtf8("{\"kind\": \"UpdateOptions\"}")));
    admission
        .getUserInfoBuilder()
        .setUid("17")
        .putExtra("scopes", ExtraValue.newBuilder().addItems("a").build());
    Request request = Request.of(admission.build());
    assertEquals(new Request.Kind("", "v1", "Pod"), request.kind());
    assertEquals(new Request.Resource("", "v1", "pods"), request.resource());
    assertEquals("status", request.subresource());
    assertEquals(List.of("system:authenticated"), request.groups());
    assertEquals("testing 17", request.username() + " " + request.userUid());
    assertEquals(Map.of("scopes", List.of("a")), request.extra());
    assertEquals("UpdateOptions", request.options().path("kind").asText());
    assertEquals(
        "UPDATE b a", request.operation() + " " + request.namespace() + " " + request.name());
    assertEquals(Mode.UNSPECIFIED, request.mode());
    assertEquals(Stage.UNSPECIFIED, request.stage());
    assertEquals(POD, new String(request.rawOldObject(), StandardCharsets.UTF_8));
    assertTrue(request.dryRun());
    assertEquals("", request.traceparent());
  }
}
