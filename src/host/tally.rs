//! What all values of a data type take together, kept up to date as they come,
//! change and go.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one value takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measure {
    /// Bytes asked from the allocator.
    pub bytes: u64,
    /// Items counted in it.
    pub items: u64,
    /// Parts that it grows by: layers or sub-filters.
    pub layers: u64,
}

/// Sums over all values of a type. Values are freed on a background thread too.
#[derive(Debug)]
pub struct Tally {
    keys: AtomicU64,
    bytes: AtomicU64,
    items: AtomicU64,
    grown: AtomicU64,
}

impl Tally {
    /// No value yet.
    #[expect(clippy::new_without_default, reason = "needed in a static")]
    pub const fn new() -> Self {
        Self {
            keys: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            items: AtomicU64::new(0),
            grown: AtomicU64::new(0),
        }
    }

    /// Values that exist.
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Items of all values.
    pub fn items(&self) -> u64 {
        self.items.load(Relaxed)
    }

    /// Layers that have been added to values since the server started.
    pub fn grown(&self) -> u64 {
        self.grown.load(Relaxed)
    }

    /// A value has come.
    pub fn add(&self, measure: Measure) {
        self.keys.fetch_add(1, Relaxed);
        self.bytes.fetch_add(measure.bytes, Relaxed);
        self.items.fetch_add(measure.items, Relaxed);
    }

    /// A value is going.
    pub fn remove(&self, measure: Measure) {
        self.keys.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(measure.bytes, Relaxed);
        self.items.fetch_sub(measure.items, Relaxed);
    }

    /// A value has changed. Differences are taken modulo 2^64, so that shrinking
    /// works as growing.
    pub(super) fn change(&self, before: Measure, after: Measure) {
        if before.items != after.items {
            self.items.fetch_add(after.items.wrapping_sub(before.items), Relaxed);
        }
        // Most additions change none of these, and an atomic one costs a few percent
        // of a single command.
        if (before.bytes, before.layers) != (after.bytes, after.layers) {
            self.bytes.fetch_add(after.bytes.wrapping_sub(before.bytes), Relaxed);
            self.grown.fetch_add(after.layers.saturating_sub(before.layers), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_follow_values_that_come_change_and_go() {
        let tally = Tally::new();
        let small = Measure { bytes: 10, items: 1, layers: 1 };
        let large = Measure { bytes: 30, items: 5, layers: 3 };
        tally.add(small);
        tally.add(small);
        tally.change(small, large);
        assert_eq!((tally.keys(), tally.bytes(), tally.items(), tally.grown()), (2, 40, 6, 2));
        tally.change(large, small);
        tally.remove(small);
        assert_eq!((tally.keys(), tally.bytes(), tally.items(), tally.grown()), (1, 10, 1, 2));
    }
}
