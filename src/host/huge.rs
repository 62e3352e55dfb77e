//! Huge pages for large tables.
//!
//! One look-up in a table of many megabytes touches a page that the processor has no
//! address for in its translation buffer (TLB). Finding it takes several loads, and in
//! a virtual machine some twenty, which together cost more than the miss of the cache.
//! Pages of 2 MiB make the addresses of a whole table fit. In exchange a page is
//! zeroed as a whole when it is first touched, so the first items of a new filter
//! wait for more of it: that is why there is a limit to the size.
//!
//! All of it is a hint to the kernel. Where that has no huge pages, or the server
//! has switched them off for itself, nothing changes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A huge page of x86-64, and of aarch64 with pages of 4 KiB.
const PAGE: usize = 2 << 20;
/// Smaller blocks may not have a whole huge page in them.
const LEAST: usize = 2 * PAGE;

/// Bytes of the largest table that gets huge pages, 0 for none. Tables that are there
/// keep what they have.
pub static LARGEST_TABLE: AtomicU64 = AtomicU64::new(128 << 20);

/// Asks for huge pages in a block of the server's allocator, if its size is fit.
pub(super) fn ask_for(block: *mut u8, size: usize) {
    if size >= LEAST && size as u64 <= LARGEST_TABLE.load(Relaxed) {
        advise(block, size, Advice::Huge);
    }
}

/// Takes back what [`ask_for`] may have asked, before the block is freed: small
/// objects that the allocator puts there should not each take 2 MiB.
pub(super) fn renounce(block: *mut u8, size: usize) {
    if size >= LEAST {
        advise(block, size, Advice::Normal);
    }
}

#[derive(Clone, Copy)]
enum Advice {
    Huge,
    Normal,
}

/// Advises on the whole huge pages within a block. A refusal is of no consequence.
#[cfg(target_os = "linux")]
fn advise(block: *mut u8, size: usize, advice: Advice) {
    let advice = match advice {
        Advice::Huge => libc::MADV_HUGEPAGE,
        Advice::Normal => libc::MADV_NOHUGEPAGE,
    };
    let offset = block.addr().next_multiple_of(PAGE) - block.addr();
    let inside = size.saturating_sub(offset) / PAGE * PAGE;
    // SAFETY: a range within a live block; either advice leaves its content alone.
    unsafe { libc::madvise(block.wrapping_add(offset).cast(), inside, advice) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: *mut u8, _: usize, _: Advice) {}
