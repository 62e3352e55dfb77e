//! A value of the size of one pointer: a head and the words that follow it, in one
//! block of memory. A server with millions of small keys pays one allocation for
//! each, and no pointer, length or rounding in between.
//!
//! The block holds no address of itself, so it may be moved (defragmentation).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use super::buffer::OutOfMemory;

/// What stands before the words.
///
/// `note` shares eight bytes with the number of words: four bytes that would be
/// padding otherwise.
#[repr(C)]
struct Block<H, N> {
    head: H,
    words: u32,
    note: N,
}

/// An owned block of a head `H`, a note `N` of up to four bytes, and zeroed words.
#[repr(transparent)]
pub struct Thin<H, N> {
    block: NonNull<Block<H, N>>,
    owned: PhantomData<Block<H, N>>,
}

// SAFETY: owns its block alone, as a box does.
unsafe impl<H: Send, N: Send> Send for Thin<H, N> {}
// SAFETY: shared access only reads.
unsafe impl<H: Sync, N: Sync> Sync for Thin<H, N> {}

impl<H, N> Thin<H, N> {
    /// A block with `words` zeros behind `head` and `note`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room, or `words` exceeds 32 bits.
    pub fn new(head: H, note: N, words: usize) -> Result<Self, OutOfMemory> {
        let count = u32::try_from(words).map_err(|_| OutOfMemory)?;
        let layout = Self::layout(count).ok_or(OutOfMemory)?;
        // SAFETY: a `Block` holds its `u32`, so the size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let block = NonNull::new(memory.cast::<Block<H, N>>()).ok_or(OutOfMemory)?;
        // SAFETY: fresh memory of a layout that begins with a `Block`.
        unsafe { block.write(Block { head, words: count, note }) };
        Ok(Self { block, owned: PhantomData })
    }

    /// Bytes of a block with `words` words; saturates.
    pub const fn size_for(words: usize) -> usize {
        Self::START.saturating_add(words.saturating_mul(size_of::<u64>()))
    }

    /// Where the words begin: behind the block, at the next multiple of a word.
    const START: usize = size_of::<Block<H, N>>().next_multiple_of(align_of::<u64>());

    fn layout(words: u32) -> Option<Layout> {
        let align = align_of::<Block<H, N>>().max(align_of::<u64>());
        let words = usize::try_from(words).ok()?;
        Layout::from_size_align(Self::size_for(words), align).ok()
    }

    fn get(&self) -> &Block<H, N> {
        // SAFETY: a live block that `self` owns.
        unsafe { self.block.as_ref() }
    }

    /// The head.
    #[inline(always)]
    pub fn head(&self) -> &H {
        &self.get().head
    }

    /// The note.
    #[inline(always)]
    pub fn note(&self) -> &N {
        &self.get().note
    }

    /// The words.
    #[inline(always)]
    pub fn words(&self) -> &[u64] {
        let count = self.get().words as usize;
        // SAFETY: `count` words were zeroed behind the block when it was made, and
        // nothing changes `count`.
        unsafe { slice::from_raw_parts(self.first(), count) }
    }

    /// Head, note and words, to change.
    #[inline(always)]
    pub fn parts_mut(&mut self) -> (&mut H, &mut N, &mut [u64]) {
        let first = self.first();
        // SAFETY: a live block that `self` owns and borrows exclusively. The words
        // lie behind it, so the borrows do not overlap.
        unsafe {
            let block = self.block.as_mut();
            let words = slice::from_raw_parts_mut(first, block.words as usize);
            (&mut block.head, &mut block.note, words)
        }
    }

    #[inline(always)]
    fn first(&self) -> *mut u64 {
        // SAFETY: the words begin inside the allocation, or one past its end where
        // there are none.
        unsafe { self.block.cast::<u8>().add(Self::START).cast::<u64>().as_ptr() }
    }

    /// Gives the block away as an address: aligned to a word, so that its lowest
    /// bits are 0.
    pub fn into_raw(self) -> NonNull<()> {
        let block = self.block.cast();
        std::mem::forget(self);
        block
    }

    /// Takes back what [`into_raw`](Self::into_raw) gave away.
    ///
    /// # Safety
    ///
    /// `block` must come from `into_raw` of the same `Thin<H, N>`, and only one
    /// value may own it.
    pub unsafe fn from_raw(block: NonNull<()>) -> Self {
        Self { block: block.cast(), owned: PhantomData }
    }

    /// The block, as the allocator knows it.
    pub fn block(&self) -> (NonNull<u8>, Layout) {
        let layout = Self::layout(self.get().words).expect("it was allocated with this layout");
        (self.block.cast(), layout)
    }

    /// Tells the value that its block has moved.
    ///
    /// # Safety
    ///
    /// `block` must hold the same bytes and belong to the global allocator with the
    /// layout of [`block`](Self::block); the old block must be gone.
    pub unsafe fn moved_to(&mut self, block: NonNull<u8>) {
        self.block = block.cast();
    }
}

impl<H, N> Drop for Thin<H, N> {
    fn drop(&mut self) {
        let (memory, layout) = self.block();
        // SAFETY: the block is live, owned, and allocated in `new` with this layout.
        unsafe {
            self.block.drop_in_place();
            dealloc(memory.as_ptr(), layout);
        }
    }
}

/// Words as they are stored: little-endian.
pub fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory; every byte of an integer is initialized.
    unsafe { slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// As [`bytes_of`], to write into.
pub fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`, borrowed exclusively; all bytes make an integer.
    unsafe { slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn head_note_and_words_keep_what_is_written() {
        let mut thin = Thin::new(7u64, 3u32, 5).unwrap();
        assert_eq!((thin.head(), thin.note(), thin.words()), (&7, &3, &[0; 5][..]));
        let (head, note, words) = thin.parts_mut();
        (*head, *note, words[4]) = (8, 4, 9);
        assert_eq!((thin.head(), thin.note(), thin.words()), (&8, &4, &[0, 0, 0, 0, 9][..]));
        assert_eq!(thin.block().1.size(), 16 + 5 * 8);
    }

    #[test]
    fn it_survives_a_move_of_its_block() {
        let mut thin = Thin::new(String::from("head"), 1u8, 2).unwrap();
        thin.parts_mut().2[1] = 42;
        let (old, layout) = thin.block();
        // SAFETY: a copy of the whole block takes the old one's place.
        unsafe {
            let new = NonNull::new(std::alloc::alloc(layout)).unwrap();
            new.copy_from_nonoverlapping(old, layout.size());
            dealloc(old.as_ptr(), layout);
            thin.moved_to(new);
        }
        assert_eq!((thin.head().as_str(), thin.words()), ("head", &[0, 42][..]));
    }

    #[test]
    fn it_goes_through_an_address_and_drops_its_head_once() {
        let counted = Rc::new(());
        let raw = Thin::new(Rc::clone(&counted), 0u16, 0).unwrap().into_raw();
        assert_eq!(raw.addr().get() % 8, 0);
        // SAFETY: from `into_raw` one line above.
        let thin = unsafe { Thin::<Rc<()>, u16>::from_raw(raw) };
        assert!(thin.words().is_empty());
        assert_eq!(Rc::strong_count(&counted), 2);
        drop(thin);
        assert_eq!(Rc::strong_count(&counted), 1);
    }
}
