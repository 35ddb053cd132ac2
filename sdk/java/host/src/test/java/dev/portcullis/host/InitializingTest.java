package dev.portcullis.host;

import static dev.portcullis.host.StagedService.take;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.portcullis.initializer.v1.StagedObject;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Initializers that run over staged objects, and a service that holds them, over real sockets. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class InitializingTest {
  private static final String NAME = "sidecar.example.com";
  private static final String OTHER = "podimage.example.com";

  /** A Pod of a library, which does not know all members. */
  static final class Pod {
    public TreeMap<String, String> labels = new TreeMap<>();
  }

  @SuppressWarnings("NullAway.Init")
  private StagedService service;

  @SuppressWarnings("NullAway.Init")
  private StagedClient client;

  private final List<Controller> controllers = new ArrayList<>();

  @BeforeEach
  void listen() throws Exception {
    service = StagedService.listen();
    client = builder().build();
  }

  @AfterEach
  void close() throws Exception {
    client.close();
    for (Controller controller : controllers) {
      assertTrue(
          List.of("returned", "interrupted").contains(controller.awaitEnd()), controller.end);
    }
    service.close();
    // Nothing is left that runs: threads of a pool end a moment after it.
    while (Thread.getAllStackTraces().keySet().stream()
        .anyMatch(t -> t.getName().startsWith("portcullis-staged"))) {
      Thread.onSpinWait();
    }
  }

  private StagedClientBuilder builder() {
    return StagedClient.builder(service.address()).tls(Tls.plaintext());
  }

  /** A program that runs an initializer. */
  private final class Controller extends Thread {
    private final Handler handler;
    private volatile String end = "none";

    Controller(Handler handler) {
      this.handler = handler;
    }

    @Override
    public void run() {
      try {
        client.initialize(NAME, handler);
        end = "returned";
      } catch (InterruptedException e) {
        end = "interrupted";
      } catch (Throwable t) {
        end = t.toString();
      }
    }

    String awaitEnd() throws InterruptedException {
      join();
      return end;
    }
  }

  private Controller initialize(Handler handler) {
    Controller controller = new Controller(handler);
    controllers.add(controller);
    controller.start();
    return controller;
  }

  private static Handler labelling() {
    return Initializer.ofTree(
        (call, request, pod) -> {
          pod.withObject("/labels").put("by", request.username());
          return pod;
        });
  }

  @Test
  void itInitializesWhatWaitsAndWhatComes() throws Exception {
    service.stage("elsewhere", "{}", OTHER, NAME);
    service.stage("a", "{\"n\":1.00}", NAME, OTHER);
    Controller controller = initialize(labelling());
    assertEquals("{\"n\":1.00,\"labels\":{\"by\":\"jane\"}}", service.takeUpdated(OTHER));
    service.stage("b", "{\"labels\":{\"x\":\"y\"}}", NAME);
    assertEquals("{\"labels\":{\"x\":\"y\",\"by\":\"jane\"}}", service.takeUpdated());
    assertEquals(OTHER, service.now("elsewhere").getPending(0));
    client.close();
    assertEquals("returned", controller.awaitEnd());
  }

  @Test
  void itIsTheInitializerOfAHost() throws Exception {
    CompletableFuture<Request> seen = new CompletableFuture<>();
    initialize(
        Initializer.of(
            Pod.class,
            (call, request, pod) -> {
              seen.complete(request);
              assertTrue(call.remaining().compareTo(Duration.ofSeconds(1)) > 0);
              pod.labels.put("team", request.namespace());
              return pod;
            }));
    StagedObject staged = service.stage("a", "{\"labels\":{},\"spec\":{\"unknown\":1}}", NAME);
    assertEquals(
        "{\"labels\":{\"team\":\"shop\"},\"spec\":{\"unknown\":1}}", service.takeUpdated());
    Request request = seen.join();
    assertEquals(
        List.of("c", "shop", "a", "jane", "CREATE", NAME, "pods", "Pod", "review"),
        List.of(
            request.cluster(),
            request.namespace(),
            request.name(),
            request.username(),
            request.operation(),
            request.hook(),
            request.admission().getResource().getResource(),
            request.admission().getKind().getKind(),
            request.admission().getUid()));
    assertEquals(staged.getObject().getRaw(), request.rawObject());
  }

  @Test
  void whatIsNotChangedIsNotSent() throws Exception {
    initialize((call, request) -> Response.allow());
    service.stage("a", "{ \"n\": 1 }", NAME, OTHER);
    assertEquals("{ \"n\": 1 }", service.takeUpdated(OTHER));
  }

  @Test
  void itRefuses() throws Exception {
    initialize(
        Initializer.ofTree(
            (call, request, pod) -> {
              throw new RefusedException(Response.deny("no").code(422).reason("Invalid"));
            }));
    service.stage("a", "{}", NAME, OTHER);
    StagedObject refused = take(service.updated);
    assertEquals("no", refused.getResult().getMessage());
    assertEquals(422, refused.getResult().getCode());
    assertEquals(List.of(NAME, OTHER), refused.getPendingList());
  }

  @Test
  void anObjectThatHasChangedIsReadAgain() throws Exception {
    LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
    service.beforeUpdate(() -> service.change("a", "{\"v\":2}"));
    service.beforeUpdate(() -> service.change("a", "{\"v\":3}"));
    initialize(recording(seen, labelling()));
    service.stage("a", "{\"v\":1}", NAME);
    assertEquals("{\"v\":3,\"labels\":{\"by\":\"jane\"}}", service.takeUpdated());
    assertEquals(List.of("{\"v\":1}", "{\"v\":2}", "{\"v\":3}"), List.copyOf(seen));
  }

  private static Handler recording(LinkedBlockingQueue<String> seen, Handler handler) {
    return (call, request) -> {
      seen.add(String.valueOf(request.object()));
      return handler.handle(call, request);
    };
  }

  @Test
  void anObjectThatDoesNotWaitAnyMoreIsLetBe() throws Exception {
    LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
    // Another replica is faster, an object of the same name takes the place of another, the hold
    // ends.
    for (String name : List.of("faster", "replaced", "ended")) {
      service.stage(name, "{\"is\":\"" + name + "\"}", NAME);
    }
    Handler racing =
        (call, request) -> {
          switch (request.name()) {
            case "faster" -> service.stage("faster", "{}", OTHER);
            case "replaced" -> {
              if (request.object().has("is")) {
                service.stage("replaced", "{}", NAME);
              }
            }
            case "ended" -> service.end("ended");
            default -> {}
          }
          return labelling().handle(call, request);
        };
    initialize(recording(seen, racing));
    // The object that took the place is initialized as one of its own.
    assertEquals("{\"labels\":{\"by\":\"jane\"}}", service.takeUpdated());
    assertEquals(List.of(OTHER), service.now("faster").getPendingList());
    service.stage("last", "{}", NAME);
    service.takeUpdated();
    assertEquals(5, seen.size(), seen.toString());
  }

  @Test
  void whatFailsIsTriedAgain() throws Exception {
    AtomicInteger calls = new AtomicInteger();
    service.beforeUpdate(
        () -> {
          throw Status.UNAVAILABLE.asRuntimeException();
        });
    service.beforeUpdate(
        () -> {
          throw Status.RESOURCE_EXHAUSTED.asRuntimeException();
        });
    initialize(
        Initializer.ofTree(
            (call, request, pod) -> {
              if (calls.incrementAndGet() <= 2) {
                throw new IllegalStateException("the registry does not answer");
              }
              return pod.put("n", calls.get());
            }));
    service.stage("a", "{}", NAME);
    assertEquals("{\"n\":5}", service.takeUpdated());
  }

  @Test
  void aPatchThatDoesNotFitIsAFailure() throws Exception {
    AtomicInteger calls = new AtomicInteger();
    initialize(
        (call, request) -> {
          String path = calls.incrementAndGet() == 1 ? "/not/there" : "/there";
          return Response.patch(
              com.google.protobuf.ByteString.copyFromUtf8(
                  "[{\"op\":\"replace\",\"path\":\"" + path + "\",\"value\":2}]"));
        });
    service.stage("a", "{\"there\":1}", NAME);
    assertEquals("{\"there\":2}", service.takeUpdated());
  }

  @Test
  void anInitializerIsInterruptedWhenTheHoldEnds() throws Exception {
    CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
    CountDownLatch never = new CountDownLatch(1);
    CountDownLatch logged = new CountDownLatch(1);
    client.close();
    client = builder().logger(new Listening("handler failed", logged)).build();
    Controller controller =
        initialize(
            (call, request) -> {
              try {
                never.await();
              } catch (InterruptedException e) {
                interrupted.complete(call.isCancelled());
                throw e;
              }
              return Response.allow();
            });
    service.stage("a", "{}", 50, NAME);
    assertTrue(interrupted.join());
    client.close();
    assertEquals("returned", controller.awaitEnd());
    assertEquals(1, logged.getCount()); // It was cancelled, and did not fail.
    assertTrue(service.updated.isEmpty());
  }

  @Test
  void closingInterruptsWhatRunsAlsoWhenNoSlotIsFree() throws Exception {
    client.close();
    client = builder().maxOutstanding(2).build();
    LinkedBlockingQueue<String> begun = new LinkedBlockingQueue<>();
    LinkedBlockingQueue<String> interrupted = new LinkedBlockingQueue<>();
    CountDownLatch never = new CountDownLatch(1);
    Controller controller =
        initialize(
            (call, request) -> {
              begun.add(request.name());
              try {
                never.await();
              } catch (InterruptedException e) {
                interrupted.add(request.name());
                throw e;
              }
              return Response.allow();
            });
    for (String name : List.of("a", "b", "c", "d")) {
      service.stage(name, "{}", Integer.MAX_VALUE, NAME); // Their holds do not end.
    }
    take(begun);
    take(begun);
    while (Stream.of(controller.getStackTrace())
        .noneMatch(frame -> frame.getClassName().equals(Semaphore.class.getName()))) {
      Thread.onSpinWait(); // until it waits for a slot
    }
    client.close();
    assertEquals("returned", controller.awaitEnd());
    assertEquals(2, interrupted.size());
    assertTrue(begun.isEmpty(), begun.toString());
    assertTrue(service.updated.isEmpty());
  }

  @Test
  void itEndsWhenItsThreadIsInterruptedAndTheClientIsUsedOn() throws Exception {
    Controller controller = initialize(labelling());
    take(service.watched);
    controller.interrupt();
    assertEquals("interrupted", controller.awaitEnd());
    initialize(labelling());
    service.stage("a", "{}", NAME);
    service.takeUpdated();
  }

  @Test
  void itBearsAWatchThatBreaksAndAGrantThatIsMissing() throws Exception {
    CountDownLatch logged = new CountDownLatch(1);
    client.close();
    client = builder().logger(new Listening("PERMISSION_DENIED", logged)).build();
    service.failWatch(Status.PERMISSION_DENIED);
    Controller controller = initialize(labelling());
    service.stage("a", "{}", NAME);
    service.takeUpdated();
    assertTrue(logged.await(StagedService.PATIENCE, TimeUnit.SECONDS));
    service.breakWatches(Status.OUT_OF_RANGE);
    service.stage("b", "{}", NAME);
    service.takeUpdated();
    assertTrue(controller.isAlive());
    assertThrows(IllegalArgumentException.class, () -> client.initialize("", labelling()));
  }

  @Test
  void anObjectThatWaitsAgainBeforeItIsDoneWithIsWorkedOnAgain() throws Exception {
    CountDownLatch shown = new CountDownLatch(1);
    service.afterUpdate(
        () -> {
          try {
            service.takeUpdated(OTHER);
            service.pend("a", NAME); // OTHER has put it there.
            service.stage("b", "{}", NAME);
            service.takeUpdated(); // It was shown behind the other one.
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
          shown.countDown();
        });
    initialize(labelling());
    service.stage("a", "{}", NAME, OTHER);
    shown.await();
    service.takeUpdated();
  }

  @Test
  void anObjectThatIsShownTwiceIsWorkedOnOnce() throws Exception {
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    AtomicInteger calls = new AtomicInteger();
    initialize(
        Initializer.ofTree(
            (call, request, pod) -> {
              if (request.name().equals("a")) {
                calls.incrementAndGet();
                begun.countDown();
                release.await();
              }
              return pod;
            }));
    service.stage("a", "{}", NAME);
    begun.await();
    service.breakWatches(Status.ABORTED); // All comes again.
    service.stage("b", "{}", NAME);
    service.takeUpdated(); // It came behind the first one.
    release.countDown();
    service.takeUpdated();
    assertEquals(1, calls.get());
  }
}
