package dev.portcullis.testhost;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.portcullis.host.DeniedException;
import dev.portcullis.host.Handler;
import dev.portcullis.host.HandlerException;
import dev.portcullis.host.Request;
import dev.portcullis.host.Response;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.sdk.trace.ReadableSpan;
import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** The handler of every hook: it does what the member "script" of the object says. */
record ScriptHandler(String hook, Control control) implements Handler {
  @Override
  public Response handle(Request request) throws Exception {
    long left = request.remaining().toMillis();
    control.say(Control.event("called").put("hook", hook));
    try {
      JsonNode object = request.object().isMissingNode() ? request.oldObject() : request.object();
      JsonNode script = object.path("script");
      pause(script);
      Response response = decorate(script, request, outcome(script, request), left);
      if (script.path("deny").path("thrown").asBoolean()) {
        throw new DeniedException(response);
      }
      return response;
    } finally {
      control.say(
          Control.event("returned").put("hook", hook).put("cancelled", request.isCancelled()));
    }
  }

  /** Does what the script says, as far as that is about the object. */
  void initialize(ObjectNode object, Request request) throws Exception {
    control.say(Control.event("called").put("hook", hook));
    try {
      JsonNode script = object.path("script").deepCopy();
      pause(script);
      if (script.has("deny")) {
        Response denial = deny(script.get("deny"));
        if (script.get("deny").path("thrown").asBoolean()) {
          throw new IllegalStateException(new DeniedException(denial));
        }
        throw new DeniedException(denial);
      } else if (script.has("labels")) {
        object.withObject("/metadata/labels").setAll((ObjectNode) script.get("labels"));
      } else if (script instanceof ObjectNode rest) {
        rest.remove("patch");
        outcome(rest, request);
      }
    } finally {
      control.say(
          Control.event("returned").put("hook", hook).put("cancelled", request.isCancelled()));
    }
  }

  /** Waits as the script says. The end of the call interrupts all but the last. */
  private void pause(JsonNode script) throws InterruptedException {
    if (script.has("hold")) {
      control.hold(script.get("hold").asText()).await();
    }
    TimeUnit.MILLISECONDS.sleep(script.path("waitMs").asLong());
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(script.path("blockMs").asLong());
    for (long rest = until - System.nanoTime(); rest > 0; rest = until - System.nanoTime()) {
      try {
        TimeUnit.NANOSECONDS.sleep(rest);
      } catch (InterruptedException e) {
        continue; // This handler ignores the end of its call.
      }
    }
  }

  private static Response outcome(JsonNode script, Request request) throws Exception {
    if (script.has("deny")) {
      return deny(script.get("deny"));
    } else if (script.has("patch")) {
      return Response.patch(script.get("patch"));
    } else if (script.has("labels")) {
      ObjectNode labels = (ObjectNode) script.get("labels");
      return Response.change(
          request, object -> object.withObject("/metadata/labels").setAll(labels));
    } else if (script.has("become")) {
      return Response.difference(request, script.get("become"));
    } else if (script.has("error")) {
      throw new HandlerException(script.get("error").asText());
    } else if (script.has("fail")) {
      throw new IOException(script.get("fail").asText());
    } else if (script.has("panic")) {
      throw new AssertionError(script.get("panic").asText());
    }
    return Response.allow();
  }

  private static Response deny(JsonNode denial) {
    Response response =
        Response.deny(text(denial.path("message")))
            .code(denial.path("code").asInt())
            .reason(text(denial.path("reason")));
    for (JsonNode cause : denial.path("causes")) {
      response = response.cause(text(cause.path("field")), text(cause.path("message")));
    }
    return response;
  }

  /** What is no text is null to Java. */
  private static @Nullable String text(JsonNode node) {
    return node.textValue();
  }

  private static Response decorate(JsonNode script, Request request, Response response, long left) {
    Response out = response;
    for (JsonNode warning : script.path("warnings")) {
      out = out.warnings(text(warning));
    }
    for (Map.Entry<String, JsonNode> annotation : script.path("audit").properties()) {
      out = out.audit(annotation.getKey(), text(annotation.getValue()));
    }
    if (script.path("echo").asBoolean()) {
      for (Map.Entry<String, String> annotation : echo(request, left).entrySet()) {
        out = out.audit(annotation.getKey(), annotation.getValue());
      }
    }
    return out;
  }

  private static Map<String, String> echo(Request request, long left) {
    Map<String, String> echo = new TreeMap<>();
    echo.put("uid", request.uid());
    echo.put("cluster", request.cluster());
    echo.put("namespace", request.namespace());
    echo.put("name", request.name());
    echo.put("operation", request.operation());
    echo.put("username", request.username());
    echo.put("configuration", request.configuration());
    echo.put("dry-run", Boolean.toString(request.dryRun()));
    echo.put("round", Integer.toString(request.round()));
    echo.put("mode", "MODE_" + request.mode());
    echo.put("object-sha256", digest(request.rawObject()));
    echo.put("old-object-sha256", digest(request.rawOldObject()));
    echo.put("remaining-ms", Long.toString(left));
    echo.put("traceparent", parent());
    return echo;
  }

  private static String digest(byte @Nullable [] raw) {
    if (raw == null) {
      return "";
    }
    try {
      MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
      return HexFormat.of().formatHex(sha256.digest(raw));
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError(e);
    }
  }

  /** The parent of the handler's span. */
  private static String parent() {
    if (!(Span.current() instanceof ReadableSpan span)) {
      return "";
    }
    SpanContext parent = span.getParentSpanContext();
    return parent.isValid() ? parent.getTraceId() + "-" + parent.getSpanId() : "";
  }
}
