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
//!
//! # On request
//!
//! An explicit compaction goes through the whole filter. Each fingerprint may have to
//! try every older sub-filter, so the number of tries is bounded: by
//! [`TRIES_PER_SLOT`] on average, which no filter of up to that many sub-filters
//! exceeds, and at least [`FREE_TRIES`]. What is left then stays where it is.

#![forbid(unsafe_code)]

use super::Filter;
use super::buckets::{Any, Buckets};
use crate::structures::buffer::Buffer;

/// Most work of a compaction after a deletion, in buckets tried: some milliseconds.
const BUDGET: usize = 2 * 1024 * 1024;

/// Tries of an explicit compaction for each slot of the filter.
const TRIES_PER_SLOT: u64 = 32;

/// Tries of an explicit compaction of any filter: some ten milliseconds.
const FREE_TRIES: u64 = 4 * 1024 * 1024;

impl Filter {
    /// Moves what can be moved from newer to older sub-filters, and resets
    /// [`deletes`](Self::deletes). Work in proportion to the slots, see
    /// `compaction.rs`. Whether anything has changed.
    pub fn compact(&mut self) -> bool {
        let bucket_size = Any(self.shape.bucket_size());
        let mut tries = self.slots().saturating_mul(TRIES_PER_SLOT).max(FREE_TRIES);
        let mut changed = self.deletes != 0;
        // As one vector throughout: there can be tens of thousands to free.
        let mut tables = std::mem::take(&mut self.tables).into_vec();
        for number in (1..tables.len()).rev() {
            let emptied = empty_into_older(&mut tables, number, bucket_size, &mut tries);
            let newest = number + 1 == tables.len();
            if emptied.all && newest {
                tables.pop();
            }
            changed |= emptied.some || emptied.all && newest;
        }
        self.tables = tables.into_boxed_slice();
        self.deletes = 0;
        changed
    }

    /// As [`compact`](Self::compact), but ends at the first sub-filter that cannot be
    /// emptied, or whose work would exceed [`BUDGET`].
    pub(super) fn compact_after_deletes(&mut self) {
        let bucket_size = Any(self.shape.bucket_size());
        let (mut budget, mut tries) = (BUDGET, u64::MAX);
        let mut tables = std::mem::take(&mut self.tables).into_vec();
        for number in (1..tables.len()).rev() {
            let work = tables[number].len().saturating_mul(number);
            let Some(rest) = budget.checked_sub(work) else { break };
            budget = rest;
            if !empty_into_older(&mut tables, number, bucket_size, &mut tries).all {
                break;
            }
            // All newer ones have been freed before.
            tables.pop();
        }
        self.tables = tables.into_boxed_slice();
        self.deletes = 0;
    }
}

/// What emptying a sub-filter has come to.
struct Emptied {
    /// It is empty.
    all: bool,
    /// Fingerprints have moved.
    some: bool,
}

/// Moves fingerprints of a sub-filter into older ones, the oldest with room first, as
/// long as there are `tries` left: one for each bucket pair looked at.
///
/// An empty sub-filter inside of the chain has to stay: the sizes of the newer ones
/// follow from their position.
fn empty_into_older(
    tables: &mut [Buffer<u8>],
    number: usize,
    bucket_size: Any,
    tries: &mut u64,
) -> Emptied {
    let (older, rest) = tables.split_at_mut(number);
    let Some(table) = rest.first_mut() else { return Emptied { all: true, some: false } };
    let mut some = false;
    let all = Buckets::new(&mut **table, bucket_size).drain(|key| {
        let within = usize::try_from(*tries).unwrap_or(usize::MAX);
        let mut homes = older.iter_mut().take(within);
        let home = homes.position(|table| Buckets::new(&mut **table, bucket_size).put(key));
        let tried = home.map_or(number, |home| home + 1);
        *tries = tries.saturating_sub(tried as u64);
        some |= home.is_some();
        home.is_some()
    });
    Emptied { all, some }
}
