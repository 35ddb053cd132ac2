//! The joining of a review that comes in chunks.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use crate::limits;
use crate::proto::host::v1::{Cancel, Chunk};

/// A review in progress. A violation of the contract is an error that says which, and ends the session.
#[derive(Debug)]
pub(super) struct Assembly {
    /// Of the size of a review.
    limit: usize,
    /// The first chunk of the review in progress, or of the last one.
    first: Option<(Chunk, Instant)>,
    /// `None` between two reviews.
    data: Option<BytesMut>,
}

impl Assembly {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, first: None, data: None }
    }

    /// The call in progress.
    pub(super) fn call(&self) -> Option<u64> {
        self.data.as_ref().and(self.first.as_ref()).map(|(first, _)| first.call_id)
    }

    /// Returns the encoded review if the chunk completes it, and when its first chunk came: its times count from there.
    pub(super) fn add(&mut self, now: Instant, chunk: Chunk) -> Result<Option<(Bytes, Instant)>, String> {
        let more = chunk.data.clone();
        if self.data.is_none() {
            self.begin(now, chunk)?;
        } else {
            self.agrees(&chunk)?;
        }
        let (Some((first, began)), Some(data)) = (&self.first, &mut self.data) else { return Ok(None) };
        if more.is_empty() {
            return Err(format!("a chunk of call {} was empty", first.call_id));
        }
        // It grows with the bytes that have come: a large total alone takes no memory.
        data.extend_from_slice(&more);
        match (data.len() as u64).cmp(&first.total_bytes) {
            std::cmp::Ordering::Less => Ok(None),
            std::cmp::Ordering::Equal => {
                let began = *began;
                Ok(self.data.take().map(|data| (data.freeze(), began)))
            }
            std::cmp::Ordering::Greater => Err(format!(
                "the chunks of call {} are longer than the {} bytes that they say",
                first.call_id, first.total_bytes
            )),
        }
    }

    fn begin(&mut self, now: Instant, mut chunk: Chunk) -> Result<(), String> {
        let call = chunk.call_id;
        if chunk.total_bytes > self.limit as u64 {
            return Err(format!("call {call} has {} bytes, this host takes {}", chunk.total_bytes, self.limit));
        }
        if chunk.hooks as usize > limits::REVIEW_HOOKS {
            return Err(too_many_hooks(call, chunk.hooks as usize));
        }
        if let Some((last, _)) = &self.first
            && call <= last.call_id
        {
            return Err(out_of_order(call, last.call_id));
        }
        chunk.data = Bytes::new();
        self.first = Some((chunk, now));
        self.data = Some(BytesMut::new());
        Ok(())
    }

    fn agrees(&self, chunk: &Chunk) -> Result<(), String> {
        let Some((first, _)) = &self.first else { return Ok(()) };
        if chunk.call_id != first.call_id {
            return Err(format!("a chunk of call {} came while call {} was incomplete", chunk.call_id, first.call_id));
        }
        if chunk.total_bytes != first.total_bytes || chunk.hooks != first.hooks {
            return Err(format!("the chunks of call {} do not agree on its size", first.call_id));
        }
        Ok(())
    }

    /// Drops the review in progress if a cancellation names every hook of it, and returns how many they are.
    pub(super) fn cancel(&mut self, cancel: &Cancel) -> Option<u32> {
        let hooks = self.first.as_ref().map(|(first, _)| first.hooks)?;
        let mut named: Vec<u32> = cancel.hook_indexes.iter().copied().filter(|hook| *hook < hooks).collect();
        named.sort_unstable();
        named.dedup();
        if !cancel.hook_indexes.is_empty() && named.len() < hooks as usize {
            return None;
        }
        self.data = None;
        Some(hooks)
    }

    /// How many hooks the chunks of the last review said that it asks.
    pub(super) fn hooks(&self) -> u32 {
        self.first.as_ref().map_or(0, |(first, _)| first.hooks)
    }
}

pub(super) fn too_many_hooks(call: u64, hooks: usize) -> String {
    format!("call {call} asks {hooks} hooks, more than {}", limits::REVIEW_HOOKS)
}

pub(super) fn out_of_order(call: u64, last: u64) -> String {
    format!("call {call} came after call {last}: each comes once, in the order of their ids")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(call_id: u64, total_bytes: u64, data: &'static str) -> Chunk {
        Chunk { call_id, total_bytes, hooks: 1, data: data.into() }
    }

    #[test]
    fn chunks_that_break_the_contract_are_refused() {
        let cases: &[(&str, &[Chunk])] = &[
            ("1001 bytes, this host takes 1000", &[chunk(1, 1001, "ab")]),
            ("while call 1 was incomplete", &[chunk(1, 4, "ab"), chunk(2, 4, "cd")]),
            ("do not agree", &[chunk(1, 4, "ab"), chunk(1, 5, "cd")]),
            ("was empty", &[chunk(1, 4, "ab"), chunk(1, 4, "")]),
            ("longer than the 3 bytes", &[chunk(1, 3, "ab"), chunk(1, 3, "cd")]),
            ("in the order of their ids", &[chunk(2, 2, "ab"), chunk(1, 2, "ab")]),
            ("asks 70000 hooks", &[Chunk { hooks: 70_000, ..chunk(1, 2, "ab") }]),
        ];
        for (want, chunks) in cases {
            let mut assembly = Assembly::new(1000);
            let last = chunks.iter().cloned().map(|c| assembly.add(Instant::now(), c)).last();
            assert!(matches!(&last, Some(Err(text)) if text.contains(want)), "{want}: {last:?}");
        }
    }

    #[test]
    fn a_promise_of_bytes_takes_no_memory() {
        let mut assembly = Assembly::new(1 << 30);
        assert!(matches!(assembly.add(Instant::now(), chunk(1, 1 << 30, "ab")), Ok(None)));
        assert!(assembly.data.is_some_and(|data| data.capacity() < 1024));
    }
}
