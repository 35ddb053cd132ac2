//! The shell around the state of one session: it carries frames between the stream and the state, runs the handlers and
//! keeps the time.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures_util::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{self, AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::board::Entry;
use crate::core::{Action, Ending, Pair, Start, State};
use crate::error::{HandlerError, SessionError};
use crate::hook::{Hook, Hooks};
use crate::limits;
use crate::proto::host::v1::{ConnectRequest, ConnectResponse, DispatcherDrain, HookState, Probe, Welcome};
use crate::request::Request;
use crate::telemetry::Telemetry;
use crate::verdict::{Verdict, outcome};

/// What a session reads of its dispatcher.
#[derive(Debug)]
pub(crate) enum Event {
    Welcomed(Welcome),
    HookChanged(HookState),
    Leaving(DispatcherDrain),
}

/// What the sessions of a host share.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) hooks: Arc<Hooks>,
    /// Where handlers run: not on the thread of the sessions, so that a handler that blocks delays no Ping.
    pub(crate) runtime: Handle,
    /// A permit for each call that the host takes at a time. A handler holds one until it has ended.
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) telemetry: Arc<Telemetry>,
}

/// One session.
pub(crate) struct Session<L> {
    pub(crate) state: State,
    pub(crate) runner: Runner,
    /// The share of the calls that the host takes at a time.
    pub(crate) share: watch::Receiver<usize>,
    /// Asks the session to drain.
    pub(crate) drain: CancellationToken,
    pub(crate) entry: Entry,
    pub(crate) listener: L,
    tasks: Tasks,
}

/// The handlers and probes that run.
#[derive(Default)]
struct Tasks {
    set: JoinSet<Done>,
    work: HashMap<task::Id, Work>,
    aborts: HashMap<Pair, AbortHandle>,
}

enum Work {
    Call { start: Start, started: Arc<OnceLock<Instant>> },
    Probe(u64),
}

enum Done {
    Call { at: Instant, ending: Ending },
    Probe(Option<String>),
}

impl<L: FnMut(&Event)> Session<L> {
    /// A session of a host, whose state is that of a new stream.
    pub(crate) fn new(
        state: State,
        runner: Runner,
        share: watch::Receiver<usize>,
        drain: CancellationToken,
        entry: Entry,
        listener: L,
    ) -> Self {
        Self { state, runner, share, drain, entry, listener, tasks: Tasks::default() }
    }

    /// Serves until the stream ends; `Ok` means that it ended cleanly. Handlers that still run are stopped.
    pub(crate) async fn serve(
        &mut self,
        mut inbound: impl Stream<Item = Result<ConnectResponse, Status>> + Unpin,
        outbound: mpsc::Sender<ConnectRequest>,
    ) -> Result<(), SessionError> {
        let mut outbound = Some(outbound);
        let timer = tokio::time::sleep(limits::CONNECT);
        tokio::pin!(timer);
        let mut draining = false;
        self.state.credit(*self.share.borrow_and_update());
        loop {
            self.carry_out()?;
            self.entry.ignored.store(self.state.ignored(), Ordering::Relaxed);
            self.flush(&mut outbound);
            if let Some(wake) = self.state.wake().map(tokio::time::Instant::from_std)
                && (wake < timer.deadline() || timer.is_elapsed())
            {
                timer.as_mut().reset(wake);
            }
            tokio::select! {
                frame = inbound.next(), if self.state.waiting() <= limits::OUTBOX => match frame {
                    Some(Ok(frame)) => self.state.frame(now(), frame),
                    Some(Err(status)) => return Err(SessionError::Status(Box::new(status))),
                    None => return Ok(()),
                },
                Some(done) = self.tasks.set.join_next_with_id() => self.joined(done),
                permit = writable(outbound.as_ref()), if self.state.waiting() > 0 => if !permit {
                    self.state.unwritable();
                },
                () = self.drain.cancelled(), if !draining => {
                    draining = true;
                    self.state.drain(now());
                },
                Ok(()) = self.share.changed() => {
                    let share = *self.share.borrow_and_update();
                    self.state.credit(share);
                },
                () = &mut timer => self.state.tick(now()),
            }
        }
    }

    /// Hands over the frames that the stream takes now. It has room for few: those that wait may still become one.
    fn flush(&mut self, outbound: &mut Option<mpsc::Sender<ConnectRequest>>) {
        while self.state.waiting() > 0 {
            match outbound.as_ref().map(mpsc::Sender::try_reserve) {
                Some(Ok(permit)) => {
                    if let Some(frame) = self.state.next_frame() {
                        permit.send(frame);
                    }
                }
                Some(Err(mpsc::error::TrySendError::Full(()))) => break,
                Some(Err(mpsc::error::TrySendError::Closed(()))) | None => self.state.unwritable(),
            }
        }
        if self.state.closing() {
            *outbound = None;
        }
    }

    fn carry_out(&mut self) -> Result<(), SessionError> {
        for action in self.state.take_actions() {
            match action {
                Action::Welcomed(welcome) => self.tell(&Event::Welcomed(welcome)),
                Action::HookChanged(hook) => self.tell(&Event::HookChanged(hook)),
                Action::Leaving(drain) => self.tell(&Event::Leaving(drain)),
                Action::Start(start) => self.tasks.start(&self.runner, start),
                Action::Cancel(pair) => self.tasks.cancel(pair),
                Action::Probe(probe) => self.tasks.probe(&self.runner, &probe),
                Action::End(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn tell(&mut self, event: &Event) {
        self.entry.note(event);
        (self.listener)(event);
    }

    /// Takes the result of a task, and of those that have ended meanwhile: their verdicts share a frame.
    fn joined(&mut self, first: Result<(task::Id, Done), JoinError>) {
        let mut next = Some(first);
        while let Some(done) = next {
            self.ended(done);
            next = self.tasks.set.try_join_next_with_id();
        }
    }

    fn ended(&mut self, done: Result<(task::Id, Done), JoinError>) {
        let id = done.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        match (self.tasks.work.remove(&id), done) {
            (Some(Work::Call { start, started }), done) => self.call_ended(&start, started.get().copied(), done),
            (Some(Work::Probe(seq)), Ok((_, Done::Probe(not_ready)))) => self.state.probed(seq, not_ready.as_deref()),
            (Some(Work::Probe(seq)), _) => self.state.probed(seq, Some("the probe panicked")),
            (None, _) => {}
        }
    }

    fn call_ended(&mut self, start: &Start, started: Option<Instant>, done: Result<(task::Id, Done), JoinError>) {
        self.tasks.aborts.remove(&start.pair);
        let (at, ending) = match done {
            Ok((_, Done::Call { at, ending })) => (at, ending),
            Err(error) if error.is_panic() => {
                complain(start, FAILED, &format!("panic: {}", panic_text(error)));
                (now(), Ending::Panicked)
            }
            _ => (now(), Ending::Stopped),
        };
        if let Some(word) = self.state.finished(at, start.pair, started, ending) {
            let took = started.map(|started| at.duration_since(started));
            self.runner.telemetry.called(&start.hook, word, took);
        }
    }
}

impl Tasks {
    fn start(&mut self, runner: &Runner, start: Start) {
        let started = Arc::new(OnceLock::new());
        let task = run(start.clone(), started.clone(), runner.clone());
        let abort = self.set.spawn_on(task, &runner.runtime);
        self.aborts.insert(start.pair, abort.clone());
        self.work.insert(abort.id(), Work::Call { start, started });
    }

    fn cancel(&mut self, pair: Pair) {
        if let Some(abort) = self.aborts.remove(&pair) {
            abort.abort();
        }
    }

    fn probe(&mut self, runner: &Runner, probe: &Probe) {
        let hooks: Vec<Arc<Hook>> = runner.hooks.named(&probe.hook).cloned().collect();
        let task = async move {
            for hook in hooks {
                if let Some(why) = hook.not_ready().await {
                    return Done::Probe(Some(why));
                }
            }
            Done::Probe(None)
        };
        let abort = self.set.spawn_on(task, &runner.runtime);
        self.work.insert(abort.id(), Work::Probe(probe.seq));
    }
}

/// Calls a handler as soon as there is a slot for it. Dropping the future stops the handler, and frees the slot.
async fn run(start: Start, started: Arc<OnceLock<Instant>>, runner: Runner) -> Done {
    let _slot = runner.slots.acquire_owned().await;
    let at = *started.get_or_init(Instant::now);
    let queued = at.duration_since(start.received);
    tracing::trace!(hook = start.call().name, call = start.pair.call, ?queued, "handler called");
    let span = runner.telemetry.span(&start, at);
    let result = match Request::new(start.review.clone(), start.pair.hook as usize, start.hook.stage, start.deadline) {
        Some(request) => span.around(|| start.hook.handle(request)).await,
        None => Err(HandlerError::public("the dispatcher sent a request that cannot be decoded")),
    };
    let result = result.or_else(HandlerError::into_denial);
    let left_out = result.as_ref().ok().and_then(Verdict::left_out);
    let (outcome, failure) = outcome(start.hook.stage, result);
    let at = Instant::now();
    // Telemetry and logs are the author's, and a denial stays one whatever panics in them: the hook of panics has told of it.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        span.end(&outcome, failure.as_ref());
        if let Some(failure) = failure
            && at < start.deadline
        {
            complain(&start, FAILED, &failure.whole_text());
        }
        if let Some(left_out) = left_out {
            complain(&start, LEFT_OUT, &left_out);
        }
    }));
    Done::Call { at, ending: Ending::Returned(outcome) }
}

/// The messages of the log.
const FAILED: &str = "handler failed";
const LEFT_OUT: &str = "a part of the verdict cannot be sent";

fn complain(start: &Start, what: &str, error: &str) {
    let (cluster, uid) =
        start.review.request().map_or(("", ""), |request| (request.cluster.as_str(), request.uid.as_str()));
    start.hook.complain(what, cluster, uid, error);
}

fn panic_text(error: JoinError) -> String {
    let payload = error.into_panic();
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "of an unknown type".into())
}

/// Waits until the stream takes a frame; false if it never will.
async fn writable(outbound: Option<&mpsc::Sender<ConnectRequest>>) -> bool {
    match outbound {
        Some(outbound) => outbound.reserve().await.is_ok(),
        None => false,
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
