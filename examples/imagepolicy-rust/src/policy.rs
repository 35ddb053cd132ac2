//! The hooks.

use portcullis_host::{Builder, HandlerResult, Hook, Host, Request, Verdict};
use serde_json::Value;

/// The host, without its dispatchers.
pub(crate) fn host() -> Builder {
    Host::builder("imagepolicy")
        .validate("imagepolicy.example.com", by_digest)
        .hook(Hook::mutate("team-label.example.com", team_label).speculate())
}

/// Denies a Pod with an image that is not named by digest.
async fn by_digest(request: Request) -> HandlerResult {
    let Some(pod) = request.object::<Value>()? else { return Ok(Verdict::allow()) }; // DELETE
    let loose = images(&pod).find(|(_, image)| !image.contains("@sha256:"));
    Ok(match loose {
        Some((field, image)) => {
            Verdict::deny(format!("images are named by digest here: {image}")).cause(field, "has no digest")
        }
        None => Verdict::allow(),
    })
}

/// The images of all containers of a Pod, each after the path of its field.
fn images(pod: &Value) -> impl Iterator<Item = (String, &str)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| {
        let containers = pod["spec"][list].as_array().into_iter().flatten().enumerate();
        containers.map(move |(i, c)| (format!("spec.{list}[{i}].image"), c["image"].as_str().unwrap_or_default()))
    })
}

/// Sets the label `team` to the namespace where it is missing.
async fn team_label(request: Request) -> HandlerResult {
    let Some(before) = request.object::<Value>()? else { return Ok(Verdict::allow()) };
    if before["metadata"]["labels"].get("team").is_some() {
        return Ok(Verdict::allow());
    }
    let mut after = before.clone();
    after["metadata"]["labels"]["team"] = request.namespace().into();
    Ok(Verdict::difference(&before, &after)?)
}

#[cfg(test)]
mod tests {
    use portcullis_host::Error;
    use portcullis_host::testing::{FakeDispatcher, create, delete};
    use serde_json::json;

    use super::*;

    const PINNED: &str = "nginx@sha256:0a";
    const LOOSE: &str = "nginx:1.29";

    #[tokio::test]
    async fn every_image_of_a_pod_is_looked_at() -> Result<(), Error> {
        let dispatcher = FakeDispatcher::start(&host().build()?).await?;
        let cases = [
            (json!({"containers": [{"image": PINNED}]}), None),
            (json!({"containers": [{"image": PINNED}, {"image": LOOSE}]}), Some("spec.containers[1].image")),
            (json!({"initContainers": [{"image": LOOSE}]}), Some("spec.initContainers[0].image")),
            (json!({"ephemeralContainers": [{"image": LOOSE}]}), Some("spec.ephemeralContainers[0].image")),
            (json!({"containers": [{"name": "without an image"}]}), Some("spec.containers[0].image")),
        ];
        for (spec, field) in cases {
            let pod = json!({"kind": "Pod", "spec": spec});
            let verdict = dispatcher.review("imagepolicy.example.com", create(&pod)).await?;
            let details = verdict.status.and_then(|status| status.details);
            let at_fault = details.map(|details| details.causes[0].field.clone());
            assert_eq!((verdict.allowed, at_fault.as_deref()), (field.is_none(), field), "{pod}");
        }
        let pod = json!({"kind": "Pod", "spec": {"containers": [{"image": LOOSE}]}});
        let denial = dispatcher.review("imagepolicy.example.com", create(&pod)).await?.status.unwrap_or_default();
        assert_eq!((denial.code, denial.message.as_str()), (403, "images are named by digest here: nginx:1.29"));
        assert!(dispatcher.review("imagepolicy.example.com", delete(&pod)).await?.allowed);
        dispatcher.stop().await
    }

    #[tokio::test]
    async fn the_label_is_set_where_it_is_missing() -> Result<(), Error> {
        let dispatcher = FakeDispatcher::start(&host().build()?).await?;
        let cases = [
            (
                json!({"namespace": "shop"}),
                json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "shop"}}]),
            ),
            (
                json!({"namespace": "shop", "labels": {"a": "b"}}),
                json!([{"op": "add", "path": "/metadata/labels/team", "value": "shop"}]),
            ),
            (json!({"namespace": "shop", "labels": {"team": "other"}}), Value::Null),
        ];
        for (metadata, patch) in cases {
            let pod = json!({"kind": "Pod", "metadata": metadata});
            let verdict = dispatcher.review("team-label.example.com", create(&pod)).await?;
            assert!(verdict.allowed);
            assert_eq!(serde_json::from_slice::<Value>(&verdict.patch).unwrap_or_default(), patch, "{pod}");
        }
        dispatcher.stop().await
    }
}
