//! Stages, modes and states, without the words of the contract that no hook meets.

use crate::proto::{admission::v1 as admission, host::v1 as host};

/// The part of a write at which a hook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Stage {
    /// Initializers complete an object before it is created.
    Initialize = admission::Stage::Initialize as i32,
    /// Mutating hooks change the object.
    Mutate = admission::Stage::Mutate as i32,
    /// Validating hooks judge the object as it will be stored.
    Validate = admission::Stage::Validate as i32,
}

impl Stage {
    /// A stage by its number in the contract; `None` if no hook has it.
    pub(crate) fn of(number: i32) -> Option<Self> {
        [Self::Initialize, Self::Mutate, Self::Validate].into_iter().find(|stage| *stage as i32 == number)
    }

    /// The word for logs and metrics, for example "validate".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

impl From<Stage> for i32 {
    /// The number in the contract, for tests that speak the protocol themselves.
    fn from(stage: Stage) -> Self {
        stage as i32
    }
}

/// Why a hook is asked. A handler without side effects need not care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Not said, or not known to this SDK: as [`Decide`](Self::Decide).
    Unspecified,
    /// The verdict decides: the usual case.
    Decide,
    /// The verdict may not count, since an earlier hook may still change the object.
    Speculative,
    /// The verdict may not count, since another replica is asked as well.
    Hedge,
    /// The verdict decides nothing. A handler that logs or counts its denials may want to leave this one out.
    Shadow,
}

impl Mode {
    pub(crate) fn of(mode: host::Mode) -> Self {
        match mode {
            host::Mode::Unspecified => Self::Unspecified,
            host::Mode::Decide => Self::Decide,
            host::Mode::Speculative => Self::Speculative,
            host::Mode::Hedge => Self::Hedge,
            host::Mode::Shadow => Self::Shadow,
        }
    }

    /// The word for logs, for example "shadow".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Decide => "decide",
            Self::Speculative => "speculative",
            Self::Hedge => "hedge",
            Self::Shadow => "shadow",
        }
    }
}

/// How a hook stands with a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HookState {
    /// Not said, or not known to this SDK.
    Unspecified,
    /// No configuration holds a hook of this name and stage.
    UnknownHook,
    /// No `HookRoute` grants the hook to the identity of the host.
    NotAuthorized,
    /// The hook waits for its first probe.
    Pending,
    /// The hook is asked for verdicts.
    InRotation,
    /// The hook gets no new calls; those in flight finish.
    Removing,
    /// The hook is gone.
    Removed,
}

impl HookState {
    pub(crate) fn of(state: host::State) -> Self {
        match state {
            host::State::Unspecified => Self::Unspecified,
            host::State::UnknownHook => Self::UnknownHook,
            host::State::NotAuthorized => Self::NotAuthorized,
            host::State::Pending => Self::Pending,
            host::State::InRotation => Self::InRotation,
            host::State::Removing => Self::Removing,
            host::State::Removed => Self::Removed,
        }
    }

    /// The word for logs, for example `in_rotation`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::UnknownHook => "unknown_hook",
            Self::NotAuthorized => "not_authorized",
            Self::Pending => "pending",
            Self::InRotation => "in_rotation",
            Self::Removing => "removing",
            Self::Removed => "removed",
        }
    }
}
