package dev.portcullis.host;

import static dev.portcullis.host.StagedService.take;
import static dev.portcullis.initializer.v1.EventType.EVENT_TYPE_ADDED;
import static dev.portcullis.initializer.v1.EventType.EVENT_TYPE_BOOKMARK;
import static dev.portcullis.initializer.v1.EventType.EVENT_TYPE_DELETED;
import static dev.portcullis.initializer.v1.EventType.EVENT_TYPE_MODIFIED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.portcullis.initializer.v1.DeleteRequest;
import dev.portcullis.initializer.v1.ListRequest;
import dev.portcullis.initializer.v1.StagedKey;
import dev.portcullis.initializer.v1.StagedObject;
import dev.portcullis.initializer.v1.WatchRequest;
import dev.portcullis.initializer.v1.WatchResponse;
import io.grpc.ServerCredentials;
import io.grpc.Status;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsServerCredentials;
import java.io.UncheckedIOException;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The client of staged objects, and a service that holds some, over real sockets. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StagedTest {
  private static final String NAME = "sidecar.example.com";
  private static final String OTHER = "podimage.example.com";
  private static final String POD = "{\"kind\":\"Pod\",\"spec\":{\"containers\":[],\"n\":1.00}}";
  private static final ListRequest MINE = ListRequest.newBuilder().setFirstPending(NAME).build();
  private static final WatchRequest ALL = WatchRequest.getDefaultInstance();

  @TempDir @Nullable Path dir;

  @SuppressWarnings("NullAway.Init")
  private StagedService service;

  @SuppressWarnings("NullAway.Init")
  private StagedClient client;

  @BeforeEach
  void listen() throws Exception {
    service = StagedService.listen();
    client = StagedClient.builder(service.address()).tls(Tls.plaintext()).build();
  }

  @AfterEach
  void close() throws Exception {
    client.close();
    service.close();
  }

  private static Code codeOf(Runnable call) {
    return assertThrows(StatusRuntimeException.class, call::run).getStatus().getCode();
  }

  private static String rawOf(StagedObject staged) {
    return staged.getObject().getRaw().toStringUtf8();
  }

  @Test
  void aControllerInitializesWhatWaitsForIt() throws Exception {
    service.stage("other", POD, OTHER);
    StagedObject held = service.stage("web", POD, NAME, OTHER);
    assertEquals(List.of(held), client.list(MINE).getObjectsList());
    assertEquals(held.getResourceVersion(), client.list(MINE).getResourceVersion());
    WatchRequest request = WatchRequest.newBuilder().setSelection(MINE).setBookmarks(true).build();
    try (StagedWatch watch = client.watch(request)) {
      Iterator<WatchResponse> events = watch.iterator();
      WatchResponse event = events.next();
      assertEquals(StagedService.event(EVENT_TYPE_ADDED, held), event);
      assertTrue(Staged.waits(event));
      assertEquals(request, take(service.watched));
      assertTrue(events.next().getInitialEventsEnd());

      ObjectNode pod = Staged.objectOf(event.getObject());
      pod.withArray("/spec/containers").addObject().put("name", "proxy");
      StagedObject updated = client.update(Staged.done(event.getObject(), pod));
      assertEquals(List.of(OTHER), updated.getPendingList());
      assertEquals(
          "{\"kind\":\"Pod\",\"spec\":{\"containers\":[{\"name\":\"proxy\"}],\"n\":1.00}}",
          rawOf(updated));
      assertEquals(EVENT_TYPE_DELETED, events.next().getType()); // It waits for another one.
      assertEquals(updated, client.get(updated.getKey()));
    }
  }

  @Test
  void aControllerRefuses() {
    StagedObject held = service.stage("web", POD, NAME, OTHER);
    try (StagedWatch watch = client.watch(ALL)) {
      Iterator<WatchResponse> events = watch.iterator();
      events.next();
      Response denial = Response.deny("no").code(422).cause("spec", "bad");
      StagedObject updated = client.update(Staged.refused(held, denial));
      assertEquals("Failure", updated.getResult().getStatus());
      assertEquals("no", updated.getResult().getMessage());
      assertEquals(422, updated.getResult().getCode());
      assertEquals("spec", updated.getResult().getDetails().getCauses(0).getField());
      assertEquals(List.of(NAME, OTHER), updated.getPendingList());
      assertFalse(Staged.waits(events.next()));
      assertFalse(Staged.waits(StagedService.event(EVENT_TYPE_DELETED, held)));
    }
    assertThrows(
        IllegalArgumentException.class, () -> Staged.refused(held, Response.allow()), "allows");
    assertThrows(
        IllegalArgumentException.class,
        () -> Staged.objectOf(held.toBuilder().clearObject().build())); // as viewers see it
    client.delete(held);
    assertEquals(
        List.of(DeleteRequest.newBuilder().setKey(held.getKey()).setUid(held.getUid()).build()),
        List.copyOf(service.deleted));
  }

  @Test
  void aConflictIsToldApart() {
    StagedObject held = service.stage("web", POD, NAME, OTHER);
    client.update(Staged.done(held, Staged.objectOf(held)));
    ConflictException conflict =
        assertThrows(
            ConflictException.class, () -> client.update(Staged.done(held, Staged.objectOf(held))));
    assertEquals("the object has changed", conflict.getStatus().getDescription());
    StagedObject later = service.stage("web", POD, NAME);
    assertThrows(ConflictException.class, () -> client.delete(held));
    assertEquals(later, client.get(held.getKey()));
    StatusRuntimeException gone =
        assertThrows(
            StatusRuntimeException.class,
            () -> client.get(StagedKey.newBuilder().setName("other").build()));
    assertEquals(Code.NOT_FOUND, gone.getStatus().getCode());
    assertFalse(gone instanceof ConflictException);
    service.end("web");
    assertEquals(
        Code.NOT_FOUND, codeOf(() -> client.update(Staged.done(held, Staged.objectOf(held)))));
  }

  @Test
  void aWatchGoesOnAfterTheLastVersion() throws Exception {
    service.stage("a", POD, NAME);
    try (StagedWatch watch = client.watch(ALL)) {
      Iterator<WatchResponse> events = watch.iterator();
      assertEquals("a", events.next().getObject().getKey().getName());
      assertEquals("", take(service.watched).getResourceVersion());
      StagedObject b = service.stage("b", POD, NAME);
      assertEquals(b, events.next().getObject());

      service.breakWatches(Status.UNAVAILABLE);
      StagedObject c = service.stage("c", POD, NAME); // while nobody watches
      assertEquals(StagedService.event(EVENT_TYPE_ADDED, c), events.next());
      assertEquals(b.getResourceVersion(), take(service.watched).getResourceVersion());

      // A bookmark is a version too, and is not shown to who has not asked for it.
      service.bookmarkAll();
      StagedObject changed = service.change("c", "{}");
      assertEquals(StagedService.event(EVENT_TYPE_MODIFIED, changed), events.next());
      service.bookmarkAll();
      CompletableFuture<WatchResponse> next = CompletableFuture.supplyAsync(events::next);
      service.breakWatches(Status.CANCELLED);
      String version = take(service.watched).getResourceVersion();
      assertTrue(Long.parseLong(version) >= Long.parseLong(changed.getResourceVersion()), version);
      service.end("a");
      assertEquals(EVENT_TYPE_DELETED, next.join().getType());
    }
  }

  @Test
  void aWatchThatBreaksAmongTheFirstObjectsBeginsAnew() throws Exception {
    StagedObject last = service.stage("b", POD, NAME);
    StagedObject first = service.stage("a", POD, NAME); // It has a later version.
    service.failWatch(Status.UNAVAILABLE);
    try (StagedWatch watch = client.watch(ALL)) {
      Iterator<WatchResponse> events = watch.iterator();
      for (StagedObject want : List.of(first, last, first, last)) {
        assertEquals(StagedService.event(EVENT_TYPE_ADDED, want), events.next());
      }
      assertEquals("", take(service.watched).getResourceVersion());
      assertEquals("", take(service.watched).getResourceVersion());
    }
  }

  @Test
  void aWatchWhoseVersionIsTooOldBeginsAnew() throws Exception {
    StagedObject a = service.stage("a", POD, NAME);
    WatchRequest later = ALL.toBuilder().setResourceVersion("1").setBookmarks(true).build();
    service.failWatch(Status.OUT_OF_RANGE);
    try (StagedWatch watch = client.watch(later)) {
      Iterator<WatchResponse> events = watch.iterator();
      assertEquals(a, events.next().getObject()); // before the fault
      assertEquals(a, events.next().getObject());
      assertEquals(EVENT_TYPE_BOOKMARK, events.next().getType());
      service.breakWatches(Status.ABORTED); // The reader was too slow.
      assertEquals(a, events.next().getObject());
      for (String want : List.of("1", "", "")) {
        assertEquals(want, take(service.watched).getResourceVersion());
      }
    }
  }

  @Test
  void aWatchEndsByAnErrorThatWaitingDoesNotEnd() {
    service.failWatch(Status.PERMISSION_DENIED.withDescription("no grant"));
    try (StagedWatch watch = client.watch(ALL)) {
      Iterator<WatchResponse> events = watch.iterator();
      assertEquals(Code.PERMISSION_DENIED, codeOf(events::next));
      assertFalse(events.hasNext());
    }
  }

  @Test
  void aWatchEndsWhenItIsClosedOrItsThreadIsInterrupted() throws Exception {
    List<ThrowingConsumer<Reader>> ends =
        List.of(reader -> reader.watch.close(), Thread::interrupt, reader -> client.close());
    for (ThrowingConsumer<Reader> end : ends) {
      Reader reader = new Reader(client.watch(ALL));
      reader.start();
      take(service.watched);
      end.accept(reader);
      reader.join();
      assertEquals("ended", reader.outcome.getNow("runs"));
    }
    assertThrows(IllegalStateException.class, () -> client.watch(ALL));
    assertThrows(IllegalStateException.class, () -> client.list(MINE));
    assertThrows(
        IllegalStateException.class,
        () -> client.initialize(NAME, (call, request) -> Response.allow()));
    while (service.watching() > 0) { // The timeout of the test ends it.
      Thread.onSpinWait();
    }
  }

  @FunctionalInterface
  private interface ThrowingConsumer<T> {
    void accept(T to) throws Exception;
  }

  /** A thread that waits for an event. */
  private static final class Reader extends Thread {
    final StagedWatch watch;
    final CompletableFuture<String> outcome = new CompletableFuture<>();

    Reader(StagedWatch watch) {
      this.watch = watch;
    }

    @Override
    public void run() {
      try {
        Iterator<WatchResponse> events = watch.iterator();
        assertFalse(events.hasNext());
        assertThrows(NoSuchElementException.class, events::next);
        outcome.complete("ended");
      } catch (Throwable t) {
        outcome.complete(t.toString());
      }
    }
  }

  private Path file(String name) {
    return Path.of(String.valueOf(dir), name);
  }

  private ServerCredentials credentials(Authority authority) throws Exception {
    Files.writeString(file("ca.crt"), authority.certificate());
    authority.issue(file("me.crt"), file("me.key"), null, "spiffe://mesh/controller");
    authority.issue(file("s.crt"), file("s.key"), "mesh.example", "spiffe://mesh/dispatcher");
    return TlsServerCredentials.newBuilder()
        .keyManager(file("s.crt").toFile(), file("s.key").toFile())
        .trustManager(file("ca.crt").toFile())
        .clientAuth(TlsServerCredentials.ClientAuth.REQUIRE)
        .build();
  }

  private StagedClientBuilder secured(String address) {
    return StagedClient.builder(address)
        .serverName("mesh.example")
        .tls(Tls.files(file("me.crt"), file("me.key"), file("ca.crt")));
  }

  @Test
  void aLostConnectionIsMadeAnewWithTheFilesAsTheyAreThen() throws Exception {
    StagedService before = StagedService.listen(0, credentials(new Authority()));
    WatchRequest request = ALL.toBuilder().setBookmarks(true).build();
    try (StagedClient secured = secured(before.address()).build();
        StagedWatch watch = secured.watch(request)) {
      StagedObject a = before.stage("a", POD, NAME);
      Iterator<WatchResponse> events = watch.iterator();
      assertEquals(a, events.next().getObject());
      assertTrue(events.next().getInitialEventsEnd());
      assertEquals(List.of(a), secured.list(MINE).getObjectsList());
      before.close();
      assertEquals(Code.UNAVAILABLE, codeOf(() -> secured.list(MINE)));
      try (StagedService after =
          StagedService.listen(before.port(), credentials(new Authority()))) {
        assertEquals(a, after.stage("a", POD, NAME));
        StagedObject b = after.stage("b", POD, NAME);
        assertEquals(b, events.next().getObject());
        assertEquals(List.of(a, b), secured.list(MINE).getObjectsList());
      }
    }
  }

  @Test
  void aStrangerIsNotTalkedTo() throws Exception {
    try (StagedService mesh = StagedService.listen(0, credentials(new Authority()));
        StagedClient other = secured(mesh.address()).serverName("other.example").build()) {
      assertEquals(Code.UNAVAILABLE, codeOf(() -> other.list(MINE)));
    }
    Files.writeString(file("me.crt"), "nonsense");
    assertThrows(UncheckedIOException.class, () -> secured("127.0.0.1:1").build());
    assertThrows(IllegalStateException.class, () -> StagedClient.builder("127.0.0.1:1").build());
    assertThrows(IllegalArgumentException.class, () -> StagedClient.builder("nowhere"));
  }

  @Test
  void anotherAddressIsTriedAfterOneThatDoesNotAnswer() throws Exception {
    StagedObject a = service.stage("a", POD, NAME);
    // Nothing listens on the second address of loopback.
    try (StagedClient two =
        StagedClient.builder("mesh.example:" + service.port())
            .tls(Tls.plaintext())
            .resolver(name -> List.of("127.0.0.2", "127.0.0.1"))
            .build()) {
      assertEquals(Code.UNAVAILABLE, codeOf(() -> two.list(MINE)));
      assertEquals(List.of(a), two.list(MINE).getObjectsList());
    }
    Resolver unknown =
        name -> {
          throw new UnknownHostException(name);
        };
    for (Resolver resolver : List.of(unknown, name -> List.of())) {
      try (StagedClient none =
          StagedClient.builder("mesh.example:1").tls(Tls.plaintext()).resolver(resolver).build()) {
        assertEquals(Code.UNAVAILABLE, codeOf(() -> none.list(MINE)));
      }
    }
  }
}
