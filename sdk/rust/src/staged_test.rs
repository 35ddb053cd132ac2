//! The client of staged objects, and a dispatcher that holds some, over real sockets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Request as Rpc, Response, Status};

use crate::proto::admission::v1::{GroupVersionResource, Object, UserInfo};
use crate::proto::initializer::v1::initializer_service_server::{InitializerService, InitializerServiceServer};
use crate::proto::initializer::v1::{
    DeleteRequest, DeleteResponse, GetRequest, GetResponse, Timestamp, UpdateResponse,
};
use crate::sockets_test::{Authority, patiently};
use crate::staged::{
    Error, EventType, ListRequest, ListResponse, StagedClient, StagedKey, StagedObject, UpdateRequest, WatchRequest,
    WatchResponse, done, object_of, refused, waits,
};
use crate::{HandlerError, Refused, Tls, Verdict};

const NAME: &str = "sidecar.example.com";
const NEXT: &str = "podimage.example.com";

/// What a dispatcher holds, by name, and what it was asked.
#[derive(Default)]
struct Held {
    objects: BTreeMap<String, StagedObject>,
    lists: Vec<ListRequest>,
    deletes: Vec<DeleteRequest>,
    /// What the next update is answered with.
    failure: Option<Status>,
}

#[derive(Clone)]
struct Service {
    held: Arc<Mutex<Held>>,
    watches: mpsc::Sender<Watching>,
    updates: mpsc::UnboundedSender<UpdateRequest>,
}

/// One stream of a watch: the test writes every event itself.
struct Watching {
    request: WatchRequest,
    events: mpsc::Sender<Result<WatchResponse, Status>>,
}

impl Watching {
    async fn send(&self, event: WatchResponse) {
        self.events.send(Ok(event)).await.expect("a reader");
    }

    async fn added(&self, object: StagedObject) {
        self.send(event(EventType::Added, object)).await;
    }

    async fn end(self, status: Status) {
        self.events.send(Err(status)).await.expect("a reader");
    }
}

#[tonic::async_trait]
impl InitializerService for Service {
    type WatchStream = ReceiverStream<Result<WatchResponse, Status>>;

    async fn get(&self, rpc: Rpc<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let name = rpc.into_inner().key.unwrap_or_default().name;
        let object = self.held().objects.get(&name).cloned();
        let object = object.ok_or_else(|| Status::not_found("nothing is held"))?;
        Ok(Response::new(GetResponse { object: Some(object) }))
    }

    async fn list(&self, rpc: Rpc<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let mut held = self.held();
        held.lists.push(rpc.into_inner());
        let objects = held.objects.values().cloned().collect();
        Ok(Response::new(ListResponse { objects, resource_version: "1".into() }))
    }

    async fn watch(&self, rpc: Rpc<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (events, sent) = mpsc::channel(16);
        let watching = Watching { request: rpc.into_inner(), events };
        self.watches.send(watching).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(sent)))
    }

    async fn update(&self, rpc: Rpc<UpdateRequest>) -> Result<Response<UpdateResponse>, Status> {
        let request = rpc.into_inner();
        let mut held = self.held();
        let _ = self.updates.send(request.clone()); // The test may be over.
        if let Some(failure) = held.failure.take() {
            return Err(failure);
        }
        let name = request.key.unwrap_or_default().name;
        let object = held.objects.get_mut(&name).ok_or_else(|| Status::not_found("nothing is held"))?;
        if request.resource_version != object.resource_version {
            return Err(Status::aborted("it has another version"));
        }
        object.resource_version.push('1');
        if request.result.is_some() {
            object.result = request.result;
        } else {
            object.object = request.object.or(object.object.take());
            object.pending = request.pending;
        }
        Ok(Response::new(UpdateResponse { object: Some(object.clone()) }))
    }

    async fn delete(&self, rpc: Rpc<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        self.held().deletes.push(rpc.into_inner());
        Ok(Response::new(DeleteResponse::default()))
    }
}

impl Service {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no panic")
    }
}

/// A dispatcher whose connections break when it is killed.
struct Dispatcher {
    address: String,
    service: Service,
    watches: mpsc::Receiver<Watching>,
    updates: mpsc::UnboundedReceiver<UpdateRequest>,
    process: Option<Process>,
}

struct Process {
    kill: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Dispatcher {
    async fn start(objects: impl IntoIterator<Item = StagedObject>, tls: Option<ServerTlsConfig>) -> Self {
        let objects = objects.into_iter().map(|object| (name_of(&object), object)).collect();
        let held = Arc::new(Mutex::new(Held { objects, ..Held::default() }));
        let (accepted, watches) = mpsc::channel(16);
        let (updated, updates) = mpsc::unbounded_channel();
        let service = Service { held, watches: accepted, updates: updated };
        let mut dispatcher = Self { address: "127.0.0.1:0".into(), service, watches, updates, process: None };
        dispatcher.serve(tls).await;
        dispatcher
    }

    /// Serves at the same address as before.
    async fn serve(&mut self, tls: Option<ServerTlsConfig>) {
        let (service, address) = (InitializerServiceServer::new(self.service.clone()), self.address.clone());
        let ((kill, killed), (listening, listens)) = (oneshot::channel(), oneshot::channel());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind(address).await.expect("loopback");
                listening.send(listener.local_addr().expect("an address").to_string()).expect("a test");
                let mut server = Server::builder();
                if let Some(tls) = tls {
                    server = server.tls_config(tls).expect("certificates");
                }
                tokio::select! {
                    served = server.serve_with_incoming(service, TcpListenerStream::new(listener)) => served.expect("a server"),
                    _ = killed => {}
                }
            });
        });
        self.address = patiently(listens).await.expect("an address");
        self.process = Some(Process { kill, thread });
    }

    fn kill(&mut self) {
        if let Some(Process { kill, thread }) = self.process.take() {
            let _ = kill.send(()); // It may have ended by itself.
            thread.join().expect("no panic");
        }
    }

    fn client(&self) -> StagedClient {
        StagedClient::new(&self.address, Tls::plaintext())
    }

    async fn watching(&mut self) -> Watching {
        patiently(self.watches.recv()).await.expect("a watch")
    }

    async fn update(&mut self) -> UpdateRequest {
        patiently(self.updates.recv()).await.expect("an update")
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.service.held()
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pod(name: &str, version: &str) -> StagedObject {
    let object = json!({"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [], "other": 1}});
    StagedObject {
        key: Some(StagedKey {
            cluster: "c".into(),
            resource: Some(GroupVersionResource {
                version: "v1".into(),
                resource: "pods".into(),
                ..GroupVersionResource::default()
            }),
            namespace: "shop".into(),
            name: name.into(),
        }),
        uid: format!("uid of {name}"),
        resource_version: version.into(),
        pending: vec![NAME.into(), NEXT.into()],
        creator: Some(UserInfo { username: "jane".into(), ..UserInfo::default() }),
        object: Some(Object { raw: object.to_string().into(), ..Object::default() }),
        remaining_ms: 60_000,
        created: Some(Timestamp { seconds: 1_790_000_000, nanos: 5 }),
        ..StagedObject::default()
    }
}

fn name_of(object: &StagedObject) -> String {
    object.key.clone().unwrap_or_default().name
}

fn event(kind: EventType, object: StagedObject) -> WatchResponse {
    WatchResponse { r#type: kind.into(), object: Some(object), initial_events_end: false }
}

fn bookmark(version: &str, initial_events_end: bool) -> WatchResponse {
    let object = StagedObject { resource_version: version.into(), ..StagedObject::default() };
    WatchResponse { initial_events_end, ..event(EventType::Bookmark, object) }
}

fn key(name: &str) -> StagedKey {
    StagedKey { name: name.into(), ..StagedKey::default() }
}

async fn next(events: &mut (impl StreamExt<Item = Result<WatchResponse, Error>> + Unpin)) -> WatchResponse {
    patiently(events.next()).await.expect("an event").expect("no error")
}

/// A type that knows few members.
#[derive(Deserialize, Serialize)]
struct Pod {
    spec: Spec,
}

#[derive(Deserialize, Serialize)]
struct Spec {
    containers: Vec<Value>,
}

fn with_proxy(mut pod: Pod) -> Pod {
    pod.spec.containers.push(json!({"name": "proxy"}));
    pod
}

#[tokio::test]
async fn a_controller_initializes_what_waits_for_it() -> Result<(), Error> {
    let authority = Authority::new("staged");
    let mut dispatcher = Dispatcher::start([pod("web", "1")], Some(authority.server("mesh.example"))).await;
    let client = StagedClient::new(&dispatcher.address, authority.files()).server_name("mesh.example");
    let mine = ListRequest { first_pending: NAME.into(), ..ListRequest::default() };
    let listed = client.list(mine.clone()).await?;
    assert_eq!((listed.objects.as_slice(), listed.resource_version.as_str()), (&[pod("web", "1")][..], "1"));
    let mut events = client.watch(WatchRequest { selection: Some(mine.clone()), ..WatchRequest::default() });
    let shown = tokio::spawn(async move { next(&mut events).await });
    let watching = dispatcher.watching().await;
    watching.added(pod("web", "1")).await;
    let added = shown.await.expect("no panic");
    assert!(waits(&added));
    let staged = added.object.expect("an object");
    let updated = client.update(done(&staged, &with_proxy(object_of(&staged)?))?).await?;
    assert_eq!(updated.pending, [NEXT]);
    let want =
        json!({"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "proxy"}], "other": 1}});
    assert_eq!(object_of::<Value>(&updated)?, want);
    assert_eq!(client.get(updated.key.clone().unwrap_or_default()).await?, updated);
    assert_eq!((&dispatcher.held().lists[..], watching.request.selection), (&[mine.clone()][..], Some(mine)));
    Ok(())
}

#[tokio::test]
async fn a_controller_refuses() -> Result<(), Error> {
    let dispatcher = Dispatcher::start([pod("web", "1")], None).await;
    let client = dispatcher.client();
    let staged = client.get(key("web")).await?;
    let denial = Verdict::deny("no").code(422).cause("spec", "bad");
    let updated = client.update(refused(&staged, denial)?).await?;
    let result = updated.result.clone().expect("a result");
    assert_eq!((result.status.as_str(), result.message.as_str(), result.code), ("Failure", "no", 422));
    assert_eq!(result.details.expect("causes").causes[0].field, "spec");
    assert!(refused(&staged, Refused::new("no"))?.pending.is_empty());
    assert!(!waits(&event(EventType::Modified, updated)));
    assert!(!waits(&event(EventType::Deleted, staged.clone())));
    assert!(matches!(refused(&staged, Verdict::allow()), Err(Error::Config(_))));
    client.delete(&staged).await?;
    let asked = DeleteRequest { key: staged.key, uid: staged.uid, ..DeleteRequest::default() };
    assert_eq!(dispatcher.held().deletes, [asked]);
    Ok(())
}

#[tokio::test]
async fn errors_say_what_to_do() -> Result<(), Error> {
    let dispatcher = Dispatcher::start([pod("web", "1")], None).await;
    let client = dispatcher.client();
    let staged = client.get(key("web")).await?;
    client.update(done(&staged, &json!({}))?).await?;
    assert!(matches!(client.update(done(&staged, &json!({}))?).await, Err(Error::Conflict(_))));
    assert!(matches!(client.get(key("other")).await, Err(Error::NotFound(_))));
    for (code, temporary) in
        [(Code::Unavailable, true), (Code::ResourceExhausted, true), (Code::PermissionDenied, false)]
    {
        dispatcher.held().failure = Some(Status::new(code, "it says why"));
        let error = client.update(done(&staged, &json!({}))?).await.expect_err("a failure");
        assert_eq!((error.to_string(), error.is_temporary()), (format!("{code:?}: it says why"), temporary));
    }
    let outline = StagedObject { object: None, ..staged };
    assert!(matches!(object_of::<Value>(&outline), Err(Error::Object(_))));
    let nowhere = StagedClient::new("nowhere", Tls::plaintext());
    assert!(matches!(nowhere.list(ListRequest::default()).await, Err(Error::Config(_))));
    let first = patiently(nowhere.watch(WatchRequest::default()).next()).await;
    assert!(matches!(first, Some(Err(Error::Config(_)))));
    Ok(())
}

#[tokio::test]
async fn a_list_may_be_larger_than_the_messages_that_grpc_takes_by_default() -> Result<(), Error> {
    let raw = json!({"data": "x".repeat(5 << 20)}).to_string();
    let large = StagedObject { object: Some(Object { raw: raw.into(), ..Object::default() }), ..pod("web", "1") };
    let dispatcher = Dispatcher::start([large.clone()], None).await;
    assert_eq!(dispatcher.client().list(ListRequest::default()).await?.objects, [large]);
    Ok(())
}

#[tokio::test]
async fn a_lost_connection_is_made_anew_with_the_certificates_of_that_time() -> Result<(), Error> {
    let authority = Authority::new("anew");
    let mut dispatcher = Dispatcher::start([pod("web", "1")], Some(authority.server("mesh.example"))).await;
    let dials = Arc::new(AtomicUsize::new(0));
    let tls = {
        let (dials, files) = (dials.clone(), authority.pem());
        Tls::from_fn(move || {
            dials.fetch_add(1, Ordering::Relaxed);
            Ok(files.clone())
        })
    };
    let client = StagedClient::new(&dispatcher.address, tls).server_name("mesh.example");
    client.list(ListRequest::default()).await?;
    client.list(ListRequest::default()).await?;
    assert_eq!(dials.load(Ordering::Relaxed), 1, "calls share a connection");
    dispatcher.kill();
    let error = client.list(ListRequest::default()).await.expect_err("nobody listens");
    assert!(error.is_temporary(), "{error}");
    let before = dials.load(Ordering::Relaxed);
    dispatcher.serve(Some(authority.server("mesh.example"))).await;
    let again = match client.list(ListRequest::default()).await {
        Err(error) if error.is_temporary() => client.list(ListRequest::default()).await, // It finds the connection lost.
        listed => listed,
    };
    assert_eq!(again?.objects.len(), 1);
    assert!(dials.load(Ordering::Relaxed) > before);
    let stranger = StagedClient::new(&dispatcher.address, authority.files()).server_name("other.example");
    assert!(matches!(stranger.list(ListRequest::default()).await, Err(Error::Call(_))));
    Ok(())
}

#[tokio::test]
async fn a_watch_goes_on_after_the_last_version_and_begins_anew_when_that_is_too_old() {
    let mut dispatcher = Dispatcher::start([], None).await;
    let selection = Some(ListRequest { first_pending: NAME.into(), ..ListRequest::default() });
    let mut events =
        dispatcher.client().watch(WatchRequest { selection: selection.clone(), ..WatchRequest::default() });
    let (shown, mut read) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            shown.send(event).expect("a test");
        }
    });
    let begun = async |dispatcher: &mut Dispatcher, version: &str| {
        let watching = dispatcher.watching().await;
        let want = WatchRequest { selection: selection.clone(), resource_version: version.into(), bookmarks: true };
        assert_eq!(watching.request, want);
        watching
    };
    // The objects that are sent first have not all come: they are sent once more.
    let watching = begun(&mut dispatcher, "").await;
    watching.added(pod("a", "5")).await;
    watching.end(Status::unavailable("this dispatcher is stopping")).await;
    let watching = begun(&mut dispatcher, "").await;
    for event in [event(EventType::Added, pod("a", "5")), bookmark("7", true), event(EventType::Deleted, pod("a", "9"))]
    {
        watching.send(event).await;
    }
    // Streams that end, by a broken connection too, are gone on with.
    drop(watching);
    let watching = begun(&mut dispatcher, "9").await;
    watching.send(bookmark("11", false)).await;
    watching.end(Status::unavailable("this dispatcher is stopping")).await;
    let watching = begun(&mut dispatcher, "11").await;
    watching.added(pod("b", "12")).await;
    let types = async |read: &mut mpsc::UnboundedReceiver<Result<WatchResponse, Error>>, n: usize| {
        let mut types = Vec::new();
        for _ in 0..n {
            let event = patiently(read.recv()).await.expect("an event").expect("no error");
            types.push((event.r#type(), event.object.expect("an object").resource_version));
        }
        types
    };
    let want = [(EventType::Added, "5"), (EventType::Added, "5"), (EventType::Deleted, "9"), (EventType::Added, "12")];
    assert_eq!(types(&mut read, 4).await, want.map(|(kind, version)| (kind, version.to_owned())));
    dispatcher.kill();
    dispatcher.serve(None).await;
    // A version that is too old, and a reader that is too slow, begin with the objects.
    begun(&mut dispatcher, "12").await.end(Status::out_of_range("too old")).await;
    let watching = begun(&mut dispatcher, "").await;
    watching.added(pod("b", "12")).await;
    watching.end(Status::unavailable("this dispatcher is stopping")).await;
    begun(&mut dispatcher, "").await.end(Status::aborted("too slow")).await;
    let watching = begun(&mut dispatcher, "").await;
    watching.send(bookmark("20", true)).await;
    watching.end(Status::aborted("too slow")).await;
    begun(&mut dispatcher, "").await.end(Status::permission_denied("no grant")).await;
    assert_eq!(types(&mut read, 1).await, [(EventType::Added, "12".to_owned())]);
    let last = patiently(read.recv()).await;
    assert!(matches!(&last, Some(Err(Error::Call(status))) if status.code() == Code::PermissionDenied), "{last:?}");
    patiently(reading).await.expect("the end of the watch");
}

#[tokio::test]
async fn a_watch_shows_bookmarks_to_those_who_ask() {
    let mut dispatcher = Dispatcher::start([], None).await;
    let request = WatchRequest { resource_version: "3".into(), bookmarks: true, ..WatchRequest::default() };
    let mut events = dispatcher.client().watch(request.clone());
    let shown = tokio::spawn(async move { (next(&mut events).await, events) });
    let watching = dispatcher.watching().await;
    assert_eq!(watching.request, request);
    watching.send(bookmark("4", false)).await;
    let (event, events) = shown.await.expect("no panic");
    assert_eq!(event, bookmark("4", false));
    drop(events);
    patiently(watching.events.closed()).await; // Dropping the watch ends its stream.
}

/// Runs an initializer until it is dropped.
fn initialize<F, Fut>(dispatcher: &Dispatcher, initializer: F) -> JoinHandle<Result<(), Error>>
where
    F: Fn(Pod, StagedObject) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Pod, HandlerError>> + Send + 'static,
{
    let client = dispatcher.client();
    tokio::spawn(async move { client.initialize(NAME, initializer).await })
}

fn containers(update: &UpdateRequest) -> usize {
    let raw = &update.object.as_ref().expect("an object").raw;
    serde_json::from_slice::<Pod>(raw).expect("a Pod").spec.containers.len()
}

#[tokio::test]
async fn an_initializer_runs_over_what_waits_for_it() {
    let mut dispatcher = Dispatcher::start([pod("a", "1"), pod("b", "2"), pod("c", "3"), pod("d", "4")], None).await;
    let running = initialize(&dispatcher, async |pod: Pod, staged: StagedObject| {
        assert_eq!(staged.creator.as_ref().map(|creator| creator.username.as_str()), Some("jane"));
        match name_of(&staged).as_str() {
            "b" => Err(Refused::from(Verdict::deny("no room").code(422)).into()),
            "c" => Err(Refused::from(Verdict::allow()).into()),
            _ => Ok(with_proxy(pod)),
        }
    });
    let watching = dispatcher.watching().await;
    assert_eq!(watching.request.selection.as_ref().map(|s| s.first_pending.as_str()), Some(NAME));
    watching.added(pod("a", "1")).await;
    let update = dispatcher.update().await;
    assert_eq!((containers(&update), &update.pending[..]), (1, &[NEXT.to_owned()][..]));
    assert!(
        update.object.expect("an object").raw.windows(9).any(|part| part == br#""other":1"#),
        "what the type does not know"
    );
    // What is refused already, or gone, is none of its business.
    let refused = StagedObject { result: Some(crate::proto::admission::v1::Status::default()), ..pod("a", "11") };
    watching.send(event(EventType::Modified, refused)).await;
    watching.send(event(EventType::Deleted, pod("a", "12"))).await;
    watching.added(pod("b", "2")).await;
    let update = dispatcher.update().await;
    let result = update.result.expect("a result");
    assert_eq!((result.message.as_str(), result.code, update.object), ("no room", 422, None));
    watching.added(pod("c", "3")).await;
    let update = dispatcher.update().await;
    assert_eq!(
        (name_of(&StagedObject { key: update.key, ..StagedObject::default() }).as_str(), update.object),
        ("c", None)
    );
    assert_eq!(update.pending, [NEXT]);
    // A dispatcher that does not answer is asked again, with the same.
    dispatcher.held().failure = Some(Status::unavailable("the store does not answer"));
    watching.added(pod("d", "4")).await;
    let update = dispatcher.update().await;
    assert_eq!(dispatcher.update().await, update);
    watching.end(Status::permission_denied("the grant is gone")).await;
    let ended = patiently(running).await.expect("no panic");
    assert!(matches!(ended, Err(Error::Call(status)) if status.code() == Code::PermissionDenied));
}

#[tokio::test]
async fn an_initializer_runs_anew_on_what_another_has_changed() {
    let mut dispatcher = Dispatcher::start([pod("web", "2")], None).await;
    let (called, mut calls) = mpsc::unbounded_channel();
    let running = initialize(&dispatcher, move |pod, staged: StagedObject| {
        let (answer, answered) = oneshot::channel();
        called.send((staged.resource_version.clone(), answer)).expect("a test");
        async move {
            answered.await?;
            Ok(with_proxy(pod))
        }
    });
    let watching = dispatcher.watching().await;
    watching.added(pod("web", "1")).await;
    let (version, answer) = patiently(calls.recv()).await.expect("a call");
    assert_eq!(version, "1");
    // Meanwhile it is changed, and both states are sent once more: there is no second call beside the first one.
    watching.send(event(EventType::Modified, pod("web", "2"))).await;
    watching.send(event(EventType::Modified, pod("web", "2"))).await;
    watching.send(event(EventType::Added, pod("other", "9"))).await;
    let (version, _left) = patiently(calls.recv()).await.expect("a call");
    assert_eq!(version, "9", "of the other one");
    answer.send(()).expect("a waiting call");
    assert_eq!(dispatcher.update().await.resource_version, "1", "a conflict");
    let (version, answer) = patiently(calls.recv()).await.expect("a call");
    assert_eq!(version, "2");
    // The same state is not worth a further call.
    watching.send(event(EventType::Added, pod("web", "2"))).await;
    watching.send(event(EventType::Added, pod("third", "10"))).await;
    let (version, _left) = patiently(calls.recv()).await.expect("a call");
    assert_eq!(version, "10", "of the third one");
    answer.send(()).expect("a waiting call");
    let update = dispatcher.update().await;
    assert_eq!((update.resource_version.as_str(), containers(&update)), ("2", 1));
    watching.send(event(EventType::Added, pod("last", "11"))).await;
    assert_eq!(patiently(calls.recv()).await.expect("a call").0, "11");
    running.abort();
}

#[tokio::test]
async fn an_initializer_that_fails_leaves_the_object_and_goes_on_with_others() {
    let mut dispatcher = Dispatcher::start([pod("good", "1")], None).await;
    let both = Arc::new(Barrier::new(2));
    let running = initialize(&dispatcher, move |pod, staged: StagedObject| {
        let both = both.clone();
        async move {
            match name_of(&staged).as_str() {
                "panics" => panic!("of the test"),
                "fails" => Err(HandlerError::public("no image")),
                "hangs" => std::future::pending().await,
                _ => {
                    both.wait().await; // Two at a time.
                    Ok(with_proxy(pod))
                }
            }
        }
    });
    let watching = dispatcher.watching().await;
    for name in ["panics", "fails"] {
        watching.added(pod(name, "5")).await;
    }
    watching.added(StagedObject { object: None, ..pod("outline", "6") }).await;
    for version in 10..100 {
        watching.added(StagedObject { remaining_ms: 1, ..pod("hangs", &version.to_string()) }).await; // More than its slots.
    }
    for n in 0..100 {
        watching.added(StagedObject { remaining_ms: 1, uid: n.to_string(), ..pod("hangs", "9") }).await;
    }
    watching.added(pod("good", "1")).await;
    watching.added(pod("gone", "2")).await;
    let mut names =
        [dispatcher.update().await, dispatcher.update().await].map(|update| update.key.expect("a key").name);
    names.sort();
    assert_eq!(names, ["gone", "good"]);
    running.abort();
}
