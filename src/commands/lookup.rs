//! Many-item look-ups, which the filter families share.

use crate::host::{Args, Output};
use crate::metrics::Counters;
use crate::structures::BATCH;

/// Tells which items of a batch a filter reports present.
pub(super) type ContainsBatch<'a> = &'a dyn Fn(&[&[u8]], &mut [bool]);

/// Replies an array with a boolean for each item: whether the filter reports it, which
/// is no for all where there is no filter.
pub(super) fn reply_found(
    out: &mut Output<'_>,
    items: Args<'_>,
    counters: &Counters,
    contains: Option<ContainsBatch<'_>>,
) {
    out.array(items.len());
    let Some(contains) = contains else {
        (0..items.len()).for_each(|_| out.bool(false));
        return;
    };
    let mut hits = 0;
    items.batches::<BATCH>(|batch| {
        let mut found = [false; BATCH];
        let found = &mut found[..batch.len()];
        contains(batch, found);
        for found in found {
            hits += u64::from(*found);
            out.bool(*found);
        }
        true
    });
    counters.looked_up(items.len() as u64, hits);
}
