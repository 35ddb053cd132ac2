//! Errors of a host and of its handlers.

use std::error::Error as StdError;
use std::fmt;

use crate::hook::Refused;
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
    /// The session with the fake dispatcher of a test ended otherwise than by a drain.
    #[error("session: {0}")]
    Session(String),
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

/// Why a handler gave no verdict. `?` makes one of any error.
///
/// Its text leaves the process only if it is a [`PublicError`], or has one among its sources; else the mesh sees
/// "handler failed". It is no [`std::error::Error`] itself, since it is made of all of them.
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
        let mut error: Option<&(dyn StdError + 'static)> = Some(&*self.0);
        while let Some(e) = error {
            if let Some(public) = e.downcast_ref::<PublicError>() {
                return Some(&public.message).filter(|m| !m.is_empty()).map(String::as_str);
            }
            error = e.source();
        }
        None
    }

    /// The denial, if an initializer refuses the object.
    pub(crate) fn refusal(&self) -> Option<Verdict> {
        let mut error: Option<&(dyn StdError + 'static)> = Some(&*self.0);
        while let Some(e) = error {
            if let Some(Refused(denial)) = e.downcast_ref() {
                return Some(denial.clone());
            }
            error = e.source();
        }
        None
    }

    /// The texts of the error and its sources, for the log of this process.
    pub(crate) fn whole_text(&self) -> String {
        whole_text(&*self.0)
    }
}

/// The texts of an error and its sources.
pub(crate) fn whole_text(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
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
