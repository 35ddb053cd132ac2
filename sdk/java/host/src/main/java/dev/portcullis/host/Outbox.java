package dev.portcullis.host;

import com.google.protobuf.CodedOutputStream;
import dev.portcullis.host.v1.ConnectRequest;
import dev.portcullis.host.v1.Verdict;
import dev.portcullis.host.v1.Verdicts;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Holds frames that are to be sent, in order. Successive verdicts become one frame if the
 * dispatcher takes batches; no verdict waits for others to come. It is pure.
 */
final class Outbox {
  private final ArrayDeque<ConnectRequest> frames = new ArrayDeque<>();
  private List<Verdict> run = new ArrayList<>(); // behind the frames
  private int runBytes;
  private int waiting;
  private boolean batches;
  private int limit; // size of a frame of several verdicts

  /** Allows several verdicts in a frame, of at most a number of bytes. */
  void allowBatches(int bytes) {
    batches = true;
    limit = Math.min(bytes, Limits.MAX_BATCH_BYTES);
  }

  void add(ConnectRequest frame) {
    seal();
    frames.add(frame);
    waiting++;
  }

  void add(Verdict verdict) {
    int size = CodedOutputStream.computeMessageSize(Verdicts.VERDICTS_FIELD_NUMBER, verdict);
    if (!batches
        || run.size() == Limits.MAX_BATCH
        || runBytes + size + Limits.FRAME_OVERHEAD > limit) {
      seal();
    }
    run.add(verdict);
    runBytes += size;
    waiting++;
  }

  /** Verdicts and other frames that wait. */
  int waiting() {
    return waiting;
  }

  /** Takes the next frame. */
  @Nullable ConnectRequest poll() {
    if (frames.isEmpty()) {
      seal();
    }
    ConnectRequest next = frames.poll();
    if (next != null) {
      waiting -= Math.max(1, next.getVerdicts().getVerdictsCount());
    }
    return next;
  }

  void clear() {
    frames.clear();
    waiting = 0;
    run = new ArrayList<>();
    runBytes = 0;
  }

  private void seal() {
    switch (run.size()) {
      case 0 -> {
        return;
      }
      case 1 -> frames.add(ConnectRequest.newBuilder().setVerdict(run.get(0)).build());
      default ->
          frames.add(
              ConnectRequest.newBuilder()
                  .setVerdicts(Verdicts.newBuilder().addAllVerdicts(run))
                  .build());
    }
    run = new ArrayList<>();
    runBytes = 0;
  }
}
