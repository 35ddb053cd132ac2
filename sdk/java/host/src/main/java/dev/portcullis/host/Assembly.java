package dev.portcullis.host;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import dev.portcullis.host.v1.Cancel;
import dev.portcullis.host.v1.Chunk;
import dev.portcullis.host.v1.Review;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Joins the chunks of a review. It is pure. */
final class Assembly {
  private final long limit; // of the size of a review

  private boolean any; // a review has begun
  private boolean assembling;
  private long call; // in progress, or the last one
  private long total;
  private int hooks;
  private long began;
  private long received;
  private List<ByteString> parts = new ArrayList<>();

  Assembly(long limit) {
    this.limit = limit;
  }

  boolean isAssembling() {
    return assembling;
  }

  boolean isAssembling(long id) {
    return assembling && call == id;
  }

  /** The call in progress, or the last one. */
  long call() {
    return call;
  }

  /** When the first chunk came: the times of the review count from then. */
  long began() {
    return began;
  }

  /** Adds a chunk, and returns the review if that completes it. */
  @Nullable Review add(long now, Chunk chunk) throws BrokenContractException {
    if (!assembling) {
      begin(now, chunk);
    }
    check(chunk);
    parts.add(chunk.getData());
    received += chunk.getData().size();
    return received < total ? null : complete();
  }

  private void begin(long now, Chunk chunk) throws BrokenContractException {
    if (chunk.getTotalBytes() < 0 || chunk.getTotalBytes() > limit) {
      throw new BrokenContractException(
          "call %s has %s bytes, this host takes %s",
          id(chunk.getCallId()), id(chunk.getTotalBytes()), limit);
    }
    checkHooks(chunk.getCallId(), chunk.getHooks());
    if (any && Long.compareUnsigned(chunk.getCallId(), call) <= 0) {
      throw BrokenContractException.order(chunk.getCallId(), call);
    }
    any = true;
    assembling = true;
    call = chunk.getCallId();
    total = chunk.getTotalBytes();
    hooks = chunk.getHooks();
    began = now;
  }

  private void check(Chunk chunk) throws BrokenContractException {
    if (chunk.getCallId() != call) {
      throw new BrokenContractException(
          "a chunk of call %s came while call %s was incomplete", id(chunk.getCallId()), id(call));
    }
    if (chunk.getTotalBytes() != total || chunk.getHooks() != hooks) {
      throw new BrokenContractException("the chunks of call %s do not agree on its size", id(call));
    }
    if (chunk.getData().isEmpty()) {
      throw new BrokenContractException("a chunk of call %s was empty", id(call));
    }
    if (received + chunk.getData().size() > total) {
      throw new BrokenContractException(
          "the chunks of call %s are longer than the %s bytes that they say", id(call), total);
    }
  }

  private Review complete() throws BrokenContractException {
    ByteString encoded = ByteString.copyFrom(parts);
    drop();
    Review review;
    try {
      review = Review.parseFrom(encoded);
    } catch (InvalidProtocolBufferException e) {
      throw new BrokenContractException("the chunks of call %s are no review", id(call));
    }
    if (review.getCallId() != call || review.getHooksCount() != hooks) {
      throw new BrokenContractException(
          "the chunks of call %s hold call %s of %s hooks, not %s",
          id(call), id(review.getCallId()), review.getHooksCount(), hooks);
    }
    return review;
  }

  /** Drops an incomplete review, and returns its number of hooks. */
  int drop() {
    assembling = false;
    received = 0;
    parts = new ArrayList<>();
    return hooks;
  }

  /** Whether a cancellation names every hook of the incomplete review. */
  boolean isCoveredBy(Cancel cancel) {
    return cancel.getHookIndexesCount() == 0
        || cancel.getHookIndexesList().stream()
                .filter(hook -> hook >= 0 && hook < hooks)
                .distinct()
                .count()
            == hooks;
  }

  static void checkHooks(long call, int hooks) throws BrokenContractException {
    if (hooks < 0 || hooks > Limits.MAX_REVIEW_HOOKS) {
      throw new BrokenContractException(
          "call %s asks %s hooks, more than %s",
          id(call), Integer.toUnsignedString(hooks), Limits.MAX_REVIEW_HOOKS);
    }
  }

  /** Numbers of the contract have no sign. */
  private static String id(long number) {
    return Long.toUnsignedString(number);
  }
}
