//! The host.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::board::{Board, Status};
use crate::budget::Budget;
use crate::core::State;
use crate::dial_plan::host_of;
use crate::error::{Error, HandlerError};
use crate::hook::{BoxFuture, HandlerResult, Hook, Hooks};
use crate::limits;
use crate::manager;
use crate::proto::host::v1::Hello;
use crate::request::Request;
use crate::session::{Event, Runner, Session};
use crate::telemetry::{Providers, Telemetry};
use crate::tls::Tls;

/// A program that serves hooks to the dispatchers of a mesh. A clone is the same host.
///
/// [`run_until`](Self::run_until) serves until its future is done. Meanwhile [`ready`](Self::ready) and
/// [`status`](Self::status) tell how the host stands, from any task.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
    dispatchers: Arc<Dispatchers>,
}

/// What the sessions of a host share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) hooks: Arc<Hooks>,
    /// Without the share of a session.
    pub(crate) hello: Hello,
    pub(crate) budget: Arc<Budget>,
    pub(crate) board: Arc<Board>,
    outstanding: usize,
    providers: Providers,
    slots: Arc<Semaphore>,
    drain_timeout: Duration,
    started: AtomicBool,
}

/// Whom a host dials.
#[derive(Debug)]
pub(crate) struct Dispatchers {
    pub(crate) names: Vec<String>,
    pub(crate) resolver: Resolver,
    pub(crate) server_name: Option<String>,
    pub(crate) tls: Tls,
}

type Resolve = dyn Fn(String) -> BoxFuture<io::Result<Vec<SocketAddr>>> + Send + Sync;

/// Finds the addresses of a name, host:port.
pub(crate) struct Resolver(pub(crate) Box<Resolve>);

impl Resolver {
    fn new<F, Fut>(resolve: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(Box::new(move |name| Box::pin(resolve(name))))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Sets up a [`Host`]. Faults are reported by [`build`](Self::build).
#[derive(Debug)]
pub struct Builder {
    hello: Hello,
    hooks: Vec<Hook>,
    dispatchers: Vec<String>,
    resolver: Resolver,
    server_name: Option<String>,
    tls: Option<Tls>,
    providers: Providers,
    outstanding: usize,
    frame_bytes: usize,
    drain_timeout: Duration,
}

impl Host {
    /// Sets up a host: a name for the program, the same for all its replicas, for example "imagepolicy".
    pub fn builder(name: impl Into<String>) -> Builder {
        let hello = Hello {
            protocol_min: limits::PROTOCOL,
            protocol_max: limits::PROTOCOL,
            host: name.into(),
            instance: instance(),
            sdk: "portcullis-rust".into(),
            sdk_version: env!("CARGO_PKG_VERSION").into(),
            // Several reviews in one frame, and large reviews in parts.
            capabilities: vec!["batches".into(), "chunks".into()],
            ..Hello::default()
        };
        Builder {
            hello,
            hooks: Vec::new(),
            dispatchers: Vec::new(),
            resolver: Resolver::new(async |name| Ok(tokio::net::lookup_host(name).await?.collect())),
            server_name: None,
            tls: None,
            providers: Providers::default(),
            outstanding: limits::OUTSTANDING,
            frame_bytes: limits::FRAME_BYTES,
            drain_timeout: limits::DRAIN,
        }
    }

    /// Serves the hooks on a session to every dispatcher until `shutdown` is done, for example
    /// [`signal::terminated`](crate::signal::terminated). Then the host announces that it drains, finishes the calls in flight
    /// within the time to drain, and returns. Lost and refused sessions are logged and dialled again.
    ///
    /// The sessions run on a thread of their own, so that a handler that blocks its thread delays no sign of life. Handlers
    /// run on the runtime that calls this, which needs its clock (`enable_all`). Dropping the future ends all sessions at once.
    ///
    /// # Errors
    ///
    /// Fails if the host cannot start: it has no dispatchers, its certificates cannot be read, or it runs already; and if
    /// calls were cut off at the end of the time to drain, or handlers did not end.
    pub async fn run_until(&self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.check_dispatchers()?;
        let runner = self.inner.runner()?;
        let (drain, gone) = (CancellationToken::new(), CancellationToken::new());
        let _gone_with_this_future = gone.clone().drop_guard();
        let served = self.spawn(runner, drain.clone(), gone)?;
        tokio::pin!(shutdown, served);
        let result = tokio::select! {
            result = &mut served => result,
            () = &mut shutdown => {
                drain.cancel();
                served.await
            }
        };
        let handlers = self.inner.handlers_ended().await;
        result.unwrap_or_else(|_| Err(Error::Thread("it ended by itself".into()))).and(handlers)
    }

    /// Starts the thread of the sessions, which ends with them.
    fn spawn(
        &self,
        runner: Runner,
        drain: CancellationToken,
        gone: CancellationToken,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let thread_error = |error: std::io::Error| Error::Thread(error.into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(thread_error)?;
        let sessions = manager::serve_all(self.inner.clone(), self.dispatchers.clone(), runner, drain);
        let (done, served) = oneshot::channel();
        let run = move || {
            let result = runtime.block_on(gone.run_until_cancelled(sessions));
            runtime.shutdown_background(); // A name that is being resolved must not delay the end.
            let _ = done.send(result.unwrap_or(Ok(())));
        };
        std::thread::Builder::new().name("portcullis-host".into()).spawn(run).map_err(thread_error)?;
        Ok(served)
    }

    fn check_dispatchers(&self) -> Result<(), Error> {
        if self.dispatchers.names.is_empty() {
            return Err(Error::Config("the host has no dispatchers: name them with `dispatcher`, host:port".into()));
        }
        // A fault at the start is returned at once; a later one may be corrected while the host runs.
        self.dispatchers.tls.config().map(drop).map_err(Error::Tls)
    }

    /// Waits until every hook was in rotation with at least one dispatcher. A readiness check of the host's Pod on it keeps a
    /// rollout from replacing good replicas by ones that the mesh does not ask.
    pub async fn ready(&self) {
        let mut ready = self.inner.board.ready();
        let _ = ready.wait_for(|ready| *ready).await; // The board lives as long as the host.
    }

    /// How the host stands with its dispatchers now.
    pub fn status(&self) -> Status {
        self.inner.board.status()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    /// What runs the handlers, on the runtime of the caller. Once.
    pub(crate) fn runner(&self) -> Result<Runner, Error> {
        if self.started.swap(true, Ordering::Relaxed) {
            return Err(Error::Config("the host runs already, or has run".into()));
        }
        Ok(Runner {
            hooks: self.hooks.clone(),
            runtime: Handle::current(),
            slots: self.slots.clone(),
            telemetry: Telemetry::new(&self.providers),
        })
    }

    /// A session for a new stream.
    pub(crate) fn session<L: FnMut(&Event)>(
        &self,
        runner: &Runner,
        drain: CancellationToken,
        listener: L,
    ) -> Session<L> {
        let share = self.budget.share();
        let max_outstanding = u32::try_from(*share.borrow()).unwrap_or(u32::MAX);
        let hello = Hello { max_outstanding, ..self.hello.clone() };
        let state = State::new(Instant::now(), hello, self.hooks.clone(), self.drain_timeout);
        Session::new(state, runner.clone(), share, drain, self.board.entry(), listener)
    }

    /// Waits for handlers that were stopped; one that blocks its thread does not notice.
    pub(crate) async fn handlers_ended(&self) -> Result<(), Error> {
        let all = u32::try_from(self.outstanding).unwrap_or(u32::MAX);
        match tokio::time::timeout(limits::HANDLER_GRACE, self.slots.acquire_many(all)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::HandlersRunning),
        }
    }
}

impl Builder {
    /// Adds a validating hook, by the name that it has in its configuration. [`Hook::validate`] with
    /// [`hook`](Self::hook) says more about one.
    pub fn validate<F, Fut>(self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.hook(Hook::validate(name, handler))
    }

    /// Adds a mutating hook, likewise.
    pub fn mutate<F, Fut>(self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.hook(Hook::mutate(name, handler))
    }

    /// Adds an initializer, by the name that it has in its `InitializerConfiguration`: see [`Hook::initialize`].
    pub fn initialize<T, F, Fut>(self, name: impl Into<String>, initializer: F) -> Self
    where
        T: DeserializeOwned + Serialize + Send + 'static,
        F: Fn(T, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, HandlerError>> + Send + 'static,
    {
        self.hook(Hook::initialize(name, initializer))
    }

    /// Adds a hook.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Adds a dispatcher, or several, by an address, host:port. Every IP address that the host resolves to is a dispatcher of
    /// its own, and this host holds a session to each.
    pub fn dispatcher(mut self, address: impl Into<String>) -> Self {
        self.dispatchers.push(address.into());
        self
    }

    /// Adds several addresses, likewise.
    pub fn dispatchers(mut self, addresses: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.dispatchers.extend(addresses.into_iter().map(Into::into));
        self
    }

    /// Sets how the addresses of a name, host:port, are found: by the resolver of the system without it. It is asked every few
    /// seconds, on the thread of the sessions: it must not block.
    pub fn resolver<F, Fut>(mut self, resolve: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        self.resolver = Resolver::new(resolve);
        self
    }

    /// Sets the provider of the spans of calls: the global one when the host starts, without it.
    #[cfg(feature = "otel")]
    pub fn tracer_provider(mut self, provider: &impl opentelemetry::global::ObjectSafeTracerProvider) -> Self {
        self.providers.trace(provider);
        self
    }

    /// Sets the provider of the metrics: the global one when the host starts, without it.
    #[cfg(feature = "otel")]
    pub fn meter_provider(mut self, provider: &impl opentelemetry::metrics::MeterProvider) -> Self {
        self.providers.measure(provider);
        self
    }

    /// Sets how sessions are secured.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the name that every dispatcher's certificate must carry. Without it that is the host of its address; a peer that
    /// is named by its IP address alone is known by the name of the dispatcher that named it.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Names this process among its replicas; a random name without it. It must be new at each start.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.hello.instance = name.into();
        self
    }

    /// Sets the failure domain that the process runs in.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.hello.zone = zone.into();
        self
    }

    /// Adds a cluster that the host wants to serve; without any it serves all that it is granted.
    pub fn cluster(self, name: impl Into<String>) -> Self {
        self.clusters([name])
    }

    /// Adds several clusters, likewise.
    pub fn clusters(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hello.clusters.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets how many calls the host takes at a time, divided over its sessions; 64 without it. It bounds the handlers that
    /// run at once.
    pub fn max_outstanding(mut self, calls: usize) -> Self {
        self.outstanding = calls;
        self
    }

    /// Sets the largest review that the host takes, in bytes; 16 MiB without it.
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.frame_bytes = bytes;
        self
    }

    /// Sets how long the calls in flight may take once the host is to leave; 10 s without it.
    pub fn drain_timeout(mut self, time: Duration) -> Self {
        self.drain_timeout = time;
        self
    }

    /// Makes the host. It connects to nothing yet.
    ///
    /// # Errors
    ///
    /// Fails if the name is empty, there are no hooks, a hook is registered twice, an address is not host:port, a limit or the
    /// time to drain is 0, a limit is larger than 2 GiB, or dispatchers are named without saying how sessions are secured.
    pub fn build(mut self) -> Result<Host, Error> {
        let config = |text: String| Err(Error::Config(text));
        if self.hello.host.is_empty() {
            return config("the host has no name: give it one, for example \"imagepolicy\"".into());
        }
        if let Some(wrong) = self.dispatchers.iter().find(|address| host_of(address).is_none()) {
            return config(format!("dispatcher {wrong:?}: want host:port"));
        }
        let limit = 1..=i32::MAX as usize;
        if !limit.contains(&self.outstanding) || !limit.contains(&self.frame_bytes) {
            return config("a limit is 0, or larger than 2 GiB".into());
        }
        if self.drain_timeout.is_zero() {
            return config("the time to drain is 0".into());
        }
        let tls = match self.tls {
            Some(tls) => tls,
            None if self.dispatchers.is_empty() => Tls::plaintext(),
            None => {
                return config("the host has no certificates: use `Tls::files`, or `Tls::plaintext` in tests".into());
            }
        };
        let hooks = Arc::new(Hooks::new(self.hooks)?);
        self.hello.hooks = hooks.offers().to_vec();
        self.hello.max_frame_bytes = u32::try_from(self.frame_bytes).unwrap_or(u32::MAX);
        let inner = Inner {
            board: Board::new(hooks.offers()),
            budget: Budget::new(self.outstanding),
            slots: Arc::new(Semaphore::new(self.outstanding.min(Semaphore::MAX_PERMITS))),
            outstanding: self.outstanding,
            providers: self.providers,
            hooks,
            hello: self.hello,
            drain_timeout: self.drain_timeout,
            started: AtomicBool::new(false),
        };
        let dispatchers =
            Dispatchers { names: self.dispatchers, resolver: self.resolver, server_name: self.server_name, tls };
        Ok(Host { inner: Arc::new(inner), dispatchers: Arc::new(dispatchers) })
    }

    /// Makes the host and runs it: short for [`build`](Self::build) and [`Host::run_until`].
    ///
    /// # Errors
    ///
    /// As those two.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.build()?.run_until(shutdown).await
    }
}

/// Names a process: for a person by its host name where that is known, and uniquely by chance.
fn instance() -> String {
    let suffix: String = (0..8).map(|_| fastrand::alphanumeric().to_ascii_lowercase()).collect();
    match std::env::var("HOSTNAME") {
        Ok(name) if !name.is_empty() => format!("{name}-{suffix}"),
        _ => suffix,
    }
}
