//! The slots of one sub-filter, seen as buckets: the operations that need to know
//! no other sub-filter.
//!
//! A slot is a byte: 0 is free, anything else a fingerprint. Bucket `b` is the
//! `bucket size` slots from `b * bucket size` on. The number of buckets is a power
//! of two, and the low bits of a hash are its bucket.

#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut, Range};

use super::key::{Key, partner};
use crate::structures::prefetch::prefetch;

/// Slots of a cache line.
const LINE: usize = 64;

/// A free slot.
const FREE: u8 = 0;

/// The number of slots of a bucket, 1 to 255: known to the compiler for common
/// sizes, so that the search of a bucket is a few comparisons and no loop.
pub(super) trait BucketSize: Copy {
    /// The number of slots.
    fn get(self) -> usize;
}

/// A size that the compiler knows.
#[derive(Clone, Copy)]
pub(super) struct Fixed<const SIZE: usize>;

impl<const SIZE: usize> BucketSize for Fixed<SIZE> {
    #[inline(always)]
    fn get(self) -> usize {
        SIZE
    }
}

/// Any size.
#[derive(Clone, Copy)]
pub(super) struct Any(pub(super) u8);

impl BucketSize for Any {
    #[inline(always)]
    fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// The buckets of one sub-filter, in borrowed slots.
pub(super) struct Buckets<T, S> {
    slots: T,
    size: S,
    mask: u64,
}

impl<T: Deref<Target = [u8]>, S: BucketSize> Buckets<T, S> {
    /// Sees `slots` as buckets. Their number must be `size` times a power of two.
    #[inline(always)]
    pub(super) fn new(slots: T, size: S) -> Self {
        // The logarithm of `size * 2^n` is that of `size` plus n: no division.
        let log2 = (slots.len() | 1).ilog2() - (size.get() | 1).ilog2();
        Self { slots, size, mask: (1 << log2) - 1 }
    }

    /// The slots of the bucket of a hash.
    #[inline(always)]
    fn range(&self, hash: u64) -> Range<usize> {
        let start = (hash & self.mask) as usize * self.size.get();
        start..start + self.size.get()
    }

    /// Asks for the memory of both buckets of `key`.
    #[inline(always)]
    pub(super) fn prefetch(&self, key: Key) {
        for hash in [key.hash, key.other_hash()] {
            self.range(hash).step_by(LINE).for_each(|slot| prefetch(&self.slots, slot));
        }
    }

    /// Whether a bucket of `key` holds its fingerprint.
    #[inline(always)]
    pub(super) fn hold(&self, key: Key) -> bool {
        self.occurrences(key.hash, key.fingerprint) != 0
            || self.occurrences(key.other_hash(), key.fingerprint) != 0
    }

    /// How often the buckets of `key` hold its fingerprint. One slot counts once,
    /// also where both buckets are the same.
    pub(super) fn count(&self, key: Key) -> usize {
        let first = self.occurrences(key.hash, key.fingerprint);
        if self.range(key.hash) == self.range(key.other_hash()) {
            return first;
        }
        first + self.occurrences(key.other_hash(), key.fingerprint)
    }

    /// Whether both buckets of `key` hold nothing but its fingerprint. Nothing can
    /// be evicted from them then: every fingerprint would move to where it is.
    pub(super) fn hold_nothing_but(&self, key: Key) -> bool {
        let full = self.size.get();
        self.occurrences(key.hash, key.fingerprint) == full
            && self.occurrences(key.other_hash(), key.fingerprint) == full
    }

    /// How often the bucket of `hash` holds `fingerprint`. Without branches, so that
    /// buckets of any size are compared many slots at a time.
    #[inline(always)]
    fn occurrences(&self, hash: u64, fingerprint: u8) -> usize {
        let bucket = &self.slots[self.range(hash)];
        // At most 255 slots: a byte is wide enough and keeps the vectors narrow.
        usize::from(bucket.iter().fold(0, |sum, &slot| sum + u8::from(slot == fingerprint)))
    }

    /// The first slot with `value`: of the first bucket, or else of the second.
    #[inline(always)]
    fn find(&self, value: u8, first: u64, second: u64) -> Option<usize> {
        self.find_in(value, first).or_else(|| self.find_in(value, second))
    }

    /// The first slot with `value` in the bucket of `hash`.
    #[inline(always)]
    fn find_in(&self, value: u8, hash: u64) -> Option<usize> {
        let range = self.range(hash);
        let start = range.start;
        self.slots[range].iter().position(|&slot| slot == value).map(|slot| start + slot)
    }
}

impl<T: DerefMut<Target = [u8]>, S: BucketSize> Buckets<T, S> {
    /// Puts the fingerprint into the first free slot of the bucket of `hash`, or
    /// else of the other bucket. Whether there was one.
    #[inline(always)]
    pub(super) fn put(&mut self, key: Key) -> bool {
        let free = self.find(FREE, key.hash, key.other_hash());
        if let Some(slot) = free {
            self.slots[slot] = key.fingerprint;
        }
        free.is_some()
    }

    /// Frees the first slot with the fingerprint of `key`. Whether there was one.
    #[inline(always)]
    pub(super) fn take(&mut self, key: Key) -> bool {
        let found = self.find(key.fingerprint, key.hash, key.other_hash());
        if let Some(slot) = found {
            self.slots[slot] = FREE;
        }
        found.is_some()
    }

    /// Makes room for `key` by moving up to `max_iterations` fingerprints to their
    /// other buckets, each in place of the next. Whether the last of them found a
    /// free slot; if not, every slot is as it was before.
    ///
    /// Fan, Andersen, Kaminsky, Mitzenmacher, "Cuckoo Filter" (2014), algorithm 1;
    /// the victims are RedisBloom's: one slot further in each bucket visited.
    pub(super) fn evict(&mut self, key: Key, max_iterations: u16) -> bool {
        let mut bucket = key.hash;
        let mut fingerprint = key.fingerprint;
        let mut victim = 0;
        for _ in 0..max_iterations {
            self.swap(bucket, victim, &mut fingerprint);
            bucket = partner(bucket, fingerprint);
            if let Some(slot) = self.find_in(FREE, bucket) {
                self.slots[slot] = fingerprint;
                return true;
            }
            victim = if victim + 1 == self.size.get() { 0 } else { victim + 1 };
        }
        for _ in 0..max_iterations {
            victim = if victim == 0 { self.size.get() - 1 } else { victim - 1 };
            bucket = partner(bucket, fingerprint);
            self.swap(bucket, victim, &mut fingerprint);
        }
        false
    }

    #[inline(always)]
    fn swap(&mut self, hash: u64, slot: usize, fingerprint: &mut u8) {
        let slot = self.range(hash).start + slot;
        std::mem::swap(&mut self.slots[slot], fingerprint);
    }

    /// Offers every fingerprint to `home`, which says whether it has taken it.
    /// Whether all were taken.
    pub(super) fn drain(&mut self, mut home: impl FnMut(Key) -> bool) -> bool {
        let mut all = true;
        for (number, line) in self.slots.chunks_mut(LINE).enumerate() {
            // Large, mostly empty sub-filters are common.
            if line.iter().fold(FREE, |any, &slot| any | slot) == FREE {
                continue;
            }
            for (offset, slot) in line.iter_mut().enumerate().filter(|(_, slot)| **slot != FREE) {
                let bucket = (number * LINE + offset) / self.size.get();
                let taken = home(Key { hash: bucket as u64, fingerprint: *slot });
                if taken {
                    *slot = FREE;
                }
                all &= taken;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_eviction_leaves_every_slot_as_it_was() {
        for size in [1_u8, 2, 3, 7, 255] {
            for iterations in [1, 2, 19, 20, 1000] {
                let full: Vec<u8> =
                    (0..usize::from(size) * 8).map(|slot| (slot * 37 % 255) as u8 + 1).collect();
                let mut slots = full.clone();
                let mut buckets = Buckets::new(&mut slots[..], Any(size));
                for item in 0..50_u32 {
                    assert!(!buckets.evict(Key::of(&item.to_le_bytes()), iterations));
                }
                assert_eq!(slots, full, "bucket size {size}, {iterations} iterations");
            }
        }
    }

    #[test]
    fn a_slot_of_two_equal_buckets_counts_once() {
        let key = Key { hash: 0, fingerprint: 2 };
        let slots = [2, 2, 0, 2];
        assert_eq!(Buckets::new(&slots[..], Any(4)).count(key), 3);
        // The distance of the two buckets is odd for fingerprint 1.
        let key = Key { hash: 0, fingerprint: 1 };
        let slots = [1, 0, 1, 1];
        assert_eq!(Buckets::new(&slots[..], Fixed::<2>).count(key), 3);
    }
}
