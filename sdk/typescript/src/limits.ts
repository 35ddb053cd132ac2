/** The limits and the defaults of the SDK, equal to those of the other SDKs. Times are in milliseconds, sizes in bytes. */

/** How many calls a host takes at a time, divided over its sessions. */
export const DEFAULT_MAX_OUTSTANDING = 64;
/** The largest review that a host takes: an object and its predecessor of 3 MiB each, and as much again. */
export const DEFAULT_MAX_FRAME_BYTES = 16 << 20;
/** How long a host that leaves waits for its handlers. */
export const DEFAULT_DRAIN_TIMEOUT = 10_000;
/** How many hooks one host may offer. */
export const MAX_HOOKS = 1024;

/** Ends a session without a frame, until a Welcome says otherwise. */
export const DEFAULT_SILENCE = 5_000;
/** How long frames may come without one to go before the host says by itself that it lives. */
export const ALIVE_INTERVAL = 500;
/** How long a dial and the Welcome may take. */
export const CONNECT_TIMEOUT = 10_000;
/** How long the end of the stream may take once a side has nothing more to say. */
export const CLOSE_TIMEOUT = 2_000;
/** How long handlers may take to return after their signals have aborted. */
export const HANDLER_GRACE = 1_000;
/** How long a readiness probe of a hook may take. */
export const PROBE_TIMEOUT = 5_000;
/** How many probes of hooks run at a time in a session. */
export const MAX_PROBES = 16;
/** The largest verdict for a dispatcher that names no limit. */
export const DEFAULT_VERDICT_BYTES = 4 << 20;
/** The largest frame of a dispatcher that sends larger reviews in chunks. */
export const MAX_WIRE_BYTES = 128 << 10;
/** How many hooks one review may ask. */
export const MAX_REVIEW_HOOKS = 1 << 16;
/** The longest text of a failure. */
export const MAX_ERROR_BYTES = 1 << 10;
/** How many warnings, annotations and causes a verdict may have together. */
export const MAX_DECORATIONS = 4096;
/** How many verdicts are put in one frame. */
export const MAX_BATCH = 64;
/** The largest frame of several verdicts. */
export const MAX_BATCH_BYTES = 64 << 10;
/** How many cancellations before their reviews, and hooks that they name, a session remembers. */
export const MAX_EARLY_CANCELS = 1024;
/** How many frames may wait for a dispatcher that does not read before the host does not read either. */
export const MAX_OUTBOX = 1024;
/** How many dispatchers a host holds sessions to. */
export const MAX_TARGETS = 64;
/** How many states of hooks are remembered of a dispatcher. */
export const MAX_HOOK_STATES = 4 * MAX_HOOKS;
/** How often the addresses of the dispatchers are resolved anew. */
export const RESOLVE_INTERVAL = 5_000;
/** Gives a peer's own address, found by name resolution, the time to be dialled first. */
export const PEER_DELAY = 1_000;
/** The shortest time between two attempts to reach a dispatcher. */
export const BACKOFF_MIN = 100;
/** The longest time between two attempts to reach a dispatcher. */
export const BACKOFF_MAX = 5_000;
/** How often the failures of one hook are logged at most. */
export const COMPLAINT_INTERVAL = 1_000;
/** How long handlers are started in a row before the event loop may read and write. */
export const SLICE = 2;
/** A handler that computes for so long in one piece is logged. */
export const BLOCKED = 250;
