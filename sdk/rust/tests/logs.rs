//! What the log says of the calls of handlers.

mod log;

use std::future::ready;
use std::sync::atomic::Ordering;
use std::time::Duration;

use portcullis_host::testing::{Answer, FakeDispatcher, create};
use portcullis_host::{Denied, Error, HandlerError, Host, PublicError, Request, Verdict};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::log::Log;

/// Held by each test, since one of them breaks the log.
static ALONE: Mutex<()> = Mutex::const_new(());

fn assert_forbidden(answer: &Answer) {
    let got = (answer.allowed, answer.message.as_str(), answer.code, answer.reason.as_str());
    assert_eq!(got, (false, "no", 403, "Forbidden"));
}

fn foreign() -> Verdict {
    Verdict::deny("no").code(u16::MAX)
}

#[tokio::test]
async fn a_foreign_code_becomes_403_and_is_logged_once_a_second_also_by_a_log_that_panics() -> Result<(), Error> {
    let (_alone, log) = (ALONE.lock().await, Log::get());
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
    for hook in ["v", "i", "broken"] {
        let lines: Vec<_> =
            log.with(&format!("hook=\"{hook}\"")).into_iter().filter(|line| line.contains("ERROR")).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        for want in ["a part of the verdict cannot be sent", "code 65535"] {
            assert!(lines[0].contains(want), "{lines:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_verdict_of_too_many_parts_is_logged() -> Result<(), Error> {
    let (_alone, log) = (ALONE.lock().await, Log::get());
    let all = || Verdict::deny("no").warnings((0..3000).map(|_| "w")).audit("a", "b").cause("f", "m");
    let host = Host::builder("h")
        .validate("fits", move |_: Request| ready(Ok(all())))
        .validate("too many", move |_: Request| ready(Ok(all().warnings((0..1095).map(|_| "w")))))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    for (hook, warnings, annotations, lines) in [("fits", 3000, 1, 0), ("too many", 4095, 0, 1)] {
        let answer = dispatcher.review(hook, create("{}")).await?;
        assert_eq!((answer.causes.len(), answer.warnings.len(), answer.audit.len()), (1, warnings, annotations));
        let logged = log.with(&format!("hook=\"{hook}\" stage=\"validate\" cluster=\"testing\""));
        assert_eq!(logged.len(), lines, "{logged:?}");
        assert!(logged.iter().all(|line| line.contains("4097 causes, warnings and annotations: 4096 are sent")));
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn why_a_handler_failed_is_logged_with_all_its_causes() -> Result<(), Error> {
    let (_alone, log) = (ALONE.lock().await, Log::get());
    let host = Host::builder("h")
        .validate("fails", async |_: Request| {
            Err(PublicError::new("no registry").with_cause("connection refused").into())
        })
        .validate("panics", async |_: Request| panic!("index out of bounds"))
        .validate("late", async |request: Request| {
            std::thread::sleep(request.remaining()); // It does not notice that its time is over.
            Err(HandlerError::public("nobody waits for this"))
        })
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let error = "error=\"no registry: connection refused\"";
    for (hook, lines, error) in
        [("fails", 1, error), ("panics", 1, "error=\"panic: index out of bounds\""), ("late", 0, "")]
    {
        dispatcher.ask(hook, create("{}"), Duration::from_millis(if lines == 0 { 20 } else { 9000 })).await?;
        let logged = log.with(&format!("handler failed hook=\"{hook}\" stage=\"validate\" cluster=\"testing\""));
        assert_eq!(logged.len(), lines, "{logged:?}");
        assert!(logged.iter().all(|line| line.contains(error)), "{logged:?}");
    }
    dispatcher.stop().await
}
