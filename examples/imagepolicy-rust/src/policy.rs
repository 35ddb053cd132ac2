//! The hooks of the policy.

use portcullis_host::{Builder, HandlerResult, Hook, Host, Request, Verdict};
use serde_json::Value;

/// The host with its hooks. The caller says where they are served.
pub(crate) fn new_host() -> Builder {
    Host::builder("imagepolicy")
        .validate("imagepolicy.example.com", by_digest)
        .hook(Hook::mutate("team-label.example.com", team_label).speculate())
}

/// Denies a Pod with an image that is not named by digest.
async fn by_digest(request: Request) -> HandlerResult {
    let Some(pod) = request.object::<Value>()? else { return Ok(Verdict::allow()) }; // DELETE
    for (field, image) in images(&pod) {
        if !image.contains("@sha256:") {
            return Ok(Verdict::deny(format!("images are named by digest here: {image}")).cause(field, "has no digest"));
        }
    }
    Ok(Verdict::allow())
}

/// The images of all containers of a Pod, each after the path of its field.
fn images(pod: &Value) -> impl Iterator<Item = (String, &str)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| {
        let containers = pod["spec"][list].as_array().into_iter().flatten().enumerate();
        containers.map(move |(i, c)| (format!("spec.{list}[{i}].image"), c["image"].as_str().unwrap_or_default()))
    })
}

/// Labels a Pod that has no team with its namespace.
async fn team_label(request: Request) -> HandlerResult {
    request.change(|pod: &mut Value| {
        let labels = &mut pod["metadata"]["labels"];
        if labels.get("team").is_none() {
            labels["team"] = request.namespace().into();
        }
    })
}

#[cfg(test)]
mod tests {
    use portcullis_host::testing::FakeDispatcher;

    use super::*;

    /// The cases in the file are those of the same policy in other languages.
    #[tokio::test]
    async fn the_policy_decides_its_cases() -> Result<(), Box<dyn std::error::Error>> {
        let dispatcher = FakeDispatcher::start(&new_host().build()?).await?;
        dispatcher.play(include_str!("../cases.yaml")).await?;
        Ok(dispatcher.stop().await?)
    }

    #[tokio::test]
    async fn the_mesh_may_ask_for_the_label_ahead_of_its_turn() -> Result<(), Box<dyn std::error::Error>> {
        let dispatcher = FakeDispatcher::start(&new_host().build()?).await?;
        let offers: Vec<_> = dispatcher.hello().hooks.iter().map(|hook| (hook.name.as_str(), hook.speculate)).collect();
        assert_eq!(offers, [("imagepolicy.example.com", false), ("team-label.example.com", true)]);
        Ok(dispatcher.stop().await?)
    }
}
