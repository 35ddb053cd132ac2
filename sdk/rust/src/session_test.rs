//! One session over streams of the test, which decides what is sent and what is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::{self, StreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::proto::host::v1::connect_response::Frame as Reply;
use crate::proto::host::v1::{ConnectResponse, HookCall, Ping, Review, Welcome};
use crate::session::Event;
use crate::{Error, HandlerResult, Host, Request, Stage, Verdict, limits};

async fn allow(_: Request) -> HandlerResult {
    Ok(Verdict::allow())
}

fn frame(frame: Reply) -> ConnectResponse {
    ConnectResponse { frame: Some(frame) }
}

fn welcome() -> ConnectResponse {
    frame(Reply::Welcome(Welcome { protocol: limits::PROTOCOL, silence_ms: 60_000, ..Welcome::default() }))
}

#[tokio::test]
async fn a_session_that_cannot_send_reads_no_more() {
    let host = Host::builder("h").validate("v", allow).build().expect("a host");
    let runner = host.inner().runner().expect("it does not run yet");
    let mut session = host.inner().session(&runner, CancellationToken::new(), |_: &Event| {});
    let (read, (outbound, _unread)) = (AtomicUsize::new(0), mpsc::channel(1));
    let pings = (0..10 * limits::OUTBOX as u64).map(|seq| frame(Reply::Ping(Ping { seq })));
    let inbound = stream::iter(std::iter::once(welcome()).chain(pings)).map(Ok).inspect(|_| {
        read.fetch_add(1, Ordering::Relaxed);
    });
    // Everything is there to be read at once, so that the session stops only where it wants to.
    assert!(futures_util::poll!(std::pin::pin!(session.serve(inbound, outbound))).is_pending());
    assert_eq!(session.state.waiting(), limits::OUTBOX + 1);
    assert!(read.into_inner() <= limits::OUTBOX + 4);
}

#[tokio::test]
async fn a_handler_holds_a_slot_of_the_host_until_it_has_ended() {
    let started = Arc::new(Semaphore::new(0));
    let wait = {
        let started = started.clone();
        move |_: Request| {
            started.add_permits(1);
            std::future::pending()
        }
    };
    let host = Host::builder("h").max_outstanding(2).validate("wait", wait).build().expect("a host");
    let runner = host.inner().runner().expect("it does not run yet");
    let mut session = host.inner().session(&runner, CancellationToken::new(), |_: &Event| {});
    let (name, stage) = ("wait".into(), Stage::Validate.into());
    let hooks = vec![HookCall { name, stage, remaining_ms: 60_000, ..HookCall::default() }];
    let review = Review { call_id: 1, hooks, request: Some(Vec::new().into()), ..Review::default() };
    let inbound = stream::iter([welcome(), frame(Reply::Review(review))]).map(Ok).chain(stream::pending());
    let (outbound, _unread) = mpsc::channel(8);
    tokio::select! {
        ended = session.serve(inbound, outbound) => panic!("{ended:?}"),
        _ = started.acquire() => {}
    }
    assert_eq!(runner.slots.available_permits(), 1);
    drop(session);
    host.inner().handlers_ended().await.expect("the handler was stopped");
    assert_eq!(runner.slots.available_permits(), 2);
}

#[tokio::test(start_paused = true)]
async fn handlers_that_do_not_end_are_an_error_of_the_host() {
    let host = Host::builder("h").validate("v", allow).build().expect("a host");
    let runner = host.inner().runner().expect("it does not run yet");
    let _stubborn = runner.slots.acquire().await.expect("a slot");
    let ended = host.inner().handlers_ended().await;
    assert!(matches!(ended, Err(Error::HandlersRunning)), "{ended:?}");
}
