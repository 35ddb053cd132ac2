//! Cancellations that come before their reviews.

use std::collections::VecDeque;
use std::time::Instant;

use crate::limits;
use crate::proto::host::v1::Cancel;

/// A bounded list of cancellations, oldest first.
#[derive(Debug, Default)]
pub(super) struct EarlyCancels {
    list: VecDeque<EarlyCancel>,
    /// Of all in the list.
    size: usize,
}

#[derive(Debug)]
pub(super) struct EarlyCancel {
    cancel: Cancel,
    at: Instant,
}

impl EarlyCancel {
    /// Counts the cancellation and each hook that it names.
    fn size(&self) -> usize {
        1 + self.cancel.hook_indexes.len()
    }

    /// Whether it names a hook.
    pub(super) fn names(&self, hook: u32) -> bool {
        self.cancel.hook_indexes.is_empty() || self.cancel.hook_indexes.contains(&hook)
    }
}

impl EarlyCancels {
    /// Adds a cancellation. At the bound the oldest are forgotten: their handlers run to their deadlines.
    pub(super) fn remember(&mut self, now: Instant, cancel: Cancel) {
        let early = EarlyCancel { cancel, at: now };
        if early.size() > limits::EARLY_CANCELS {
            return;
        }
        while self.size + early.size() > limits::EARLY_CANCELS {
            self.forget_first();
        }
        self.size += early.size();
        self.list.push_back(early);
    }

    /// Forgets the cancellations that came before a time.
    pub(super) fn forget(&mut self, before: Option<Instant>) {
        while self.list.front().is_some_and(|first| Some(first.at) < before) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.list.pop_front() {
            self.size -= first.size();
        }
    }

    /// Removes and returns the cancellations of a call.
    pub(super) fn take(&mut self, call: u64) -> Vec<EarlyCancel> {
        if self.list.is_empty() {
            return Vec::new();
        }
        let (taken, rest): (VecDeque<_>, _) =
            std::mem::take(&mut self.list).into_iter().partition(|early| early.cancel.call_id == call);
        self.list = rest;
        self.size -= taken.iter().map(EarlyCancel::size).sum::<usize>();
        taken.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cancel(call_id: u64, hooks: u32) -> Cancel {
        Cancel { call_id, hook_indexes: (0..hooks).collect() }
    }

    #[test]
    fn the_oldest_are_forgotten_at_the_bound() {
        let (now, mut early) = (Instant::now(), EarlyCancels::default());
        for call in 0..limits::EARLY_CANCELS as u64 {
            early.remember(now, cancel(call, 0));
        }
        early.remember(now, cancel(9999, 3));
        for forgotten in 0..4 {
            assert!(early.take(forgotten).is_empty(), "{forgotten}");
        }
        assert_eq!(early.take(4).len(), 1);
        assert_eq!(early.take(9999).len(), 1);
        assert_eq!(early.size, limits::EARLY_CANCELS - 5);
    }

    #[test]
    fn one_that_names_more_hooks_than_the_bound_displaces_no_others() {
        let (now, mut early) = (Instant::now(), EarlyCancels::default());
        early.remember(now, cancel(1, 0));
        early.remember(now, cancel(2, 2000));
        assert_eq!(early.take(1).len(), 1);
        assert!(early.take(2).is_empty());
    }
}
