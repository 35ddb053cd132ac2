//! Limits and times of the SDK. Those that [`Builder`](crate::Builder) does not set hold for every host.

use std::time::Duration;

/// The one version of the protocol that this SDK speaks.
pub(crate) const PROTOCOL: u32 = 1;
/// How many calls a host takes at a time.
pub(crate) const OUTSTANDING: usize = 64;
/// The largest review that a host takes: an object and its predecessor of 3 MiB each, the most that an API server stores,
/// and as much again.
pub(crate) const FRAME_BYTES: usize = 16 << 20;
/// How long a host that leaves waits for its handlers.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);
/// How many hooks one host may offer.
pub(crate) const HOOKS: usize = 1024;

/// Silence that ends a session, until a Welcome says otherwise.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);
/// How long frames may come without one to go before the host says by itself that it lives.
pub(crate) const ALIVE: Duration = Duration::from_millis(500);
/// How long a dial, and then the Welcome, may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// How long the end of the stream may take once a side has nothing more to say.
pub(crate) const CLOSE: Duration = Duration::from_secs(2);
/// How long handlers may take to be dropped after the sessions have ended.
pub(crate) const HANDLER_GRACE: Duration = Duration::from_secs(1);
/// How long a readiness probe of a hook may take.
pub(crate) const PROBE: Duration = Duration::from_secs(5);
/// How many readiness probes run at a time in a session.
pub(crate) const PROBES: usize = 16;
/// How often the failures of one hook are logged at most.
pub(crate) const COMPLAINTS: Duration = Duration::from_secs(1);

/// The largest verdict for a dispatcher that names no limit: what gRPC takes by default.
pub(crate) const VERDICT_BYTES: usize = 4 << 20;
/// The largest frame of a dispatcher that sends larger reviews in chunks.
pub(crate) const WIRE_BYTES: usize = 128 << 10;
/// How many hooks one review may ask: more than this a dispatcher has not outstanding on a session.
pub(crate) const REVIEW_HOOKS: usize = 1 << 16;
/// How many warnings, annotations and causes a verdict may have together.
pub(crate) const VERDICT_ITEMS: usize = 4096;
/// How many sources of an error are looked at.
pub(crate) const SOURCES: usize = 100;
/// The longest text of a failure.
pub(crate) const ERROR_BYTES: usize = 1 << 10;
/// How many verdicts are put in one frame, and how large that is at most.
pub(crate) const BATCH: usize = 64;
pub(crate) const BATCH_BYTES: usize = 64 << 10;
/// What a frame holds beside its verdict, at most.
pub(crate) const FRAME_OVERHEAD: usize = 16;
/// How many cancellations a session remembers before their reviews, and hooks that they name.
pub(crate) const EARLY_CANCELS: usize = 1024;
/// How many states of hooks are remembered of a dispatcher.
pub(crate) const HOOK_STATES: usize = 4 * HOOKS;
/// How many frames may wait to be sent before a session reads no more.
pub(crate) const OUTBOX: usize = 1024;

/// How many dispatchers a host holds sessions to; further peers are ignored.
pub(crate) const TARGETS: usize = 64;
/// How often the addresses of the dispatchers are resolved anew.
pub(crate) const RESOLVE: Duration = Duration::from_secs(5);
/// Gives a peer's own address, found by name resolution, the time to be dialled first.
pub(crate) const PEER_DELAY: Duration = Duration::from_secs(1);
/// The bounds of the time between two attempts to reach a dispatcher.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The HTTP/2 flow-control window of a session: a review of usual size never waits for the window to be opened. It is what a
/// dispatcher can send while the session does not read.
pub(crate) const WINDOW: u32 = 1 << 20;
/// The window of the connection, which has that one stream: h2 ends a connection on which more small frames wait than half of
/// this stands for. It counts each as 256 bytes less its length; the smallest frame of the contract has 7.
pub(crate) const CONNECTION_WINDOW: u32 = 128 << 20;
