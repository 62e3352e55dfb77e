//! Many-item look-ups, which the families share.

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
    let Some(contains) = contains else {
        out.array(items.len());
        (0..items.len()).for_each(|_| out.bool(false));
        return;
    };
    look_up(out, items, counters, |batch, out| {
        let mut found = [false; BATCH];
        let found = &mut found[..batch.len()];
        contains(batch, found);
        let mut hits = 0;
        for found in found {
            hits += u64::from(*found);
            out.bool(*found);
        }
        hits
    });
}

/// Replies an array with an element for each item: `reply` gives those of a batch, and
/// tells how many were hits.
pub(super) fn look_up<'a>(
    out: &mut Output<'_>,
    items: Args<'a>,
    counters: &Counters,
    mut reply: impl FnMut(&[&'a [u8]], &mut Output<'_>) -> u64,
) {
    out.array(items.len());
    let mut hits = 0;
    items.batches::<BATCH>(|batch| {
        hits += reply(batch, out);
        true
    });
    counters.looked_up(items.len() as u64, hits);
}
