//! A denial stays one, however it is said and whatever goes with it.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_host::testing::{Answer, FakeDispatcher, create};
use portcullis_host::{Denied, Error, HandlerError, Host, PublicError, Request, Verdict};
use serde_json::Value;

fn assert_forbidden(answer: &Answer) {
    let got = (answer.allowed, answer.message.as_str(), answer.code, answer.reason.as_str());
    assert_eq!(got, (false, "no", 403, "Forbidden"));
}

/// An error with another one as its source.
#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer<E: std::error::Error + 'static>(#[source] E);

/// An error that is its own source. It counts how often it is asked for that: a search without an end must not hang the test.
#[derive(Debug)]
struct Endless;

static ASKED: AtomicUsize = AtomicUsize::new(0);
const TOO_OFTEN: usize = 10_000;

impl std::fmt::Display for Endless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("endless")
    }
}

impl std::error::Error for Endless {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        (ASKED.fetch_add(1, Ordering::Relaxed) < TOO_OFTEN).then_some(self)
    }
}

fn denials() -> [fn() -> HandlerError; 4] {
    [
        || Denied::new("no").into(),
        || Outer(Denied::new("no")).into(),
        || PublicError::new("registry is down").with_cause(Denied::new("no")).into(),
        || HandlerError::internal(Outer(Outer(Denied::new("no")))),
    ]
}

#[tokio::test]
async fn a_denial_as_an_error_is_a_denial_at_every_stage() -> Result<(), Error> {
    let mut builder = Host::builder("h");
    for (i, denial) in denials().into_iter().enumerate() {
        builder = builder
            .validate(format!("v{i}"), move |_: Request| ready(Err(denial())))
            .mutate(format!("m{i}"), move |request: Request| ready(request.try_change(|_: &mut Value| Err(denial()))))
            .initialize(format!("i{i}"), move |_: Value, _: Request| ready(Err(denial())));
    }
    let dispatcher = FakeDispatcher::start(&builder.build()?).await?;
    for hook in (0..denials().len()).flat_map(|i| [format!("v{i}"), format!("m{i}"), format!("i{i}")]) {
        assert_forbidden(&dispatcher.review(&hook, create("{}")).await?);
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn a_denial_carries_what_its_error_says() -> Result<(), Error> {
    let denied = || {
        let denied =
            Denied::new("no").code(422).reason("Invalid").cause("spec", "bad").warning("a").warnings(["b", "c"]);
        denied.audit("key", "value")
    };
    let host = Host::builder("h").validate("v", move |_: Request| ready(Err(Outer(denied()).into()))).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let answer = dispatcher.review("v", create("{}")).await?;
    assert_eq!((answer.allowed, answer.code, answer.reason.as_str()), (false, 422, "Invalid"));
    assert_eq!((answer.message.as_str(), answer.causes), ("no", vec![("spec".to_owned(), "bad".to_owned())]));
    assert_eq!((answer.warnings, answer.audit["key"].as_str()), (["a", "b", "c"].map(str::to_owned).into(), "value"));
    dispatcher.stop().await
}

#[tokio::test]
async fn an_error_that_is_no_denial_stays_a_failure() -> Result<(), Error> {
    assert_eq!(Denied::try_from(Verdict::allow()).expect_err("it allows"), Verdict::allow());
    let host = Host::builder("h")
        .validate("v", async |_: Request| Err(HandlerError::public("denied: no")))
        .validate("endless", async |_: Request| Err(Endless.into()))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    for (hook, text) in [("v", "denied: no"), ("endless", "handler failed")] {
        let error = dispatcher.review(hook, create("{}")).await.expect_err("no verdict").to_string();
        assert!(error.contains(text), "{error}");
    }
    assert!(ASKED.load(Ordering::Relaxed) < TOO_OFTEN, "the search of sources has no end");
    dispatcher.stop().await
}

/// A denial that the public API can build, by chance: also one whose parts cannot be sent.
fn any_denial(random: &mut fastrand::Rng) -> Denied {
    let texts = ["", "no", "\0", "\u{fffd}\u{1f6a2}\r\n", "x/y", &"w".repeat(1 << 20)].map(str::to_owned);
    let text = |random: &mut fastrand::Rng| texts[random.choice([0, 1, 2, 3, 4, 5]).unwrap_or_default()].clone();
    let mut denial = Denied::new(text(random));
    for _ in 0..random.usize(..8) {
        denial = match random.u8(..7) {
            0 => denial.code(random.u16(..)),
            1 => denial.reason(text(random)),
            2 => denial.cause(text(random), text(random)),
            3 => denial.audit(text(random), text(random)),
            4 => denial.warning(text(random)),
            5 => denial.warnings((0..random.usize(..5000)).map(|i| i.to_string())),
            _ => (0..random.usize(..5000)).fold(denial, |denial, i| denial.cause("f", i.to_string())),
        };
    }
    denial
}

#[tokio::test]
async fn whatever_goes_with_a_denial_it_stays_one() -> Result<(), Error> {
    let seed = fastrand::u64(..);
    let randoms = || Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
    let (one, two, three) = (randoms(), randoms(), randoms());
    let next = |random: &Mutex<fastrand::Rng>| any_denial(&mut random.lock().unwrap_or_else(PoisonError::into_inner));
    let host = Host::builder("h")
        .validate("v", move |_: Request| ready(Err(next(&one).into())))
        .mutate("m", move |_: Request| ready(Err(Outer(next(&two)).into())))
        .initialize("i", move |_: Value, _: Request| ready(Err(next(&three).into())))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    for _ in 0..50 {
        for hook in ["v", "m", "i"] {
            let verdict = dispatcher.review(hook, create("{}")).await?;
            let items = verdict.causes.len() + verdict.warnings.len() + verdict.audit.len();
            assert!(!verdict.allowed && (400..600).contains(&verdict.code) && items <= 4096, "seed {seed}: {hook}");
        }
    }
    dispatcher.stop().await
}
