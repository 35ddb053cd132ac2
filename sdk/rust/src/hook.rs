//! Hooks, and what a host knows of each.

use std::collections::HashMap;
use std::fmt;
use std::future::{self, Future};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, HandlerError, PublicError};
use crate::limits;
use crate::proto::host::v1::HookOffer;
use crate::request::Request;
use crate::stage::Stage;
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
    /// Of the operations without one of their own.
    handler: Option<Handler>,
    operations: Vec<(&'static str, Handler)>,
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
        Self::new(name.into(), Stage::Validate, Some(boxed(handler)))
    }

    /// A mutating hook, by the name that it has in its configuration.
    pub fn mutate<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        Self::new(name.into(), Stage::Mutate, Some(boxed(handler)))
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
        let handler = boxed(move |request: Request| {
            let started = created(&request).map(|(before, object)| (before, initializer(object, request.clone())));
            async move {
                let (before, initializing) = started?;
                Verdict::changed(&request, &before, &initializing.await?)
            }
        });
        Self::new(name.into(), Stage::Initialize, Some(handler))
    }

    /// A validating hook with a handler for each operation: [`create`](Self::create), [`update`](Self::update) and
    /// [`delete`](Self::delete). An operation without one is allowed.
    ///
    /// ```
    /// use portcullis_host::{Hook, Request, Verdict};
    /// use serde_json::Value;
    ///
    /// let hook = Hook::validator("storage.example.com").update(async |old: Value, new: Value, _: Request| {
    ///     let shrinks = new["spec"]["gib"].as_u64() < old["spec"]["gib"].as_u64();
    ///     Ok(if shrinks { Verdict::deny("storage only grows") } else { Verdict::allow() })
    /// });
    /// ```
    pub fn validator(name: impl Into<String>) -> Self {
        Self::new(name.into(), Stage::Validate, None)
    }

    /// A mutating hook, likewise. [`Verdict::difference`] makes a verdict of the object that a handler was given and has changed.
    pub fn mutator(name: impl Into<String>) -> Self {
        Self::new(name.into(), Stage::Mutate, None)
    }

    fn new(name: String, stage: Stage, handler: Option<Handler>) -> Self {
        let (operations, complaints) = (Vec::new(), Mutex::default());
        Self { name, stage, speculate: false, handler, operations, ready: None, complaints }
    }

    /// Sets the handler of creations. It gets the object, as [`Request::object`] decodes it, and the request.
    pub fn create<T, F, Fut>(self, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(T, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.operation("CREATE", move |request| Ok(handler(request.needed()?, request)))
    }

    /// Sets the handler of updates. It gets the object before the update, the object after it, and the request.
    pub fn update<T, F, Fut>(self, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(T, T, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.operation("UPDATE", move |request| Ok(handler(request.needed_old()?, request.needed()?, request)))
    }

    /// Sets the handler of deletions. It gets the object that is deleted, and the request.
    pub fn delete<T, F, Fut>(self, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(T, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.operation("DELETE", move |request| Ok(handler(request.needed_old()?, request)))
    }

    /// Sets the handler of one operation, in place of the one that the hook has for all.
    fn operation<F, Fut>(mut self, name: &'static str, handler: F) -> Self
    where
        F: Fn(Request) -> Result<Fut, PublicError> + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        let handler = boxed(move |request| {
            let called = handler(request);
            async move { called?.await }
        });
        self.operations.push((name, handler));
        self
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
        let own = self.operations.iter().find(|(name, _)| *name == request.operation());
        match own.map(|(_, handler)| handler).or(self.handler.as_ref()) {
            Some(handler) => handler(request),
            None => Box::pin(future::ready(Ok(Verdict::allow()))),
        }
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

    /// What is wrong with its handlers.
    fn fault(&self) -> Option<String> {
        let names: Vec<_> = self.operations.iter().map(|(name, _)| name).collect();
        let twice = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name));
        match twice {
            Some((_, name)) => Some(format!("has two handlers of {name}")),
            None if names.is_empty() && self.handler.is_none() => Some("has no handler".into()),
            None => None,
        }
    }

    pub(crate) fn stage_name(&self) -> &'static str {
        self.stage.as_str()
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

fn boxed<F, Fut>(handler: F) -> Handler
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    Box::new(move |request| Box::pin(handler(request)))
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
            if let Some(fault) = hook.fault() {
                return wrong(format!("hook {:?} {fault}", hook.name));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;

    async fn allow(_: Request) -> HandlerResult {
        Ok(Verdict::allow())
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_has_five_seconds() {
        let started = tokio::time::Instant::now();
        let hook = Hook::validate("v", allow).ready_when(std::future::pending);
        assert_eq!(hook.not_ready().await.as_deref(), Some("the probe took too long"));
        assert_eq!(started.elapsed().as_secs(), 5);
    }

    #[test]
    fn faults_of_a_hook_are_logged_once_a_second_and_the_others_are_counted() {
        let log = Log::get();
        let hook = Hook::validate("complains of itself", allow);
        let complain_after = |last| {
            hook.complaints.lock().unwrap().last = last;
            hook.complain("handler failed", "c", "u", "e");
            log.with("complains of itself")
        };
        let later = Instant::now() + limits::COMPLAINTS * 1000;
        let counts = [None, Some(later), Some(later)].map(|last| complain_after(last).len());
        assert_eq!(counts, [1, 1, 1]);
        let lines = complain_after(Instant::now().checked_sub(limits::COMPLAINTS));
        assert!(lines.len() == 2 && lines[0].contains("unlogged=0") && lines[1].contains("unlogged=2"), "{lines:?}");
    }
}
