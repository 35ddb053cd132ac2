//! Hosts over real sockets, with the certificates of a mesh.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
    date_time_ymd,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request as Rpc, Response, Status, Streaming};

use crate::dial::dial;
use crate::dial_plan::Endpoint;
use crate::error::{SessionError, whole_text};
use crate::log::Log;
use crate::proto::host::v1::connect_request::Frame;
use crate::proto::host::v1::connect_response::Frame as Reply;
use crate::proto::host::v1::host_service_client::HostServiceClient;
use crate::proto::host::v1::host_service_server::{HostService, HostServiceServer};
use crate::proto::host::v1::verdict::Outcome;
use crate::proto::host::v1::{
    ConnectRequest, ConnectResponse, DispatcherDrain, Hello, HookCall, HookState, Peer, Ping, Review, State, Welcome,
};
use crate::{Builder, Error, HandlerResult, Host, Pem, Request, Stage, Tls, Verdict};

const PATIENCE: Duration = Duration::from_secs(20);

/// A dispatcher that listens on loopback.
struct Dispatcher {
    address: String,
    sessions: mpsc::Receiver<Session>,
    server: JoinHandle<()>,
}

/// One session, as the test sees it: it writes every frame itself.
struct Session {
    identity: Option<Vec<u8>>,
    from_host: Streaming<ConnectRequest>,
    to_host: mpsc::Sender<Result<ConnectResponse, Status>>,
}

struct Service(mpsc::Sender<Session>);

#[tonic::async_trait]
impl HostService for Service {
    type ConnectStream = ReceiverStream<Result<ConnectResponse, Status>>;

    async fn connect(&self, rpc: Rpc<Streaming<ConnectRequest>>) -> Result<Response<Self::ConnectStream>, Status> {
        let identity = rpc.peer_certs().and_then(|certs| certs.first().map(|cert| cert.to_vec()));
        let (to_host, frames) = mpsc::channel(16);
        let session = Session { identity, from_host: rpc.into_inner(), to_host };
        self.0.send(session).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(frames)))
    }
}

impl Dispatcher {
    async fn listen(tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("an address").to_string();
        let (accepted, sessions) = mpsc::channel(16);
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).expect("certificates");
        }
        let serve =
            server.serve_with_incoming(HostServiceServer::new(Service(accepted)), TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { serve.await.expect("a server") });
        Self { address, sessions, server }
    }

    async fn accept(&mut self) -> Session {
        patiently(self.sessions.recv()).await.expect("a session")
    }

    /// Waits for a host and answers its Hello.
    async fn welcome(&mut self, id: &str, peers: &[&Dispatcher]) -> (Session, Hello) {
        let mut session = self.accept().await;
        let hello = session.welcome(id, peers).await;
        (session, hello)
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Session {
    async fn next(&mut self) -> Option<Frame> {
        patiently(self.from_host.message())
            .await
            .expect("a frame")
            .map(|request| request.frame.expect("of a known type"))
    }

    async fn send(&self, frame: Reply) {
        self.to_host.send(Ok(ConnectResponse { frame: Some(frame) })).await.expect("the host listens");
    }

    async fn welcome(&mut self, id: &str, peers: &[&Dispatcher]) -> Hello {
        let Some(Frame::Hello(hello)) = self.next().await else { panic!("the first frame is not Hello") };
        let rotate = |name: &str| HookState {
            name: name.into(),
            stage: Stage::Validate.into(),
            state: State::InRotation.into(),
            ..HookState::default()
        };
        let peer = |d: &&Dispatcher| Peer { dispatcher_id: d.address.clone(), addresses: vec![d.address.clone()] };
        let welcome = Welcome {
            dispatcher_id: id.into(),
            protocol: 1,
            silence_ms: 60_000,
            hooks: hello.hooks.iter().map(|offer| rotate(&offer.name)).collect(),
            peers: peers.iter().map(peer).collect(),
            ..Welcome::default()
        };
        self.send(Reply::Welcome(welcome)).await;
        hello
    }

    async fn review(&self, call_id: u64, hook: &str) {
        let hooks = vec![HookCall {
            name: hook.into(),
            stage: Stage::Validate.into(),
            remaining_ms: 20_000,
            ..HookCall::default()
        }];
        self.send(Reply::Review(Review { call_id, hooks, request: Some(vec![].into()), ..Review::default() })).await;
    }

    /// Waits until the host has taken all that was sent before.
    async fn ping(&mut self) {
        self.send(Reply::Ping(Ping { seq: 7 })).await;
        loop {
            match self.next().await {
                Some(Frame::Pong(pong)) if pong.seq == 7 => return,
                Some(Frame::Credit(_)) => {}
                other => panic!("{other:?} is no pong"),
            }
        }
    }

    async fn credit(&mut self) -> u32 {
        match self.next().await {
            Some(Frame::Credit(credit)) => credit.max_outstanding,
            other => panic!("{other:?} is no credit"),
        }
    }
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("within the patience of the test")
}

async fn allow(_: Request) -> HandlerResult {
    Ok(Verdict::allow())
}

/// A host that runs until it is told to leave.
struct Running {
    host: Host,
    leave: Arc<Notify>,
    ended: JoinHandle<Result<(), Error>>,
}

fn run(builder: Builder) -> Running {
    let (host, leave) = (builder.build().expect("a host"), Arc::new(Notify::new()));
    let ended = {
        let (host, leave) = (host.clone(), leave.clone());
        tokio::spawn(async move { host.run_until(leave.notified()).await })
    };
    Running { host, leave, ended }
}

impl Running {
    async fn stop(self) -> Result<(), Error> {
        self.leave.notify_one();
        patiently(self.ended).await.expect("no panic")
    }
}

fn host(dispatchers: &[&Dispatcher]) -> Builder {
    let host = Host::builder("h").tls(Tls::plaintext()).validate("allow", allow);
    dispatchers.iter().fold(host, |host, dispatcher| host.dispatcher(&dispatcher.address))
}

fn identity() -> SanType {
    SanType::URI(Ia5String::try_from("spiffe://mesh/h").expect("a name"))
}

/// An authority in a folder of its own, with the files of a host.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let folder = std::env::temp_dir().join(format!("portcullis-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("ca.crt"), issuer.pem()).expect("a file");
        let authority = Self { issuer, folder };
        authority.issue_host();
        authority
    }

    fn issue(&self, name: SanType) -> (String, String) {
        self.issue_with(name, |_| {})
    }

    fn issue_with(&self, name: SanType, edit: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.subject_alt_names = vec![name];
        edit(&mut params);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        (cert.pem(), key.serialize_pem())
    }

    /// Writes a new certificate for the host.
    fn issue_host(&self) {
        let (cert, key) = self.issue(identity());
        std::fs::write(self.folder.join("tls.crt"), cert).expect("a file");
        std::fs::write(self.folder.join("tls.key"), key).expect("a file");
    }

    fn server(&self, name: &str) -> ServerTlsConfig {
        let (cert, key) = self.issue(SanType::DnsName(name.try_into().expect("a name")));
        ServerTlsConfig::new()
            .identity(Identity::from_pem(cert, key))
            .client_ca_root(Certificate::from_pem(self.issuer.pem()))
    }

    fn files(&self) -> Tls {
        let file = |name| self.folder.join(name);
        Tls::files(file("tls.crt"), file("tls.key"), file("ca.crt"))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder); // Whatever is left lies in the folder for temporary files.
    }
}

#[tokio::test]
async fn a_host_serves_with_its_certificate_and_drains() {
    let authority = Authority::new("serves");
    let mut dispatcher = Dispatcher::listen(Some(authority.server("mesh.example"))).await;
    let running = run(host(&[&dispatcher]).tls(authority.files()).server_name("mesh.example"));
    let (mut session, hello) = dispatcher.welcome("d1", &[]).await;
    assert_eq!((hello.sdk.as_str(), hello.max_outstanding, hello.max_frame_bytes), ("portcullis-rust", 64, 16 << 20));
    assert!(session.identity.is_some());
    patiently(running.host.ready()).await;
    session.review(1, "allow").await;
    let verdict = session.next().await;
    assert!(
        matches!(&verdict, Some(Frame::Verdict(v)) if matches!(&v.outcome, Some(Outcome::Response(r)) if r.allowed))
    );
    running.leave.notify_one();
    assert!(matches!(session.next().await, Some(Frame::Drain(drain)) if drain.last_started_call_id == 1));
    assert_eq!(session.next().await, None);
    drop(session);
    running.stop().await.expect("a clean end");
}

#[tokio::test]
async fn a_dispatcher_of_another_name_or_authority_gets_no_session() {
    let (authority, other) = (Authority::new("name"), Authority::new("other"));
    let mut misnamed = Dispatcher::listen(Some(authority.server("mesh.example"))).await;
    let mut foreign = Dispatcher::listen(Some(other.server("other.example"))).await;
    let mut right = Dispatcher::listen(Some(authority.server("other.example"))).await;
    let dispatchers = [&misnamed, &foreign, &right];
    let running = run(host(&dispatchers).tls(authority.files()).server_name("other.example"));
    let (session, _) = right.welcome("d1", &[]).await;
    patiently(running.host.ready()).await;
    assert!(misnamed.sessions.try_recv().is_err() && foreign.sessions.try_recv().is_err());
    drop(session);
    running.stop().await.expect("a clean end");
}

#[tokio::test]
async fn a_host_sends_its_intermediates_and_trusts_each_of_its_authorities() {
    let (root, other) = (Authority::new("root"), Authority::new("beside"));
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::signed_by(params, key, &root.issuer).expect("an authority");
    let below = Authority { issuer, folder: root.folder.clone() };
    let (cert, key) = below.issue(identity());
    let cert = (cert + &below.issuer.pem()).into_bytes();
    let ca = (other.issuer.pem() + &root.issuer.pem()).into_bytes();
    let mut dispatcher = Dispatcher::listen(Some(root.server("mesh.example"))).await;
    let tls = Tls::pem(Pem { cert, key: key.into(), ca });
    let running = run(host(&[&dispatcher]).tls(tls).server_name("mesh.example"));
    let (session, _) = dispatcher.welcome("d1", &[]).await;
    assert!(session.identity.is_some());
    drop(session);
    running.stop().await.expect("a clean end");
    std::mem::forget(below); // The folder is that of the root.
}

#[tokio::test]
async fn a_server_of_another_protocol_gets_no_session() {
    let authority = Authority::new("protocol");
    let (cert, key) = authority.issue(SanType::DnsName("mesh.example".try_into().expect("a name")));
    let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .expect("a certificate and its key");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("an address").to_string();
    let at = Endpoint { address, server_name: "mesh.example".into() };
    let serve = async {
        let (stream, _) = listener.accept().await.expect("a connection");
        // It says nothing of the protocol that it speaks.
        let _stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("a session of TLS");
        std::future::pending::<()>().await;
    };
    let tls = authority.files();
    let dialled = tokio::select! {
        dialled = patiently(dial(&at, &tls)) => dialled,
        () = serve => unreachable!("it waits"),
    };
    let error = whole_text(&dialled.map(drop).expect_err("no session"));
    assert!(error.ends_with("the other side does not speak HTTP/2"), "{error}");
}

#[tokio::test]
async fn a_dial_has_ten_seconds() {
    let authority = Authority::new("silent");
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let at =
        Endpoint { address: silent.local_addr().expect("an address").to_string(), server_name: "m.example".into() };
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let dialled = dial(&at, &authority.files()).await;
    assert!(matches!(dialled, Err(SessionError::NoWelcome)), "{dialled:?}");
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn files_are_read_anew_at_each_dial() {
    let authority = Authority::new("rotation");
    let mut dispatcher = Dispatcher::listen(Some(authority.server("mesh.example"))).await;
    let running = run(host(&[&dispatcher]).tls(authority.files()).server_name("mesh.example"));
    let (first, _) = dispatcher.welcome("d1", &[]).await;
    authority.issue_host();
    let before = first.identity.clone();
    drop(first);
    let (second, _) = dispatcher.welcome("d1", &[]).await;
    assert_ne!(before, second.identity);
    drop(second);
    running.stop().await.expect("a clean end");
}

/// Changes a certificate before it is issued.
type Edit = fn(&mut CertificateParams);

#[test]
fn the_fault_of_the_own_certificate_is_named() {
    let authority = Authority::new("own");
    let tls = |edit: Edit| {
        let (cert, key) = authority.issue_with(identity(), edit);
        Tls::pem(Pem { cert: cert.into(), key: key.into(), ca: authority.issuer.pem().into() })
    };
    let explained = |edit| tls(edit).explain("lost".into());
    let cases: [(Edit, &str); 3] = [
        (|params| params.not_after = date_time_ymd(2020, 1, 1), "the certificate of this host has expired ("),
        (|params| params.not_before = date_time_ymd(2900, 1, 1), "is not valid yet by the clock of this machine ("),
        (
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            "the certificate of this host is not for clients (",
        ),
    ];
    for (edit, text) in cases {
        let got = explained(edit);
        assert!(got.contains(text) && got.ends_with(": lost"), "{got}");
    }
    assert_eq!(explained(|_| {}), "lost");
    assert_eq!(explained(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]), "lost");
    let [(cert, _), (_, key)] = [authority.issue(identity()), authority.issue(identity())];
    let mixed = Tls::pem(Pem { cert: cert.into(), key: key.into(), ca: authority.issuer.pem().into() });
    let error = mixed.config().expect_err("another key").to_string();
    assert!(error.contains("the certificate of this host and its key"), "{error}");
    let none = Tls::pem(Pem { cert: Vec::new(), key: Vec::new(), ca: authority.issuer.pem().into() });
    assert!(none.config().is_err());
    let (cert, key) = authority.issue(identity());
    let alone = Tls::pem(Pem { cert: cert.into(), key: key.into(), ca: b"no PEM".into() });
    let error = alone.config().expect_err("no authorities").to_string();
    assert_eq!(error, "the authorities hold no certificate in PEM");
}

#[tokio::test]
async fn a_dispatcher_that_refuses_the_host_is_named() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let (cert, key) = authority.issue(SanType::DnsName("mesh.example".try_into().expect("a name")));
    let server = ServerTlsConfig::new()
        .identity(Identity::from_pem(cert, key))
        .client_ca_root(Certificate::from_pem(other.issuer.pem()));
    let dispatcher = Dispatcher::listen(Some(server)).await;
    let at = Endpoint { address: dispatcher.address.clone(), server_name: "mesh.example".into() };
    let error = match dial(&at, &authority.files()).await {
        Err(error) => whole_text(&error),
        Ok(channel) => {
            let opened = HostServiceClient::new(channel).connect(tokio_stream::pending()).await;
            whole_text(&opened.map(drop).expect_err("it is refused"))
        }
    };
    let explained = authority.files().explain(error);
    assert!(explained.starts_with("the dispatcher refused this host: "), "{explained}");
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_a_fault_of_the_start() {
    let authority = Authority::new("fault");
    let dispatcher = Dispatcher::listen(None).await;
    let missing = Tls::files("no.crt", "no.key", "no.ca");
    let ended = run(host(&[&dispatcher]).tls(missing)).ended.await.expect("no panic");
    assert!(matches!(&ended, Err(Error::Tls(e)) if e.to_string().contains("no.crt")), "{ended:?}");
    std::fs::write(authority.folder.join("tls.key"), "no key").expect("a file");
    let ended = run(host(&[&dispatcher]).tls(authority.files())).ended.await.expect("no panic");
    assert!(matches!(&ended, Err(Error::Tls(_))), "{ended:?}");
}

#[tokio::test]
async fn the_capacity_is_divided_over_the_sessions() {
    let (mut one, mut two) = (Dispatcher::listen(None).await, Dispatcher::listen(None).await);
    let running = run(host(&[&one]).max_outstanding(10));
    let (mut first, hello) = one.welcome("d1", &[&two]).await;
    assert_eq!(hello.max_outstanding, 10);
    // The peer of the first is dialled, too.
    let (second, hello) = two.welcome(&two.address.clone(), &[]).await;
    assert_eq!((hello.max_outstanding, first.credit().await), (5, 5));
    let leaving = Reply::Drain(DispatcherDrain { grace_ms: 60_000, peers: Vec::new() });
    second.send(leaving).await;
    assert_eq!(first.credit().await, 10);
    drop((first, second));
    running.stop().await.expect("a clean end");
}

#[tokio::test]
async fn of_two_ways_to_one_dispatcher_the_younger_stays() {
    let (mut one, mut two) = (Dispatcher::listen(None).await, Dispatcher::listen(None).await);
    let running = run(host(&[&one, &two]));
    let (mut first, _) = one.welcome("same", &[]).await;
    first.ping().await;
    let (second, _) = two.welcome("same", &[]).await;
    loop {
        match first.next().await {
            Some(Frame::Credit(_)) => {}
            Some(Frame::Drain(_)) => break,
            other => panic!("{other:?} is no drain"),
        }
    }
    assert_eq!(first.next().await, None);
    drop((first, second));
    running.stop().await.expect("a clean end");
}

#[tokio::test]
async fn a_session_that_is_lost_is_dialled_again() {
    let mut dispatcher = Dispatcher::listen(None).await;
    let running = run(host(&[&dispatcher]));
    for _ in 0..3 {
        let (session, _) = dispatcher.welcome("d1", &[]).await;
        session.to_host.send(Err(Status::unavailable("stopping"))).await.expect("the host listens");
    }
    running.stop().await.expect("a clean end");
}

#[tokio::test]
async fn the_log_says_why_there_is_no_session() {
    let log = Log::get();
    let mut dispatcher = Dispatcher::listen(None).await;
    let running = run(host(&[&dispatcher]));
    let address = dispatcher.address.clone();
    let logged = |text: &str| log.with(&address).iter().filter(|line| line.contains(text)).count();
    // A session is logged before the next one is dialled.
    for (refused, ended) in [(0, 0), (1, 0), (1, 0)] {
        let session = dispatcher.sessions.recv().await.expect("a session");
        assert_eq!((logged("no session, trying on"), logged("session ended")), (refused, ended));
        let refusal = Status::permission_denied("no HookRoute lists this host");
        session.to_host.send(Err(refusal)).await.expect("the host listens");
    }
    assert_eq!(logged("no HookRoute lists this host"), 1);
    let (session, _) = dispatcher.welcome("d1", &[]).await;
    session.to_host.send(Err(Status::unavailable("stopping"))).await.expect("the host listens");
    let (session, _) = dispatcher.welcome("d1", &[]).await;
    assert!(log.with(&address).last().expect("a line").contains("Unavailable: stopping"));
    assert_eq!(logged("session ended"), 1);
    drop(session);
    running.stop().await.expect("a clean end");
}

#[tokio::test]
async fn a_ping_is_answered_though_all_handlers_block_their_threads() {
    let mut dispatcher = Dispatcher::listen(None).await;
    let (entered, entry) = std::sync::mpsc::channel();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let builder = host(&[&dispatcher]).validate("block", move |_| {
        let _ = entered.send(());
        let _ = blocked.lock().map(|blocked| blocked.recv());
        allow_ready()
    });
    // The host has one thread for its handlers, and the test another one.
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(builder.run_until(async { drop(left.await) }))
    });
    let (mut session, _) = dispatcher.welcome("d1", &[]).await;
    session.review(1, "block").await;
    tokio::task::spawn_blocking(move || entry.recv()).await.expect("no panic").expect("called");
    session.ping().await;
    release.send(()).expect("the handler waits");
    assert!(matches!(session.next().await, Some(Frame::Verdict(_))));
    drop(session);
    drop(leave);
    tokio::task::spawn_blocking(|| thread.join()).await.expect("no panic").expect("no panic").expect("a clean end");
}

fn allow_ready() -> std::future::Ready<HandlerResult> {
    std::future::ready(Ok(Verdict::allow()))
}
