//! What a handler is asked.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{HandlerError, PublicError};
use crate::proto::admission::v1::{AdmissionRequest, Object, UserInfo};
use crate::proto::host::v1::HookCall;
use crate::stage::{Mode, Stage};
use crate::verdict::Verdict;
use crate::wire::Received;

/// The kind of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind<'a> {
    /// Its API group; empty for the core.
    pub group: &'a str,
    /// The version of the group.
    pub version: &'a str,
    /// Its name, for example "Pod".
    pub kind: &'a str,
}

/// A resource of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    /// Its API group; empty for the core.
    pub group: &'a str,
    /// The version of the group.
    pub version: &'a str,
    /// Its name, for example "pods".
    pub resource: &'a str,
}

/// The objects of an operation: each has those that it needs.
///
/// ```no_run
/// use portcullis_host::{HandlerResult, Objects, Request, Verdict};
/// use serde_json::Value;
///
/// async fn storage_only_grows(request: Request) -> HandlerResult {
///     match request.objects::<Value>()? {
///         Objects::Update { old, new } if size(&new) < size(&old) => Ok(Verdict::deny("storage only grows")),
///         _ => Ok(Verdict::allow()),
///     }
/// }
/// # fn size(_: &Value) -> u64 { 0 }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objects<T> {
    /// The object that is to be created.
    Create(T),
    /// An object that is to be changed.
    Update {
        /// As it is.
        old: T,
        /// As it is to be.
        new: T,
    },
    /// The object that is to be deleted.
    Delete(T),
    /// The options of a connection to the object, for example `PodExecOptions`.
    Connect(T),
}

/// One request to judge. A clone is cheap, and shares all that it holds.
#[derive(Clone)]
pub struct Request {
    review: Arc<Received>,
    hook: usize,
    stage: Stage,
    deadline: Instant,
}

impl Request {
    /// The request of one hook of a review. `None` if it cannot be decoded: no handler is called with it, so that no
    /// method of a request can fail for that reason.
    pub(crate) fn new(review: Arc<Received>, hook: usize, stage: Stage, deadline: Instant) -> Option<Self> {
        review.request()?;
        Some(Self { review, hook, stage, deadline })
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

    /// The part of the write at which the hook is asked.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// 0, or 1 when a mutating hook is asked again because others changed the object after it.
    pub fn round(&self) -> u32 {
        self.call().round
    }

    /// Why the hook is asked: whether the verdict decides.
    pub fn mode(&self) -> Mode {
        Mode::of(self.call().mode())
    }

    /// Name of the cluster that the request comes from, as the mesh authenticated it.
    pub fn cluster(&self) -> &str {
        &self.admission().cluster
    }

    /// Id of the request, which the API server made.
    pub fn uid(&self) -> &str {
        &self.admission().uid
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

    /// The kind of the object.
    pub fn kind(&self) -> Kind<'_> {
        let kind = self.admission().kind.as_ref();
        kind.map(|kind| Kind { group: &kind.group, version: &kind.version, kind: &kind.kind }).unwrap_or_default()
    }

    /// The resource that is asked for.
    pub fn resource(&self) -> Resource<'_> {
        let resource = self.admission().resource.as_ref();
        resource.map(|r| Resource { group: &r.group, version: &r.version, resource: &r.resource }).unwrap_or_default()
    }

    /// The subresource that is asked for, for example "scale"; empty for the resource itself.
    pub fn subresource(&self) -> &str {
        &self.admission().sub_resource
    }

    fn user(&self) -> Option<&UserInfo> {
        self.admission().user_info.as_ref()
    }

    /// The user who made the request, as the API server authenticated it.
    pub fn username(&self) -> &str {
        self.user().map_or("", |user| &user.username)
    }

    /// The groups of the user.
    pub fn groups(&self) -> &[String] {
        self.user().map_or(&[], |user| &user.groups)
    }

    /// Id of the user, which stays when another user gets the name; it may be empty.
    pub fn user_uid(&self) -> &str {
        self.user().map_or("", |user| &user.uid)
    }

    /// What else the authenticator says of the user, by name and in no order.
    pub fn extra(&self) -> impl Iterator<Item = (&str, &[String])> {
        let extra = self.user().into_iter().flat_map(|user| &user.extra);
        extra.map(|(name, values)| (name.as_str(), &*values.items))
    }

    /// Whether nothing will be stored: a handler must have no side effects then.
    pub fn is_dry_run(&self) -> bool {
        self.admission().dry_run()
    }

    /// Decodes the options of the operation, for example those of `DeleteOptions`; `None` if there are none.
    ///
    /// # Errors
    ///
    /// As [`object`](Self::object).
    pub fn options<T: DeserializeOwned>(&self) -> Result<Option<T>, PublicError> {
        decode("options", self.admission().options.as_ref())
    }

    /// The object after the operation, byte for byte as the API server sent it; `None` on DELETE. It is a part of the frame
    /// that it came in, which lives as long: copy it to keep it for long.
    pub fn raw_object(&self) -> Option<&Bytes> {
        self.admission().object.as_ref().map(|object| &object.raw)
    }

    /// The object before the operation, likewise; `None` on CREATE and CONNECT.
    pub fn raw_old_object(&self) -> Option<&Bytes> {
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

    /// The objects that the operation has, decoded.
    ///
    /// # Errors
    ///
    /// As [`object`](Self::object), and if one that the operation needs is missing.
    pub fn objects<T: DeserializeOwned>(&self) -> Result<Objects<T>, PublicError> {
        match self.operation() {
            "CREATE" => Ok(Objects::Create(self.needed()?)),
            "UPDATE" => Ok(Objects::Update { old: self.needed_old()?, new: self.needed()? }),
            "DELETE" => Ok(Objects::Delete(self.needed_old()?)),
            "CONNECT" => Ok(Objects::Connect(self.needed()?)),
            other => Err(PublicError::new(format!("the operation {other:?} is none that a handler knows"))),
        }
    }

    /// The object of an operation that has one.
    pub(crate) fn needed<T: DeserializeOwned>(&self) -> Result<T, PublicError> {
        self.object()?.ok_or_else(|| self.missing("object"))
    }

    /// The old object of an operation that has one.
    pub(crate) fn needed_old<T: DeserializeOwned>(&self) -> Result<T, PublicError> {
        self.old_object()?.ok_or_else(|| self.missing("old object"))
    }

    fn missing(&self, what: &str) -> PublicError {
        PublicError::new(format!("the request to {} has no {what}", self.operation()))
    }

    /// Allows the write with the object changed by `edit`, which gets it in a type of `k8s-openapi`, one of yours, or as a
    /// [`serde_json::Value`]. What the type does not know stays, and only what `edit` changed is in the patch. A DELETE is allowed as
    /// it is, and `edit` is not called. Not for validating hooks.
    ///
    /// ```no_run
    /// # use portcullis_host::{HandlerResult, Request};
    /// use serde_json::Value;
    ///
    /// async fn team_label(request: Request) -> HandlerResult {
    ///     request.change(|pod: &mut Value| pod["metadata"]["labels"]["team"] = request.namespace().into())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the object is not what the type takes, or cannot be serialised.
    pub fn change<T: DeserializeOwned + Serialize>(&self, edit: impl FnOnce(&mut T)) -> Result<Verdict, HandlerError> {
        self.try_change(|object| {
            edit(object);
            Ok(())
        })
    }

    /// The same with an edit that may fail, or deny by [`Denied`](crate::Denied).
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change), and with the error of `edit`.
    pub fn try_change<T: DeserializeOwned + Serialize>(
        &self,
        edit: impl FnOnce(&mut T) -> Result<(), HandlerError>,
    ) -> Result<Verdict, HandlerError> {
        let Some(mut object) = self.object::<T>()? else { return Ok(Verdict::allow()) };
        let before = serde_json::to_string(&object)?;
        edit(&mut object)?;
        Verdict::changed(self, &before, &object)
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
