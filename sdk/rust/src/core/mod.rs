//! What one session does: a state machine without I/O, clock or threads. Events come in with the time at which they
//! happened. [`State::take_actions`] and [`State::next_frame`] say what is to be done about them.

mod calls;
mod chunks;
mod early;
mod fit;
mod outbox;
#[cfg(test)]
mod state_test;
#[cfg(test)]
mod vectors_test;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::calls::{Ending, Pair, Start};
use self::chunks::Assembly;
use self::early::EarlyCancels;
pub(crate) use self::fit::{failure, shorten};
use self::outbox::Outbox;
use crate::error::SessionError;
use crate::hook::Hooks;
use crate::limits;
use crate::proto::host::v1::connect_request::Frame;
use crate::proto::host::v1::connect_response::Frame as Received;
use crate::proto::host::v1::{
    ConnectRequest, ConnectResponse, Credit, DispatcherDrain, Hello, HookState, HostDrain, Pong, Probe, ProbeResult,
    Welcome,
};

/// What the shell of a session has to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// The dispatcher has accepted the host, or says more about itself.
    Welcomed(Welcome),
    /// The state of a hook has changed.
    HookChanged(HookState),
    /// The dispatcher sends no new calls and ends the stream.
    Leaving(DispatcherDrain),
    /// A handler is to be started.
    Start(Start),
    /// A handler is to be stopped. [`State::finished`] is owed as soon as it has.
    Cancel(Pair),
    /// The readiness of a hook is asked for. [`State::probed`] is owed.
    Probe(Probe),
    /// The stream is to be ended at once.
    End(SessionError),
}

/// The state of one session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub(crate) struct State {
    hooks: Arc<Hooks>,
    drain_timeout: Duration,

    // From the welcome.
    welcomed: bool,
    silence: Duration,

    // Life of the session.
    opened: Instant,
    last_frame: Instant,
    /// Time of the first frame since the host's last one.
    owing: Option<Instant>,
    useful: bool,
    ignored: u64,

    // Calls.
    running: HashMap<Pair, calls::Running>,
    /// When the time of the running calls is over.
    deadlines: BTreeSet<(Instant, Pair)>,
    /// How many hooks of a call are running.
    live: HashMap<u64, usize>,
    /// The highest bound ever announced: the dispatcher may not know a lower one yet.
    limit: usize,
    announced: usize,
    highest: u64,
    last_whole: Option<u64>,
    last_started: u64,
    early: EarlyCancels,
    assembly: Assembly,
    probing: usize,

    // What is to be done.
    outbox: Outbox,
    actions: Vec<Action>,

    // The end.
    drain_until: Option<Instant>,
    end_until: Option<Instant>,
    /// Nothing is sent after the frames in the outbox.
    finishing: bool,
    /// Nothing can be sent.
    mute: bool,
    over: bool,
}

impl State {
    /// Starts a session; `hello` is its first frame.
    pub(crate) fn new(now: Instant, hello: Hello, hooks: Arc<Hooks>, drain_timeout: Duration) -> Self {
        let limit = hello.max_outstanding as usize;
        let mut state = Self {
            hooks,
            drain_timeout,
            welcomed: false,
            silence: limits::SILENCE,
            opened: now,
            last_frame: now,
            owing: None,
            useful: false,
            ignored: 0,
            running: HashMap::new(),
            deadlines: BTreeSet::new(),
            live: HashMap::new(),
            limit,
            announced: limit,
            highest: 0,
            last_whole: None,
            last_started: 0,
            early: EarlyCancels::default(),
            assembly: Assembly::new(hello.max_frame_bytes as usize),
            probing: 0,
            outbox: Outbox::new(),
            actions: Vec::new(),
            drain_until: None,
            end_until: None,
            finishing: false,
            mute: false,
            over: false,
        };
        state.send(Frame::Hello(hello));
        state
    }

    /// What is to be done since the last call, in order.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The next frame to send.
    pub(crate) fn next_frame(&mut self) -> Option<ConnectRequest> {
        self.outbox.next()
    }

    /// How many frames wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Whether the host's side of the stream is to be closed: nothing will be sent any more.
    pub(crate) fn closing(&self) -> bool {
        self.finishing && self.outbox.len() == 0
    }

    /// Notes that nothing can be sent any more. The reader may still learn why.
    pub(crate) fn unwritable(&mut self) {
        self.mute = true;
        self.outbox.clear();
    }

    /// Whether a frame came after the welcome.
    pub(crate) fn useful(&self) -> bool {
        self.useful
    }

    /// How many frames were of types that this SDK does not know.
    pub(crate) fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Takes a frame of the dispatcher.
    pub(crate) fn frame(&mut self, now: Instant, frame: ConnectResponse) {
        self.last_frame = now;
        match self.received(now, frame) {
            Ok(()) => self.alive(now),
            Err(how) => self.end(how),
        }
    }

    fn received(&mut self, now: Instant, frame: ConnectResponse) -> Result<(), SessionError> {
        let frame = match frame.frame {
            Some(Received::Welcome(welcome)) => return self.welcome(welcome),
            None => {
                self.ignored += 1;
                return Ok(());
            }
            Some(frame) => frame,
        };
        if !self.welcomed {
            return Err(SessionError::Broken("another frame came before Welcome".into()));
        }
        self.useful = true;
        match frame {
            Received::Review(review) => self.whole(now, vec![review]).map_err(SessionError::Broken)?,
            Received::Reviews(reviews) => self.batch(now, reviews).map_err(SessionError::Broken)?,
            Received::Chunk(chunk) => self.chunk(now, chunk).map_err(SessionError::Broken)?,
            Received::Cancel(cancel) => self.cancel(now, cancel),
            Received::Ping(ping) => self.send(Frame::Pong(Pong { seq: ping.seq })),
            Received::Drain(drain) => self.left(now, drain),
            Received::HookState(state) => self.actions.push(Action::HookChanged(state)),
            Received::Probe(probe) => self.probe(probe),
            Received::Welcome(_) => {}
        }
        Ok(())
    }

    /// Sends an unasked Pong when frames have come for a while and the host has sent none: on a slow link a Ping may be
    /// stuck behind them. Without frames it sends nothing: a host that receives nothing must get no calls.
    fn alive(&mut self, now: Instant) {
        if self.outbox.len() > 0 {
            return; // A frame will be sent anyway.
        }
        let owing = *self.owing.get_or_insert(now);
        if now.duration_since(owing) >= limits::ALIVE {
            self.send(Frame::Pong(Pong { seq: 0 }));
            self.owing = Some(now);
        }
    }

    /// Puts a frame into the outbox, unless the host's side of the stream is closed.
    fn send(&mut self, frame: Frame) {
        if self.finishing || self.mute {
            return;
        }
        self.owing = None;
        match frame {
            Frame::Verdict(verdict) => self.outbox.push_verdict(verdict),
            frame => self.outbox.push(frame),
        }
    }

    /// Takes the answer to Hello. A later Welcome has a new list of peers and states.
    fn welcome(&mut self, welcome: Welcome) -> Result<(), SessionError> {
        if welcome.protocol != limits::PROTOCOL {
            return Err(SessionError::Protocol(welcome.protocol));
        }
        self.welcomed = true;
        if welcome.silence_ms > 0 {
            self.silence = milliseconds(welcome.silence_ms);
        }
        let batches = welcome.capabilities.iter().any(|name| name == "batches");
        self.outbox.dispatcher_takes(welcome.max_verdict_bytes as usize, batches);
        self.actions.push(Action::Welcomed(welcome));
        Ok(())
    }

    fn probe(&mut self, probe: Probe) {
        if !self.hooks.named(&probe.hook).any(|_| true) {
            self.send(probe_result(probe.seq, Some("unknown hook")));
        } else if self.probing >= limits::PROBES {
            self.send(probe_result(probe.seq, Some("too many probes at a time")));
        } else {
            self.probing += 1;
            self.actions.push(Action::Probe(probe));
        }
    }

    /// Takes the result of a probe: why the hook is not ready.
    pub(crate) fn probed(&mut self, seq: u64, not_ready: Option<&str>) {
        self.probing -= 1;
        self.send(probe_result(seq, not_ready));
    }

    /// Announces a new bound on outstanding calls.
    pub(crate) fn credit(&mut self, most: usize) {
        if self.drain_until.is_some() || most == self.announced {
            return;
        }
        self.announced = most;
        self.limit = self.limit.max(most);
        self.send(Frame::Credit(Credit { max_outstanding: u32::try_from(most).unwrap_or(u32::MAX) }));
    }

    /// Announces that the host takes no new calls. Those in flight finish.
    pub(crate) fn drain(&mut self, now: Instant) {
        if self.drain_until.is_some() {
            return;
        }
        self.drain_until = Some(now + self.drain_timeout);
        self.send(Frame::Drain(HostDrain { last_started_call_id: self.last_started }));
        self.finish_when_drained(now);
    }

    /// Ends a draining session once all calls have their verdicts. An incomplete review needs one if a call with a greater
    /// id was started: by `HostDrain` the dispatcher takes it as started too.
    fn finish_when_drained(&mut self, now: Instant) {
        let owed = !self.running.is_empty() || self.assembly.call().is_some_and(|call| call < self.last_started);
        if self.drain_until.is_some() && !self.finishing && !owed {
            self.finishing = true;
            self.end_by(now + limits::CLOSE);
        }
    }

    /// Bounds the rest of a session whose dispatcher drains: it ends the stream after the calls in flight.
    fn left(&mut self, now: Instant, drain: DispatcherDrain) {
        self.end_by(now + milliseconds(drain.grace_ms) + limits::CLOSE);
        self.actions.push(Action::Leaving(drain));
    }

    fn end_by(&mut self, at: Instant) {
        self.end_until = Some(self.end_until.map_or(at, |until| until.min(at)));
    }

    fn end(&mut self, why: SessionError) {
        self.over = true;
        self.actions.push(Action::End(why));
    }

    /// When [`State::tick`] has something to do.
    pub(crate) fn wake(&self) -> Option<Instant> {
        if self.over {
            return None;
        }
        let [life, drain, end] = self.ends();
        let calls = self.deadlines.first().map(|(at, _)| *at);
        [life, drain, end, calls].into_iter().flatten().min()
    }

    /// When the session has to end: for silence, or since it takes too long to drain, or to close.
    fn ends(&self) -> [Option<Instant>; 3] {
        let life = if self.welcomed { self.last_frame + self.silence } else { self.opened + limits::CONNECT };
        [Some(life), self.drain_until.filter(|_| !self.finishing), self.end_until]
    }

    /// Stops the calls whose time is over, and ends the session if its own is.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.over {
            return;
        }
        self.expire(now);
        let due = self.ends().map(|at| at.is_some_and(|at| at <= now));
        match due {
            [true, ..] if self.welcomed => self.end(SessionError::Silent),
            [true, ..] => self.end(SessionError::NoWelcome),
            [_, true, _] => self.end(SessionError::CutOff),
            [_, _, true] => self.end(SessionError::NotEnded),
            _ => {}
        }
    }
}

fn milliseconds(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

fn probe_result(seq: u64, not_ready: Option<&str>) -> Frame {
    let message = shorten(not_ready.unwrap_or_default(), limits::ERROR_BYTES);
    Frame::ProbeResult(ProbeResult { seq, ready: not_ready.is_none(), message })
}
