package dev.portcullis.host;

import io.grpc.StatusRuntimeException;

/**
 * A staged object was not updated or deleted, since it is not what the caller has read: it has
 * changed, or another replica was faster. Read it again, and change it if it still waits.
 */
public final class ConflictException extends StatusRuntimeException {
  private static final long serialVersionUID = 1;

  ConflictException(StatusRuntimeException answer) {
    super(answer.getStatus(), answer.getTrailers());
  }
}
