//! A fake dispatcher: unit tests of hosts ask their hooks without a mesh, certificates or a cluster.
//!
//! ```
//! use portcullis_host::testing::{FakeDispatcher, create};
//! use portcullis_host::{Host, Verdict};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), portcullis_host::Error> {
//! let host = Host::builder("imagepolicy")
//!     .validate("imagepolicy.example.com", async |_| Ok(Verdict::deny("no")))
//!     .build()?;
//! let dispatcher = FakeDispatcher::start(&host).await?;
//! let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}});
//! let verdict = dispatcher.review("imagepolicy.example.com", create(pod)).await?;
//! assert!(!verdict.allowed);
//! dispatcher.stop().await
//! # }
//! ```
//!
//! [`FakeDispatcher::review`] has the verdict with the patched object, and [`FakeDispatcher::play`] plays a table of cases.
//!
//! It runs in memory; frames are encoded and decoded on the way as on a real stream. It accepts every hook that a host offers
//! and puts it in rotation. It matches nothing and knows no failure policies: it shows what a host answers, not what the mesh
//! makes of it. A handler alone is a function: call it, with [`handler_request`].

mod cases;
mod requests;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

pub use self::cases::Answer;
pub use self::requests::{create, delete, handler_request, update};
use crate::host::Host;
use crate::proto::admission::v1::AdmissionRequest;
use crate::proto::host::v1::connect_request::Frame;
use crate::proto::host::v1::connect_response::Frame as Reply;
use crate::proto::host::v1::verdict::Outcome;
use crate::proto::host::v1::{
    Cancel, Chunk, ConnectRequest, ConnectResponse, Hello, HookCall, HookState, HostDrain, Ping, ProbeResult, Review,
    State, Verdict, Welcome,
};
use crate::session::Event;
use crate::{Error, limits};

/// How long a host may take for anything.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How many frames each direction holds before the sender waits.
const DEPTH: usize = 16;

/// A fake dispatcher with one host. Its methods may be called from any task.
#[derive(Debug)]
pub struct FakeDispatcher {
    hello: Hello,
    link: Arc<Link>,
    drain: CancellationToken,
    host: JoinHandle<Result<(), Error>>,
}

/// The dispatcher's end of the stream.
#[derive(Debug)]
struct Link {
    /// `None` once the stream has ended.
    to_host: Mutex<Option<mpsc::Sender<Result<ConnectResponse, tonic::Status>>>>,
    inner: Mutex<Inner>,
    credit: watch::Sender<u32>,
    drained: watch::Sender<Option<HostDrain>>,
    /// Reviews go in the order of their ids.
    posting: tokio::sync::Mutex<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    last_seq: u64,
    waiting: HashMap<Key, oneshot::Sender<Frame>>,
}

/// Names the frame that an answer of the host belongs to.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Verdict { call: u64, hook: u32 },
    Pong(u64),
    Probe(u64),
}

fn lost(text: impl Into<String>) -> Error {
    Error::Testing(text.into())
}

async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| lost(format!("the host {what}")))
}

impl FakeDispatcher {
    /// Runs a host, which must not run yet.
    ///
    /// # Errors
    ///
    /// Fails if the host cannot start.
    pub async fn start(host: &Host) -> Result<Self, Error> {
        Self::start_with(host, Welcome::default()).await
    }

    /// Runs a host and answers its Hello with `welcome`, in which the fields that matter to a host are filled where they are
    /// zero or empty.
    ///
    /// # Errors
    ///
    /// Fails if the host cannot start.
    pub async fn start_with(host: &Host, welcome: Welcome) -> Result<Self, Error> {
        let (to_host, inbound) = mpsc::channel(DEPTH);
        let (outbound, mut from_host) = mpsc::channel(DEPTH);
        let drain = CancellationToken::new();
        let host = tokio::spawn(serve(host.clone(), drain.clone(), inbound, outbound));
        let hello = match patiently("sends no hello", from_host.recv()).await? {
            Some(ConnectRequest { frame: Some(Frame::Hello(hello)) }) => hello,
            None => return Err(host.await.unwrap_or(Ok(())).err().unwrap_or_else(|| lost("the host is gone"))),
            Some(other) => return Err(lost(format!("the first frame is {other:?}, not Hello"))),
        };
        let link = Arc::new(Link {
            to_host: Mutex::new(Some(to_host)),
            inner: Mutex::default(),
            credit: watch::Sender::new(hello.max_outstanding),
            drained: watch::Sender::new(None),
            posting: tokio::sync::Mutex::new(0),
        });
        link.send(Reply::Welcome(complete(welcome, &hello))).await?;
        tokio::spawn(link.clone().read(from_host)); // It ends with the host.
        Ok(Self { hello, link, drain, host })
    }

    /// How the host introduced itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// How many calls the host takes now.
    pub fn credit(&self) -> u32 {
        *self.link.credit.borrow()
    }

    /// Puts a request to one hook and returns its verdict.
    ///
    /// # Errors
    ///
    /// Fails if the call ended without one, in a failure, a refusal or a cancellation, and if the patch does not fit.
    pub async fn review(&self, hook: &str, request: AdmissionRequest) -> Result<Answer, Error> {
        let object = request.object.as_ref().map(|object| object.raw.clone());
        match self.ask(hook, request, PATIENCE).await?.outcome {
            Some(Outcome::Response(response)) => Answer::new(object.as_ref(), response),
            other => Err(lost(format!("hook {hook} gave no verdict: {other:?}"))),
        }
    }

    /// Puts a request to one hook, with some time for it, and returns how the call ended.
    ///
    /// # Errors
    ///
    /// Fails if the host does not offer the hook, offers it for both stages, or does not answer.
    pub async fn ask(&self, hook: &str, request: AdmissionRequest, time: Duration) -> Result<Verdict, Error> {
        let offers: Vec<_> = self.hello.hooks.iter().filter(|offer| offer.name == hook).collect();
        let [offer] = offers[..] else {
            return Err(lost(format!("the host offers hook {hook} {} times", offers.len())));
        };
        let call = HookCall {
            name: hook.into(),
            stage: offer.stage,
            configuration: "testing".into(),
            remaining_ms: u32::try_from(time.as_millis()).unwrap_or(u32::MAX),
            ..HookCall::default()
        };
        let mut verdicts = self.post(request, vec![call]).await?.wait().await?;
        verdicts.pop().ok_or_else(|| lost("no verdict"))
    }

    /// Sends a request for several hooks, in one frame, or in chunks if it is large. The calls go as they are, with the time
    /// that they say is left.
    ///
    /// # Errors
    ///
    /// Fails if the host is gone.
    pub async fn post(&self, request: AdmissionRequest, hooks: Vec<HookCall>) -> Result<Call, Error> {
        let review = Review { hooks, request: Some(request.encode_to_vec().into()), ..Review::default() };
        self.post_review(review).await
    }

    /// The same with a review that the caller has put together. Its id is set.
    ///
    /// # Errors
    ///
    /// Fails if the host is gone.
    pub async fn post_review(&self, mut review: Review) -> Result<Call, Error> {
        let mut last = self.link.posting.lock().await;
        *last += 1;
        review.call_id = *last;
        let call = *last;
        let hooks = 0..u32::try_from(review.hooks.len()).unwrap_or(u32::MAX);
        let answers = hooks.map(|hook| self.link.expect(Key::Verdict { call, hook })).collect();
        self.link.review(review).await?;
        Ok(Call { link: self.link.clone(), id: call, answers })
    }

    /// Asks for a sign of life and waits for it.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub async fn ping(&self) -> Result<(), Error> {
        let seq = self.link.next_seq();
        let answer = self.link.expect(Key::Pong(seq));
        self.link.send(Reply::Ping(Ping { seq })).await?;
        self.link.answer(answer).await.map(drop)
    }

    /// Asks whether a hook is ready.
    ///
    /// # Errors
    ///
    /// Fails if the host does not answer.
    pub async fn probe(&self, hook: &str) -> Result<ProbeResult, Error> {
        let seq = self.link.next_seq();
        let answer = self.link.expect(Key::Probe(seq));
        self.link.send(Reply::Probe(crate::proto::host::v1::Probe { seq, hook: hook.into() })).await?;
        match self.link.answer(answer).await? {
            Frame::ProbeResult(result) => Ok(result),
            other => Err(lost(format!("{other:?} answers a probe"))),
        }
    }

    /// Sends any frame to the host.
    ///
    /// # Errors
    ///
    /// Fails if the host is gone.
    pub async fn send(&self, frame: ConnectResponse) -> Result<(), Error> {
        self.link.forward(frame).await
    }

    /// Asks the host to drain, as [`stop`](Self::stop) does, and waits until it says so.
    ///
    /// # Errors
    ///
    /// Fails if the host leaves without a word.
    pub async fn drain(&self) -> Result<HostDrain, Error> {
        self.drain.cancel();
        let mut drained = self.link.drained.subscribe();
        let drain = patiently("does not drain", drained.wait_for(Option::is_some)).await?;
        drain.ok().and_then(|drain| *drain).ok_or_else(|| lost("the host left without a word"))
    }

    /// Drains the host and waits for its end.
    ///
    /// # Errors
    ///
    /// Fails if it does not end cleanly.
    pub async fn stop(self) -> Result<(), Error> {
        self.drain.cancel();
        patiently("does not end", self.host).await?.map_err(|error| lost(error.to_string()))?
    }
}

/// Runs one session of a host over the pipe.
async fn serve(
    host: Host,
    drain: CancellationToken,
    inbound: mpsc::Receiver<Result<ConnectResponse, tonic::Status>>,
    outbound: mpsc::Sender<ConnectRequest>,
) -> Result<(), Error> {
    let inner = host.inner();
    let runner = inner.runner()?;
    let _member = inner.budget.join();
    let mut session = inner.session(&runner, drain, |_: &Event| {});
    let served = session.serve(ReceiverStream::new(inbound), outbound).await;
    drop(session);
    let handlers = inner.handlers_ended().await;
    served.map_err(|error| lost(error.to_string())).and(handlers)
}

/// Fills a welcome.
fn complete(given: Welcome, hello: &Hello) -> Welcome {
    let text = |given: String, otherwise: &str| if given.is_empty() { otherwise.to_owned() } else { given };
    let number = |given: u32, otherwise: u32| if given == 0 { otherwise } else { given };
    let rotate = || {
        let offers = hello.hooks.iter();
        let state = State::InRotation.into();
        offers.map(move |offer| HookState {
            name: offer.name.clone(),
            stage: offer.stage,
            state,
            ..HookState::default()
        })
    };
    Welcome {
        session_id: text(given.session_id, "session"),
        dispatcher_id: text(given.dispatcher_id, "testing"),
        protocol: number(given.protocol, limits::PROTOCOL),
        // Nothing is sent by itself, so silence must not end the session.
        silence_ms: number(given.silence_ms, u32::MAX),
        max_verdict_bytes: number(given.max_verdict_bytes, 4 << 20),
        hooks: if given.hooks.is_empty() { rotate().collect() } else { given.hooks },
        ..given
    }
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_seq(&self) -> u64 {
        let mut inner = self.lock();
        inner.last_seq += 1;
        inner.last_seq
    }

    fn expect(&self, key: Key) -> oneshot::Receiver<Frame> {
        let (answer, waiter) = oneshot::channel();
        self.lock().waiting.insert(key, answer);
        waiter
    }

    async fn answer(&self, waiter: oneshot::Receiver<Frame>) -> Result<Frame, Error> {
        patiently("does not answer", waiter).await?.map_err(|_| lost("the host left without an answer"))
    }

    async fn send(&self, frame: Reply) -> Result<(), Error> {
        self.forward(ConnectResponse { frame: Some(frame) }).await
    }

    async fn forward(&self, frame: ConnectResponse) -> Result<(), Error> {
        let encoded = frame.encode_to_vec();
        let frame = ConnectResponse::decode(&*encoded).map_err(|error| lost(error.to_string()))?;
        let to_host = self.to_host.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match to_host {
            Some(to_host) => to_host.send(Ok(frame)).await.map_err(|_| lost("the host is gone")),
            None => Err(lost("the host is gone")),
        }
    }

    /// Sends a review as dispatchers do: a large one in chunks.
    async fn review(&self, review: Review) -> Result<(), Error> {
        let encoded = bytes::Bytes::from(review.encode_to_vec());
        if encoded.len() <= limits::WIRE_BYTES {
            return self.send(Reply::Review(review)).await;
        }
        let (call_id, total_bytes) = (review.call_id, encoded.len() as u64);
        let hooks = u32::try_from(review.hooks.len()).unwrap_or(u32::MAX);
        for part in encoded.chunks(64 << 10) {
            let data = encoded.slice_ref(part);
            self.send(Reply::Chunk(Chunk { call_id, total_bytes, hooks, data })).await?;
        }
        Ok(())
    }

    /// Reads the frames of the host until it sends no more, and ends the stream then.
    async fn read(self: Arc<Self>, mut from_host: mpsc::Receiver<ConnectRequest>) {
        while let Some(request) = from_host.recv().await {
            match request.frame {
                Some(Frame::Verdict(verdict)) => self.verdict(verdict),
                Some(Frame::Verdicts(verdicts)) => verdicts.verdicts.into_iter().for_each(|v| self.verdict(v)),
                Some(Frame::Pong(pong)) => self.deliver(&Key::Pong(pong.seq), Frame::Pong(pong)),
                Some(Frame::ProbeResult(r)) => self.deliver(&Key::Probe(r.seq), Frame::ProbeResult(r)),
                Some(Frame::Credit(credit)) => {
                    self.credit.send_replace(credit.max_outstanding);
                }
                Some(Frame::Drain(drain)) => {
                    self.drained.send_replace(Some(drain));
                }
                Some(Frame::Hello(_)) | None => {}
            }
        }
        self.to_host.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.lock().waiting.clear();
    }

    fn verdict(&self, verdict: Verdict) {
        let key = Key::Verdict { call: verdict.call_id, hook: verdict.hook_index };
        self.deliver(&key, Frame::Verdict(verdict));
    }

    fn deliver(&self, key: &Key, frame: Frame) {
        if let Some(waiter) = self.lock().waiting.remove(key) {
            let _ = waiter.send(frame); // Nobody may wait any more.
        }
    }
}

/// A review that was sent and not yet answered in full.
#[derive(Debug)]
pub struct Call {
    link: Arc<Link>,
    id: u64,
    answers: Vec<oneshot::Receiver<Frame>>,
}

impl Call {
    /// Says that the verdicts are no longer wanted: those of the hooks with the given indexes, or all if there are none. The
    /// host still owes them.
    ///
    /// # Errors
    ///
    /// Fails if the host is gone.
    pub async fn cancel(&self, hooks: &[u32]) -> Result<(), Error> {
        self.link.send(Reply::Cancel(Cancel { call_id: self.id, hook_indexes: hooks.to_vec() })).await
    }

    /// Waits for a verdict on each hook, in the order of the hooks.
    ///
    /// # Errors
    ///
    /// Fails if the host does not answer.
    pub async fn wait(self) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::new();
        for answer in self.answers {
            match self.link.answer(answer).await? {
                Frame::Verdict(verdict) => verdicts.push(verdict),
                other => return Err(lost(format!("{other:?} answers a review"))),
            }
        }
        Ok(verdicts)
    }
}
