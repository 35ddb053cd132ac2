//! What a handler is asked.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::error::PublicError;
use crate::proto::admission::v1::{AdmissionRequest, Object, Stage};
use crate::proto::host::v1::{HookCall, Mode};
use crate::wire::Received;

/// One request to judge. A clone is cheap, and shares all that it holds.
#[derive(Clone)]
pub struct Request {
    review: Arc<Received>,
    hook: usize,
    deadline: Instant,
}

impl Request {
    /// The request of one hook of a review. `None` if it cannot be decoded: no handler is called with it, so that no
    /// method of a request can fail for that reason.
    pub(crate) fn new(review: Arc<Received>, hook: usize, deadline: Instant) -> Option<Self> {
        review.request()?;
        Some(Self { review, hook, deadline })
    }

    fn call(&self) -> &HookCall {
        &self.review.review.hooks[self.hook]
    }

    /// The request as the mesh sent it, with all that the methods beside this one do not say.
    ///
    /// # Panics
    ///
    /// Never: a request that cannot be decoded is a failure before any handler is called.
    pub fn admission(&self) -> &AdmissionRequest {
        self.review.request().expect("checked by new")
    }

    /// Name of the hook that is asked.
    pub fn hook(&self) -> &str {
        &self.call().name
    }

    /// Name of the configuration that holds the hook: two may hold hooks of one name.
    pub fn configuration(&self) -> &str {
        &self.call().configuration
    }

    /// [`Stage::Initialize`], [`Stage::Mutate`] or [`Stage::Validate`].
    pub fn stage(&self) -> Stage {
        self.call().stage()
    }

    /// 0, or 1 when a mutating hook is asked again because others changed the object after it.
    pub fn round(&self) -> u32 {
        self.call().round
    }

    /// Why the hook is asked; a handler without side effects need not care. [`Mode::Shadow`] means that the verdict decides
    /// nothing, [`Mode::Speculative`] and [`Mode::Hedge`] that it may not count.
    pub fn mode(&self) -> Mode {
        self.call().mode()
    }

    /// Name of the cluster that the request comes from, as the mesh authenticated it.
    pub fn cluster(&self) -> &str {
        &self.admission().cluster
    }

    /// CREATE, UPDATE, DELETE or CONNECT.
    pub fn operation(&self) -> &str {
        &self.admission().operation
    }

    /// Namespace of the object; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.admission().namespace
    }

    /// Name of the object; it may be empty on CREATE with generateName.
    pub fn name(&self) -> &str {
        &self.admission().name
    }

    /// The user who made the request, as the API server authenticated it.
    pub fn username(&self) -> &str {
        self.admission().user_info.as_ref().map_or("", |user| &user.username)
    }

    /// Whether nothing will be stored: a handler must have no side effects then.
    pub fn is_dry_run(&self) -> bool {
        self.admission().dry_run()
    }

    /// The object after the operation, byte for byte as the API server sent it; `None` on DELETE. It is a part of the frame
    /// that it came in, which lives as long: copy it to keep it for long.
    pub fn object_bytes(&self) -> Option<&Bytes> {
        self.admission().object.as_ref().map(|object| &object.raw)
    }

    /// The object before the operation, likewise; `None` on CREATE and CONNECT.
    pub fn old_object_bytes(&self) -> Option<&Bytes> {
        self.admission().old_object.as_ref().map(|object| &object.raw)
    }

    /// Decodes the object after the operation into a [`serde_json::Value`], a type of `k8s-openapi` or one of yours; `None`
    /// on DELETE. Each call decodes anew.
    ///
    /// # Errors
    ///
    /// Fails if the object is not what the type takes: the hook's rules let more kinds through than the handler knows. As a
    /// failure of a handler it says so in public.
    pub fn object<T: DeserializeOwned>(&self) -> Result<Option<T>, PublicError> {
        decode("object", self.admission().object.as_ref())
    }

    /// Decodes the object before the operation, likewise; `None` on CREATE and CONNECT.
    ///
    /// # Errors
    ///
    /// As [`object`](Self::object).
    pub fn old_object<T: DeserializeOwned>(&self) -> Result<Option<T>, PublicError> {
        decode("old object", self.admission().old_object.as_ref())
    }

    /// When the time of the call is over. The future of the handler is dropped then.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How much time is left for the call. Give it to what the handler calls in turn.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// W3C traceparent of this call's span in the mesh: the parent of the handler's own span. `None` when there is no trace.
    pub fn traceparent(&self) -> Option<String> {
        let review = &self.review.review.traceparent;
        let span = &self.call().span_id;
        // 00-<trace>-<span>-<flags>
        let mut parts = review.split('-').collect::<Vec<_>>();
        let hex = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if parts.len() < 4 || !hex(parts[1], 32) || !hex(parts[2], 16) {
            return None;
        }
        let own = span.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        if own.len() == 16 {
            parts[2] = &own;
        }
        Some(parts.join("-"))
    }

    /// W3C tracestate that goes with it; often empty.
    pub fn tracestate(&self) -> &str {
        &self.review.review.tracestate
    }
}

fn decode<T: DeserializeOwned>(what: &str, object: Option<&Object>) -> Result<Option<T>, PublicError> {
    let Some(object) = object else { return Ok(None) };
    serde_json::from_slice(&object.raw).map(Some).map_err(|error| {
        let want = std::any::type_name::<T>();
        PublicError::new(format!("the {what} cannot be decoded as {want}")).with_cause(error)
    })
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("hook", &self.hook())
            .field("cluster", &self.cluster())
            .field("operation", &self.operation())
            .field("namespace", &self.namespace())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
