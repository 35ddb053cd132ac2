//! Hooks, and what a host knows of each.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, HandlerError};
use crate::limits;
use crate::proto::admission::v1::Stage;
use crate::proto::host::v1::HookOffer;
use crate::request::Request;
use crate::verdict::Verdict;

/// What a handler returns: a verdict, or why there is none.
pub type HandlerResult = Result<Verdict, HandlerError>;

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Handler = Box<dyn Fn(Request) -> BoxFuture<HandlerResult> + Send + Sync>;
type ReadyProbe = Box<dyn Fn() -> BoxFuture<Result<(), HandlerError>> + Send + Sync>;

/// One hook that a host serves: a name, a stage, and the handler that judges.
///
/// A handler is an async function or closure from a [`Request`] to a [`HandlerResult`]. It runs as a task of its own, many
/// at once, on the runtime that the host was started from. Its future is dropped when its time is over, when the call is
/// cancelled and when the session is lost; that frees the slot. Work that must not stop in the middle belongs into a task
/// of its own, and work that keeps a thread busy into `tokio::task::spawn_blocking`.
pub struct Hook {
    pub(crate) name: String,
    pub(crate) stage: Stage,
    pub(crate) speculate: bool,
    handler: Handler,
    ready: Option<ReadyProbe>,
    complaints: Mutex<Complaints>,
}

impl Hook {
    /// A validating hook, by the name that it has in its configuration.
    pub fn validate<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        Self::new(name.into(), Stage::Validate, handler)
    }

    /// A mutating hook, by the name that it has in its configuration.
    pub fn mutate<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        Self::new(name.into(), Stage::Mutate, handler)
    }

    /// An initializer, by the name that it has in its `InitializerConfiguration`: it completes an object before the object is
    /// created. It gets the object as a [`serde_json::Value`], in a type of `k8s-openapi` or in one of yours, and returns it
    /// as it should be created; what the type does not know stays.
    ///
    /// Each object is initialized by one replica. When that one is lost, another one starts again with the object as it was
    /// before.
    pub fn initialize<T, F, Fut>(name: impl Into<String>, initializer: F) -> Self
    where
        T: DeserializeOwned + Serialize + Send + 'static,
        F: Fn(T, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, HandlerError>> + Send + 'static,
    {
        Self::new(name.into(), Stage::Initialize, move |request: Request| {
            let started = created(&request).map(|(before, object)| (before, initializer(object, request.clone())));
            async move {
                let (before, initializing) = started?;
                Verdict::changed(&request, &before, &initializing.await?)
            }
        })
    }

    fn new<F, Fut>(name: String, stage: Stage, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        let handler: Handler = Box::new(move |request| Box::pin(handler(request)));
        Self { name, stage, speculate: false, handler, ready: None, complaints: Mutex::default() }
    }

    /// Agrees to calls whose verdicts may be thrown away: the dispatcher may then ask a mutating hook before the hooks in
    /// front of it have answered. Only for handlers without side effects.
    pub fn speculate(mut self) -> Self {
        self.speculate = true;
        self
    }

    /// Sets a readiness probe: a new hook gets its first call once the probe has returned `Ok`, for example when caches are
    /// filled. The probe has 5 s. The text of a [`PublicError`](crate::PublicError) tells the operator why the hook is not
    /// ready. Without a probe a hook is ready as soon as the host is connected.
    pub fn ready_when<F, Fut>(mut self, probe: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.ready = Some(Box::new(move || Box::pin(probe())));
        self
    }

    pub(crate) fn handle(&self, request: Request) -> BoxFuture<HandlerResult> {
        (self.handler)(request)
    }

    /// Why the hook is not ready, in public.
    pub(crate) async fn not_ready(&self) -> Option<String> {
        let probe = self.ready.as_ref()?;
        let error = match tokio::time::timeout(limits::PROBE, probe()).await {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => error,
            Err(_) => HandlerError::public("the probe took too long"),
        };
        tracing::warn!(hook = self.name, error = error.whole_text(), "hook is not ready");
        Some(error.public_text().unwrap_or("the hook is not ready").to_owned())
    }

    /// Logs a fault, at most once in a while.
    pub(crate) fn complain(&self, what: &str, cluster: &str, uid: &str, error: &str) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.last.is_some_and(|last| last.elapsed() < limits::COMPLAINTS) {
            complaints.unlogged += 1;
            return;
        }
        let unlogged = std::mem::take(&mut complaints.unlogged);
        complaints.last = Some(Instant::now());
        tracing::error!(hook = self.name, stage = self.stage_name(), cluster, uid, error, unlogged, "{what}");
    }

    pub(crate) fn stage_name(&self) -> &'static str {
        stage_name(self.stage)
    }

    pub(crate) fn offer(&self) -> HookOffer {
        HookOffer {
            name: self.name.clone(),
            stage: self.stage.into(),
            speculate: self.speculate,
            projections: Vec::new(),
        }
    }
}

/// The object that a request creates, as the type writes it, and the object.
fn created<T: DeserializeOwned + Serialize>(request: &Request) -> Result<(String, T), HandlerError> {
    let none = || HandlerError::public("the request has no object to be initialized: it creates none");
    let object: T = request.object()?.ok_or_else(none)?;
    Ok((serde_json::to_string(&object)?, object))
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("name", &self.name).field("stage", &self.stage).finish_non_exhaustive()
    }
}

/// How often the faults of a hook were logged.
#[derive(Default)]
struct Complaints {
    last: Option<Instant>,
    unlogged: u64,
}

/// The hooks of a host.
#[derive(Debug)]
pub(crate) struct Hooks {
    /// In the order of their registration.
    offers: Vec<HookOffer>,
    by_name: HashMap<String, Vec<Arc<Hook>>>,
}

impl Hooks {
    pub(crate) fn new(hooks: Vec<Hook>) -> Result<Self, Error> {
        let wrong = |text: String| Err(Error::Config(text));
        if hooks.is_empty() {
            return wrong("the host has no hooks: register some with `validate`, `mutate` or `initialize`".into());
        }
        if hooks.len() > limits::HOOKS {
            return wrong(format!("the host has {} hooks, more than {}", hooks.len(), limits::HOOKS));
        }
        let offers = hooks.iter().map(Hook::offer).collect();
        let mut by_name: HashMap<String, Vec<Arc<Hook>>> = HashMap::new();
        for hook in hooks {
            if hook.name.is_empty() {
                return wrong("a hook has no name".into());
            }
            let same = by_name.entry(hook.name.clone()).or_default();
            if same.iter().any(|other| other.stage == hook.stage) {
                return wrong(format!("hook {:?} was registered twice to {}", hook.name, hook.stage_name()));
            }
            same.push(Arc::new(hook));
        }
        Ok(Self { offers, by_name })
    }

    pub(crate) fn offers(&self) -> &[HookOffer] {
        &self.offers
    }

    pub(crate) fn get(&self, name: &str, stage: i32) -> Option<&Arc<Hook>> {
        self.named(name).find(|hook| i32::from(hook.stage) == stage)
    }

    /// The hooks of a name: one for a stage.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Arc<Hook>> {
        self.by_name.get(name).into_iter().flatten()
    }
}

pub(crate) fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Initialize => "initialize",
        Stage::Mutate => "mutate",
        Stage::Validate => "validate",
        other => other.as_str_name(),
    }
}
