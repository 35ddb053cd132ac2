//! What a handler does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portcullis_host::{Denied, HandlerError, HandlerResult, Request, Verdict};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Program, say};

/// The instructions of an object for its handler.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Script {
    hold: Option<String>,
    wait_ms: u64,
    block_ms: u64,
    deny: Option<Denial>,
    patch: Option<Box<RawValue>>,
    labels: Option<BTreeMap<String, String>>,
    r#become: Option<Value>,
    error: Option<String>,
    fail: Option<String>,
    panic: Option<String>,
    warnings: Value,
    audit: Value,
    echo: bool,
}

/// What its types do not let pass is left out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Denial {
    message: Value,
    code: Value,
    reason: Value,
    causes: Value,
    thrown: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    script: Script,
}

/// Says when a handler starts and returns. One that is dropped in the middle was cancelled.
struct Run {
    hook: String,
    cancelled: bool,
}

impl Run {
    fn begin(hook: &str) -> Self {
        say(&json!({"event": "called", "hook": hook}));
        Self { hook: hook.into(), cancelled: true }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let cancelled = self.cancelled && !std::thread::panicking();
        say(&json!({"event": "returned", "hook": self.hook, "cancelled": cancelled}));
    }
}

/// The handler of every hook: it does what the script says.
pub(crate) async fn handle(program: Arc<Program>, request: Request) -> HandlerResult {
    let mut run = Run::begin(request.hook());
    let remaining = request.remaining();
    let script = script_of(&request)?;
    script.wait(&program).await;
    run.cancelled = false;
    let verdict = script.decide(&request)?;
    script.say(script.decorate(verdict, &request, remaining))
}

/// Every initializer: it does what the script says, as far as that is about the object.
pub(crate) async fn initialize(
    program: Arc<Program>,
    mut object: Value,
    request: Request,
) -> Result<Value, HandlerError> {
    let mut run = Run::begin(request.hook());
    let script = Script { patch: None, ..script_of(&request)? };
    script.wait(&program).await;
    run.cancelled = false;
    if let (Some(labels), None) = (&script.labels, &script.deny) {
        set_labels(&mut object, labels);
        return Ok(object);
    }
    if let (Some(wanted), None) = (&script.r#become, &script.deny) {
        return Ok(wanted.clone());
    }
    match Denied::try_from(script.decide(&request)?) {
        Ok(denied) => Err(denied.into()),
        Err(_allowed) => Ok(object),
    }
}

fn script_of(request: &Request) -> Result<Script, HandlerError> {
    let object = match request.object::<Object>()? {
        Some(object) => Some(object),
        None => request.old_object()?,
    };
    Ok(object.unwrap_or_default().script)
}

impl Script {
    async fn wait(&self, program: &Program) {
        if let Some(name) = &self.hold {
            program.held(name).await;
        }
        if self.wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.wait_ms)).await;
        }
        if self.block_ms > 0 {
            tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(self.block_ms)));
        }
    }

    fn decide(&self, request: &Request) -> HandlerResult {
        if let Some(denial) = &self.deny {
            return Ok(denial.verdict());
        }
        if let Some(patch) = &self.patch {
            return Ok(Verdict::patch_bytes(patch.get().to_owned()));
        }
        if let Some(labels) = &self.labels {
            return request.change(|object| set_labels(object, labels));
        }
        if let Some(wanted) = &self.r#become {
            return Verdict::difference(request, wanted);
        }
        if let Some(text) = &self.error {
            return Err(HandlerError::public(text));
        }
        if let Some(text) = &self.fail {
            return Err(HandlerError::internal(text.as_str()));
        }
        if let Some(text) = &self.panic {
            panic!("{text}");
        }
        Ok(Verdict::allow())
    }

    /// Returns a verdict, or throws it.
    fn say(&self, verdict: Verdict) -> HandlerResult {
        if self.deny.as_ref().is_some_and(|denial| denial.thrown) {
            return Denied::try_from(verdict).map_or_else(Ok, |denied| Err(denied.into()));
        }
        Ok(verdict)
    }

    fn decorate(&self, verdict: Verdict, request: &Request, remaining: Duration) -> Verdict {
        let warnings = self.warnings.as_array().into_iter().flatten().filter_map(Value::as_str);
        let verdict = warnings.fold(verdict, Verdict::warning);
        let annotations = self.audit.as_object().into_iter().flatten();
        let verdict = annotations
            .filter_map(|(key, value)| Some((key, value.as_str()?)))
            .fold(verdict, |verdict, (key, value)| verdict.audit(key, value));
        if self.echo { echo(verdict, request, remaining) } else { verdict }
    }
}

impl Denial {
    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::deny(text(&self.message));
        if let Some(code) = self.code.as_u64().and_then(|code| u16::try_from(code).ok()) {
            verdict = verdict.code(code);
        }
        if let Some(reason) = self.reason.as_str() {
            verdict = verdict.reason(reason);
        }
        let causes = self.causes.as_array().into_iter().flatten().filter(|cause| cause.is_object());
        causes.fold(verdict, |verdict, cause| verdict.cause(text(&cause["field"]), text(&cause["message"])))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn set_labels(object: &mut Value, labels: &BTreeMap<String, String>) {
    for (key, value) in labels {
        object["metadata"]["labels"][key] = value.as_str().into();
    }
}

/// Adds what the handler saw.
fn echo(verdict: Verdict, request: &Request, remaining: Duration) -> Verdict {
    let digest = |raw: Option<&_>| raw.map(hex).unwrap_or_default();
    let parent = request.traceparent().unwrap_or_default();
    let parent = parent.split('-').skip(1).take(2).collect::<Vec<_>>().join("-");
    let seen = [
        ("uid", request.uid().into()),
        ("cluster", request.cluster().into()),
        ("namespace", request.namespace().into()),
        ("name", request.name().into()),
        ("operation", request.operation().into()),
        ("username", request.username().into()),
        ("configuration", request.configuration().into()),
        ("dry-run", request.is_dry_run().to_string()),
        ("round", request.round().to_string()),
        ("mode", format!("MODE_{}", request.mode().as_str().to_uppercase())),
        ("object-sha256", digest(request.raw_object())),
        ("old-object-sha256", digest(request.raw_old_object())),
        ("remaining-ms", remaining.as_millis().to_string()),
        ("traceparent", parent),
    ];
    seen.into_iter().fold(verdict, |verdict, (key, value)| verdict.audit(key, value))
}

/// The SHA-256 of raw bytes.
fn hex(raw: &impl AsRef<[u8]>) -> String {
    Sha256::digest(raw).iter().map(|byte| format!("{byte:02x}")).collect()
}
