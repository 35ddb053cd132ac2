//! Frames that are to be sent.

use std::collections::VecDeque;

use prost::Message;
use prost::length_delimiter_len;

use super::fit::fit;
use crate::limits;
use crate::proto::host::v1::connect_request::Frame;
use crate::proto::host::v1::{ConnectRequest, Verdict, Verdicts};

/// The frames, in order. Verdicts that wait one behind the other become one frame if the dispatcher takes batches; none
/// waits for others to come.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: VecDeque<Frame>,
    /// The largest frame with verdicts.
    max_verdict: usize,
    /// Several verdicts in a frame.
    batches: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new(), max_verdict: limits::VERDICT_BYTES, batches: false }
    }

    /// Sets what the dispatcher takes.
    pub(super) fn dispatcher_takes(&mut self, max_verdict: usize, batches: bool) {
        if max_verdict > 0 {
            self.max_verdict = max_verdict;
        }
        self.batches |= batches;
    }

    pub(super) fn push(&mut self, frame: Frame) {
        self.waiting.push_back(frame);
    }

    pub(super) fn push_verdict(&mut self, verdict: Verdict) {
        self.waiting.push_back(Frame::Verdict(fit(verdict, self.max_verdict)));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn next(&mut self) -> Option<ConnectRequest> {
        let frame = match self.waiting.pop_front()? {
            Frame::Verdict(first) if self.batches => self.batch(first),
            frame => frame,
        };
        Some(ConnectRequest { frame: Some(frame) })
    }

    /// Puts the verdicts behind the first one into its frame, as many as fit.
    fn batch(&mut self, first: Verdict) -> Frame {
        let limit = self.max_verdict.min(limits::BATCH_BYTES);
        let mut size = member_len(&first) + limits::FRAME_OVERHEAD;
        let mut verdicts = vec![first];
        while verdicts.len() < limits::BATCH {
            let Some(Frame::Verdict(next)) = self.waiting.front() else { break };
            size += member_len(next);
            if size > limit {
                break;
            }
            if let Some(Frame::Verdict(next)) = self.waiting.pop_front() {
                verdicts.push(next);
            }
        }
        if verdicts.len() > 1 {
            return Frame::Verdicts(Verdicts { verdicts });
        }
        Frame::Verdict(verdicts.swap_remove(0))
    }
}

/// The size of a verdict among several.
fn member_len(verdict: &Verdict) -> usize {
    let len = verdict.encoded_len();
    1 + length_delimiter_len(len) + len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::host::v1::Pong;

    fn verdict(call_id: u64) -> Verdict {
        Verdict { call_id, ..Verdict::default() }
    }

    /// How many verdicts each frame has; 0 for another frame.
    fn shape(outbox: &mut Outbox) -> Vec<usize> {
        std::iter::from_fn(|| outbox.next())
            .map(|request| match request.frame {
                Some(Frame::Verdict(_)) => 1,
                Some(Frame::Verdicts(v)) => v.verdicts.len(),
                _ => 0,
            })
            .collect()
    }

    #[test]
    fn verdicts_share_a_frame_and_pass_no_other_frame() {
        let mut outbox = Outbox::new();
        outbox.dispatcher_takes(1 << 20, true);
        (1..=70).for_each(|call| outbox.push_verdict(verdict(call)));
        outbox.push(Frame::Pong(Pong { seq: 1 }));
        outbox.push_verdict(verdict(71));
        assert_eq!(shape(&mut outbox), [64, 6, 0, 1]);
    }

    #[test]
    fn a_frame_of_verdicts_keeps_the_limit_of_the_dispatcher() {
        let mut outbox = Outbox::new();
        outbox.dispatcher_takes(64, true);
        (1..=100).for_each(|call| outbox.push_verdict(verdict(call)));
        while let Some(frame) = outbox.next() {
            assert!(frame.encoded_len() <= 64);
        }
    }

    #[test]
    fn a_frame_of_verdicts_has_64_kib_at_most() {
        let mut outbox = Outbox::new();
        outbox.dispatcher_takes(1 << 20, true);
        let outcome = Some(crate::core::failure(&"x".repeat(limits::ERROR_BYTES)));
        let large = |call_id| Verdict { call_id, outcome: outcome.clone(), ..Verdict::default() };
        (1..=64).for_each(|call| outbox.push_verdict(large(call)));
        while let Some(frame) = outbox.next() {
            assert!(frame.encoded_len() <= limits::BATCH_BYTES);
        }
    }

    #[test]
    fn a_dispatcher_without_batches_gets_each_verdict_alone() {
        let mut outbox = Outbox::new();
        (1..=3).for_each(|call| outbox.push_verdict(verdict(call)));
        assert_eq!(shape(&mut outbox), [1, 1, 1]);
    }
}
