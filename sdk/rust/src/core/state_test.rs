//! What the transcripts do not play.

use std::time::{Duration, Instant};

use prost::Message;

use super::{Action, Ending, State};
use crate::error::SessionError;
use crate::proto::admission::v1::AdmissionResponse;
use crate::proto::host::v1::connect_request::Frame;
use crate::proto::host::v1::connect_response::Frame as Received;
use crate::proto::host::v1::verdict::Outcome;
use crate::proto::host::v1::{
    Cancel, Chunk, ConnectResponse, DispatcherDrain, Hello, HookCall, Ping, Probe, Review, Welcome,
};
use crate::{Host, Request, Stage, Verdict, limits};

/// The state of a session that was welcomed, of a host with the hook "v".
struct Scene {
    now: Instant,
    state: State,
}

impl Scene {
    fn welcomed() -> Self {
        let host = Host::builder("h").validate("v", async |_: Request| Ok(Verdict::allow())).build().expect("a host");
        let (now, inner) = (Instant::now(), host.inner());
        let hello = Hello { max_outstanding: 64, ..inner.hello.clone() };
        let state = State::new(now, hello, inner.hooks.clone(), limits::DRAIN);
        let mut scene = Self { now, state };
        let welcome = Welcome { protocol: limits::PROTOCOL, silence_ms: 60_000, ..Welcome::default() };
        scene.take(Received::Welcome(welcome));
        scene.state.take_actions();
        scene.sent();
        scene
    }

    fn take(&mut self, frame: Received) {
        self.state.frame(self.now, ConnectResponse { frame: Some(frame) });
    }

    /// The frames since the last call.
    fn sent(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.state.next_frame()).filter_map(|request| request.frame).collect()
    }

    /// Why the session has ended.
    fn ended(&mut self) -> Option<SessionError> {
        let end = |action| if let Action::End(why) = action { Some(why) } else { None };
        self.state.take_actions().into_iter().find_map(end)
    }
}

fn review(call_id: u64, hooks: usize) -> Received {
    let call = HookCall { name: "v".into(), stage: Stage::Validate.into(), remaining_ms: 9000, ..HookCall::default() };
    let request = Some(Vec::new().into());
    Received::Review(Review { call_id, hooks: vec![call; hooks], request, ..Review::default() })
}

#[test]
fn a_host_that_drains_announces_no_bound() {
    let mut scene = Scene::welcomed();
    scene.state.credit(7);
    assert!(matches!(scene.sent()[..], [Frame::Credit(credit)] if credit.max_outstanding == 7));
    scene.take(review(1, 1));
    scene.state.drain(scene.now);
    scene.state.credit(9);
    assert!(matches!(scene.sent()[..], [Frame::Drain(_)]));
}

#[test]
fn what_cannot_be_sent_is_not_kept() {
    let mut scene = Scene::welcomed();
    scene.take(review(1, 2));
    scene.state.unwritable();
    scene.take(Received::Ping(Ping { seq: 1 }));
    assert_eq!(scene.state.waiting(), 0);
}

#[test]
fn probes_at_a_time_are_bounded() {
    let mut scene = Scene::welcomed();
    let probe = |seq| Received::Probe(Probe { seq, hook: "v".into() });
    (0..=limits::PROBES as u64).for_each(|seq| scene.take(probe(seq)));
    assert_eq!(scene.state.take_actions().len(), limits::PROBES);
    assert!(
        matches!(&scene.sent()[..], [Frame::ProbeResult(r)] if !r.ready && r.message == "too many probes at a time")
    );
    scene.state.probed(0, None);
    scene.take(probe(99));
    assert_eq!(scene.state.take_actions().len(), 1);
}

#[test]
fn a_dispatcher_that_leaves_has_the_time_that_it_names() {
    let mut scene = Scene::welcomed();
    let leaving = |grace_ms| Received::Drain(DispatcherDrain { grace_ms, peers: Vec::new() });
    scene.take(leaving(5_000));
    // It cannot have more by saying so again.
    scene.take(leaving(50_000));
    let grace = scene.now + Duration::from_secs(5);
    scene.state.tick(grace);
    assert!(scene.ended().is_none());
    assert_eq!(scene.state.wake(), Some(grace + limits::CLOSE));
    scene.state.tick(grace + limits::CLOSE);
    assert!(matches!(scene.ended(), Some(SessionError::NotEnded)));
}

#[test]
fn a_response_counts_though_its_call_was_cancelled() {
    let mut scene = Scene::welcomed();
    scene.take(review(1, 1));
    scene.take(Received::Cancel(Cancel { call_id: 1, hook_indexes: Vec::new() }));
    let actions = scene.state.take_actions();
    let [Action::Start(start), Action::Cancel(_)] = &actions[..] else { panic!("{actions:?}") };
    let denied = Outcome::Response(AdmissionResponse::default());
    scene.state.finished(scene.now, start.pair, Some(scene.now), Ending::Returned(denied.clone()));
    assert!(matches!(&scene.sent()[..], [Frame::Verdict(verdict)] if verdict.outcome == Some(denied)));
}

#[test]
fn a_call_that_runs_comes_in_no_other_way_again() {
    let whole = || review(5, 1);
    let chunk = || {
        let Received::Review(review) = review(5, 1) else { unreachable!() };
        let data = review.encode_to_vec();
        Received::Chunk(Chunk { call_id: 5, total_bytes: data.len() as u64, hooks: 1, data: data.into() })
    };
    for (first, second) in [(chunk(), whole()), (whole(), chunk())] {
        let mut scene = Scene::welcomed();
        scene.take(first);
        assert!(matches!(scene.state.take_actions()[..], [Action::Start(_)]));
        scene.take(second);
        assert!(matches!(scene.ended(), Some(SessionError::Broken(text)) if text == "call 5 came twice"));
    }
}

#[test]
fn a_review_asks_a_bounded_number_of_hooks() {
    let mut scene = Scene::welcomed();
    scene.take(review(1, limits::REVIEW_HOOKS));
    assert!(scene.ended().is_none());
    scene.take(review(2, limits::REVIEW_HOOKS + 1));
    assert!(matches!(scene.ended(), Some(SessionError::Broken(text)) if text.contains("call 2 asks 65537 hooks")));
}
