#![doc = include_str!("../README.md")]

mod board;
mod budget;
mod change;
mod core;
mod dial;
mod dial_plan;
mod error;
mod hook;
mod host;
mod limits;
#[cfg(test)]
#[path = "../tests/log/mod.rs"]
mod log;
mod manager;
pub mod proto;
mod request;
mod session;
#[cfg(test)]
mod session_test;
pub mod signal;
#[cfg(test)]
mod sockets_test;
mod stage;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod verdict;
mod wire;

pub use crate::board::{HookStatus, SessionStatus, Status};
pub use crate::error::{Denied, Error, HandlerError, PublicError};
pub use crate::hook::{HandlerResult, Hook};
pub use crate::host::{Builder, Host};
pub use crate::request::{Kind, Objects, Request, Resource};
pub use crate::stage::{HookState, Mode, Stage};
pub use crate::tls::{Pem, Tls};
pub use crate::verdict::Verdict;
