//! Whether a key may take more memory.

use crate::config;
use crate::host::{self, Output};
use crate::structures::quota::Growth;

/// Allocations below this are left to the server's own check before the command
/// (flag `deny-oom`): asking for the exact headroom costs more than they do.
const LARGE: u64 = 64 * 1024;

/// Decides for one call. A replica and the loading of an AOF follow what the
/// primary did, whatever the limits here.
pub(super) fn allows(out: &Output<'_>, growth: Growth) -> bool {
    if growth.total > isize::MAX as u64 {
        return false;
    }
    if growth.more < LARGE && growth.total < LARGE || host::must_follow(out) {
        return true;
    }
    let limit = config::max_memory_per_key();
    let within_limit = limit == 0 || growth.total <= limit;
    within_limit
        && (growth.more < LARGE
            || host::memory_headroom(out).is_none_or(|headroom| growth.more <= headroom))
}

/// Most rows of a sketch that a command makes. Each item costs work in every row, and
/// each row halves the chance of a wrong estimate at least: `CMS.INITBYPROB` never
/// takes more than 150. With a hundred million rows of one cell, which fit memory, one
/// item would keep the server busy for a minute.
const MAX_ROWS: u64 = 65_536;

/// Whether a new sketch may have so many rows. Stored ones may have more: they come
/// from where they were allowed.
pub(super) fn allows_rows(out: &Output<'_>, rows: u64) -> bool {
    rows <= MAX_ROWS || host::must_follow(out)
}
