//! The contract: the messages of `portcullis.admission.v1` and `portcullis.host.v1`. Handlers meet the first in
//! [`Request::admission`](crate::Request::admission); the others are for tests that speak the protocol themselves.

/// Package `portcullis.admission`.
pub mod admission {
    /// What a hook judges, and what it says.
    pub mod v1 {
        #![allow(clippy::all, clippy::pedantic, unreachable_pub)]
        include!("gen/portcullis.admission.v1.rs");
    }
}

/// Package `portcullis.host`.
pub mod host {
    /// The stream between a dispatcher and a host.
    pub mod v1 {
        #![allow(clippy::all, clippy::pedantic, unreachable_pub)]
        include!("gen/portcullis.host.v1.rs");
        pub use crate::wire::Review;
    }
}
