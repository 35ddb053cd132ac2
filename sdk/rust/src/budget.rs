//! The calls that a host takes at a time, divided over its sessions.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// While shares change, their sum may exceed the total; the calls beyond it wait for a slot.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    members: Mutex<usize>,
    share: watch::Sender<usize>,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, members: Mutex::new(0), share: watch::Sender::new(total) })
    }

    /// Adds a session, until the member is dropped.
    pub(crate) fn join(self: &Arc<Self>) -> Member {
        self.change(|members| members + 1);
        Member(self.clone())
    }

    /// The share of each session, at least 1.
    pub(crate) fn share(&self) -> watch::Receiver<usize> {
        self.share.subscribe()
    }

    fn change(&self, to: impl FnOnce(usize) -> usize) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        *members = to(*members);
        let share = (self.total / (*members).max(1)).max(1);
        self.share.send_if_modified(|shared| std::mem::replace(shared, share) != share);
    }
}

/// A session among those that share a budget.
#[derive(Debug)]
pub(crate) struct Member(Arc<Budget>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.change(|members| members - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_equal_shares_of_at_least_one_call() {
        let budget = Budget::new(3);
        let share = budget.share();
        assert_eq!(*share.borrow(), 3);
        let mut members: Vec<Member> = (0..5).map(|_| budget.join()).collect();
        assert_eq!(*share.borrow(), 1);
        members.truncate(1);
        assert_eq!(*share.borrow(), 3);
    }
}
