//! What a handler decides.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::change::change;
use crate::core::failure;
use crate::error::{HandlerError, PublicError};
use crate::limits::VERDICT_ITEMS;
use crate::proto::admission::v1::{AdmissionResponse, Status, StatusCause, StatusDetails};
use crate::proto::host::v1::verdict::Outcome;
use crate::request::Request;
use crate::stage::Stage;

/// The code of a denial that names none.
const FORBIDDEN: u16 = 403;

/// Those of HTTP's errors.
const CODES: std::ops::RangeInclusive<u16> = 400..=599;

/// The decision of a handler: [`allow`](Self::allow), [`deny`](Self::deny) or a patch.
///
/// ```
/// use portcullis_host::Verdict;
///
/// let verdict = Verdict::deny("images are named by digest here: nginx:1.29")
///     .cause("spec.containers[0].image", "has no digest")
///     .warning("nginx:1.29 will be gone next month");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    decision: Decision,
    warnings: Vec<String>,
    audit: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Decision {
    Allow { patch: Bytes },
    Deny { message: String, code: u16, reason: Option<String>, causes: Vec<StatusCause> },
}

impl Verdict {
    /// The write may go on.
    pub fn allow() -> Self {
        Self::patch_bytes(Bytes::new())
    }

    /// The write is refused, with 403 Forbidden and a message for the person who made it.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::new(Decision::Deny { message: message.into(), code: FORBIDDEN, reason: None, causes: Vec::new() })
    }

    /// The write may go on with the object changed by a JSON Patch (RFC 6902): operations that serde writes as its list, made
    /// against exactly the object of the request. Not for validating hooks. An empty list changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the operations cannot be serialised.
    pub fn patch(operations: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(operations).map(Self::patch_unless_empty)
    }

    /// The same with the patch as JSON text, which is sent as it is.
    pub fn patch_bytes(patch: impl Into<Bytes>) -> Self {
        Self::new(Decision::Allow { patch: patch.into() })
    }

    fn patch_unless_empty(patch: Vec<u8>) -> Self {
        if patch == b"[]" { Self::allow() } else { Self::patch_bytes(patch) }
    }

    /// The write may go on with `object` in place of the object of the request. What the type does not know stays in the object,
    /// and only what differs is in the patch. Not for validating hooks. [`Request::change`] edits the object in place.
    ///
    /// # Errors
    ///
    /// Fails if the request has no object, if that is not what the type takes, or if `object` cannot be serialised.
    pub fn difference<T: DeserializeOwned + Serialize>(request: &Request, object: &T) -> Result<Self, HandlerError> {
        let before: T = request.object()?.ok_or_else(|| PublicError::new("the request has no object to be changed"))?;
        Self::changed(request, &serde_json::to_string(&before)?, object)
    }

    /// The object of the request with the change from `before`, which is the object as the type of `after` writes it.
    pub(crate) fn changed<T: Serialize>(request: &Request, before: &str, after: &T) -> Result<Self, HandlerError> {
        let raw = std::str::from_utf8(request.raw_object().map_or(b"null", |raw| &**raw))?;
        Ok(Self::patch_unless_empty(change(raw, before, &serde_json::to_string(after)?)?))
    }

    fn new(decision: Decision) -> Self {
        Self { decision, warnings: Vec::new(), audit: BTreeMap::new() }
    }

    /// Sets the HTTP status that the client gets of a denial, 400 to 599; any other means 403.
    pub fn code(mut self, status: u16) -> Self {
        if let Decision::Deny { code, .. } = &mut self.decision {
            *code = status;
        }
        self
    }

    /// Sets the machine-readable reason of a denial. Without it the reason is "Forbidden" with code 403, else none.
    pub fn reason(mut self, text: impl Into<String>) -> Self {
        if let Decision::Deny { reason, .. } = &mut self.decision {
            *reason = Some(text.into());
        }
        self
    }

    /// Adds a field at fault to a denial, by its path, for example `spec.containers[0].image`, and a text for a person.
    pub fn cause(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        if let Decision::Deny { causes, .. } = &mut self.decision {
            causes.push(StatusCause { reason: String::new(), message: message.into(), field: field.into() });
        }
        self
    }

    /// Adds a warning for the client, whatever the decision; 120 characters or fewer is good manners.
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }

    /// Adds warnings, likewise.
    pub fn warnings(mut self, texts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.warnings.extend(texts.into_iter().map(Into::into));
        self
    }

    /// Adds an annotation for the audit log: a short key without "/". All readers of that log see the value.
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(key.into(), value.into());
        self
    }

    /// Whether the write may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self.decision, Decision::Allow { .. })
    }

    /// The message of a denial.
    pub(crate) fn message(&self) -> Option<&str> {
        match &self.decision {
            Decision::Deny { message, .. } => Some(message),
            Decision::Allow { .. } => None,
        }
    }

    fn causes(&self) -> &[StatusCause] {
        match &self.decision {
            Decision::Deny { causes, .. } => causes,
            Decision::Allow { .. } => &[],
        }
    }

    /// What of the verdict cannot be sent, for the log.
    pub(crate) fn left_out(&self) -> Option<String> {
        if let Decision::Deny { code, .. } = self.decision
            && code != 0
            && !CODES.contains(&code)
        {
            return Some(format!("code {code} is none of HTTP's errors: the client gets 403"));
        }
        let items = self.causes().len() + self.warnings.len() + self.audit.len();
        (items > VERDICT_ITEMS).then(|| format!("{items} causes, warnings and annotations: {VERDICT_ITEMS} are sent"))
    }

    /// The response on the wire. An error means that the verdict is none; a denial is always one.
    pub(crate) fn response(mut self, stage: Stage) -> Result<AdmissionResponse, PublicError> {
        let room = VERDICT_ITEMS.saturating_sub(self.causes().len());
        self.warnings.truncate(room);
        let room = room - self.warnings.len();
        let audit_annotations = self.audit.into_iter().take(room).collect();
        let mut response =
            AdmissionResponse { warnings: self.warnings, audit_annotations, ..AdmissionResponse::default() };
        match self.decision {
            Decision::Deny { message, code, reason, mut causes } => {
                causes.truncate(VERDICT_ITEMS);
                response.status = Some(status(message, code, reason, causes));
            }
            Decision::Allow { patch } => {
                response.allowed = true;
                if !patch.is_empty() {
                    check_patch(stage, &patch)?;
                    response.patch = patch;
                    response.patch_type = "JSONPatch".into();
                }
            }
        }
        Ok(response)
    }
}

fn status(message: String, code: u16, reason: Option<String>, causes: Vec<StatusCause>) -> Status {
    let code = if CODES.contains(&code) { code } else { FORBIDDEN };
    let forbidden = || if code == FORBIDDEN { "Forbidden".into() } else { String::new() };
    Status {
        status: "Failure".into(),
        message,
        reason: reason.filter(|text| !text.is_empty()).unwrap_or_else(forbidden),
        details: (!causes.is_empty()).then(|| StatusDetails { causes, ..StatusDetails::default() }),
        code: code.into(),
    }
}

/// The dispatcher applies the patch, and finds other faults.
fn check_patch(stage: Stage, patch: &[u8]) -> Result<(), PublicError> {
    if stage == Stage::Validate {
        return Err(PublicError::new("a validating hook returned a patch"));
    }
    serde_json::from_slice::<Vec<IgnoredAny>>(patch).map(drop).map_err(|error| {
        PublicError::new("the patch is not a JSON Patch: want a JSON array of operations").with_cause(error)
    })
}

/// The outcome of a call whose handler has returned, and the failure if it is one.
pub(crate) fn outcome(stage: Stage, result: Result<Verdict, HandlerError>) -> (Outcome, Option<HandlerError>) {
    match result.and_then(|verdict| verdict.response(stage).map_err(HandlerError::from)) {
        Ok(response) => (Outcome::Response(response), None),
        Err(error) => (failure(error.public_text().unwrap_or("handler failed")), Some(error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_denial_is_forbidden_unless_it_says_otherwise() {
        let status = |verdict: Verdict| verdict.response(Stage::Validate).ok().and_then(|r| r.status).unwrap();
        let plain = status(Verdict::deny("no"));
        assert_eq!((plain.code, plain.reason.as_str()), (403, "Forbidden"));
        let other = status(Verdict::deny("no").code(422));
        assert_eq!((other.code, other.reason.as_str()), (422, ""));
        let unnamed = status(Verdict::deny("no").reason(""));
        assert_eq!((unnamed.code, unnamed.reason.as_str()), (403, "Forbidden"));
        let named = status(Verdict::deny("no").reason("Invalid").cause("spec.x", "is wrong"));
        assert_eq!((named.code, named.reason.as_str()), (403, "Invalid"));
        assert_eq!(named.details.unwrap().causes[0].field, "spec.x");
    }

    #[test]
    fn a_code_that_is_none_of_https_errors_becomes_403() {
        for code in [1, 200, 399, 600, 1000, u16::MAX] {
            let verdict = Verdict::deny("no").cause("f", "m").code(code);
            assert!(verdict.left_out().is_some_and(|text| text.contains(&code.to_string())));
            let response = verdict.response(Stage::Validate).unwrap();
            let status = response.status.unwrap();
            assert_eq!((response.allowed, status.code, status.reason.as_str()), (false, 403, "Forbidden"), "{code}");
            assert_eq!(status.details.unwrap().causes[0].field, "f");
        }
        for (code, sent) in [(0, 403), (400, 400), (422, 422), (599, 599)] {
            let verdict = Verdict::deny("no").code(code);
            assert_eq!(verdict.left_out(), None);
            assert_eq!(verdict.response(Stage::Mutate).unwrap().status.unwrap().code, sent);
        }
        assert_eq!(Verdict::allow().code(200).left_out(), None);
    }

    #[test]
    fn a_patch_is_a_list_of_operations_of_a_mutating_hook() {
        let sent = |verdict: Verdict, stage| {
            let response = verdict.response(stage).map_err(|error| error.to_string())?;
            Ok::<_, String>((response.patch, response.patch_type))
        };
        let patch = |operations| Verdict::patch(&operations).unwrap();
        assert_eq!(sent(patch(json!([])), Stage::Validate), Ok((Bytes::new(), String::new())));
        let remove = || patch(json!([{"op": "remove", "path": "/a"}]));
        assert_eq!(sent(remove(), Stage::Mutate).unwrap().1, "JSONPatch");
        assert_eq!(sent(remove(), Stage::Validate).unwrap_err(), "a validating hook returned a patch");
        for wrong in ["{}", "[", "1"] {
            let error = sent(Verdict::patch_bytes(wrong), Stage::Mutate).unwrap_err();
            assert!(error.starts_with("the patch is not a JSON Patch"), "{error}");
        }
    }

    #[test]
    fn only_a_public_text_leaves_the_process() {
        #[derive(Debug, thiserror::Error)]
        #[error("wrapped")]
        struct Wrapped(#[source] PublicError);
        let text = |error: HandlerError| match outcome(Stage::Validate, Err(error)).0 {
            Outcome::Error(error) => error.message,
            other => panic!("{other:?}"),
        };
        let public = || PublicError::new("registry is down").with_cause("password is hunter2");
        assert_eq!(text(public().into()), "registry is down");
        assert_eq!(text(Wrapped(public()).into()), "registry is down");
        assert_eq!(text(HandlerError::internal("password is hunter2")), "handler failed");
        assert_eq!(text(HandlerError::internal(Wrapped(public()))), "registry is down");
        assert_eq!(text(HandlerError::public("")), "handler failed");
        assert_eq!(text(HandlerError::public("x".repeat(5000))).len(), 1024);
    }
}
