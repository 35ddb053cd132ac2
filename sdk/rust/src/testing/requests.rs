//! The usual requests.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use prost::Message;
use serde_json::Value;

use super::PATIENCE;
use crate::proto::admission::v1::{AdmissionRequest, GroupVersionKind, GroupVersionResource, Object, UserInfo};
use crate::proto::host::v1::{HookCall, Review};
use crate::wire::Received;
use crate::{Request, Stage};

/// A request that creates an object, given as JSON: a [`Value`] or a text. Kind, name and namespace are the object's; the
/// resource is the usual plural of its kind. Change what the hook looks at besides.
pub fn create(object: impl Display) -> AdmissionRequest {
    let object = object.to_string();
    AdmissionRequest { operation: "CREATE".into(), object: Some(raw(&object)), ..about(&object) }
}

/// A request that changes an object, likewise.
pub fn update(old: impl Display, object: impl Display) -> AdmissionRequest {
    AdmissionRequest { operation: "UPDATE".into(), old_object: Some(raw(&old.to_string())), ..create(object) }
}

/// A request that deletes an object, likewise.
pub fn delete(old: impl Display) -> AdmissionRequest {
    let old = old.to_string();
    AdmissionRequest { operation: "DELETE".into(), old_object: Some(raw(&old)), ..about(&old) }
}

/// A request as handlers take it, for the test of one alone: of a hook of a stage, with time left.
///
/// # Panics
///
/// Never.
pub fn handler_request(hook: &str, stage: Stage, request: &AdmissionRequest) -> Request {
    let call = HookCall { name: hook.into(), stage: stage.into(), ..HookCall::default() };
    let review = Review { hooks: vec![call], request: Some(request.encode_to_vec().into()), ..Review::default() };
    Request::new(Arc::new(Received::new(review)), 0, stage, Instant::now() + PATIENCE).expect("it was just encoded")
}

fn raw(object: &str) -> Object {
    Object { content_type: String::new(), raw: object.to_owned().into() }
}

/// Reads an object's head. One that cannot be read has none: hosts must bear that as well.
fn about(object: &str) -> AdmissionRequest {
    let object: Value = serde_json::from_str(object).unwrap_or_default();
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let (group, version) = (group.to_owned(), version.to_owned());
    AdmissionRequest {
        uid: "705ab4f5-6393-11e8-b7cc-42010a800002".into(),
        cluster: "testing".into(),
        resource: Some(GroupVersionResource {
            group: group.clone(),
            version: version.clone(),
            resource: plural(&kind),
        }),
        kind: Some(GroupVersionKind { group, version, kind }),
        name: text("/metadata/name"),
        namespace: text("/metadata/namespace"),
        user_info: Some(UserInfo {
            username: "testing".into(),
            groups: vec!["system:authenticated".into()],
            ..UserInfo::default()
        }),
        ..AdmissionRequest::default()
    }
}

/// How resources are named after kinds, irregular ones aside.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        _ if kind.is_empty() => kind,
        _ if kind.ends_with('s') => kind + "es",
        Some(stem) => format!("{stem}ies"),
        None => kind + "s",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_the_head_of_its_object() {
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}});
        let request = create(&policy);
        let resource = request.resource.unwrap();
        assert_eq!((resource.group.as_str(), resource.resource.as_str()), ("networking.k8s.io", "networkpolicies"));
        assert_eq!((request.name.as_str(), request.operation.as_str()), ("n", "CREATE"));
        assert_eq!(request.object.unwrap().raw, policy.to_string());
        assert!(delete("nonsense").object.is_none());
        assert_eq!(plural("Ingress"), "ingresses");
    }

    #[test]
    fn a_request_for_a_handler_has_the_hook_and_the_types() {
        let deployment = create(json!({"apiVersion": "apps/v1", "kind": "Deployment"}));
        let request = handler_request("h", Stage::Mutate, &deployment);
        assert_eq!((request.hook(), request.stage()), ("h", Stage::Mutate));
        let (kind, resource) = (request.kind(), request.resource());
        assert_eq!((kind.group, kind.version, kind.kind), ("apps", "v1", "Deployment"));
        assert_eq!((resource.group, resource.version, resource.resource), ("apps", "v1", "deployments"));
    }
}
