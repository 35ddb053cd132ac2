//! Tables of cases, which all languages play.

use portcullis_host::testing::{FakeDispatcher, create};
use portcullis_host::{Error, Host, Request, Verdict};
use serde_json::{Value, json};

#[tokio::test]
async fn cases_that_fail_are_named() -> Result<(), Error> {
    let host = Host::builder("h")
        .validate("v", async |_: Request| Ok(Verdict::deny("no way").code(409).reason("R").cause("f", "m")))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let table = "
- {name: right, object: {a: 1}, expect: {allowed: false, code: 409, reason: R, message: way, causes: [{field: f, message: m}]}}
- {name: decision, object: {a: 1}, expect: {allowed: true}}
- {name: code, object: {a: 1}, expect: {allowed: false, code: 403}}
- {name: message, object: {a: 1}, expect: {allowed: false, message: yes}}
- {name: reason, object: {a: 1}, expect: {allowed: false, reason: Forbidden}}
- {name: causes, object: {a: 1}, expect: {allowed: false, causes: []}}
- {name: request, operation: DELETE, object: {a: 1}, expect: {allowed: false}}
- {name: hook, hook: none, object: {a: 1}, expect: {allowed: false}}
";
    let error = dispatcher.play(table).await.expect_err("cases fail").to_string();
    assert!(error.starts_with("7 of 8 cases failed: decision: "), "{error}");
    for part in [
        "code: code is 409, not 403",
        "message: message is",
        "reason: reason is",
        "causes: causes is",
        "oldObject is missing",
        "the host offers hook none",
    ] {
        assert!(error.contains(part), "{error}");
    }
    for wrong in ["[]", "{}", "- {name: a, object: {}, expect: {allowed: true, colour: red}}"] {
        assert!(dispatcher.play(wrong).await.is_err(), "{wrong}");
    }
    dispatcher.stop().await
}

#[tokio::test]
async fn an_answer_has_the_patched_object() -> Result<(), Error> {
    let host = Host::builder("h")
        .mutate("m", async |request: Request| {
            request.change(|pod: &mut Value| pod["metadata"]["labels"]["a"] = "b".into())
        })
        .mutate("wrong", async |_: Request| Ok(Verdict::patch(&json!([{"op": "remove", "path": "/none"}]))?))
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let answer = dispatcher.review("m", create(json!({"metadata": {"name": "web"}}))).await?;
    assert_eq!(answer.object, Some(json!({"metadata": {"name": "web", "labels": {"a": "b"}}})));
    assert_eq!(answer.patch, [json!({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}})]);
    let error = dispatcher.review("wrong", create("{}")).await.expect_err("it does not fit");
    assert!(error.to_string().contains("the patch does not fit"), "{error}");
    let nameless = "- {name: n, object: {}, expect: {allowed: true}}";
    let error = dispatcher.play(nameless).await.expect_err("which hook?").to_string();
    assert!(error.contains("the host has several hooks"), "{error}");
    dispatcher.stop().await
}

#[tokio::test]
async fn a_case_says_who_asks_and_compares_each_part_of_the_verdict() -> Result<(), Error> {
    let host = Host::builder("h")
        .mutate("m", async |request: Request| {
            let who = format!("{} of {} in {}", request.username(), request.groups().join(","), request.namespace());
            let old: Option<Value> = request.old_object()?;
            let verdict = request.change(|object: &mut Value| object["b"] = 2.into())?;
            Ok(verdict.warning(who).audit("old", old.unwrap_or_default().to_string()))
        })
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let table = r#"
- name: create
  user: {name: jane, groups: [dev, ops]}
  namespace: shop
  object: {a: 1}
  expect:
    allowed: true
    warnings: ["jane of dev,ops in shop"]
    audit: {old: "null"}
    patch: [{op: add, path: /b, value: 2}]
    object: {a: 1, b: 2}
- {name: update, operation: UPDATE, oldObject: {a: 0}, object: {a: 1}, expect: {allowed: true, audit: {old: '{"a":0}'}}}
- {name: delete, operation: DELETE, oldObject: {a: 0}, expect: {allowed: true, audit: {old: '{"a":0}'}, patch: []}}
"#;
    dispatcher.play(table).await?;
    for (part, other) in [("warnings", "[]"), ("audit", "{}"), ("patch", "[]"), ("object", "{a: 1}")] {
        let wrong = format!("- {{name: n, object: {{a: 1}}, expect: {{allowed: true, {part}: {other}}}}}");
        let error = dispatcher.play(&wrong).await.expect_err(part).to_string();
        assert!(error.contains(&format!("n: {part} is ")), "{error}");
    }
    dispatcher.stop().await
}
