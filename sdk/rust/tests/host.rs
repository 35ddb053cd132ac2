//! What a host does for its author, over a stream in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_host::proto::admission::v1::{AdmissionRequest, ExtraValue, Object};
use portcullis_host::proto::host::v1::verdict::Outcome;
use portcullis_host::proto::host::v1::{HandlerError as Failed, HookCall, Review, Welcome};
use portcullis_host::testing::{FakeDispatcher, create, delete, handler_request, update};
use portcullis_host::{Denied, Error, HandlerError, HandlerResult, Hook, Host, Request, Stage, Verdict};
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"n": 1.50}})
}

async fn allow(_: Request) -> HandlerResult {
    Ok(Verdict::allow())
}

fn call(name: &str, remaining_ms: u32) -> HookCall {
    HookCall { name: name.into(), stage: Stage::Validate.into(), remaining_ms, ..HookCall::default() }
}

#[tokio::test]
async fn a_handler_sees_the_request_and_raw_bytes() -> Result<(), Error> {
    let spelled = r#"{"metadata": {"name":"web"},  "big": 1.50, "é": 18446744073709551616}"#;
    let host = Host::builder("h")
        .validate("v", async move |request: Request| {
            assert_eq!(request.raw_object().map(|b| &b[..]), Some(spelled.as_bytes()));
            assert_eq!(request.raw_old_object().map(|b| &b[..]), Some(&b"{}"[..]));
            assert_eq!((request.operation(), request.cluster(), request.name()), ("UPDATE", "testing", "web"));
            assert_eq!((request.hook(), request.stage(), request.round()), ("v", Stage::Validate, 0));
            assert_eq!((request.username(), request.is_dry_run()), ("testing", true));
            assert!(request.remaining() > Duration::from_secs(8) && request.deadline() > Instant::now());
            let object: Value = request.object()?.expect("an object");
            Ok(Verdict::allow().audit("name", object["metadata"]["name"].to_string()).warning("careful"))
        })
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let request = AdmissionRequest { dry_run: Some(true), ..update("{}", spelled) };
    let verdict = dispatcher.review("v", request).await?;
    assert!(verdict.allowed);
    assert_eq!((verdict.audit["name"].as_str(), &verdict.warnings[..]), ("\"web\"", &["careful".into()][..]));
    dispatcher.stop().await
}

#[tokio::test]
async fn a_mutating_handler_edits_the_object_in_place() -> Result<(), Error> {
    let host = Host::builder("h")
        .hook(
            Hook::mutate("m", async |request: Request| {
                request.change(|pod: &mut Value| pod["metadata"]["labels"]["team"] = request.namespace().into())
            })
            .speculate(),
        )
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    assert!(dispatcher.hello().hooks[0].speculate);
    let verdict = dispatcher.review("m", create(pod())).await?;
    assert_eq!(json!(verdict.patch), json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "shop"}}]));
    assert!(dispatcher.review("m", delete(pod())).await?.patch.is_empty());
    let request = handler_request("m", Stage::Mutate, &delete(pod()));
    let error = Verdict::difference(&request, &pod()).expect_err("there is no object");
    assert!(format!("{error:?}").contains("the request has no object to be changed"), "{error:?}");
    dispatcher.stop().await
}

#[tokio::test]
async fn a_request_says_what_its_call_says() -> Result<(), Error> {
    let host = Host::builder("h")
        .validate("v", async |request: Request| {
            let parent = request.traceparent().unwrap_or_default();
            let (configuration, round, state) = (request.configuration(), request.round(), request.tracestate());
            Ok(Verdict::deny(format!("{configuration} {round} {state} {parent}")))
        })
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let (trace, span, own) = ("11".repeat(16), "22".repeat(8), "33".repeat(8));
    let asked = HookCall { configuration: "c".into(), round: 1, span_id: vec![0x33; 8].into(), ..call("v", 9000) };
    let review = Review {
        hooks: vec![asked],
        request: Some(create(pod()).encode_to_vec().into()),
        traceparent: format!("00-{trace}-{span}-01"),
        tracestate: "k=v".into(),
        ..Review::default()
    };
    let verdict = dispatcher.post_review(review).await?.wait().await?.remove(0);
    let Some(Outcome::Response(response)) = verdict.outcome else { panic!("{verdict:?}") };
    assert_eq!(response.status.unwrap_or_default().message, format!("c 1 k=v 00-{trace}-{own}-01"));
    dispatcher.stop().await
}

#[tokio::test]
async fn a_request_names_its_kind_its_resource_its_user_and_its_objects() -> Result<(), Error> {
    async fn judge(request: Request) -> HandlerResult {
        let (kind, resource) = (request.kind(), request.resource());
        assert_eq!((kind.group, kind.version, kind.kind), ("", "v1", "Pod"));
        assert_eq!((resource.group, resource.version, resource.resource), ("", "v1", "pods"));
        assert_eq!((request.subresource(), request.user_uid(), request.uid().len()), ("status", "7", 36));
        assert_eq!((request.configuration(), request.tracestate(), request.traceparent()), ("testing", "", None));
        assert_eq!(request.groups(), ["system:authenticated"]);
        assert_eq!(request.raw_old_object().is_some(), ["UPDATE", "DELETE"].contains(&request.operation()));
        assert_eq!(request.extra().collect::<Vec<_>>(), [("scopes", &["a".to_owned()][..])]);
        assert_eq!(request.options::<Value>()?.expect("options")["kind"], "Options");
        Ok(Verdict::allow().audit("objects", format!("{:?}", request.objects::<Small>()?)))
    }
    let host = Host::builder("h").validate("v", judge).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let (one, two) = (pod(), json!({"apiVersion": "v1", "kind": "Pod", "spec": {"n": 2}}));
    let connect = AdmissionRequest { operation: "CONNECT".into(), ..create(&one) };
    for (mut request, objects) in [
        (create(&one), "Create(1.5)"),
        (update(&one, &two), "Update { old: 1.5, new: 2.0 }"),
        (delete(&one), "Delete(1.5)"),
        (connect, "Connect(1.5)"),
    ] {
        let raw = Object { raw: "{\"kind\":\"Options\"}".into(), ..Object::default() };
        request.options = Some(raw);
        request.sub_resource = "status".into();
        let user = request.user_info.as_mut().expect("a user");
        user.uid = "7".into();
        user.extra.insert("scopes".into(), ExtraValue { items: vec!["a".into()] });
        assert_eq!(dispatcher.review("v", request).await?.audit["objects"], objects);
    }
    let without = AdmissionRequest { object: None, ..create(&one) };
    let ended = dispatcher.ask("v", without, Duration::from_secs(5)).await?;
    assert!(matches!(ended.outcome, Some(Outcome::Error(_))), "{ended:?}");
    dispatcher.stop().await
}

#[tokio::test]
async fn each_operation_has_a_handler_of_its_own_and_the_others_are_allowed() -> Result<(), Error> {
    async fn created(Small(n): Small, request: Request) -> HandlerResult {
        Ok(Verdict::deny(format!("{} {n}", request.operation())))
    }
    let host = Host::builder("h")
        .hook(
            Hook::validator("v")
                .create(created)
                .update(async |Small(old): Small, Small(new): Small, request: Request| {
                    Ok(Verdict::deny(format!("{} {old} {new}", request.operation())))
                })
                .delete(created),
        )
        .hook(Hook::mutator("m").create(async |mut pod: Named, request: Request| {
            pod.metadata.labels = Some(json!({"team": request.namespace()}));
            Verdict::difference(&request, &pod)
        }))
        .hook(Hook::validate("rest", async |_| Ok(Verdict::deny("rest"))).delete(created))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let (one, two) = (pod(), json!({"spec": {"n": 2}}));
    let connect = AdmissionRequest { operation: "CONNECT".into(), ..create(&one) };
    for (hook, request, message) in [
        ("v", create(&one), "CREATE 1.5"),
        ("v", update(&one, &two), "UPDATE 1.5 2"),
        ("v", delete(&one), "DELETE 1.5"),
        ("v", connect.clone(), ""),
        ("m", update(&one, &two), ""),
        ("m", delete(&one), ""),
        ("rest", create(&one), "rest"),
        ("rest", connect, "rest"),
        ("rest", delete(&one), "DELETE 1.5"),
    ] {
        let answer = dispatcher.review(hook, request).await?;
        assert_eq!((answer.allowed, answer.message.as_str(), answer.patch.len()), (message.is_empty(), message, 0));
    }
    let answer = dispatcher.review("m", create(&one)).await?;
    assert_eq!(json!(answer.patch), json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "shop"}}]));
    for (request, why) in [
        (AdmissionRequest { object: None, ..create(&one) }, "the request to CREATE has no object"),
        (AdmissionRequest { object: None, ..update(&one, &two) }, "the request to UPDATE has no object"),
        (AdmissionRequest { old_object: None, ..update(&one, &two) }, "the request to UPDATE has no old object"),
        (AdmissionRequest { old_object: None, ..delete(&one) }, "the request to DELETE has no old object"),
        (create("{}"), "the object cannot be decoded as host::Small"),
    ] {
        let ended = dispatcher.ask("v", request, Duration::from_secs(5)).await?;
        assert!(matches!(&ended.outcome, Some(Outcome::Error(e)) if e.message == why), "{why}: {ended:?}");
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn a_host_introduces_itself_and_runs_once() -> Result<(), Error> {
    let host = Host::builder("h").validate("v", allow).zone("z1").instance("i1").cluster("a").clusters(["b", "c"]);
    let host = host.max_outstanding(3).max_frame_bytes(1 << 20).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let hello = dispatcher.hello();
    assert_eq!((hello.host.as_str(), hello.zone.as_str(), hello.instance.as_str()), ("h", "z1", "i1"));
    assert_eq!((hello.max_outstanding, hello.max_frame_bytes), (3, 1 << 20));
    assert_eq!(hello.clusters, ["a", "b", "c"]);
    let again = FakeDispatcher::start(&host).await.expect_err("it runs").to_string();
    assert_eq!(again, "the host runs already, or has run");
    dispatcher.stop().await
}

#[tokio::test]
async fn a_request_says_why_it_is_asked() -> Result<(), Error> {
    let host = Host::builder("h")
        .validate("v", async |request: Request| Ok(Verdict::deny(request.mode().as_str())))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let calls = [0, 1, 2, 3, 4, 77, -1].map(|mode| HookCall { mode, ..call("v", 9000) });
    let mut said = Vec::new();
    for verdict in dispatcher.post(create(pod()), calls.to_vec()).await?.wait().await? {
        let Some(Outcome::Response(response)) = verdict.outcome else { panic!("{verdict:?}") };
        said.push(response.status.unwrap_or_default().message);
    }
    assert_eq!(said, ["unspecified", "decide", "speculative", "hedge", "shadow", "unspecified", "unspecified"]);
    dispatcher.stop().await
}

/// What a Pod says in `spec.n`.
struct Small(f64);

impl<'de> serde::Deserialize<'de> for Small {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        object["spec"]["n"].as_f64().map(Self).ok_or_else(|| serde::de::Error::custom("no spec.n"))
    }
}

impl std::fmt::Debug for Small {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A type that knows few members.
#[derive(Clone, serde::Deserialize, serde::Serialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Clone, serde::Deserialize, serde::Serialize)]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Value>,
}

#[tokio::test]
async fn an_initializer_patches_by_what_it_makes_of_the_object() -> Result<(), Error> {
    let host = Host::builder("h")
        .initialize("typed", async |mut pod: Named, request: Request| {
            assert_eq!((request.stage(), request.username()), (Stage::Initialize, "testing"));
            pod.metadata.labels = Some(json!({"team": request.namespace()}));
            Ok(pod)
        })
        .initialize("value", async |mut pod: Value, _: Request| {
            pod["x"] = 1.into();
            Ok(pod)
        })
        .initialize("same", async |pod: Value, _: Request| Ok(pod))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    assert!(dispatcher.hello().hooks.iter().all(|offer| offer.stage == i32::from(Stage::Initialize)));
    for (hook, want) in [
        ("typed", r#"[{"op":"add","path":"/metadata/labels","value":{"team":"shop"}}]"#),
        ("value", r#"[{"op":"add","path":"/x","value":1}]"#),
        ("same", "[]"),
    ] {
        let verdict = dispatcher.review(hook, create(pod())).await?;
        assert_eq!((verdict.allowed, json!(verdict.patch).to_string().as_str()), (true, want), "{hook}");
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn an_initializer_refuses_or_fails() -> Result<(), Error> {
    #[derive(Debug, thiserror::Error)]
    #[error("wrapped")]
    struct Wrapped(#[source] Denied);
    let host = Host::builder("h")
        .initialize("refuses", async |_: Value, _: Request| Err(Denied::new("no").into()))
        .initialize("says all", async |_: Value, _: Request| {
            Err(Wrapped(Denied::new("no").code(422).reason("Invalid").cause("spec", "bad")).into())
        })
        .initialize("fails", async |_: Value, _: Request| Err(HandlerError::internal("hunter2")))
        .initialize("is down", async |_: Value, _: Request| Err(HandlerError::public("registry is down")))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let plain = dispatcher.review("refuses", create(pod())).await?;
    assert_eq!((plain.allowed, plain.message.as_str(), plain.code), (false, "no", 403));
    assert_eq!((plain.reason.as_str(), plain.object), ("Forbidden", None));
    let full = dispatcher.review("says all", create(pod())).await?;
    assert_eq!((full.allowed, full.code, full.causes[0].0.as_str()), (false, 422, "spec"));
    for (hook, object, want) in [
        ("fails", create(pod()), "handler failed"),
        ("is down", create(pod()), "registry is down"),
        ("fails", delete(pod()), "the request has no object to be initialized: it creates none"),
    ] {
        let ended = dispatcher.ask(hook, object, Duration::from_secs(5)).await?;
        assert!(matches!(&ended.outcome, Some(Outcome::Error(e)) if e.message == want), "{hook}: {ended:?}");
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn a_stage_that_is_not_offered_is_refused() -> Result<(), Error> {
    let same = async |pod: Value, _: Request| Ok(pod);
    let ready = || async { Err(HandlerError::public("the cache is empty")) };
    let host = Host::builder("h").hook(Hook::initialize("i", same).ready_when(ready)).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    assert_eq!(dispatcher.probe("i").await?.message, "the cache is empty");
    let calls = [0, 1, 2, 4, 77, -1].map(|stage| HookCall { stage, ..call("i", 9000) });
    for verdict in dispatcher.post(create(pod()), calls.to_vec()).await?.wait().await? {
        assert!(matches!(&verdict.outcome, Some(Outcome::Refused(r)) if r.reason == "unknown hook"), "{verdict:?}");
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn an_object_of_another_kind_is_a_failure_that_says_so() -> Result<(), Error> {
    let host = Host::builder("h")
        .validate("v", async |request: Request| {
            request.object::<Vec<u8>>()?;
            Ok(Verdict::allow())
        })
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let ended = dispatcher.ask("v", create(pod()), Duration::from_secs(5)).await?;
    assert!(matches!(ended.outcome, Some(Outcome::Error(e)) if e.message.contains("the object cannot be decoded")));
    dispatcher.stop().await
}

#[tokio::test]
async fn a_panic_costs_its_own_call_alone() -> Result<(), Error> {
    let host = Host::builder("h")
        .validate("panic", async |_: Request| panic!("password is hunter2"))
        .validate("fail", async |_: Request| Err(HandlerError::internal("password is hunter2")))
        .validate("allow", allow)
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let names = ["panic", "fail", "allow"].map(|name| call(name, 9000));
    let verdicts = dispatcher.post(create(pod()), names.to_vec()).await?.wait().await?;
    let failed = |message: &str, panicked| Some(Outcome::Error(Failed { message: message.into(), panicked }));
    assert_eq!(verdicts[0].outcome, failed("handler panicked", true));
    assert_eq!(verdicts[1].outcome, failed("handler failed", false));
    assert!(matches!(&verdicts[2].outcome, Some(Outcome::Response(r)) if r.allowed));
    dispatcher.stop().await
}

/// Sets a flag when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn never(_: Request) -> HandlerResult {
    std::future::pending().await
}

#[tokio::test]
async fn the_future_of_a_handler_is_dropped_on_cancel_and_at_its_deadline() -> Result<(), Error> {
    let (started, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let host = {
        let (started, dropped) = (started.clone(), dropped.clone());
        Host::builder("h")
            .validate("wait", move |_: Request| {
                let (started, dropped) = (started.clone(), Dropped(dropped.clone()));
                async move {
                    let _dropped = dropped;
                    started.add_permits(1);
                    std::future::pending().await
                }
            })
            .build()?
    };
    let dispatcher = FakeDispatcher::start(&host).await?;
    let waiting = dispatcher.post(create(pod()), vec![call("wait", 60_000)]).await?;
    started.acquire().await.expect("it is open").forget();
    waiting.cancel(&[]).await?;
    let verdict = waiting.wait().await?.remove(0);
    assert!(matches!(verdict.outcome, Some(Outcome::Cancelled(_))), "{verdict:?}");
    dropped.notified().await;

    let ended = dispatcher.ask("wait", create(pod()), Duration::from_millis(20)).await?;
    assert!(matches!(ended.outcome, Some(Outcome::Cancelled(_))), "{ended:?}");
    assert!(ended.handle_us >= 15_000, "{ended:?}");
    dropped.notified().await;
    dispatcher.stop().await
}

#[tokio::test]
async fn a_handler_that_blocks_delays_no_ping() -> Result<(), Error> {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let (entered_tx, entered) = tokio::sync::oneshot::channel();
    let entered_tx = std::sync::Mutex::new(Some(entered_tx));
    let host = Host::builder("h")
        .validate("block", move |_: Request| {
            let blocked = blocked.clone();
            let entered = entered_tx.lock().expect("unpoisoned").take();
            async move {
                entered.map(|entered| entered.send(()));
                let released = tokio::task::spawn_blocking(move || blocked.lock().expect("unpoisoned").recv().is_ok());
                Ok(if released.await? { Verdict::allow() } else { Verdict::deny("no") })
            }
        })
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let call = dispatcher.post(create(pod()), vec![call("block", 60_000)]).await?;
    entered.await.expect("called");
    dispatcher.ping().await?;
    release.send(()).expect("it waits");
    assert!(matches!(&call.wait().await?[0].outcome, Some(Outcome::Response(r)) if r.allowed));
    dispatcher.stop().await
}

#[tokio::test]
async fn no_more_handlers_run_than_the_host_takes() -> Result<(), Error> {
    let host = Host::builder("h").max_outstanding(2).validate("wait", never).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    assert_eq!(dispatcher.credit(), 2);
    let calls = vec![call("wait", 50), call("wait", 50), call("wait", 50)];
    let verdicts = dispatcher.post(create(pod()), calls).await?.wait().await?;
    assert!(matches!(&verdicts[2].outcome, Some(Outcome::Refused(r)) if r.reason == "overloaded"));
    assert!(verdicts[..2].iter().all(|verdict| matches!(verdict.outcome, Some(Outcome::Cancelled(_)))));
    dispatcher.stop().await
}

#[tokio::test]
async fn a_host_that_drains_finishes_what_runs_and_refuses_the_rest() -> Result<(), Error> {
    let (started, release) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let host = {
        let (started, release) = (started.clone(), release.clone());
        Host::builder("h")
            .validate("wait", move |_: Request| {
                let (started, release) = (started.clone(), release.clone());
                async move {
                    started.add_permits(1);
                    release.notified().await;
                    Ok(Verdict::allow())
                }
            })
            .build()?
    };
    let dispatcher = FakeDispatcher::start(&host).await?;
    let running = dispatcher.post(create(pod()), vec![call("wait", 60_000)]).await?;
    started.acquire().await.expect("it is open").forget();
    assert_eq!(dispatcher.drain().await?.last_started_call_id, 1);
    let late = dispatcher.post(create(pod()), vec![call("wait", 60_000)]).await?.wait().await?;
    assert!(matches!(&late[0].outcome, Some(Outcome::Refused(r)) if r.reason == "draining"));
    release.notify_one();
    assert!(matches!(&running.wait().await?[0].outcome, Some(Outcome::Response(r)) if r.allowed));
    dispatcher.stop().await
}

#[tokio::test]
async fn calls_that_outlast_the_time_to_drain_are_cut_off() -> Result<(), Error> {
    let host = Host::builder("h").drain_timeout(Duration::from_millis(10)).validate("wait", never).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let _running = dispatcher.post(create(pod()), vec![call("wait", 60_000)]).await?;
    dispatcher.ping().await?;
    let ended = dispatcher.stop().await;
    assert!(matches!(&ended, Err(Error::Testing(text)) if text.contains("time to drain")), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn a_hook_is_ready_when_its_probe_says_so() -> Result<(), Error> {
    let host = Host::builder("h")
        .validate("ready", allow)
        .hook(Hook::validate("empty", allow).ready_when(async || Err(HandlerError::public("cache is empty"))))
        .hook(Hook::validate("secret", allow).ready_when(async || Err(HandlerError::internal("hunter2"))))
        .hook(Hook::validate("panic", allow).ready_when(async || panic!("hunter2")))
        .hook(Hook::validate("both", allow))
        .hook(Hook::mutate("both", allow).ready_when(async || Err(HandlerError::public("not to mutate"))))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let want = [
        ("ready", ""),
        ("empty", "cache is empty"),
        ("secret", "the hook is not ready"),
        ("panic", "the probe panicked"),
        ("both", "not to mutate"),
        ("none", "unknown hook"),
    ];
    for (hook, why) in want {
        let result = dispatcher.probe(hook).await?;
        assert_eq!((result.message.as_str(), result.ready), (why, why.is_empty()), "{hook}");
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn large_reviews_come_in_chunks_and_many_verdicts_together() -> Result<(), Error> {
    let host = Host::builder("h")
        .max_outstanding(200)
        .validate("size", async |request: Request| {
            let size = request.raw_object().map_or(0, bytes::Bytes::len);
            Ok(Verdict::allow().audit("size", size.to_string()))
        })
        .build()?;
    let welcome = Welcome { capabilities: vec!["batches".into()], ..Welcome::default() };
    let dispatcher = FakeDispatcher::start_with(&host, welcome).await?;
    let large = json!({"data": "x".repeat(3 << 20)}).to_string();
    let verdict = dispatcher.review("size", create(&large)).await?;
    assert_eq!(verdict.audit["size"], large.len().to_string());
    let calls = (0..200).map(|_| call("size", 9000)).collect();
    let verdicts = dispatcher.post(create(pod()), calls).await?.wait().await?;
    assert!(verdicts.iter().all(|verdict| matches!(verdict.outcome, Some(Outcome::Response(_)))));
    dispatcher.stop().await
}

#[tokio::test]
async fn a_request_that_cannot_be_decoded_fails_its_own_calls() -> Result<(), Error> {
    let host = Host::builder("h").validate("allow", allow).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let review = Review {
        hooks: vec![call("allow", 9000)],
        request: Some(bytes::Bytes::from_static(b"\xff\xff nonsense")),
        ..Review::default()
    };
    let verdict = dispatcher.post_review(review).await?.wait().await?.remove(0);
    assert!(matches!(verdict.outcome, Some(Outcome::Error(e)) if e.message.contains("cannot be decoded")));
    assert!(dispatcher.review("allow", create(pod())).await?.allowed);
    dispatcher.stop().await
}

#[tokio::test]
async fn a_host_that_is_set_up_wrongly_says_how() {
    let built = |builder: portcullis_host::Builder| builder.build().map(drop).unwrap_err().to_string();
    let host = || Host::builder("h").validate("v", allow);
    assert!(built(Host::builder("")).contains("no name"));
    assert!(built(Host::builder("h")).contains("no hooks"));
    assert!(built(host().validate("v", allow)).contains("registered twice to validate"));
    assert!(built(host().validate("", allow)).contains("no name"));
    assert!(built(host().dispatcher("mesh.example")).contains("want host:port"));
    assert!(built(host().dispatcher("mesh.example:8444")).contains("no certificates"));
    for wrong in [host().max_outstanding(0), host().max_frame_bytes(0), host().max_frame_bytes(1 << 31)] {
        assert!(built(wrong).contains("limit"));
    }
    assert!(built(host().drain_timeout(Duration::ZERO)).contains("the time to drain is 0"));
    assert!(built(host().hook(Hook::mutator("m"))).contains("hook \"m\" has no handler"));
    let twice = |hook: Hook| hook.create(async |_: Value, _| Ok(Verdict::allow()));
    assert!(built(host().hook(twice(twice(Hook::validator("w"))))).contains("hook \"w\" has two handlers of CREATE"));
    let many = (0..1025).fold(Host::builder("h"), |b, i| b.validate(format!("v{i}"), allow));
    assert!(built(many).contains("more than 1024"));
    let idle = host().build().expect("a host");
    assert!(idle.run_until(std::future::ready(())).await.unwrap_err().to_string().contains("no dispatchers"));
}

#[tokio::test]
async fn a_host_is_ready_once_its_hooks_are_in_rotation() -> Result<(), Error> {
    let host = Host::builder("h").validate("v", allow).mutate("v", allow).build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    host.ready().await;
    let status = host.status();
    assert_eq!((status.sessions[0].dispatcher.as_str(), status.sessions[0].hooks.len()), ("testing", 2));
    dispatcher.stop().await?;
    assert!(host.status().sessions.is_empty());
    Ok(())
}
