//! The messages of the contract that are not generated.

use std::sync::OnceLock;

use bytes::Bytes;
use prost::Message;

use crate::proto::admission::v1::AdmissionRequest;
use crate::proto::host::v1::HookCall;

/// One request to one or more hooks, field for field as in the contract. The request stays encoded, so that a large or
/// malformed one costs the reader of the stream nothing.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Review {
    /// Id of the call.
    #[prost(uint64, tag = "1")]
    pub call_id: u64,
    /// The hooks that are asked.
    #[prost(message, repeated, tag = "2")]
    pub hooks: Vec<HookCall>,
    /// W3C traceparent of the call's span; empty when there is no trace.
    #[prost(string, tag = "3")]
    pub traceparent: String,
    /// W3C tracestate that goes with it.
    #[prost(string, tag = "4")]
    pub tracestate: String,
    /// The encoded `AdmissionRequest`.
    #[prost(bytes = "bytes", optional, tag = "15")]
    pub request: Option<Bytes>,
}

/// A review that has come whole. Its request is decoded once for all of its hooks, by the first handler that runs.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) review: Review,
    request: OnceLock<Option<AdmissionRequest>>,
}

impl Received {
    pub(crate) fn new(review: Review) -> Self {
        Self { review, request: OnceLock::new() }
    }

    /// The request; `None` if it cannot be decoded.
    pub(crate) fn request(&self) -> Option<&AdmissionRequest> {
        let encoded = self.review.request.clone().unwrap_or_default();
        self.request.get_or_init(|| AdmissionRequest::decode(encoded).ok()).as_ref()
    }
}
