//! Sessions to all dispatchers: it resolves their names, and keeps a loop for each dispatcher of the dial plan that dials,
//! serves, and dials again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::dial::dial;
use crate::dial_plan::{Changes, DialPlan, Endpoint, Target};
use crate::error::{Error, SessionError, whole_text};
use crate::host::{Dispatchers, Inner};
use crate::limits;
use crate::proto::host::v1::Peer;
use crate::proto::host::v1::host_service_client::HostServiceClient;
use crate::session::{Event, Runner};

/// What changes the dial plan.
enum News {
    Resolved { name: String, addresses: Vec<SocketAddr> },
    Welcomed { key: String, at: Endpoint, dispatcher: String, peers: Vec<Peer> },
    Leaving { key: String, at: Endpoint, peers: Vec<Peer> },
    Ended { key: String },
}

/// What the loops share.
#[derive(Clone)]
struct Shared {
    host: Arc<Inner>,
    dispatchers: Arc<Dispatchers>,
    runner: Runner,
    news: mpsc::UnboundedSender<News>,
    /// For each name, asks for its addresses at once: a dispatcher that is gone may be back at another one.
    resolve_now: Arc<Vec<Notify>>,
}

/// Holds sessions to all dispatchers until `drain`, and they have drained.
pub(crate) async fn serve_all(
    host: Arc<Inner>,
    dispatchers: Arc<Dispatchers>,
    runner: Runner,
    drain: CancellationToken,
) -> Result<(), Error> {
    let mut plan = DialPlan::new(dispatchers.server_name.clone());
    let resolve_now = Arc::new(dispatchers.names.iter().map(|_| Notify::new()).collect::<Vec<_>>());
    let (news, mut incoming) = mpsc::unbounded_channel();
    let shared = Shared { host, dispatchers, runner, news, resolve_now };
    let mut resolvers = JoinSet::new();
    for index in 0..shared.dispatchers.names.len() {
        resolvers.spawn(resolve(shared.clone(), index));
    }
    let mut loops = JoinSet::new();
    let mut running: HashMap<String, CancellationToken> = HashMap::new();
    let mut result = Ok(());
    loop {
        let changes = tokio::select! {
            Some(news) = incoming.recv() => update(&mut plan, news),
            Some(ended) = loops.join_next() => {
                let (key, outcome): Drained = ended.map_err(|error| Error::Thread(error.into()))?;
                result = result.and(outcome);
                running.remove(&key);
                plan.gone(&key)
            }
            () = drain.cancelled() => break,
        };
        for key in &changes.stop {
            if let Some(stop) = running.get(key) {
                stop.cancel();
            }
        }
        for target in changes.start {
            let stop = drain.child_token();
            running.insert(target.key.clone(), stop.clone());
            loops.spawn(Loop { target, stop, shared: shared.clone() }.keep_session());
        }
    }
    resolvers.shutdown().await;
    while let Some(ended) = loops.join_next().await {
        result = result.and(ended.map_err(|error| Error::Thread(error.into()))?.1);
    }
    tracing::info!(drained = result.is_ok(), "host stopped");
    result
}

fn update(plan: &mut DialPlan, news: News) -> Changes {
    match news {
        News::Resolved { name, addresses } => plan.resolved(&name, &addresses),
        News::Welcomed { key, at, dispatcher, peers } => plan.welcomed(&key, &at, &dispatcher, &peers),
        News::Leaving { key, at, peers } => plan.leaving(&key, &at, &peers),
        News::Ended { key } => plan.ended(&key),
    }
}

/// Keeps the addresses of one name current. While the name cannot be resolved the last addresses count.
async fn resolve(shared: Shared, index: usize) {
    let name = &shared.dispatchers.names[index];
    let mut last_error = String::new();
    loop {
        let lookup = tokio::time::timeout(limits::RESOLVE, shared.dispatchers.resolver.0(name.clone()));
        let found = lookup.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        match found {
            Ok(addresses) if !addresses.is_empty() => {
                last_error.clear();
                let _ = shared.news.send(News::Resolved { name: name.clone(), addresses });
            }
            other => {
                let error = other.map_or_else(|error| error.to_string(), |_| "no addresses".into());
                if error != last_error {
                    tracing::warn!(name, error, "dispatchers cannot be resolved");
                    last_error = error;
                }
            }
        }
        let _ = tokio::time::timeout(limits::RESOLVE, shared.resolve_now[index].notified()).await;
    }
}

/// The key of a loop that has stopped, and whether its calls had the time to finish.
type Drained = (String, Result<(), Error>);

/// Keeps a session to one dispatcher.
struct Loop {
    target: Target,
    stop: CancellationToken,
    shared: Shared,
}

/// How one session went.
struct Served {
    accepted: bool,
    useful: bool,
    result: Result<(), SessionError>,
}

impl Loop {
    async fn keep_session(self) -> Drained {
        let mut wait = self.target.delay;
        let mut backoff = Backoff::default();
        let mut last_error = String::new();
        for at in self.target.endpoints.iter().cycle() {
            if self.stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                break;
            }
            let served = self.serve_once(at).await;
            if matches!(served.result, Err(SessionError::CutOff)) {
                tracing::warn!(address = at.address, "session drained in part");
                return (self.target.key, Err(Error::CutOff));
            }
            self.report(at, &served, &mut last_error);
            let _ = self.shared.news.send(News::Ended { key: self.target.key.clone() });
            wait = backoff.after(served.useful, fastrand::f64());
        }
        (self.target.key, Ok(()))
    }

    /// Dials and holds one session. The dial, too, ends when the loop is to stop.
    async fn serve_once(&self, at: &Endpoint) -> Served {
        let mut served = Served { accepted: false, useful: false, result: Ok(()) };
        let channel = match self.stop.run_until_cancelled(dial(at, &self.shared.dispatchers.tls)).await {
            None => return served,
            Some(Err(error)) => {
                served.result = Err(error);
                return served;
            }
            Some(Ok(channel)) => channel,
        };
        let limit = self.shared.host.hello.max_frame_bytes as usize;
        let (outbound, frames) = mpsc::channel(1);
        let mut client = HostServiceClient::new(channel).max_decoding_message_size(limit.max(limits::WIRE_BYTES));
        // The headers of the answer come with Welcome, so that the session runs already while they are awaited.
        let opened = async move { client.connect(ReceiverStream::new(frames)).await };
        let inbound = stream::once(opened.map_ok(tonic::Response::into_inner).boxed()).try_flatten().boxed();
        let mut member = Some(self.shared.host.budget.join());
        let mut session = self.shared.host.session(&self.shared.runner, self.stop.clone(), |event: &Event| {
            served.accepted = true;
            if let Event::Leaving(_) = event {
                member = None;
            }
            self.tell(at, event);
        });
        let result = session.serve(inbound, outbound).await;
        let useful = session.state.useful();
        drop(session);
        Served { useful, result, ..served }
    }

    fn tell(&self, at: &Endpoint, event: &Event) {
        let (key, at) = (self.target.key.clone(), at.clone());
        let news = match event {
            Event::Welcomed(welcome) => {
                let (dispatcher, peers) = (welcome.dispatcher_id.clone(), welcome.peers.clone());
                News::Welcomed { key, at, dispatcher, peers }
            }
            Event::Leaving(drain) => News::Leaving { key, at, peers: drain.peers.clone() },
            Event::HookChanged(_) => return,
        };
        let _ = self.shared.news.send(news); // Nobody listens once the host drains.
    }

    /// Logs the end of a session; of equal failures in a row, the first.
    fn report(&self, at: &Endpoint, served: &Served, last_error: &mut String) {
        let mut error = served.result.as_ref().err().map(|error| whole_text(error)).unwrap_or_default();
        if !served.accepted && !error.is_empty() {
            error = self.shared.dispatchers.tls.explain(error);
        }
        let address = &at.address;
        if self.stop.is_cancelled() {
            tracing::debug!(address, error, "session drained");
        } else if served.accepted {
            last_error.clear();
            self.shared.resolve_now.iter().for_each(Notify::notify_one);
            tracing::info!(address, error, "session ended");
        } else if error != *last_error {
            tracing::warn!(address, error, "no session, trying on");
            *last_error = error;
        }
    }
}

/// The pauses between two dials.
#[derive(Debug, Default)]
struct Backoff {
    /// Sessions in a row that were of no use.
    failures: u32,
}

impl Backoff {
    /// The pause after a session: longer after each one in a row that was of no use, and random by `chance`, 0 to 1, so that the
    /// clients of a dispatcher that restarts do not come back all at once.
    fn after(&mut self, useful: bool, chance: f64) -> Duration {
        let failures = if useful { 0 } else { self.failures };
        self.failures = failures.saturating_add(1);
        let most = limits::BACKOFF_MAX.min(limits::BACKOFF_MIN * 2 * (1 << failures.min(6)));
        limits::BACKOFF_MIN + most.saturating_sub(limits::BACKOFF_MIN).mul_f64(chance)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::host::Resolver;
    use crate::{HandlerResult, Host, Request, Tls, Verdict};

    async fn allow(_: Request) -> HandlerResult {
        Ok(Verdict::allow())
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_does_not_answer_is_asked_again() {
        let asked = Arc::new(Semaphore::new(0));
        let ask = asked.clone();
        let resolver = Resolver(Box::new(move |_| {
            ask.add_permits(1);
            Box::pin(std::future::pending())
        }));
        let names = vec!["mesh.example:8444".into()];
        let dispatchers = Arc::new(Dispatchers { names, resolver, server_name: None, tls: Tls::plaintext() });
        let host = Host::builder("h").validate("v", allow).build().expect("a host");
        let runner = host.inner().runner().expect("it does not run yet");
        let started = tokio::time::Instant::now();
        tokio::select! {
            ended = serve_all(host.inner().clone(), dispatchers, runner, CancellationToken::new()) => panic!("{ended:?}"),
            _ = asked.acquire_many(3) => {}
        }
        // Each time it has 5 s, and then as long a pause.
        assert_eq!(started.elapsed().as_secs(), 20);
    }

    #[test]
    fn the_pause_between_dials_grows_until_a_session_is_of_use() {
        let mut backoff = Backoff::default();
        let mut longest = |useful| backoff.after(useful, 1.0).as_millis();
        assert_eq!([false; 7].map(&mut longest), [200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!([true, false, true].map(&mut longest), [200, 400, 200]);
        for failures in [0, 3, 1000, u32::MAX] {
            assert_eq!(Backoff { failures }.after(false, 0.0), limits::BACKOFF_MIN);
        }
    }
}
