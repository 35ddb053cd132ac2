//! The test host of `portcullis-host` for the conformance suite: a host whose handlers do what the objects of reviews ask
//! for. The README of the suite has its contract.

mod script;

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_host::{HandlerError, Hook, Host, Tls, signal};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{Notify, watch};

/// The file that the program is started with.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    name: String,
    instance: String,
    zone: String,
    clusters: Vec<String>,
    dispatchers: Vec<String>,
    server_name: String,
    tls: Option<TlsFiles>,
    max_outstanding: usize,
    max_frame_bytes: usize,
    drain_timeout_ms: u64,
    validate: Vec<String>,
    mutate: Vec<String>,
    initialize: Vec<String>,
    speculate: HashSet<String>,
    unready: HashSet<String>,
}

#[derive(Deserialize)]
struct TlsFiles {
    cert: String,
    key: String,
    ca: String,
}

/// A line of the input.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Command {
    Release { name: String },
    Ready { hook: String },
    Drain,
}

/// What the control channel and the handlers share.
#[derive(Default)]
struct Program {
    /// True once released.
    holds: Mutex<HashMap<String, watch::Sender<bool>>>,
    unready: Mutex<HashSet<String>>,
    drain: Notify,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let result = run().await;
    let error = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
    say(&json!({"event": "ended", "error": error}));
    // The runtime would wait for a read of the standard input, and for handlers that block.
    std::process::exit(i32::from(result.is_err()))
}

async fn run() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("want one argument: the file with the settings")?;
    let settings: Settings = serde_json::from_slice(&std::fs::read(file)?)?;
    let program = Arc::new(Program::default());
    program.unready.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&settings.unready);
    let host = program.host(settings)?;
    tokio::spawn(program.clone().obey());
    let ready = host.clone();
    tokio::spawn(async move {
        ready.ready().await;
        say(&json!({"event": "ready"}));
    });
    let leave = async {
        tokio::select! {
            () = signal::terminated() => {}
            () = program.drain.notified() => {}
        }
    };
    Ok(host.run_until(leave).await?)
}

impl Program {
    fn host(self: &Arc<Self>, s: Settings) -> Result<Host, portcullis_host::Error> {
        let tls = s.tls.map_or_else(Tls::plaintext, |files| Tls::files(files.cert, files.key, files.ca));
        let mut builder = Host::builder(s.name).zone(s.zone).clusters(s.clusters).tls(tls);
        builder = s.dispatchers.into_iter().fold(builder, portcullis_host::Builder::dispatcher);
        if !s.instance.is_empty() {
            builder = builder.instance(s.instance);
        }
        if !s.server_name.is_empty() {
            builder = builder.server_name(s.server_name);
        }
        if s.max_outstanding > 0 {
            builder = builder.max_outstanding(s.max_outstanding);
        }
        if s.max_frame_bytes > 0 {
            builder = builder.max_frame_bytes(s.max_frame_bytes);
        }
        if s.drain_timeout_ms > 0 {
            builder = builder.drain_timeout(Duration::from_millis(s.drain_timeout_ms));
        }
        let handler = || {
            let program = self.clone();
            move |request| script::handle(program.clone(), request)
        };
        let validating = s.validate.into_iter().map(|name| (name.clone(), Hook::validate(name, handler())));
        let mutating = s.mutate.into_iter().map(|name| (name.clone(), Hook::mutate(name, handler())));
        let initializing = s.initialize.into_iter().map(|name| {
            let program = self.clone();
            let initializer = move |object, request| script::initialize(program.clone(), object, request);
            (name.clone(), Hook::initialize(name, initializer))
        });
        for (name, mut hook) in validating.chain(mutating).chain(initializing) {
            if s.speculate.contains(&name) {
                hook = hook.speculate();
            }
            if s.unready.contains(&name) {
                hook = hook.ready_when(self.readiness(name));
            }
            builder = builder.hook(hook);
        }
        builder.build()
    }

    fn readiness(self: &Arc<Self>, hook: String) -> impl Fn() -> std::future::Ready<Result<(), HandlerError>> + use<> {
        let program = self.clone();
        move || {
            let unready = program.unready.lock().unwrap_or_else(PoisonError::into_inner).contains(&hook);
            std::future::ready(if unready { Err(HandlerError::public("not ready")) } else { Ok(()) })
        }
    }

    /// Carries out the commands of the input. The end of the input ends the process.
    async fn obey(self: Arc<Self>) {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(Command::Release { name }) => self.with_hold(&name, |hold| {
                    hold.send_replace(true);
                }),
                Ok(Command::Ready { hook }) => {
                    self.unready.lock().unwrap_or_else(PoisonError::into_inner).remove(&hook);
                }
                Ok(Command::Drain) => self.drain.notify_one(),
                Err(error) => eprintln!("{line}: {error}"),
            }
        }
        std::process::exit(1);
    }

    /// Waits until a name is released.
    async fn held(&self, name: &str) {
        let mut released = self.with_hold(name, watch::Sender::subscribe);
        let _ = released.wait_for(|released| *released).await; // The sender stays.
    }

    fn with_hold<T>(&self, name: &str, f: impl FnOnce(&watch::Sender<bool>) -> T) -> T {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        f(holds.entry(name.to_owned()).or_insert_with(|| watch::Sender::new(false)))
    }
}

/// Prints an event as one line.
fn say(event: &serde_json::Value) {
    println!("{event}");
}
