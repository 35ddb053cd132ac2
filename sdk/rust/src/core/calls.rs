//! The calls of a session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;

use super::chunks::{out_of_order, too_many_hooks};
use super::{Action, State, milliseconds};
use crate::hook::Hook;
use crate::limits;
use crate::proto::host::v1::connect_request::Frame;
use crate::proto::host::v1::verdict::Outcome;
use crate::proto::host::v1::{Cancel, Cancelled, Chunk, HandlerError, HookCall, Refused, Reviews, Verdict};
use crate::wire::{Received, Review};

/// One call of one hook; a verdict ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pair {
    /// Id of the call.
    pub(crate) call: u64,
    /// Index of the hook in its review.
    pub(crate) hook: u32,
}

/// A handler that is to be started.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) pair: Pair,
    pub(crate) hook: Arc<Hook>,
    pub(crate) review: Arc<Received>,
    /// When the review was whole.
    pub(crate) received: Instant,
    /// When the time of the call is over.
    pub(crate) deadline: Instant,
}

impl Start {
    /// The part of the review for this hook.
    pub(crate) fn call(&self) -> &HookCall {
        &self.review.review.hooks[self.pair.hook as usize]
    }
}

/// How the run of a handler ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It has returned.
    Returned(Outcome),
    /// It panicked.
    Panicked,
    /// It was stopped, or never called if it has no start.
    Stopped,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) received: Instant,
    deadline: Instant,
    cancelled: Option<Why>,
}

/// Why a call was cancelled.
#[derive(Clone, Copy, Debug)]
enum Why {
    Asked,
    TimeOver,
}

const CANCELLED: &str = "cancelled before its start";
const NO_TIME: &str = "no time left";

impl State {
    pub(super) fn chunk(&mut self, now: Instant, chunk: Chunk) -> Result<(), String> {
        let call = chunk.call_id;
        if self.live.contains_key(&call) {
            return Err(format!("call {call} came twice"));
        }
        let whole = self.assembly.add(now, chunk)?;
        self.highest = self.highest.max(call);
        let Some((encoded, began)) = whole else { return Ok(()) };
        let review = Review::decode(encoded).map_err(|_| format!("the chunks of call {call} are no review"))?;
        if review.call_id != call || review.hooks.len() != self.assembly.hooks() as usize {
            return Err(format!("the chunks of call {call} hold another review than they say"));
        }
        self.review(now, began, review)?;
        self.finish_when_drained(now);
        Ok(())
    }

    pub(super) fn batch(&mut self, now: Instant, reviews: Reviews) -> Result<(), String> {
        let size = reviews.encoded_len();
        if size > limits::WIRE_BYTES {
            return Err(format!("a frame of several reviews has {size} bytes, this host takes {}", limits::WIRE_BYTES));
        }
        self.whole(now, reviews.reviews)
    }

    /// Takes reviews that come in one piece. Their ids increase, so that a call that comes again is noticed also after its
    /// end. Reviews in chunks have an order of their own.
    pub(super) fn whole(&mut self, now: Instant, reviews: Vec<Review>) -> Result<(), String> {
        for review in &reviews {
            if let Some(last) = self.last_whole.replace(review.call_id)
                && review.call_id <= last
            {
                return Err(out_of_order(review.call_id, last));
            }
        }
        for review in reviews {
            self.review(now, now, review)?;
        }
        self.finish_when_drained(now);
        Ok(())
    }

    /// Starts the handlers of a review, and refuses those that cannot start. Their time counts from `written`: the arrival of
    /// the review, or of its first chunk.
    fn review(&mut self, now: Instant, written: Instant, review: Review) -> Result<(), String> {
        let call = review.call_id;
        if self.live.contains_key(&call) || self.assembly.call() == Some(call) {
            return Err(format!("call {call} came twice"));
        }
        if review.hooks.len() > limits::REVIEW_HOOKS {
            return Err(too_many_hooks(call, review.hooks.len()));
        }
        self.highest = self.highest.max(call);
        self.early.forget(now.checked_sub(self.silence));
        let early = self.early.take(call);
        let received = Arc::new(Received::new(review));
        for (pair, asked) in (0..).map(|hook| Pair { call, hook }).zip(&received.review.hooks) {
            let hook = self.hooks.get(&asked.name, asked.stage).cloned();
            let cancelled = early.iter().any(|cancel| cancel.names(pair.hook));
            match self.refusal(&received.review, asked, hook.as_ref(), cancelled) {
                Some(reason) => self.verdict(pair, refused(reason), [0, 0]),
                None => self.start(now, written, pair, hook, &received),
            }
        }
        Ok(())
    }

    fn refusal(
        &self,
        review: &Review,
        asked: &HookCall,
        hook: Option<&Arc<Hook>>,
        cancelled: bool,
    ) -> Option<&'static str> {
        let reasons = [
            (self.drain_until.is_some(), "draining"),
            (hook.is_none(), "unknown hook"),
            (review.request.is_none(), "review without a request"),
            (cancelled, CANCELLED),
            (asked.remaining_ms == 0, NO_TIME),
            (self.running.len() >= self.limit, "overloaded"),
        ];
        reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
    }

    fn start(&mut self, now: Instant, written: Instant, pair: Pair, hook: Option<Arc<Hook>>, review: &Arc<Received>) {
        let Some(hook) = hook else { return };
        let remaining = review.review.hooks[pair.hook as usize].remaining_ms;
        let deadline = written + milliseconds(remaining);
        self.running.insert(pair, Running { received: now, deadline, cancelled: None });
        self.deadlines.insert((deadline, pair));
        *self.live.entry(pair.call).or_default() += 1;
        self.last_started = self.last_started.max(pair.call);
        self.actions.push(Action::Start(Start { pair, hook, review: review.clone(), received: now, deadline }));
    }

    /// Cancels running handlers. A cancellation before its review is remembered; one after the verdict is ignored.
    pub(super) fn cancel(&mut self, now: Instant, cancel: Cancel) {
        let call = cancel.call_id;
        if self.assembly.call() == Some(call) {
            self.cancel_chunks(now, cancel);
        } else if self.live.contains_key(&call) {
            for pair in self.named(&cancel) {
                self.stop(pair, Why::Asked);
            }
        } else if call > self.highest {
            self.remember(now, cancel);
        }
    }

    fn named(&self, cancel: &Cancel) -> Vec<Pair> {
        let call = cancel.call_id;
        if cancel.hook_indexes.is_empty() {
            return self.running.keys().filter(|pair| pair.call == call).copied().collect();
        }
        cancel.hook_indexes.iter().map(|hook| Pair { call, hook: *hook }).collect()
    }

    fn remember(&mut self, now: Instant, cancel: Cancel) {
        self.early.forget(now.checked_sub(self.silence));
        self.early.remember(now, cancel);
    }

    /// Cancels a review that has come in part. If all its hooks are cancelled, no more chunks come; if some are, the
    /// cancellation is remembered, since the others still need the review.
    fn cancel_chunks(&mut self, now: Instant, cancel: Cancel) {
        let Some(hooks) = self.assembly.cancel(&cancel) else {
            self.remember(now, cancel);
            return;
        };
        for hook in 0..hooks {
            self.verdict(Pair { call: cancel.call_id, hook }, Outcome::Cancelled(Cancelled {}), [0, 0]);
        }
        self.finish_when_drained(now);
    }

    /// Cancels the calls whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, pair)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.stop(*pair, Why::TimeOver);
        }
    }

    fn stop(&mut self, pair: Pair, why: Why) {
        let Some(running) = self.running.get_mut(&pair) else { return };
        self.deadlines.remove(&(running.deadline, pair));
        if running.cancelled.is_none() {
            running.cancelled = Some(why);
            self.actions.push(Action::Cancel(pair));
        }
    }

    /// Sends the verdict of a handler that has run from `started` to `now`, or was never called, and returns a word for its
    /// outcome. It is sent also for a cancelled call: it alone frees the slot.
    pub(crate) fn finished(
        &mut self,
        now: Instant,
        pair: Pair,
        started: Option<Instant>,
        ending: Ending,
    ) -> Option<&'static str> {
        let mut running = self.running.remove(&pair)?;
        self.deadlines.remove(&(running.deadline, pair));
        if let Some(live) = self.live.get_mut(&pair.call) {
            *live -= 1;
            if *live == 0 {
                self.live.remove(&pair.call);
            }
        }
        if running.deadline <= now {
            running.cancelled.get_or_insert(Why::TimeOver);
        }
        let outcome = running.outcome(started, ending);
        let word = word(&outcome);
        let began = started.unwrap_or(now);
        let times = [began.duration_since(running.received), now.duration_since(began)].map(microseconds);
        self.verdict(pair, outcome, times);
        self.finish_when_drained(now);
        Some(word)
    }

    fn verdict(&mut self, pair: Pair, outcome: Outcome, [queue_us, handle_us]: [u32; 2]) {
        let outcome = Some(outcome);
        let verdict = Verdict { call_id: pair.call, hook_index: pair.hook, queue_us, handle_us, outcome };
        self.send(Frame::Verdict(verdict));
    }
}

impl Running {
    /// A response counts also after the call was cancelled; an error says then that the handler heeded it.
    fn outcome(&self, started: Option<Instant>, ending: Ending) -> Outcome {
        let panicked = |message: &str| Outcome::Error(HandlerError { message: message.into(), panicked: true });
        match (ending, self.cancelled) {
            (Ending::Panicked, _) => panicked("handler panicked"),
            (Ending::Returned(Outcome::Error(_)), Some(_)) => Outcome::Cancelled(Cancelled {}),
            (Ending::Returned(outcome), _) => outcome,
            (Ending::Stopped, Some(_)) if started.is_some() => Outcome::Cancelled(Cancelled {}),
            (Ending::Stopped, Some(Why::Asked)) => refused(CANCELLED),
            (Ending::Stopped, Some(Why::TimeOver)) => refused(NO_TIME),
            (Ending::Stopped, None) => panicked("handler ended its task"),
        }
    }
}

fn refused(reason: &str) -> Outcome {
    Outcome::Refused(Refused { reason: reason.into() })
}

/// The attribute of metrics that says how a call ended.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Response(response) if !response.allowed => "denied",
        Outcome::Response(_) => "allowed",
        Outcome::Error(error) if error.panicked => "panicked",
        Outcome::Error(_) => "failed",
        Outcome::Cancelled(_) => "cancelled",
        Outcome::Refused(_) => "refused",
    }
}

fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
