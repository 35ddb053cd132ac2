//! Staged objects, for controllers that initialize them instead of a host: a client of `InitializerService`.
//!
//! [`StagedClient::initialize`] is a whole controller:
//!
//! ```no_run
//! use portcullis_host::staged::{Error, StagedClient, StagedObject};
//! use portcullis_host::{HandlerError, Refused, Tls, signal};
//! use serde_json::{Value, json};
//!
//! async fn add_proxy(mut pod: Value, _: StagedObject) -> Result<Value, HandlerError> {
//!     if pod["spec"]["hostNetwork"] == true {
//!         return Err(Refused::new("the sidecar has no place in the network of the node").into()); // The Pod is not created.
//!     }
//!     if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
//!         containers.push(json!({"name": "proxy", "image": "registry.example.com/proxy:1"}));
//!     }
//!     Ok(pod)
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let tls = Tls::files("/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt");
//!     let staged = StagedClient::new("portcullis-hosts.portcullis-system.svc:8444", tls);
//!     tokio::select! {
//!         ended = staged.initialize("sidecar.example.com", add_proxy) => ended,
//!         () = signal::terminated() => Ok(()), // Another replica initializes what this one leaves.
//!     }
//! }
//! ```
//!
//! With the other calls a controller does the same by itself: it lists the objects that wait for it, watches them, changes one, and
//! removes its own name from the list of those pending.
//!
//! ```no_run
//! use futures_util::StreamExt;
//! use portcullis_host::staged::{self, Error, ListRequest, StagedClient, WatchRequest, done, object_of, waits};
//! use serde_json::Value;
//!
//! async fn label(client: &StagedClient) -> Result<(), Error> {
//!     let mine = ListRequest { first_pending: "label.example.com".into(), ..ListRequest::default() };
//!     let mut events = client.watch(WatchRequest { selection: Some(mine), ..WatchRequest::default() });
//!     while let Some(event) = events.next().await {
//!         let event = event?;
//!         let Some(object) = event.object.as_ref().filter(|_| waits(&event)) else { continue };
//!         let mut pod: Value = object_of(object)?;
//!         pod["metadata"]["labels"]["team"] = "shop".into();
//!         match client.update(done(object, &pod)?).await {
//!             Ok(_) | Err(Error::Conflict(_) | Error::NotFound(_)) => {} // If it still waits, the watch shows it again.
//!             Err(error) => return Err(error),
//!         }
//!     }
//!     Ok(())
//! }
//! ```

mod initialize;
mod watch;

use std::error::Error as StdError;
use std::sync::OnceLock;

use futures_util::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic::transport::Channel;

use crate::dial;
use crate::dial_plan::{Endpoint, host_of};
use crate::hook::Refused;
use crate::limits;
use crate::proto::admission::v1::{Object, Stage};
use crate::proto::initializer::v1::initializer_service_client::InitializerServiceClient;
use crate::proto::initializer::v1::{DeleteRequest, GetRequest};
use crate::tls::Tls;

pub use tonic::{Code, Status};

pub use crate::proto::initializer::v1::{
    EventType, ListRequest, ListResponse, StagedKey, StagedObject, UpdateRequest, WatchRequest, WatchResponse,
};

type Stub = InitializerServiceClient<Channel>;

/// Why a call has failed, or a request cannot be made. What says what to do has a variant of its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object has changed, or another replica was faster (`ABORTED`): read it again.
    #[error("the object has changed: {}", .0.message())]
    Conflict(#[source] Box<Status>),
    /// The hold of the object has ended, or the caller does not see it (`NOT_FOUND`): forget it.
    #[error("the object is not held: {}", .0.message())]
    NotFound(#[source] Box<Status>),
    /// Any other failure of a call, a lost connection too; [`is_temporary`](Self::is_temporary) tells whether it may go by.
    #[error("{code:?}: {message}", code = .0.code(), message = .0.message())]
    Call(#[source] Box<Status>),
    /// The object is not what the type wants, or its change cannot be told.
    #[error("the object: {0}")]
    Object(#[source] Box<dyn StdError + Send + Sync>),
    /// The client, or a request, is not set up rightly: a text says how.
    #[error("{0}")]
    Config(String),
}

impl Error {
    /// Whether the same call may succeed later: the dispatcher or its store did not answer, the connection was lost, or too many
    /// calls were under way.
    pub fn is_temporary(&self) -> bool {
        let Self::Call(status) = self else { return false };
        let lasting = [
            Code::InvalidArgument,
            Code::PermissionDenied,
            Code::Unauthenticated,
            Code::Unimplemented,
            Code::OutOfRange,
        ];
        !lasting.contains(&status.code())
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Aborted => Self::Conflict(status.into()),
            Code::NotFound => Self::NotFound(status.into()),
            _ => Self::Call(status.into()),
        }
    }
}

/// A client of the staged objects, at one dispatcher at a time.
///
/// Its calls share a connection, which is made by the first of them, and anew after it was lost, with the certificates of that
/// time. They may be made at once, on a runtime of tokio with its clock (`enable_all`).
#[derive(Debug)]
pub struct StagedClient {
    at: Endpoint,
    tls: Tls,
    channel: OnceLock<Channel>,
}

impl StagedClient {
    /// A client of the dispatcher that serves hosts at host:port, as whom the certificate says: a `HookRoute` grants an initializer
    /// to its identity.
    pub fn new(address: impl Into<String>, tls: Tls) -> Self {
        let address = address.into();
        let server_name = host_of(&address).unwrap_or_default().to_owned();
        Self { at: Endpoint { address, server_name }, tls, channel: OnceLock::new() }
    }

    /// Sets the name in the certificate of the dispatcher, which is otherwise that of the address.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { at: Endpoint { server_name: name.into(), ..self.at }, tls: self.tls, channel: OnceLock::new() }
    }

    /// Returns one object.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if it is not held, or the caller does not see it.
    pub async fn get(&self, key: StagedKey) -> Result<StagedObject, Error> {
        held(self.stub()?.get(GetRequest { key: Some(key) }).await?.into_inner().object)
    }

    /// Returns the objects of a selection, and the version to watch from; [`ListRequest::default`] selects all that the caller
    /// may see.
    ///
    /// # Errors
    ///
    /// Fails as a call does.
    pub async fn list(&self, selection: ListRequest) -> Result<ListResponse, Error> {
        Ok(self.stub()?.list(selection).await?.into_inner())
    }

    /// Returns what changes after a version; without one each object first, as added.
    ///
    /// When its stream with a dispatcher ends, the watch goes on after the last version, or, if that is too old, with each object
    /// once more, as added. What was deleted meanwhile is not sent then: with `bookmarks`, one of them has `initial_events_end`
    /// behind those objects, and any other object has gone. The watch ends by an error that asking again does not mend, and when
    /// it is dropped. Whoever reads too slowly for the dispatcher (30 s) sees each object once more.
    pub fn watch(
        &self,
        request: WatchRequest,
    ) -> impl Stream<Item = Result<WatchResponse, Error>> + Send + Unpin + use<> {
        watch::watch(self.stub(), request)
    }

    /// Changes an object: [`done`] and [`refused`] make the request. Returns the object as it is then.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the object has changed, or another replica was faster; [`Error::NotFound`] if its hold has ended.
    pub async fn update(&self, request: UpdateRequest) -> Result<StagedObject, Error> {
        held(self.stub()?.update(request).await?.into_inner().object)
    }

    /// Ends the hold of exactly this object: its creator is refused.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if another object has the key by now; [`Error::NotFound`] if the hold has ended.
    pub async fn delete(&self, staged: &StagedObject) -> Result<(), Error> {
        let request = DeleteRequest { key: staged.key.clone(), uid: staged.uid.clone(), ..DeleteRequest::default() };
        self.stub()?.delete(request).await?;
        Ok(())
    }

    fn stub(&self) -> Result<Stub, Error> {
        let channel = if let Some(channel) = self.channel.get() {
            channel
        } else {
            let channel = self.connection()?;
            self.channel.get_or_init(|| channel)
        };
        Ok(Stub::new(channel.clone()).max_decoding_message_size(limits::LIST_BYTES))
    }

    fn connection(&self) -> Result<Channel, Error> {
        if host_of(&self.at.address).is_none() {
            return Err(Error::Config(format!("the dispatcher {:?} is not host:port", self.at.address)));
        }
        dial::channel(&self.at, &self.tls).map_err(|error| Error::Config(error.to_string()))
    }
}

/// Whether the object of an event waits for its first pending initializer: one that is refused already is sent once more.
pub fn waits(event: &WatchResponse) -> bool {
    let there = matches!(event.r#type(), EventType::Added | EventType::Modified);
    there && event.object.as_ref().is_some_and(|object| object.result.is_none())
}

/// Decodes what a staged object stages: into a [`serde_json::Value`], a type of `k8s-openapi` or one of yours.
///
/// # Errors
///
/// [`Error::Object`] if the type wants another object, and if there is none: a caller that is granted none of the pending
/// initializers does not see it.
pub fn object_of<T: DeserializeOwned>(staged: &StagedObject) -> Result<T, Error> {
    let raw = staged.object.as_ref().map(|object| &*object.raw).unwrap_or_default();
    serde_json::from_slice(raw).map_err(|error| Error::Object(error.into()))
}

/// The update by which the first pending initializer leaves an object as it should be created: `changed` is what [`object_of`] has
/// made of it, changed. What its type does not know stays in the object.
///
/// # Errors
///
/// [`Error::Object`] if one of both objects cannot be decoded or encoded.
pub fn done<T: DeserializeOwned + Serialize>(staged: &StagedObject, changed: &T) -> Result<UpdateRequest, Error> {
    let mut object: Value = object_of(staged)?;
    let (before, after) = (encoded(&object_of::<T>(staged)?)?, encoded(changed)?);
    let difference = json_patch::diff(&before, &after);
    json_patch::patch(&mut object, &difference).map_err(|error| Error::Object(error.into()))?;
    Ok(UpdateRequest {
        object: Some(Object { raw: object.to_string().into(), ..Object::default() }),
        ..unchanged(staged)
    })
}

/// The update by which the first pending initializer refuses an object, with [`Refused::new`] or with a denial,
/// [`Verdict::deny`](crate::Verdict::deny).
///
/// # Errors
///
/// [`Error::Config`] if the verdict allows.
pub fn refused(staged: &StagedObject, denial: impl Into<Refused>) -> Result<UpdateRequest, Error> {
    let status = denial.into().0.response(Stage::Initialize).ok().and_then(|response| response.status);
    let status = status.ok_or_else(|| Error::Config("the verdict allows: want a denial".into()))?;
    Ok(UpdateRequest { result: Some(status), pending: Vec::new(), ..unchanged(staged) })
}

/// The update by which the first pending initializer leaves an object as it is.
fn unchanged(staged: &StagedObject) -> UpdateRequest {
    UpdateRequest {
        key: staged.key.clone(),
        resource_version: staged.resource_version.clone(),
        pending: staged.pending.iter().skip(1).cloned().collect(),
        ..UpdateRequest::default()
    }
}

fn encoded<T: Serialize>(object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|error| Error::Object(error.into()))
}

fn held(object: Option<StagedObject>) -> Result<StagedObject, Error> {
    object.ok_or_else(|| Status::internal("the dispatcher answered without an object").into())
}
