package dev.portcullis.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.portcullis.admission.v1.Stage;
import dev.portcullis.host.testing.FakeDispatcher;
import dev.portcullis.host.testing.Requests;
import dev.portcullis.host.v1.HookCall;
import dev.portcullis.host.v1.HookOffer;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** Handlers of typed objects and a dispatcher over real sockets. */
class TypedTest {
  private static final String POD =
      "{\"kind\": \"Pod\", \"metadata\": {\"name\": \"a\", \"namespace\": \"b\"}, \"n\": 1.50}";
  private static final String OTHER = POD.replace("\"a\"", "\"other\"");
  private static final String LABELLED =
      "[{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"team\":\"b\"}}]";

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

  private static void label(Pod pod, Request request) {
    pod.metadata.labels = new HashMap<>(Map.of("team", request.namespace()));
  }

  private static Response named(Pod pod, Request request) {
    return Response.deny("named " + pod.metadata.name);
  }

  @Test
  void aChangeInPlaceIsAPatch() {
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .mutate("mutate", Pod.class, TypedTest::label)
                .initialize("initialize", Pod.class, TypedTest::label)
                .mutate(
                    "change",
                    request -> Response.change(request, Pod.class, pod -> label(pod, request)))
                .mutate("tree", ObjectNode.class, (pod, request) -> pod.put("x", 1))
                .mutate("same", ObjectNode.class, (pod, request) -> {}))) {
      for (String hook : List.of("mutate", "initialize", "change")) {
        assertEquals(LABELLED, mesh.review(hook, Requests.create(POD)).patch().toString());
      }
      assertEquals(
          "[{\"op\":\"add\",\"path\":\"/x\",\"value\":1}]",
          mesh.review("tree", Requests.create(POD)).patch().toString());
      assertTrue(mesh.review("same", Requests.create(POD)).patch().isEmpty());
      assertTrue(mesh.review("mutate", Requests.delete(POD)).allowed());
    }
  }

  @Test
  void eachOperationHasItsFunction() {
    Validator<Pod> validator =
        Validator.of(Pod.class)
            .onCreate(TypedTest::named)
            .onUpdate(
                (old, pod, r) -> Response.deny(old.metadata.name + " to " + pod.metadata.name))
            .onDelete(TypedTest::named);
    Mutator<Pod> mutator =
        Mutator.of(Pod.class)
            .onCreate(TypedTest::label)
            .onUpdate((old, pod, request) -> pod.metadata.name = old.metadata.name);
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .validate("v", validator)
                .validate("simple", Pod.class, TypedTest::named)
                .validate("none", Validator.of(Pod.class))
                .mutate("m", mutator))) {
      assertEquals("named a", mesh.review("v", Requests.create(POD)).message());
      assertEquals("a to other", mesh.review("v", Requests.update(POD, OTHER)).message());
      assertEquals("named a", mesh.review("v", Requests.delete(POD)).message());
      assertEquals("named other", mesh.review("simple", Requests.update(POD, OTHER)).message());
      assertTrue(mesh.review("simple", Requests.delete(POD)).allowed());
      assertTrue(mesh.review("none", Requests.create(POD)).allowed());
      assertEquals(LABELLED, mesh.review("m", Requests.create(POD)).patch().toString());
      assertEquals(
          "[{\"op\":\"replace\",\"path\":\"/metadata/name\",\"value\":\"a\"}]",
          mesh.review("m", Requests.update(POD, OTHER)).patch().toString());
      assertTrue(mesh.review("m", Requests.delete(POD)).patch().isEmpty());
    }
  }

  @Test
  void whatCannotBeDecodedOrEncodedIsAFailure() {
    Codec decoding =
        new Codec() {
          @Override
          public <T> T decode(byte[] raw, Class<T> type) throws IOException {
            return Codec.jackson().decode(raw, type);
          }
        };
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host()
                .codec(decoding)
                .mutate("unwritable", Pod.class, TypedTest::label)
                .validate("unreadable", Pod.class, TypedTest::named))) {
      for (String hook : List.of("unwritable", "unreadable")) {
        String pod = hook.equals("unwritable") ? POD : "{\"metadata\": 7}";
        assertEquals(
            "handler failed",
            mesh.session().ask(hook, Requests.create(pod)).getError().getMessage());
      }
    }
  }

  @Test
  void anInitializerIsNotCalledWithoutAnObject() {
    AtomicBoolean called = new AtomicBoolean();
    try (FakeDispatcher mesh =
        FakeDispatcher.serving(
            host().initialize("tree", ObjectNode.class, (pod, request) -> called.set(true)))) {
      assertEquals(
          "the request has no object",
          mesh.session().ask("tree", Requests.delete(POD)).getError().getMessage());
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
                    ObjectNode.class,
                    (pod, request) -> {},
                    HookOption.ready(
                        () -> {
                          throw new HandlerException("the cache is empty");
                        })))) {
      for (HookOffer offer : mesh.session().hello().getHooksList()) {
        assertEquals(Stage.STAGE_INITIALIZE, offer.getStage());
      }
      assertEquals("the cache is empty", mesh.session().probe("i").getMessage());
      HookCall call = mesh.session().call("i", Duration.ofSeconds(60));
      for (int stage : new int[] {0, 1, 2, 4, 77, -1}) {
        var verdicts =
            mesh.session()
                .post(Requests.create(POD), call.toBuilder().setStageValue(stage).build());
        assertEquals("unknown hook", verdicts.get(0).join().getRefused().getReason());
      }
    }
  }
}
