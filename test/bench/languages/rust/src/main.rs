//! The policy of examples/imagepolicy-rust as an ordinary validating webhook, with axum and rustls.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Json;
use axum::Router;
use axum::routing::post;
use axum_server::tls_rustls::RustlsConfig;
use serde::Deserialize;
use serde_json::{Value, json};

/// What the webhook reads of an `AdmissionReview`.
#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    #[serde(default)]
    object: Value,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flag = |name: &str| {
        let value = std::env::args().skip_while(|arg| arg != name).nth(1);
        value.ok_or_else(|| format!("usage: webhook --port N --cert FILE --key FILE: {name} is missing"))
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, flag("--port")?.parse()?));
    let tls = RustlsConfig::from_pem_file(flag("--cert")?, flag("--key")?).await?;
    let app = Router::new().route("/validate", post(validate));
    axum_server::bind_rustls(address, tls).serve(app.into_make_service()).await?;
    Ok(())
}

/// Denies a Pod with an image that is not named by digest.
async fn validate(Json(Review { request }): Json<Review>) -> Json<Value> {
    let response = match images(&request.object).find(|image| !image.contains("@sha256:")) {
        Some(image) => {
            let message = format!("images are named by digest here: {image}");
            json!({"uid": request.uid, "allowed": false, "status": {"message": message}})
        }
        None => json!({"uid": request.uid, "allowed": true}),
    };
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// The images of all containers of a Pod.
fn images(pod: &Value) -> impl Iterator<Item = &str> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
        .map(|container| container["image"].as_str().unwrap_or_default())
}
