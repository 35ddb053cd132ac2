//! Tables of cases.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::{FakeDispatcher, create, delete, lost, update};
use crate::Error;
use crate::proto::admission::v1::{AdmissionRequest, AdmissionResponse};

/// The verdict of a hook.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// Whether the write may go on.
    pub allowed: bool,
    /// The HTTP status of a denial; 0 without one.
    pub code: i32,
    /// The message of a denial.
    pub message: String,
    /// The machine-readable reason of a denial.
    pub reason: String,
    /// The fields at fault of a denial, each with its message.
    pub causes: Vec<(String, String)>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations for the audit log.
    pub audit: BTreeMap<String, String>,
    /// The operations of the patch, as RFC 6902 has them; none without a patch.
    pub patch: Vec<Value>,
    /// The object with the patch applied; `None` on a denial, and if the request has no object.
    pub object: Option<Value>,
}

impl Answer {
    /// The response to a request with an object.
    pub(super) fn new(object: Option<&Bytes>, response: AdmissionResponse) -> Result<Self, Error> {
        let status = response.status.unwrap_or_default();
        let causes = status.details.unwrap_or_default().causes;
        let mut answer = Self {
            allowed: response.allowed,
            code: status.code,
            message: status.message,
            reason: status.reason,
            causes: causes.into_iter().map(|cause| (cause.field, cause.message)).collect(),
            warnings: response.warnings,
            audit: response.audit_annotations.into_iter().collect(),
            ..Self::default()
        };
        let Some(object) = object.filter(|_| answer.allowed) else { return Ok(answer) };
        let wrong = |error: &dyn std::fmt::Display| lost(format!("the patch does not fit: {error}"));
        let mut object: Value = serde_json::from_slice(object).unwrap_or_default();
        if !response.patch.is_empty() {
            let patch: json_patch::Patch = serde_json::from_slice(&response.patch).map_err(|error| wrong(&error))?;
            json_patch::patch(&mut object, &patch).map_err(|error| wrong(&error))?;
            answer.patch = serde_json::from_slice(&response.patch).map_err(|error| wrong(&error))?;
        }
        answer.object = Some(object);
        Ok(answer)
    }
}

/// One case of a table.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    name: String,
    hook: Option<String>,
    operation: Option<String>,
    #[serde(default)]
    user: User,
    namespace: Option<String>,
    object: Option<Value>,
    old_object: Option<Value>,
    expect: Expected,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct User {
    name: Option<String>,
    groups: Option<Vec<String>>,
}

/// What is named must be so.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    allowed: bool,
    code: Option<i32>,
    reason: Option<String>,
    message: Option<String>,
    causes: Option<Vec<Cause>>,
    warnings: Option<Vec<String>>,
    audit: Option<BTreeMap<String, String>>,
    object: Option<Value>,
    patch: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cause {
    field: String,
    message: String,
}

impl Case {
    fn request(&self) -> Result<AdmissionRequest, Error> {
        let missing = |what| lost(format!("{what} is missing"));
        let object = || self.object.as_ref().ok_or_else(|| missing("object"));
        let old = || self.old_object.as_ref().ok_or_else(|| missing("oldObject"));
        let mut request = match self.operation.as_deref().unwrap_or("CREATE") {
            "UPDATE" => update(old()?, object()?),
            "DELETE" => delete(old()?),
            other => AdmissionRequest { operation: other.into(), ..create(object()?) },
        };
        if let Some(namespace) = &self.namespace {
            request.namespace.clone_from(namespace);
        }
        let user = request.user_info.get_or_insert_default();
        if let Some(name) = &self.user.name {
            user.username.clone_from(name);
        }
        if let Some(groups) = &self.user.groups {
            user.groups.clone_from(groups);
        }
        Ok(request)
    }
}

impl Expected {
    fn check(&self, got: &Answer) -> Result<(), Error> {
        fn same<T: PartialEq + std::fmt::Debug>(what: &str, want: Option<&T>, got: &T) -> Result<(), Error> {
            match want {
                Some(want) if want != got => Err(lost(format!("{what} is {got:?}, not {want:?}"))),
                _ => Ok(()),
            }
        }
        let message = self.message.as_ref().filter(|part| !got.message.contains(*part));
        same("allowed", Some(&self.allowed), &got.allowed)?;
        same("code", self.code.as_ref(), &got.code)?;
        same("reason", self.reason.as_ref(), &got.reason)?;
        same("message", message, &got.message)?;
        let pair = |cause: &Cause| (cause.field.clone(), cause.message.clone());
        let causes = self.causes.as_ref().map(|causes| causes.iter().map(pair).collect());
        same("causes", causes.as_ref(), &got.causes)?;
        same("warnings", self.warnings.as_ref(), &got.warnings)?;
        same("audit", self.audit.as_ref(), &got.audit)?;
        same("patch", self.patch.as_ref(), &got.patch)?;
        same("object", self.object.as_ref(), got.object.as_ref().unwrap_or(&Value::Null))
    }
}

impl FakeDispatcher {
    /// Plays a table of cases, a list in YAML:
    ///
    /// ```yaml
    /// - name: host network is denied
    ///   hook: host-network.example.com # may be left out where the host has one hook
    ///   operation: CREATE # the default; UPDATE and DELETE take oldObject
    ///   user: {name: jane, groups: [dev]} # may be left out, and namespace
    ///   object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {hostNetwork: true}}
    ///   expect: {allowed: false, code: 403, message: hostNetwork is not allowed here} # a part of the message
    /// - name: the team is labelled
    ///   hook: team-label.example.com
    ///   object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}
    ///   expect: # also reason, causes, warnings, audit, and patch, which is [] for none
    ///     allowed: true
    ///     object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {team: shop}}}
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the table is no such list, and with all cases that are not as expected.
    pub async fn play(&self, table: &str) -> Result<(), Error> {
        let cases: Vec<Case> = serde_yaml_ng::from_str(table).map_err(|error| lost(format!("the table: {error}")))?;
        let mut failed = Vec::new();
        for case in &cases {
            if let Err(error) = self.judge(case).await {
                failed.push(format!("{}: {error}", case.name));
            }
        }
        if failed.is_empty() && !cases.is_empty() {
            return Ok(());
        }
        Err(lost(format!("{} of {} cases failed: {}", failed.len(), cases.len(), failed.join("; "))))
    }

    async fn judge(&self, case: &Case) -> Result<(), Error> {
        let hook = match (&case.hook, &*self.hello().hooks) {
            (Some(hook), _) => hook,
            (None, [only]) => &only.name,
            _ => return Err(lost("the host has several hooks: name one")),
        };
        case.expect.check(&self.review(hook, case.request()?).await?)
    }
}
