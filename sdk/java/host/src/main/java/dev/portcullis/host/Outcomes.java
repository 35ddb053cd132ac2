package dev.portcullis.host;

import com.google.protobuf.ByteString;
import dev.portcullis.admission.v1.AdmissionResponse;
import dev.portcullis.admission.v1.Stage;
import dev.portcullis.admission.v1.Status;
import dev.portcullis.host.v1.Cancelled;
import dev.portcullis.host.v1.HandlerError;
import dev.portcullis.host.v1.Refused;
import dev.portcullis.host.v1.Verdict;
import java.util.HashSet;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What a verdict says of the way in which a handler ended. It is pure.
 *
 * <pre>
 * handler                           outcome
 * returned a response               response, also after the end of the call
 * threw a DeniedException           its denial, likewise; also as a cause
 * threw an Error                    error, panicked
 * threw otherwise, the call ended   cancelled
 * threw otherwise                   error: the text of a HandlerException, else "handler failed"
 * returned no verdict               error, with the reason
 * </pre>
 */
final class Outcomes {
  static final String OVERLOADED = "overloaded";
  static final String DRAINING = "draining";
  static final String UNKNOWN_HOOK = "unknown hook";
  static final String NO_TIME = "no time left";
  static final String CANCELLED = "cancelled before its start";
  static final String EMPTY = "review without a request";

  static final String NOT_READY = "the hook is not ready";

  private static final String FAILED = "handler failed";
  private static final String PANICKED = "handler panicked";
  private static final String CUT_OFF = " ... (cut)";

  private Outcomes() {}

  /** The outcome of a handler that has returned. */
  static Verdict.Builder returned(@Nullable Response response, Stage stage, boolean callEnded) {
    try {
      return Verdict.newBuilder().setResponse(verdict(response, stage));
    } catch (HandlerException e) {
      return threw(e, callEnded);
    }
  }

  private static AdmissionResponse verdict(@Nullable Response response, Stage stage)
      throws HandlerException {
    if (response == null) {
      throw new HandlerException("the handler returned neither a response nor an error");
    }
    AdmissionResponse message = response.message();
    if (!message.getAllowed() || message.getPatch().isEmpty()) {
      return message;
    }
    if (stage == Stage.STAGE_VALIDATE) {
      throw new HandlerException("a validating hook returned a patch");
    }
    if (!Json.isArray(message.getPatch())) {
      throw new HandlerException("the patch is not a JSON Patch: want a JSON array of operations");
    }
    return message;
  }

  /** The denial in a chain of causes; null if there is none. */
  static @Nullable Response denial(Throwable thrown) {
    Set<Throwable> seen = new HashSet<>(); // A chain of causes may be a circle.
    for (Throwable t = thrown; t != null && seen.add(t); t = t.getCause()) {
      if (t instanceof DeniedException denied) {
        return denied.response();
      }
    }
    return null;
  }

  /** The outcome of a handler that has thrown, and not to deny. */
  static Verdict.Builder threw(Throwable thrown, boolean callEnded) {
    HandlerError.Builder error = HandlerError.newBuilder();
    if (thrown instanceof Error) {
      return Verdict.newBuilder().setError(error.setMessage(PANICKED).setPanicked(true));
    }
    return callEnded
        ? Verdict.newBuilder().setCancelled(Cancelled.getDefaultInstance())
        : Verdict.newBuilder().setError(error.setMessage(publicText(thrown, FAILED)));
  }

  static Verdict.Builder refused(String reason) {
    return Verdict.newBuilder().setRefused(Refused.newBuilder().setReason(reason));
  }

  /** The text of a HandlerException in a chain of causes, else a text without internals. */
  static String publicText(Throwable thrown, String otherwise) {
    Set<Throwable> seen = new HashSet<>(); // A chain of causes may be a circle.
    for (Throwable t = thrown; t != null && seen.add(t); t = t.getCause()) {
      String text = t.getMessage();
      if (t instanceof HandlerException && text != null && !text.isEmpty()) {
        return shorten(text, Limits.MAX_ERROR_BYTES);
      }
    }
    return otherwise;
  }

  /**
   * Makes a verdict small enough for a dispatcher that takes frames of limit bytes. A denial stays
   * a denial: it loses all but its message, then the end of the message. Any other verdict becomes
   * a failure.
   */
  static Verdict fit(Verdict verdict, int limit) {
    int size = verdict.getSerializedSize() + Limits.FRAME_OVERHEAD;
    if (size <= limit) {
      return verdict;
    }
    Verdict.Builder small = verdict.toBuilder().clearOutcome();
    if (!verdict.hasResponse() || verdict.getResponse().getAllowed()) {
      String text =
          String.format(
              "a verdict of %d bytes is larger than the %d that the dispatcher takes", size, limit);
      return small.setError(HandlerError.newBuilder().setMessage(text)).build();
    }
    Status denial = verdict.getResponse().getStatus();
    Status.Builder status = Status.newBuilder().setStatus("Failure").setCode(denial.getCode());
    int without = deny(small, status).getSerializedSize();
    // The lengths of the nested messages grow with the text.
    int left = limit - without - 2 * Limits.FRAME_OVERHEAD;
    return deny(small, status.setMessage(shorten(denial.getMessage(), left)));
  }

  private static Verdict deny(Verdict.Builder verdict, Status.Builder status) {
    return verdict.setResponse(AdmissionResponse.newBuilder().setStatus(status)).build();
  }

  /** Cuts a text to at most limit bytes of UTF-8, between characters. */
  static String shorten(String text, int limit) {
    ByteString bytes = ByteString.copyFromUtf8(text);
    if (bytes.size() <= limit) {
      return text;
    }
    int cut = limit - CUT_OFF.length();
    if (cut <= 0) {
      return "";
    }
    while (cut > 0 && (bytes.byteAt(cut) & 0xC0) == 0x80) {
      cut--;
    }
    return bytes.substring(0, cut).toStringUtf8() + CUT_OFF;
  }
}
