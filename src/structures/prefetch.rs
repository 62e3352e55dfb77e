//! Hints to load memory ahead of its use.

/// Asks for the cache line that holds `slice[index]`. Does nothing where `index`
/// is out of range, or where the processor has no such hint in stable Rust.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    let Some(target) = slice.get(index) else { return };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the x86-64 baseline, and a prefetch of a valid
    // reference reads nothing that the program could see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(target).cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: `prfm` is a hint that neither reads nor writes program-visible state.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) std::ptr::from_ref(target),
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = target;
}
