//! Flat memory of the structures: zeroed by the allocator (and so untouched until
//! used), allocated fallibly, viewable as the bytes that are stored.
//!
//! With [`crate::structures::quota`] in front of it, no request of a client ends in
//! an abort: `vec![0; n]` and `clone()` do, so the cores use neither for sizes that
//! a client chose.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

// Stored forms are little-endian and are views of this memory.
#[cfg(target_endian = "big")]
compile_error!("ferrobloom supports little-endian targets only");

/// The memory asked for is not to be had: a limit, or the allocator, refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("insufficient memory")
    }
}

impl std::error::Error for OutOfMemory {}

/// A heap block that a structure owns: what the server measures, and moves when it
/// defragments.
pub trait Part {
    /// The block, as the global allocator knows it. Dangling where its size is 0.
    fn block(&self) -> (NonNull<u8>, Layout);

    /// Tells the owner that its block has moved.
    ///
    /// # Safety
    ///
    /// `block` must hold the same bytes as the old one and belong to the global
    /// allocator with the same layout; the old one must be gone.
    unsafe fn moved_to(&mut self, block: NonNull<u8>);
}

impl<T> Part for Box<T> {
    fn block(&self) -> (NonNull<u8>, Layout) {
        (NonNull::from(&**self).cast(), Layout::new::<T>())
    }

    unsafe fn moved_to(&mut self, block: NonNull<u8>) {
        // SAFETY: the caller's promise makes it the box's new block; the old box is
        // forgotten, as its block is gone.
        let moved = unsafe { Box::from_raw(block.cast::<T>().as_ptr()) };
        mem::forget(mem::replace(self, moved));
    }
}

impl<T> Part for Box<[T]> {
    fn block(&self) -> (NonNull<u8>, Layout) {
        (NonNull::from(&**self).cast(), Layout::for_value(&**self))
    }

    unsafe fn moved_to(&mut self, block: NonNull<u8>) {
        let moved = NonNull::slice_from_raw_parts(block.cast::<T>(), self.len());
        // SAFETY: as for a box of one value.
        let moved = unsafe { Self::from_raw(moved.as_ptr()) };
        mem::forget(mem::replace(self, moved));
    }
}

impl<T> Part for Vec<T> {
    fn block(&self) -> (NonNull<u8>, Layout) {
        let layout = Layout::array::<T>(self.capacity()).expect("it has been allocated");
        (NonNull::from(self.as_slice()).cast(), layout)
    }

    unsafe fn moved_to(&mut self, block: NonNull<u8>) {
        let (len, capacity) = (self.len(), self.capacity());
        // SAFETY: as for a box.
        let moved = unsafe { Vec::from_raw_parts(block.cast::<T>().as_ptr(), len, capacity) };
        mem::forget(mem::replace(self, moved));
    }
}

/// Element types of a [`Buffer`].
///
/// # Safety
///
/// Every bit pattern, zeros among them, must be a valid value without padding.
pub unsafe trait Plain: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {}

// SAFETY: integers.
unsafe impl Plain for u8 {}
// SAFETY: integers.
unsafe impl Plain for u16 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: every pattern is a number, an infinity or a NaN.
unsafe impl Plain for f64 {}
// SAFETY: eight integers, sized as its alignment, so without padding.
unsafe impl Plain for Line {}
// SAFETY: a number and an integer of one size and alignment, so without padding.
unsafe impl Plain for Centroid {}

/// A cache line of eight words, aligned as one.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Line(pub [u64; 8]);

/// A centroid of a t-digest.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Centroid {
    /// The mean of the observations that it stands for, finite.
    pub mean: f64,
    /// How many observations those are, at least 1 and below 2^63.
    pub weight: u64,
}

/// An owned array of fixed length, in one block of the global allocator.
pub struct Buffer<T: Plain> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: owns its memory alone; `T` is plain data.
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// An empty buffer, without an allocation.
    pub const fn empty() -> Self {
        Self { first: NonNull::dangling(), len: 0 }
    }

    /// `len` zeros. The pages of a large buffer stay unmapped until written.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room, or the size overflows.
    pub fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        let layout = Layout::array::<T>(len).map_err(|_| OutOfMemory)?;
        if layout.size() == 0 {
            return Ok(Self::empty());
        }
        // SAFETY: not of size zero.
        let block = unsafe { alloc_zeroed(layout) };
        let first = NonNull::new(block.cast::<T>()).ok_or(OutOfMemory)?;
        Ok(Self { first, len })
    }

    /// A copy of `values`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn copy_of(values: &[T]) -> Result<Self, OutOfMemory> {
        let mut copy = Self::zeroed(values.len())?;
        copy.copy_from_slice(values);
        Ok(copy)
    }

    /// Takes stored bytes over: without a copy where their block is aligned for
    /// `T`, as the blocks of servers are for all but [`Line`].
    ///
    /// # Errors
    ///
    /// `None` where the length is not a whole number of elements, or a copy was
    /// necessary and there is no memory for it.
    pub fn from_bytes(bytes: Box<[u8]>) -> Option<Self> {
        let len = bytes.len() / size_of::<T>();
        if len * size_of::<T>() != bytes.len() {
            return None;
        }
        if bytes.is_empty() {
            return Some(Self::empty());
        }
        // Blocks of alignments up to a word are plain blocks of the allocator
        // (`malloc` or the server's), whatever alignment was asked for.
        let same_block = align_of::<T>() <= align_of::<usize>();
        if same_block && bytes.as_ptr().cast::<T>().is_aligned() {
            let first = NonNull::from(Box::leak(bytes)).cast::<T>();
            return Some(Self { first, len });
        }
        let mut copy = Self::zeroed(len).ok()?;
        copy.as_bytes_mut().copy_from_slice(&bytes);
        Some(copy)
    }

    /// A second buffer with the same content. Where that is zeros, pages of a large
    /// copy stay unmapped as in [`zeroed`](Self::zeroed).
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        const PAGE: usize = 4096;
        static ZEROS: [u8; PAGE] = [0; PAGE];
        let mut copy = Self::zeroed(self.len)?;
        let pieces = copy.as_bytes_mut().chunks_mut(PAGE).zip(self.as_bytes().chunks(PAGE));
        for (to, from) in pieces {
            if *from != ZEROS[..from.len()] {
                to.copy_from_slice(from);
            }
        }
        Ok(copy)
    }

    /// The memory as stored: little-endian elements one after another.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the buffer's own memory; plain elements have no padding.
        unsafe { slice::from_raw_parts(self.first.as_ptr().cast(), self.size()) }
    }

    /// As [`as_bytes`](Self::as_bytes), to write into.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`, borrowed exclusively; every pattern is valid.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr().cast(), self.size()) }
    }

    /// Bytes that the elements take.
    pub fn size(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T: Plain> Part for Buffer<T> {
    fn block(&self) -> (NonNull<u8>, Layout) {
        let layout = Layout::array::<T>(self.len).expect("it has been allocated");
        (self.first.cast(), layout)
    }

    unsafe fn moved_to(&mut self, block: NonNull<u8>) {
        self.first = block.cast();
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        let (block, layout) = self.block();
        if layout.size() != 0 {
            // SAFETY: allocated in `zeroed`, or a plain block in `from_bytes`.
            unsafe { dealloc(block.as_ptr(), layout) }
        }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialized elements that the buffer owns.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T: Plain> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Plain> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_to_a_cache_line() {
        for len in [1, 3, 1000] {
            let lines = Buffer::<Line>::zeroed(len).unwrap();
            assert_eq!(lines.as_ptr().addr() % 64, 0);
            assert!(lines.iter().all(|line| *line == Line::default()));
        }
    }

    #[test]
    fn stored_bytes_come_back_as_elements() {
        let words = Buffer::<u32>::from_bytes(vec![1, 0, 0, 0, 0, 1, 0, 0].into()).unwrap();
        assert_eq!(*words, [1, 256]);
        assert_eq!(words.as_bytes(), [1, 0, 0, 0, 0, 1, 0, 0]);
        assert!(Buffer::<u32>::from_bytes(vec![1, 2, 3].into()).is_none());
        assert!(Buffer::<u64>::from_bytes(Vec::new().into()).unwrap().is_empty());
        assert_eq!(Buffer::<Line>::from_bytes(vec![7; 128].into()).unwrap().len(), 2);
    }

    #[test]
    fn a_copy_has_the_content_wherever_it_is_zero() {
        assert_eq!(Buffer::<u64>::empty().try_clone(), Ok(Buffer::empty()));
        // Around whole pages, with something in no page, one of them, or all.
        for len in [1, 511, 512, 513, 1024, 5000] {
            let mut buffer = Buffer::<u64>::zeroed(len).unwrap();
            assert_eq!(buffer.try_clone().as_ref(), Ok(&buffer));
            for place in [0, len / 2, len - 1] {
                buffer[place] = 1 << 63;
                assert_eq!(buffer.try_clone().as_ref(), Ok(&buffer), "{place} of {len}");
                buffer[place] = 0;
            }
            buffer.fill(7);
            assert_eq!(buffer.try_clone().as_ref(), Ok(&buffer));
        }
        let mut lines = Buffer::<Line>::zeroed(100).unwrap();
        lines[99].0[7] = 1;
        assert_eq!(lines.try_clone().as_ref(), Ok(&lines));
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert_eq!(Buffer::<u64>::zeroed(usize::MAX), Err(OutOfMemory));
        assert_eq!(Buffer::<u8>::zeroed(isize::MAX as usize - 100), Err(OutOfMemory));
    }
}
