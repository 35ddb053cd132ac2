package dev.portcullis.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import dev.portcullis.initializer.v1.EventType;
import dev.portcullis.initializer.v1.StagedObject;
import dev.portcullis.initializer.v1.UpdateRequest;
import dev.portcullis.initializer.v1.WatchResponse;
import java.io.IOException;
import java.io.UncheckedIOException;

/** What a controller makes of the messages of a {@link StagedClient}. */
public final class Staged {
  private Staged() {}

  /**
   * Whether the object of an event waits for its first pending initializer. One that is refused
   * already is sent once more, and does not wait.
   *
   * @param event of a watch
   * @return whether there is something to do
   */
  public static boolean waits(WatchResponse event) {
    return (event.getType() == EventType.EVENT_TYPE_ADDED
            || event.getType() == EventType.EVENT_TYPE_MODIFIED)
        && !event.getObject().hasResult();
  }

  /**
   * What a staged object stages, as a tree in which numbers keep their spelling.
   *
   * @param staged as it was read
   * @return a tree of the caller's own
   * @throws UncheckedIOException if it is not JSON
   * @throws IllegalArgumentException if it is no object: viewers and operators do not see what is
   *     staged
   */
  public static ObjectNode objectOf(StagedObject staged) {
    try {
      if (Json.read(staged.getObject().getRaw()) instanceof ObjectNode object) {
        return object;
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    throw new IllegalArgumentException("the caller does not see what is staged");
  }

  /**
   * The update by which the first pending initializer leaves an object as it should be created.
   *
   * @param staged the object as it was read
   * @param changed what it stages, as the initializer has made it
   * @return the request
   */
  public static UpdateRequest done(StagedObject staged, JsonNode changed) {
    ByteString raw = Json.write(changed);
    return unchanged(staged).toBuilder()
        .setObject(dev.portcullis.admission.v1.Object.newBuilder().setRaw(raw))
        .build();
  }

  /**
   * The update by which the first pending initializer refuses an object.
   *
   * @param staged the object as it was read
   * @param denial one of {@link Response#deny}
   * @return the request
   * @throws IllegalArgumentException if the response allows
   */
  public static UpdateRequest refused(StagedObject staged, Response denial) {
    if (denial.isAllowed()) {
      throw new IllegalArgumentException("the response allows: want one of Response.deny");
    }
    return refused(staged, denial.message().getStatus());
  }

  static UpdateRequest refused(StagedObject staged, dev.portcullis.admission.v1.Status denial) {
    return of(staged).setResult(denial).build();
  }

  /** The update by which the first pending initializer leaves an object as it is. */
  static UpdateRequest unchanged(StagedObject staged) {
    return of(staged).addAllPending(staged.getPendingList().stream().skip(1).toList()).build();
  }

  private static UpdateRequest.Builder of(StagedObject staged) {
    return UpdateRequest.newBuilder()
        .setKey(staged.getKey())
        .setResourceVersion(staged.getResourceVersion());
  }
}
