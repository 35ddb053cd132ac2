use serde::Deserialize;
use serde_json::json;

use super::*;

/// Shared by the SDKs of all languages.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/changes.json");

#[derive(Deserialize)]
struct Vector {
    name: String,
    raw: String,
    before: Option<String>,
    after: String,
    object: String,
    patch: String,
}

fn value(text: &str) -> Value {
    from_str(text).expect("JSON")
}

/// The object that a patch makes of `raw`, with json-patch as the oracle.
fn patched(raw: &str, patch: &[u8]) -> Value {
    let mut object = value(raw);
    let patch: json_patch::Patch = serde_json::from_slice(patch).expect("a patch");
    json_patch::patch(&mut object, &patch).expect("it fits");
    object
}

fn merged(raw: &str, before: &str, after: &str) -> Value {
    let [raw, before, after] = [raw, before, after].map(|text| Document::read(text).expect("JSON"));
    serde_json::to_value(merge(&raw, Some(&before), &after, DEPTH)).expect("JSON")
}

#[test]
fn the_vectors() {
    let vectors: Vec<Vector> = from_str(&std::fs::read_to_string(VECTORS).expect("the vectors")).expect("JSON");
    assert!(vectors.len() > 30);
    for Vector { name, raw, before, after, object, patch } in vectors {
        let before = before.as_ref().unwrap_or(&raw);
        assert_eq!(merged(&raw, before, &after), value(&object), "{name}");
        let got = change(&raw, before, &after).expect(&name);
        assert_eq!(value(std::str::from_utf8(&got).expect("UTF-8")), value(&patch), "{name}");
        assert_eq!(patched(&raw, &got), value(&object), "{name}");
    }
}

#[test]
fn of_equal_items_the_one_at_the_same_position_is_the_origin() {
    let raw = r#"[{"name":"a","hidden":1},{"name":"a","hidden":2},{"name":"c","hidden":3}]"#;
    let before = r#"[{"name":"a"},{"name":"a"},{"name":"c"}]"#;
    let after = r#"[{"name":"b"},{"name":"a"},{"name":"d"}]"#;
    assert_eq!(merged(raw, before, after), json!([{"name": "b"}, {"name": "a", "hidden": 2}, {"name": "d"}]));
}

#[test]
fn integers_of_all_sizes_keep_their_digits() {
    let raw = r#"{"l":[{"a":12345678901234567890123},{"a":2}],"b":1.50}"#;
    let patch = |after: &str| change(raw, raw, after).map(|patch| String::from_utf8(patch).expect("UTF-8"));
    let swapped = r#"{"l":[{"a":2},{"a":12345678901234567890123}],"b":1.50}"#;
    assert!(patch(swapped).expect("a patch").contains("12345678901234567890123"));
    // The same with the number as serde_json::Value has it.
    let rounded = value(swapped).to_string();
    let before = value(raw).to_string();
    let exact = change(raw, &before, &rounded).expect("the items are known by their origins");
    assert!(String::from_utf8_lossy(&exact).contains("12345678901234567890123"));
    // A type that drops an item: the list is that of the handler.
    let dropped = r#"{"l":[{"a":1.2345678901234568e22}],"b":1.5}"#;
    let reordered = r#"{"l":[{"a":2},{"a":1.2345678901234568e22}],"b":1.5}"#;
    let error = change(raw, dropped, reordered).expect_err("it was rounded");
    assert!(error.whole_text().contains("rounded"), "{error:?}");
    // A number of the author's may be large.
    let large = change(raw, &before, &before.replace("1.5", "1e30")).expect("it is no number of the object");
    assert!(String::from_utf8_lossy(&large).contains("1e30"));
}

#[test]
fn a_patch_is_no_longer_than_the_object() {
    let list = |item: &dyn Fn(u32) -> Value| json!({"l": (0..20_000).map(item).collect::<Vec<_>>()}).to_string();
    let numbers = |by: u32| list(&|i| json!([i * by]));
    let named = |on: bool| list(&|i| json!({"name": i.to_string(), "on": on}));
    for (raw, after) in [(numbers(2), numbers(3)), (named(true), named(false))] {
        let patch = change(&raw, &raw, &after).expect("a patch");
        assert!(patch.len() < after.len() + 100, "{} bytes for {}", patch.len(), after.len());
        assert_eq!(patched(&raw, &patch), value(&after));
    }
}

#[test]
fn a_deep_document_costs_no_stack() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let raw = format!(r#"{{"l":[{deep},{{"later":{deep}}}],"a":1}}"#);
    for after in [r#"{"l":[[2]],"a":1}"#, r#"{"l":[7,8],"a":1}"#] {
        let patch = change(&raw, r#"{"l":[[1],{}],"a":1}"#, after).expect("a patch");
        assert!(!patch.is_empty());
    }
}

/// Texts that a generator picks from, so that they meet.
const NAMES: [&str; 6] = ["name", "a", "b/~", "labels", "", "key"];

fn any(random: &mut fastrand::Rng, depth: u32) -> Value {
    match random.u8(..if depth == 0 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => random.bool().into(),
        2 => random.i32(-2..3).into(),
        3 => json!(random.u64(..)),
        4 => json!(0.5),
        5 => NAMES[random.usize(..NAMES.len())].into(),
        6 => (0..random.usize(..4)).map(|_| any(random, depth - 1)).collect(),
        _ => (0..random.usize(..5))
            .map(|_| (NAMES[random.usize(..NAMES.len())].to_owned(), any(random, depth - 1)))
            .collect(),
    }
}

/// Edits a value in place.
fn edit(random: &mut fastrand::Rng, value: &mut Value) {
    match value {
        Value::Array(items) if random.u8(..) < 200 => match (random.u8(..4), items.len()) {
            (0, n) => items.insert(random.usize(..=n), any(random, 1)),
            (1, 1..) => drop(items.remove(random.usize(..items.len()))),
            (2, 2..) => items.swap(0, 1),
            (_, 1..) => {
                let i = random.usize(..items.len());
                edit(random, &mut items[i]);
            }
            _ => {}
        },
        Value::Object(members) if random.u8(..) < 200 => {
            let name = NAMES[random.usize(..NAMES.len())];
            match (random.u8(..3), members.get_mut(name)) {
                (0, _) => drop(members.insert(name.into(), any(random, 1))),
                (1, _) => drop(members.remove(name)),
                (_, Some(value)) => edit(random, value),
                _ => {}
            }
        }
        _ => *value = any(random, 1),
    }
}

/// What a type makes of an object: it drops a member and writes others that are not there.
fn model(value: &Value, at_root: bool) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| model(item, false)).collect(),
        Value::Object(members) => {
            let mut seen: serde_json::Map<_, _> = members
                .iter()
                .filter(|(name, _)| *name != "a")
                .map(|(name, v)| (name.clone(), model(v, false)))
                .collect();
            if !at_root {
                seen.entry("default").or_insert(Value::Null);
            }
            Value::Object(seen)
        }
        other => other.clone(),
    }
}

#[test]
fn the_patch_makes_what_merge_says_of_any_document() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..5_000 {
        let raw = any(&mut random, 4);
        let mut after = raw.clone();
        (0..random.usize(..4)).for_each(|_| edit(&mut random, &mut after));
        let texts = [&raw, &after].map(Value::to_string);
        let patch = change(&texts[0], &texts[0], &texts[1]).expect("a patch");
        assert_eq!(patched(&texts[0], &patch), after, "seed {seed}: {raw} to {after}");
    }
}

#[test]
fn what_a_type_does_not_know_stays() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..5_000 {
        let raw = any(&mut random, 4);
        let before = model(&raw, true);
        let mut after = before.clone();
        (0..random.usize(..4)).for_each(|_| edit(&mut random, &mut after));
        let [raw, before, after] = [&raw, &before, &after].map(Value::to_string);
        let patch = change(&raw, &before, &after).expect("a patch");
        assert_eq!(patched(&raw, &patch), merged(&raw, &before, &after), "seed {seed}: {raw}: {before} to {after}");
        assert_eq!(change(&raw, &before, &before).expect("a patch"), b"[]", "seed {seed}: {raw}");
        if let (Value::Object(members), Value::Object(_)) = (value(&raw), value(&after))
            && !value(&after).as_object().expect("an object").contains_key("a")
        {
            assert_eq!(patched(&raw, &patch).get("a"), members.get("a"), "seed {seed}: {raw}: {before} to {after}");
        }
    }
}

#[test]
fn a_type_of_k8s_openapi_changes_what_was_meant() {
    use k8s_openapi::api::core::v1::Pod;
    let raw = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "annotations": {}, "later": {"n": 1}},
        "spec": {
            "containers": [
                {"name": "a", "image": "a:1", "later": 1, "ports": [{"containerPort": 80, "protocol": "TCP"}],
                 "resources": {"limits": {"cpu": "1000m"}}, "readinessProbe": {"httpGet": {"port": "http", "path": "/"}}},
                {"name": "b", "image": "b:1", "later": 2, "env": null, "args": []}],
            "serviceAccount": "old", "later": true},
        "status": {"conditions": []}
    })
    .to_string();
    let mut pod: Pod = from_str(&raw).expect("a Pod");
    let before = to_string(&pod).expect("JSON");
    assert_eq!(change(&raw, &before, &before).expect("a patch"), b"[]");
    let containers = &mut pod.spec.as_mut().expect("a spec").containers;
    containers[1].image = Some("b:2".into());
    containers.insert(0, from_str(r#"{"name": "proxy", "image": "p:1"}"#).expect("a container"));
    pod.metadata.labels.get_or_insert_default().insert("team".into(), "shop".into());
    let patch = change(&raw, &before, &to_string(&pod).expect("JSON")).expect("a patch");
    let patch = value(std::str::from_utf8(&patch).expect("UTF-8"));
    assert_eq!(
        patch,
        json!([
            {"op": "add", "path": "/metadata/labels", "value": {"team": "shop"}},
            {"op": "add", "path": "/spec/containers/0", "value": {"name": "proxy", "image": "p:1"}},
            {"op": "replace", "path": "/spec/containers/2/image", "value": "b:2"},
        ])
    );
}

/// Prints how long changes of 3 MiB take: `cargo test --release -- --ignored --nocapture large`.
#[test]
#[ignore = "it measures"]
fn large_objects() {
    let item =
        |i: usize| json!({"name": format!("n{i}"), "value": "v".repeat(60), "n": i, "m": {"a": [i, null, true]}});
    let pod =
        |labels: Value, env: Vec<Value>| json!({"metadata": {"name": "web", "labels": labels}, "spec": {"env": env}});
    let items: Vec<Value> = (0..24_000).map(item).collect();
    let raw = pod(json!({"a": "b"}), items.clone()).to_string();
    let labelled = pod(json!({"a": "b", "team": "shop"}), items.clone()).to_string();
    let mut longer = items;
    longer.insert(0, item(99_999));
    let longer = pod(json!({"a": "b"}), longer).to_string();
    let reversed = value(&raw)["spec"]["env"].as_array().map(|items| items.iter().rev().cloned().collect());
    let reversed = pod(json!({"a": "b"}), reversed.expect("a list")).to_string();
    for (name, after) in [("a label", labelled), ("an item in front", longer), ("all items in reverse", reversed)] {
        let started = std::time::Instant::now();
        let patch = change(&raw, &raw, &after).expect("a patch").len();
        println!("{name}: {:?}, {} bytes, patch of {patch}", started.elapsed(), raw.len());
        let started = std::time::Instant::now();
        let decoded: Value = from_str(&raw).expect("JSON");
        let before = to_string(&decoded).expect("JSON");
        println!("decoding and encoding it: {:?}, {} bytes", started.elapsed(), before.len());
    }
}
