package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.AdmissionResponse;
import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.HookOffer;
import dev.portcullis.host.v1.Verdict;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** Initializers and a dispatcher over real sockets. */
class InitializerTest {
  private static final String POD =
      "{\"kind\": \"Pod\", \"metadata\": {\"name\": \"a\", \"namespace\": \"b\"}, \"n\": 1.50}";

  /** A type that knows few members. */
  public static final class Pod {
    public Metadata metadata = new Metadata();

    /** Likewise. */
    public static final class Metadata {
      public @Nullable String name;
      public @Nullable Map<String, String> labels;
    }
  }

  private static HostBuilder host() {
    return Host.builder("test");
  }

  private static Pod labelled(Call call, Request request, Pod pod) {
    pod.metadata.labels = new HashMap<>(Map.of("team", request.namespace()));
    return pod;
  }

  private static String patch(AdmissionResponse verdict) {
    assertTrue(verdict.getAllowed());
    return verdict.getPatch().toStringUtf8();
  }

  private static String failure(FakeDispatcher mesh, String hook) {
    return mesh.session().ask(hook, Requests.create(POD)).getError().getMessage();
  }

  @Test
  void whatAnInitializerMakesOfTheObjectIsAPatch() {
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .initialize("typed", Initializer.of(Pod.class, InitializerTest::labelled))
                .initialize("tree", Initializer.ofTree((call, request, pod) -> pod.put("x", 1)))
                .initialize("same", Initializer.ofTree((call, request, pod) -> pod))
                .initialize(
                    "raw", (call, request) -> Response.patch(ByteString.copyFromUtf8("[ ]"))))) {
      for (HookOffer offer : mesh.session().hello().getHooksList()) {
        assertEquals(Stage.STAGE_INITIALIZE, offer.getStage());
      }
      assertEquals(
          "[{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"team\":\"b\"}}]",
          patch(mesh.review("typed", Requests.create(POD))));
      assertEquals(
          "[{\"op\":\"add\",\"path\":\"/x\",\"value\":1}]",
          patch(mesh.review("tree", Requests.create(POD))));
      assertEquals("", patch(mesh.review("same", Requests.create(POD))));
      assertEquals("[ ]", patch(mesh.review("raw", Requests.create(POD))));
    }
  }

  @Test
  void anInitializerRefusesByAnExceptionThatIsADenial() {
    Response denial = Response.deny("no").code(422).reason("Invalid").cause("spec", "bad");
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .initialize(
                    "plain",
                    Initializer.ofTree(
                        (call, request, pod) -> {
                          throw new DeniedException("no");
                        }))
                .initialize(
                    "full",
                    Initializer.of(
                        Pod.class,
                        (call, request, pod) -> {
                          throw new DeniedException(denial);
                        })))) {
      AdmissionResponse plain = mesh.review("plain", Requests.create(POD));
      assertFalse(plain.getAllowed());
      assertEquals("no", plain.getStatus().getMessage());
      assertEquals(403, plain.getStatus().getCode());
      AdmissionResponse full = mesh.review("full", Requests.create(POD));
      assertEquals(422, full.getStatus().getCode());
      assertEquals("spec", full.getStatus().getDetails().getCauses(0).getField());
    }
    assertThrows(IllegalArgumentException.class, () -> new DeniedException(Response.allow()));
  }

  @Test
  @SuppressWarnings("NullAway") // It is what careless authors return.
  void whatIsNoObjectIsAFailure() {
    Codec decoding =
        new Codec() {
          @Override
          public <T> T decode(ByteString raw, Class<T> type) throws IOException {
            return Codec.jackson().decode(raw, type);
          }
        };
    Initializer<ObjectNode> secret =
        (call, request, pod) -> {
          throw new IOException("hunter2");
        };
    Initializer<ObjectNode> authored =
        (call, request, pod) -> {
          throw new HandlerException("registry is down");
        };
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .codec(decoding)
                .initialize("nothing", Initializer.ofTree((call, request, pod) -> null))
                .initialize("secret", Initializer.ofTree(secret))
                .initialize("authored", Initializer.ofTree(authored))
                .initialize("unwritable", Initializer.of(Pod.class, InitializerTest::labelled)))) {
      assertEquals("the initializer returned no object", failure(mesh, "nothing"));
      assertEquals("handler failed", failure(mesh, "secret"));
      assertEquals("registry is down", failure(mesh, "authored"));
      assertEquals("handler failed", failure(mesh, "unwritable"));
    }
  }

  @Test
  void anInitializerIsNotCalledWithoutAnObject() {
    AtomicBoolean called = new AtomicBoolean();
    Initializer<ObjectNode> initializer =
        (call, request, pod) -> {
          called.set(true);
          return pod;
        };
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .initialize("tree", Initializer.ofTree(initializer))
                .initialize("typed", Initializer.of(Pod.class, InitializerTest::labelled)))) {
      for (String hook : List.of("tree", "typed")) {
        assertEquals(
            "the request has no object to be initialized: it creates none",
            mesh.session().ask(hook, Requests.delete(POD)).getError().getMessage());
      }
    }
    assertFalse(called.get());
  }

  @Test
  void aStageThatIsNotOfferedIsRefused() {
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .initialize(
                    "i",
                    Initializer.ofTree((call, request, pod) -> pod),
                    HookOptions.readyWhen(
                        () -> {
                          throw new HandlerException("the cache is empty");
                        })))) {
      assertEquals("the cache is empty", mesh.session().probe("i").getMessage());
      HookCall call = mesh.session().call("i", Duration.ofSeconds(60));
      for (int stage : new int[] {0, 1, 2, 4, 77, -1}) {
        List<CompletableFuture<Verdict>> verdicts =
            mesh.session()
                .post(Requests.create(POD), call.toBuilder().setStageValue(stage).build());
        assertEquals("unknown hook", verdicts.get(0).join().getRefused().getReason());
      }
    }
  }
}
