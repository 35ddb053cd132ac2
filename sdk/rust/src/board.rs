//! What dispatchers say of a host's hooks.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::limits;
use crate::proto::host::v1::{self as contract, HookOffer, Welcome};
use crate::session::Event;
use crate::stage::{HookState, Stage};

/// The state of a host's sessions, for health pages and tests.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The sessions that dispatchers have accepted, by the ids of the dispatchers.
    pub sessions: Vec<SessionStatus>,
}

/// One session that a dispatcher has accepted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionStatus {
    /// Id of the session.
    pub id: String,
    /// Id of the dispatcher's process.
    pub dispatcher: String,
    /// Digest of the configuration that the dispatcher named last.
    pub revision: String,
    /// Whether the dispatcher sends no new calls.
    pub leaving: bool,
    /// The states that the dispatcher reported, in no order.
    pub hooks: Vec<HookStatus>,
    /// How many frames were of types that this SDK does not know.
    pub ignored_frames: u64,
}

/// A dispatcher's answer to the offer of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookStatus {
    /// Name of the hook.
    pub name: String,
    /// Stage of the hook.
    pub stage: Stage,
    /// Clusters for which the hook is in this state; empty means all.
    pub clusters: Vec<String>,
    /// The state.
    pub state: HookState,
    /// What to do about it.
    pub message: String,
}

/// Collects what dispatchers report.
#[derive(Debug)]
pub(crate) struct Board {
    ready: watch::Sender<bool>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Hooks that were not in rotation yet.
    waiting: HashSet<(String, i32)>,
    sessions: BTreeMap<u64, (SessionStatus, Arc<AtomicU64>)>,
    /// The state of each hook that was logged last, of any session.
    logged: Vec<HookStatus>,
    next: u64,
}

impl Board {
    pub(crate) fn new(offers: &[HookOffer]) -> Arc<Self> {
        let waiting = offers.iter().map(|offer| (offer.name.clone(), offer.stage)).collect();
        let inner = Inner { waiting, sessions: BTreeMap::new(), logged: Vec::new(), next: 0 };
        Arc::new(Self { ready: watch::Sender::new(false), inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is true once every hook was in rotation.
    pub(crate) fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// A place for what the dispatcher of one session reports, until it is dropped.
    pub(crate) fn entry(self: &Arc<Self>) -> Entry {
        let mut inner = self.lock();
        inner.next += 1;
        Entry { board: self.clone(), key: inner.next, ignored: Arc::default() }
    }

    pub(crate) fn status(&self) -> Status {
        let inner = self.lock();
        let status = |(status, ignored): &(SessionStatus, Arc<AtomicU64>)| SessionStatus {
            ignored_frames: ignored.load(Ordering::Relaxed),
            ..status.clone()
        };
        let mut sessions: Vec<SessionStatus> = inner.sessions.values().map(status).collect();
        sessions.sort_by(|a, b| a.dispatcher.cmp(&b.dispatcher));
        Status { sessions }
    }
}

/// The part of the board for one session.
#[derive(Debug)]
pub(crate) struct Entry {
    board: Arc<Board>,
    key: u64,
    /// How many frames were of unknown types.
    pub(crate) ignored: Arc<AtomicU64>,
}

impl Entry {
    /// Notes what the dispatcher reports, and logs it.
    pub(crate) fn note(&self, event: &Event) {
        let mut inner = self.board.lock();
        let opened = matches!(event, Event::Welcomed(_)) && !inner.sessions.contains_key(&self.key);
        let news = match event {
            Event::Welcomed(welcome) => self.welcomed(&mut inner, welcome),
            Event::HookChanged(state) => inner.set(self.key, std::slice::from_ref(state)),
            Event::Leaving(_) => inner.leaving(self.key),
        };
        let ready = inner.waiting.is_empty();
        let dispatcher = inner.sessions.get(&self.key).map(|(status, _)| status.dispatcher.clone());
        drop(inner);
        let dispatcher = dispatcher.unwrap_or_default();
        if opened {
            tracing::info!(dispatcher, "session opened");
        }
        for hook in &news {
            log(&dispatcher, hook);
        }
        if ready {
            self.board.ready.send_replace(true);
        }
    }

    fn welcomed(&self, inner: &mut Inner, welcome: &Welcome) -> Vec<HookStatus> {
        let new = || (SessionStatus::default(), self.ignored.clone());
        let (status, _) = inner.sessions.entry(self.key).or_insert_with(new);
        status.id.clone_from(&welcome.session_id);
        status.dispatcher.clone_from(&welcome.dispatcher_id);
        status.revision.clone_from(&welcome.revision);
        inner.set(self.key, &welcome.hooks)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.board.lock().sessions.remove(&self.key);
    }
}

impl Inner {
    fn leaving(&mut self, session: u64) -> Vec<HookStatus> {
        if let Some((status, _)) = self.sessions.get_mut(&session) {
            status.leaving = true;
        }
        Vec::new()
    }

    /// Sets states of hooks, and returns those that are to be logged.
    fn set(&mut self, session: u64, states: &[contract::HookState]) -> Vec<HookStatus> {
        let Some((status, _)) = self.sessions.get_mut(&session) else { return Vec::new() };
        let mut news = Vec::new();
        for state in states {
            let Some(stage) = Stage::of(state.stage) else { continue };
            let next = HookStatus {
                name: state.name.clone(),
                stage,
                clusters: state.clusters.clone(),
                state: HookState::of(state.state()),
                message: state.message.clone(),
            };
            if !state.revision.is_empty() {
                status.revision.clone_from(&state.revision);
            }
            if next.state == HookState::InRotation {
                self.waiting.remove(&(next.name.clone(), state.stage));
            }
            replace(&mut status.hooks, next.clone());
            if replace(&mut self.logged, next.clone()) {
                news.push(next);
            }
        }
        news
    }
}

/// Replaces the state of a hook for the same clusters, and says whether it changed.
fn replace(states: &mut Vec<HookStatus>, next: HookStatus) -> bool {
    let same = |s: &HookStatus| s.name == next.name && s.stage == next.stage && s.clusters == next.clusters;
    match states.iter().position(same) {
        Some(i) => std::mem::replace(&mut states[i], next) != states[i],
        None if states.len() >= limits::HOOK_STATES => false,
        None => {
            states.push(next);
            true
        }
    }
}

/// Logs a change of a hook. A state in which the hook gets no calls, since something is missing, is a warning.
fn log(dispatcher: &str, hook: &HookStatus) {
    let (stage, state) = (hook.stage.as_str(), hook.state.as_str());
    let why = (!hook.message.is_empty()).then_some(hook.message.as_str());
    let clusters = (!hook.clusters.is_empty()).then(|| tracing::field::debug(&hook.clusters));
    if matches!(hook.state, HookState::UnknownHook | HookState::NotAuthorized) {
        tracing::warn!(hook = hook.name, stage, state, dispatcher, why, clusters, "hook changed");
    } else {
        tracing::info!(hook = hook.name, stage, state, dispatcher, why, clusters, "hook changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::host::v1::State;

    fn offer(name: &str) -> HookOffer {
        HookOffer { name: name.into(), stage: Stage::Validate.into(), ..HookOffer::default() }
    }

    fn state(name: &str, state: State) -> contract::HookState {
        let (name, stage, state) = (name.into(), Stage::Validate.into(), state.into());
        contract::HookState { name, stage, state, ..Default::default() }
    }

    fn welcome(hooks: Vec<contract::HookState>) -> Event {
        Event::Welcomed(Welcome { dispatcher_id: "d1".into(), hooks, ..Welcome::default() })
    }

    #[test]
    fn a_host_is_ready_once_each_hook_was_in_rotation_with_any_dispatcher() {
        let board = Board::new(&[offer("a"), offer("b")]);
        let (one, two) = (board.entry(), board.entry());
        one.note(&welcome(vec![state("a", State::InRotation), state("b", State::Pending)]));
        assert!(!*board.ready().borrow());
        two.note(&welcome(vec![state("b", State::InRotation)]));
        assert!(*board.ready().borrow());
    }

    #[test]
    fn the_status_shows_sessions_until_they_end() {
        let board = Board::new(&[offer("a")]);
        let one = board.entry();
        one.note(&welcome(vec![state("a", State::Pending)]));
        one.note(&Event::HookChanged(state("a", State::NotAuthorized)));
        one.note(&Event::Leaving(crate::proto::host::v1::DispatcherDrain::default()));
        one.ignored.store(3, Ordering::Relaxed);
        one.note(&Event::HookChanged(contract::HookState { stage: 77, ..state("b", State::Pending) }));
        one.note(&Event::HookChanged(contract::HookState { state: 77, ..state("c", State::Pending) }));
        let session = board.status().sessions.remove(0);
        assert_eq!((session.dispatcher.as_str(), session.leaving, session.ignored_frames), ("d1", true, 3));
        let hooks = session.hooks.iter().map(|hook| (hook.name.as_str(), hook.stage, hook.state.as_str()));
        let want = [("a", Stage::Validate, "not_authorized"), ("c", Stage::Validate, "unspecified")];
        assert_eq!(hooks.collect::<Vec<_>>(), want);
        drop(one);
        assert!(board.status().sessions.is_empty());
    }
}
