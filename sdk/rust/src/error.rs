//! Errors of a host and of its handlers.

use std::error::Error as StdError;
use std::fmt;

use crate::limits;
use crate::verdict::Verdict;

/// Why a host cannot start, or did not end cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host is not set up rightly: a text says how.
    #[error("{0}")]
    Config(String),
    /// The certificates for the sessions cannot be used.
    #[error("certificates: {0}")]
    Tls(#[source] Box<dyn StdError + Send + Sync>),
    /// The thread of the sessions could not be started, or ended by itself.
    #[error("the thread of the sessions: {0}")]
    Thread(#[source] Box<dyn StdError + Send + Sync>),
    /// Calls were still running when the time to drain was over. The dispatcher fails them over.
    #[error("calls were still running when the time to drain was over")]
    CutOff,
    /// Handlers did not end although their calls were over: they block their thread.
    #[error("handlers did not end although their calls were over")]
    HandlersRunning,
    /// A test with the fake dispatcher failed: a text says how.
    #[error("{0}")]
    Testing(String),
}

/// A failure with a text for the operator of the mesh. A handler returns one, also as the source of another error, to
/// explain in public why there is no verdict; the text of any other error stays in the process. It is not a denial: the
/// hook's failurePolicy decides.
///
/// The message crosses the wire, into logs, traces and explanations of the mesh, but not to the client of the cluster. It
/// must hold no secrets. The cause is logged by this process and goes nowhere else.
#[derive(Debug)]
pub struct PublicError {
    message: String,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl PublicError {
    /// A failure with a text for the operator.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), cause: None }
    }

    /// Adds the cause, which is logged only.
    pub fn with_cause(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }
}

impl fmt::Display for PublicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for PublicError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// A denial as an error. A handler of any stage that returns one, also as the source of another error, denies: it is the same as
/// the verdict. So `?` carries it out of the functions that a handler calls.
///
/// ```
/// use portcullis_host::{Denied, HandlerError};
///
/// fn check(image: &str) -> Result<(), HandlerError> {
///     if image.ends_with(":latest") {
///         return Err(Denied::new("images are named by digest here").cause("spec.containers[0].image", "has no digest").into());
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Denied(Verdict);

impl Denied {
    /// A denial with 403 Forbidden and a message for the person who made the write.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Verdict::deny(message))
    }

    /// As [`Verdict::code`].
    pub fn code(self, status: u16) -> Self {
        Self(self.0.code(status))
    }

    /// As [`Verdict::reason`].
    pub fn reason(self, text: impl Into<String>) -> Self {
        Self(self.0.reason(text))
    }

    /// As [`Verdict::cause`].
    pub fn cause(self, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self(self.0.cause(field, message))
    }

    /// As [`Verdict::warning`].
    pub fn warning(self, text: impl Into<String>) -> Self {
        Self(self.0.warning(text))
    }

    /// As [`Verdict::warnings`].
    pub fn warnings(self, texts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(self.0.warnings(texts))
    }

    /// As [`Verdict::audit`].
    pub fn audit(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        Self(self.0.audit(key, value))
    }
}

impl TryFrom<Verdict> for Denied {
    type Error = Verdict;

    /// Takes a denial. A verdict that allows is the error.
    fn try_from(verdict: Verdict) -> Result<Self, Verdict> {
        if verdict.is_allowed() { Err(verdict) } else { Ok(Self(verdict)) }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "denied: {}", self.0.message().unwrap_or_default())
    }
}

impl StdError for Denied {}

/// Why a handler returned no verdict. `?` makes one of any error.
///
/// If it is a [`Denied`], or has one among its sources, the handler denies. Else it is a failure, whose text leaves the process
/// only if it is a [`PublicError`], or has one among its sources; without one the mesh sees "handler failed". It is no
/// [`std::error::Error`] itself, since it is made of all of them.
#[derive(Debug)]
pub struct HandlerError(Box<dyn StdError + Send + Sync>);

impl HandlerError {
    /// A failure with a text for the operator of the mesh: short for [`PublicError::new`].
    pub fn public(message: impl Into<String>) -> Self {
        PublicError::new(message).into()
    }

    /// A failure whose text stays in the process: for errors that `?` cannot convert, for example those of `anyhow`, and
    /// for plain texts.
    pub fn internal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// The text that may leave the process.
    pub(crate) fn public_text(&self) -> Option<&str> {
        let public: &PublicError = chain(&*self.0).find_map(<dyn StdError>::downcast_ref)?;
        Some(public.message.as_str()).filter(|message| !message.is_empty())
    }

    /// The denial, if the error is one.
    pub(crate) fn into_denial(self) -> Result<Verdict, Self> {
        let denied: Option<&Denied> = chain(&*self.0).find_map(<dyn StdError>::downcast_ref);
        denied.map(|Denied(denial)| denial.clone()).ok_or(self)
    }

    /// The texts of the error and its sources, for the log of this process.
    pub(crate) fn whole_text(&self) -> String {
        whole_text(&*self.0)
    }
}

/// The texts of an error and its sources.
pub(crate) fn whole_text(error: &(dyn StdError + 'static)) -> String {
    chain(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// An error and its sources: no more than an author could mean, since an error may be its own source.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source()).take(limits::SOURCES)
}

impl<E: StdError + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

/// Why a session ended. It is logged, and the host dials again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the dispatcher sent no welcome in time")]
    NoWelcome,
    #[error("the dispatcher fell silent")]
    Silent,
    #[error("calls were still running when the time to drain was over")]
    CutOff,
    #[error("the dispatcher did not end the stream")]
    NotEnded,
    #[error("the dispatcher chose protocol {0}, this host speaks {version}", version = crate::limits::PROTOCOL)]
    Protocol(u32),
    #[error("the dispatcher broke the contract: {0}")]
    Broken(String),
    #[error("{code:?}: {message}", code = .0.code(), message = .0.message())]
    Status(#[source] Box<tonic::Status>),
    #[error("certificates")]
    Tls(#[source] Box<dyn StdError + Send + Sync>),
    #[error("the dispatcher cannot be reached")]
    Dial(#[source] Box<dyn StdError + Send + Sync>),
}
