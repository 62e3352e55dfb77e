//! Compaction: fingerprints of newer sub-filters move into free slots of older ones,
//! and sub-filters that end up empty at the new end of the chain are freed.
//!
//! # After deletions
//!
//! RedisBloom compacts by itself, once more than a tenth of the items has been
//! deleted, however large the filter is: with a large sub-filter and few items every
//! deletion blocks the server. Here the work is estimated first: a sub-filter costs
//! its slots times the sub-filters older than it, which each of its fingerprints may
//! have to try. Sub-filters are compacted, newest first, as long as the sum stays
//! within [`BUDGET`]. So filters of ordinary size have RedisBloom's bits (two
//! sub-filters of 1 Mi slots, or 60 of 1 Ki), and larger ones wait for an explicit
//! compaction. The estimate depends on the sizes alone: replicas, and servers that
//! have loaded the filter, do the same.

#![forbid(unsafe_code)]

use super::Filter;
use super::buckets::{Any, Buckets};

/// Most work of a compaction after a deletion, in buckets tried: some milliseconds.
const BUDGET: usize = 2 * 1024 * 1024;

impl Filter {
    /// Moves what can be moved from newer to older sub-filters, and resets
    /// [`deletes`](Self::deletes). Work in proportion to the slots times the
    /// sub-filters.
    pub fn compact(&mut self) {
        for number in (1..self.tables.len()).rev() {
            if self.empty_into_older(number) {
                self.free_if_newest(number);
            }
        }
        self.deletes = 0;
    }

    /// As [`compact`](Self::compact), but ends at the first sub-filter that cannot be
    /// emptied, or whose work would exceed [`BUDGET`].
    pub(super) fn compact_after_deletes(&mut self) {
        let mut budget = BUDGET;
        for number in (1..self.tables.len()).rev() {
            let work = self.tables[number].len().saturating_mul(number);
            let Some(rest) = budget.checked_sub(work) else { break };
            budget = rest;
            if !self.empty_into_older(number) {
                break;
            }
            self.free_if_newest(number);
        }
        self.deletes = 0;
    }

    /// Moves fingerprints of a sub-filter into older ones, the oldest with room
    /// first. Whether it is empty then.
    fn empty_into_older(&mut self, number: usize) -> bool {
        let size = Any(self.shape.bucket_size());
        let (older, rest) = self.tables.split_at_mut(number);
        let Some(table) = rest.first_mut() else { return true };
        Buckets::new(&mut **table, size).drain(|key| {
            let mut older = older.iter_mut().map(|table| Buckets::new(&mut **table, size));
            older.any(|mut buckets| buckets.put(key))
        })
    }

    /// Frees an empty sub-filter where no newer one is left. One inside of the chain
    /// stays: the sizes of the newer ones follow from their position.
    fn free_if_newest(&mut self, number: usize) {
        if number + 1 == self.tables.len() {
            let mut tables = std::mem::take(&mut self.tables).into_vec();
            tables.pop();
            self.tables = tables.into_boxed_slice();
        }
    }
}
