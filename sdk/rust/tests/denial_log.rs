//! What the log says of a denial. Alone in its process, since the subscriber is global.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_host::testing::{Answer, FakeDispatcher, create};
use portcullis_host::{Denied, Error, Host, Request, Verdict};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A log, which may have a defect.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    broken: AtomicBool,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

struct Shared(Arc<Log>);

impl Subscriber for Shared {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
        assert!(!self.0.broken.load(Ordering::Relaxed), "the disk is full");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn assert_forbidden(answer: &Answer) {
    let got = (answer.allowed, answer.message.as_str(), answer.code, answer.reason.as_str());
    assert_eq!(got, (false, "no", 403, "Forbidden"));
}

fn foreign() -> Verdict {
    Verdict::deny("no").code(u16::MAX)
}

#[tokio::test]
async fn a_foreign_code_becomes_403_and_is_logged_once_a_second_also_by_a_log_that_panics() -> Result<(), Error> {
    let log = Arc::new(Log::default());
    tracing::subscriber::set_global_default(Shared(log.clone())).expect("the first one");
    let host = Host::builder("h")
        .validate("v", async |_: Request| Ok(foreign()))
        .mutate("broken", async |_: Request| Ok(foreign()))
        .initialize("i", async |_: Value, _: Request| Err(Denied::try_from(foreign()).expect("a denial").into()))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    for hook in ["v", "v", "v", "i"] {
        assert_forbidden(&dispatcher.review(hook, create("{}")).await?);
    }
    log.broken.store(true, Ordering::Relaxed);
    assert_forbidden(&dispatcher.review("broken", create("{}")).await?);
    log.broken.store(false, Ordering::Relaxed);
    dispatcher.stop().await?;
    let lines = log.lines.lock().unwrap_or_else(PoisonError::into_inner);
    for hook in ["v", "i", "broken"] {
        let named = format!("hook=\"{hook}\"");
        let of_hook: Vec<&String> = lines.iter().filter(|line| line.contains(&named)).collect();
        assert_eq!(of_hook.len(), 1, "{lines:?}");
        for want in ["a part of the verdict cannot be sent", "code 65535"] {
            assert!(of_hook[0].contains(want), "{lines:?}");
        }
    }
    Ok(())
}
