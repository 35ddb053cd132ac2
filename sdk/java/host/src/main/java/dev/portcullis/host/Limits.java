package dev.portcullis.host;

import java.util.concurrent.TimeUnit;

/**
 * The limits of a host and its sessions. Times are in nanoseconds, as everywhere in the SDK's own
 * code.
 */
final class Limits {
  static final String SDK = "portcullis-java";
  static final String SDK_VERSION = "0.1.0";

  /** The one version of the protocol that this SDK speaks. */
  static final int PROTOCOL = 1;

  /** A host takes several reviews in one frame, a dispatcher several verdicts. */
  static final String BATCHES = "batches";

  /** A host takes large reviews in parts. */
  static final String CHUNKS = "chunks";

  static final int MAX_OUTSTANDING = 64;

  /**
   * Largest review: two objects of the most that an API server stores, 3 MiB, and as much again.
   */
  static final int MAX_FRAME_BYTES = 16 << 20;

  static final long DRAIN_TIMEOUT = TimeUnit.SECONDS.toNanos(10);

  /** How many hooks one host may offer. */
  static final int MAX_HOOKS = 1024;

  /** Ends a session without a frame, until a Welcome says otherwise. */
  static final long SILENCE = TimeUnit.SECONDS.toNanos(5);

  /** How long frames may come without one to go before the host says by itself that it lives. */
  static final long ALIVE_INTERVAL = TimeUnit.MILLISECONDS.toNanos(500);

  /** How long a dial may take, and then the Welcome. */
  static final long CONNECT_TIMEOUT = TimeUnit.SECONDS.toNanos(10);

  /** How long the end of the stream may take once a side has nothing more to say. */
  static final long CLOSE_TIMEOUT = TimeUnit.SECONDS.toNanos(2);

  /** How long handlers may take to return after their calls have ended. */
  static final long HANDLER_GRACE = TimeUnit.SECONDS.toNanos(1);

  /** How long a readiness check may take. */
  static final long PROBE_TIMEOUT = TimeUnit.SECONDS.toNanos(5);

  /** Largest verdict for a dispatcher that names no limit: what gRPC takes by default. */
  static final int VERDICT_BYTES = 4 << 20;

  /** Largest frame with reviews of a dispatcher that sends larger ones in chunks. */
  static final int MAX_WIRE_BYTES = 128 << 10;

  /**
   * How many hooks one review may ask: more than this a dispatcher has not outstanding on a
   * session.
   */
  static final int MAX_REVIEW_HOOKS = 1 << 16;

  /** Longest text of a failure. */
  static final int MAX_ERROR_BYTES = 1 << 10;

  /** How many verdicts are put in one frame. */
  static final int MAX_BATCH = 64;

  /** How many bytes of verdicts are put in one frame. */
  static final int MAX_BATCH_BYTES = 64 << 10;

  /** Bounds what a frame holds beside its verdict. */
  static final int FRAME_OVERHEAD = 16;

  /** How many cancellations a session remembers before their reviews, and hooks that they name. */
  static final int MAX_EARLY_CANCELS = 1024;

  /** How many readiness checks run at a time in a session. */
  static final int MAX_PROBES = 16;

  /**
   * Frames that wait for a dispatcher that does not read. Past it the host does not read either.
   */
  static final int MAX_OUTBOX = 1024;

  /** How many states of hooks are kept of a session. */
  static final int MAX_HOOK_STATES = 4096;

  /** How many dispatchers a host dials, and how many peers and addresses it takes from one. */
  static final int MAX_TARGETS = 64;

  /** Resolves names again. */
  static final long RESOLVE_INTERVAL = TimeUnit.SECONDS.toNanos(5);

  /** Before the first dial of a peer: a name may lead to it meanwhile. */
  static final long PEER_DELAY = TimeUnit.SECONDS.toNanos(1);

  static final long BACKOFF_MIN = TimeUnit.MILLISECONDS.toNanos(100);
  static final long BACKOFF_MAX = TimeUnit.SECONDS.toNanos(5);

  /** How often the failures of one hook are logged at most. */
  static final long COMPLAINT_INTERVAL = TimeUnit.SECONDS.toNanos(1);

  /** Window of HTTP/2: a review of usual size never waits for it to be opened. */
  static final int WINDOW_BYTES = 4 << 20;

  /** How many warnings, annotations and causes of a verdict a dispatcher takes. */
  static final int MAX_DECORATION = 4096;

  private Limits() {}
}
