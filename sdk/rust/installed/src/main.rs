//! A project that has installed the crate.

use portcullis_host::{Builder, Error, Host, signal};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Error> {
    new_host().run_until(signal::terminated()).await
}

fn new_host() -> Builder {
    Host::builder("installed").mutate("team.example.com", async |request: portcullis_host::Request| {
        request.change(|pod: &mut Value| pod["metadata"]["labels"]["team"] = request.namespace().into())
    })
}

#[cfg(test)]
mod tests {
    use portcullis_host::testing::FakeDispatcher;

    use super::*;

    #[tokio::test]
    async fn it_answers() -> Result<(), Error> {
        let dispatcher = FakeDispatcher::start(&new_host().build()?).await?;
        let table = "
- name: the team is labelled
  object: {metadata: {name: web, namespace: shop}}
  expect: {allowed: true, object: {metadata: {name: web, namespace: shop, labels: {team: shop}}}}
";
        dispatcher.play(table).await?;
        dispatcher.stop().await
    }
}
