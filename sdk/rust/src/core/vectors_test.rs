//! Plays the transcripts that all SDKs share against the core, under a fake clock: what a dispatcher sends, and what a host
//! answers, frame by frame.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use serde::Deserialize;

use super::{Action, Ending, Pair, Start, State};
use crate::hook::Hook;
use crate::proto::host::v1::connect_request::Frame;
use crate::proto::host::v1::verdict::Outcome;
use crate::proto::host::v1::{ConnectRequest, ConnectResponse, HandlerError, Hello};
use crate::stage::Stage;
use crate::verdict::outcome;
use crate::{HandlerError as Failure, HandlerResult, Host, PublicError, Request, Verdict};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/vectors");

#[derive(Deserialize)]
struct Transcript {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(flatten)]
    command: Command,
    expect: Vec<Expected>,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Command {
    Host { hooks: Vec<String>, max_outstanding: Option<usize>, drain_timeout_ms: Option<u64> },
    Send { frames: Vec<String> },
    Advance { ms: u64 },
    Release { hook: String },
    Drain,
    End { code: Option<String> },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Expected {
    Frame(String),
    Started(String),
    Closed(bool),
    Ended(String),
    #[serde(untagged)]
    WithText {
        frame: String,
    },
}

/// What a step shows. Verdicts stand apart: their order means nothing, nor in which frames they come.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    started: Vec<String>,
    frames: Vec<Frame>,
    verdicts: Vec<Bytes>,
    closed: bool,
    /// Whether the session ended, and whether in error.
    ended: Option<bool>,
}

impl Shown {
    fn frame(&mut self, frame: ConnectRequest) {
        let verdicts = match frame.frame.expect("a frame") {
            Frame::Verdict(verdict) => vec![verdict],
            Frame::Verdicts(verdicts) => verdicts.verdicts,
            Frame::Hello(hello) => {
                let nameless = Hello { sdk: String::new(), sdk_version: String::new(), ..hello };
                return self.frames.push(Frame::Hello(nameless));
            }
            frame => return self.frames.push(frame),
        };
        self.verdicts.extend(verdicts.iter().map(|verdict| Bytes::from(verdict.encode_to_vec())));
        self.verdicts.sort();
    }

    fn of(expected: Vec<Expected>) -> Self {
        let mut shown = Self::default();
        for entry in expected {
            match entry {
                Expected::Frame(hex) | Expected::WithText { frame: hex } => {
                    shown.frame(ConnectRequest::decode(bytes(&hex)).expect("a ConnectRequest"));
                }
                Expected::Started(hook) => shown.started.push(hook),
                Expected::Closed(closed) => shown.closed = closed,
                Expected::Ended(error) => shown.ended = Some(!error.is_empty()),
            }
        }
        shown.started.sort();
        shown
    }
}

fn bytes(hex: &str) -> Bytes {
    let digits = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// One host, whose handlers are played by hand.
struct Scene {
    now: Instant,
    state: State,
    held: HashMap<Pair, Start>,
    shown: Shown,
    closed: bool,
}

impl Scene {
    fn enter(hooks: &[String], max_outstanding: Option<usize>, drain_timeout_ms: Option<u64>) -> Self {
        let mut builder = Host::builder("imagepolicy").instance("imagepolicy-1");
        if let Some(most) = max_outstanding {
            builder = builder.max_outstanding(most);
        }
        for name in hooks {
            builder = builder.hook(register(name));
        }
        let inner = builder.build().expect("a host").inner().clone();
        let hello =
            Hello { max_outstanding: u32::try_from(max_outstanding.unwrap_or(64)).unwrap(), ..inner.hello.clone() };
        let now = Instant::now();
        let timeout = Duration::from_millis(drain_timeout_ms.unwrap_or(10_000));
        let state = State::new(now, hello, inner.hooks.clone(), timeout);
        let mut scene = Self { now, state, held: HashMap::new(), shown: Shown::default(), closed: false };
        scene.settle();
        scene
    }

    /// Carries out one command, and returns what happened until nothing moves any more.
    fn play(&mut self, command: Command) -> Shown {
        match command {
            Command::Host { .. } => {}
            Command::Send { frames } => {
                for hex in frames {
                    let frame = ConnectResponse::decode(bytes(&hex)).expect("a ConnectResponse");
                    self.state.frame(self.now, frame);
                    self.settle();
                }
            }
            Command::Advance { ms } => self.advance(Duration::from_millis(ms)),
            Command::Release { hook } => {
                let released = self.held.extract_if(|_, start| start.hook.name == hook);
                for pair in released.map(|(pair, _)| pair).collect::<Vec<_>>() {
                    self.returned(pair, Stage::Validate, Ok(Verdict::allow()), self.now);
                }
            }
            Command::Drain => self.state.drain(self.now),
            Command::End { code } => self.shown.ended = Some(code.is_some()),
        }
        self.settle();
        std::mem::take(&mut self.shown)
    }

    fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(wake) = self.state.wake().filter(|wake| *wake <= until) {
            self.now = self.now.max(wake);
            self.state.tick(self.now);
            self.settle();
        }
        self.now = until;
    }

    fn settle(&mut self) {
        let mut actions = VecDeque::from(self.state.take_actions());
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Start(start) => self.start(start),
                Action::Cancel(pair) => self.cancel(pair),
                Action::Probe(probe) => {
                    let unready = (probe.hook == "unready").then_some("cache is empty");
                    self.state.probed(probe.seq, unready);
                }
                Action::End(_) => self.shown.ended = Some(true),
                _ => {}
            }
            actions.extend(self.state.take_actions());
        }
        while let Some(frame) = self.state.next_frame() {
            self.shown.frame(frame);
        }
        if self.state.closing() && !self.closed {
            self.closed = true;
            self.shown.closed = true;
        }
    }

    /// Plays a handler. What it does is in the name of its hook.
    fn start(&mut self, start: Start) {
        let (pair, name, stage) = (start.pair, start.hook.name.clone(), start.hook.stage);
        let review = start.review.clone();
        let request = Request::new(review, pair.hook as usize, stage, start.deadline).expect("a request");
        let ending = match name.as_str() {
            "wait" | "stubborn" => {
                self.shown.started.push(name);
                self.shown.started.sort();
                self.held.insert(pair, start);
                return;
            }
            "panic" => Ending::Panicked,
            // A handler cannot end its task in Rust, nor return nothing.
            "exit" => Ending::Returned(Outcome::Error(HandlerError {
                message: "handler ended its goroutine".into(),
                panicked: true,
            })),
            "say-nothing" => {
                let failure = Failure::public("the handler returned neither a response nor an error");
                Ending::Returned(outcome(stage, Err(failure)).0)
            }
            name => Ending::Returned(outcome(stage, handle(name, &request)).0),
        };
        self.state.finished(self.now, pair, Some(self.now), ending);
    }

    fn cancel(&mut self, pair: Pair) {
        if let Some(start) = self.held.get(&pair).filter(|start| start.hook.name == "wait") {
            let received = start.received;
            self.held.remove(&pair);
            self.state.finished(self.now, pair, Some(received), Ending::Stopped);
        }
    }

    fn returned(&mut self, pair: Pair, stage: Stage, result: HandlerResult, now: Instant) {
        let received = self.received(pair, now);
        self.state.finished(now, pair, Some(received), Ending::Returned(outcome(stage, result).0));
    }

    /// Handlers are called as soon as the review is whole.
    fn received(&self, pair: Pair, otherwise: Instant) -> Instant {
        self.state.running.get(&pair).map_or(otherwise, |running| running.received)
    }
}

fn register(name: &str) -> Hook {
    let unused = async |_: Request| -> HandlerResult { unreachable!("played by hand") };
    match name {
        "patch" => Hook::mutate(name, unused),
        "initialize" => {
            Hook::initialize(name, async |_: serde_json::Value, _: Request| -> Result<serde_json::Value, Failure> {
                unreachable!("played by hand")
            })
        }
        _ => Hook::validate(name, unused),
    }
}

fn handle(name: &str, request: &Request) -> HandlerResult {
    match name {
        "allow" | "unready" => Ok(Verdict::allow()),
        "deny" => Ok(Verdict::deny("no").cause("spec.image", "latest")),
        "deny-at-length" => Ok(Verdict::deny("no ".repeat(100))),
        "patch" | "stray-patch" | "initialize" => {
            let patch = request.raw_object().cloned().unwrap_or_default();
            Ok(Verdict::patch_bytes(patch).warning(format!("patched in round {}", request.round())))
        }
        "name-configuration" => Ok(Verdict::allow().audit("configuration", request.configuration())),
        "name-mode" => Ok(Verdict::allow().audit("mode", format!("MODE_{}", request.mode().as_str().to_uppercase()))),
        "fail" => Err(Failure::internal("password is hunter2")),
        "fail-in-public" => Err(PublicError::new("registry is down").with_cause("password is hunter2").into()),
        other => panic!("no handler {other}"),
    }
}

fn play(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a file");
    let transcript: Transcript = serde_json::from_str(&text).expect("a transcript");
    let mut scene: Option<Scene> = None;
    for (i, step) in transcript.steps.into_iter().enumerate() {
        if let Command::Host { hooks, max_outstanding, drain_timeout_ms } = &step.command {
            scene = Some(Scene::enter(hooks, *max_outstanding, *drain_timeout_ms));
        }
        let shown = scene.as_mut().expect("a host comes first").play(step.command);
        assert_eq!(shown, Shown::of(step.expect), "{}, step {i}", path.display());
    }
}

#[test]
fn the_core_answers_as_the_transcripts_say() {
    let vectors = std::fs::read_dir(VECTORS).expect("the vectors of the repository");
    let files: Vec<_> = vectors.map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() >= 29, "{}", files.len());
    for file in &files {
        play(file);
    }
}
