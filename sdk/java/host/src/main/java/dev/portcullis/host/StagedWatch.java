package dev.portcullis.host;

import dev.portcullis.initializer.v1.EventType;
import dev.portcullis.initializer.v1.InitializerServiceGrpc;
import dev.portcullis.initializer.v1.WatchRequest;
import dev.portcullis.initializer.v1.WatchResponse;
import io.grpc.ManagedChannel;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import java.lang.System.Logger.Level;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * The events of a watch, in their order, for one thread at a time. A stream that breaks is followed
 * by another one, which goes on after the last version. When that is too old, and when this reader
 * was too slow, each object comes again as added; one whose hold has ended meanwhile is not sent as
 * deleted then.
 *
 * <p>There are no more events once the watch or its client is closed, by any thread, or the reading
 * thread is interrupted: the interrupt stays set.
 */
public final class StagedWatch implements Iterable<WatchResponse>, AutoCloseable {
  /** Errors that waiting does not end. */
  static final Set<Code> LASTING =
      Set.copyOf(
          EnumSet.of(
              Code.UNAUTHENTICATED,
              Code.PERMISSION_DENIED,
              Code.INVALID_ARGUMENT,
              Code.NOT_FOUND,
              Code.FAILED_PRECONDITION,
              Code.UNIMPLEMENTED));

  private static final Set<Code> TOO_OLD = Set.copyOf(EnumSet.of(Code.OUT_OF_RANGE, Code.ABORTED));

  private final StagedClient client;
  private final WatchRequest request;
  private final Set<Code> lasting;
  private final CountDownLatch closed = new CountDownLatch(1);
  private volatile @Nullable ManagedChannel channel; // of the stream; null between two

  // Of the reading thread.
  private @Nullable Iterator<WatchResponse> stream;
  private @Nullable WatchResponse next; // that was asked for, and not taken
  private String version; // after which a stream goes on
  private int attempts; // since the last event
  private String lastError = ""; // that was logged

  /**
   * Makes a watch.
   *
   * @param lasting errors that end the watch; the others are logged
   */
  StagedWatch(StagedClient client, WatchRequest request, Set<Code> lasting) {
    this.client = client;
    this.request = request;
    this.lasting = lasting;
    this.version = request.getResourceVersion();
  }

  /**
   * The events from here on. {@code hasNext} waits for the next one, and is false when there are no
   * more. Both methods throw a {@link StatusRuntimeException} when the watch cannot go on: the
   * caller may not, or the request is at fault.
   *
   * @return an iterator; all have the same events, each once
   */
  @Override
  public Iterator<WatchResponse> iterator() {
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        if (next == null) {
          next = await();
        }
        return next != null;
      }

      @Override
      public WatchResponse next() {
        WatchResponse event = hasNext() ? next : null;
        if (event == null) {
          throw new NoSuchElementException("the watch has ended");
        }
        next = null;
        return event;
      }
    };
  }

  /** Ends the watch. */
  @Override
  public void close() {
    closed.countDown();
    hangUp();
  }

  /** Waits for the next event that the caller has asked for; null if there are no more. */
  private @Nullable WatchResponse await() {
    while (!isClosed()) {
      try {
        WatchResponse event = read();
        if (event == null) {
          rest(null);
        } else if (event.getType() != EventType.EVENT_TYPE_BOOKMARK || request.getBookmarks()) {
          return event;
        }
      } catch (StatusRuntimeException e) {
        if (isClosed() || Thread.currentThread().isInterrupted()) {
          break;
        }
        if (lasting.contains(e.getStatus().getCode())) {
          close();
          throw e;
        }
        rest(e);
      }
    }
    close();
    return null;
  }

  /** Reads an event, and first opens a stream if there is none; null if the stream has ended. */
  private @Nullable WatchResponse read() {
    if (stream == null) {
      stream = open();
    }
    if (!stream.hasNext()) {
      return null;
    }
    WatchResponse event = stream.next();
    attempts = 0;
    lastError = "";
    // The objects that are sent first do not come in the order of their versions: only the bookmark
    // behind them says where to go on.
    if (!version.isEmpty() || event.getInitialEventsEnd()) {
      version = event.getObject().getResourceVersion();
    }
    return event;
  }

  private Iterator<WatchResponse> open() {
    ManagedChannel dialled = client.dial();
    channel = dialled;
    if (isClosed()) { // It may have been before there was a channel to end.
      hangUp();
    }
    return InitializerServiceGrpc.newBlockingStub(dialled)
        .watch(request.toBuilder().setResourceVersion(version).setBookmarks(true).build());
  }

  /** Ends the stream, and waits before the next one. */
  private void rest(@Nullable StatusRuntimeException error) {
    stream = null;
    hangUp();
    if (error != null) {
      report(error);
      if (TOO_OLD.contains(error.getStatus().getCode())) {
        version = "";
      }
    }
    long wait = ConnLoop.backoff(attempts++, ThreadLocalRandom.current().nextDouble());
    try {
      if (client.awaitClose(0) || closed.await(wait, TimeUnit.NANOSECONDS)) {
        close();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      close();
    }
  }

  /** Logs why a stream has ended; of equal reasons in a row, the first. */
  private void report(StatusRuntimeException error) {
    Throwable cause = error.getStatus().getCause();
    String text =
        String.format(
            "a watch of staged objects broke off, trying on: address=%s error=\"%s%s\"",
            client.address(), error.getMessage(), cause == null ? "" : ": " + cause.getMessage());
    if (!text.equals(lastError)) {
      lastError = text;
      client.settings().logger().log(Level.WARNING, text);
    }
  }

  private void hangUp() {
    ManagedChannel current = channel;
    if (current != null) {
      client.hangUp(current);
    }
  }

  private boolean isClosed() {
    return closed.getCount() == 0 || client.isClosed();
  }
}
