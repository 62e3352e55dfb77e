//! What count-min sketch and Top-K share: a table of rows, in which an item has one
//! cell per row, found by MurmurHash2 with the number of the row as its seed.
//!
//! The hash mixes each word of the item before the seed comes in. Rows are hashed
//! side by side, so that the mixing is done once for all of them, and the rest of it
//! on vectors.

use super::BATCH;

/// Hashes that are computed side by side.
pub(super) const LANES: usize = 8;

/// The hashes of a batch of items.
pub(super) type Hashes = [[u32; LANES]; BATCH];

/// MurmurHash2 of each item for each of the seeds; zeros behind the last item.
pub(super) fn murmur2_batch<'a>(
    items: impl Iterator<Item = &'a [u8]>,
    seeds: [u32; LANES],
) -> Hashes {
    // Multiplies 32-bit numbers four at a time, which the x86-64 baseline cannot:
    // the hashes of an item of 21 bytes take 8 ns in place of 29.
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.1") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { murmur2_batch_sse41(items, seeds) };
    }
    each_murmur2(items, seeds)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
fn murmur2_batch_sse41<'a>(items: impl Iterator<Item = &'a [u8]>, seeds: [u32; LANES]) -> Hashes {
    each_murmur2(items, seeds)
}

#[inline(always)]
fn each_murmur2<'a>(items: impl Iterator<Item = &'a [u8]>, seeds: [u32; LANES]) -> Hashes {
    let mut hashes = [[0; LANES]; BATCH];
    for (hashes, item) in hashes.iter_mut().zip(items) {
        *hashes = murmur2_lanes(item, seeds);
    }
    hashes
}

/// MurmurHash2 of `bytes` for each of the seeds.
#[inline(always)]
pub(super) fn murmur2_lanes(bytes: &[u8], seeds: [u32; LANES]) -> [u32; LANES] {
    const M: u32 = 0x5bd1_e995;
    let length = bytes.len() as u32; // modulo 2^32, as the hash is defined
    let mut lanes = seeds.map(|seed| seed ^ length);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        lanes = lanes.map(|h| h.wrapping_mul(M) ^ k);
    }
    if !tail.is_empty() {
        let k = tail.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        lanes = lanes.map(|h| (h ^ k).wrapping_mul(M));
    }
    lanes.map(|mut h| {
        h ^= h >> 13;
        h = h.wrapping_mul(M);
        h ^ (h >> 15)
    })
}

/// The seeds of the [`LANES`] rows from `first` on.
#[inline]
pub(super) fn row_seeds(first: usize) -> [u32; LANES] {
    // Seeds are 32 bits wide; no table has so many rows.
    std::array::from_fn(|lane| (first + lane) as u32)
}

/// The shape of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rows {
    width: usize,
    divisor: u64,
    reciprocal: u64,
}

impl Rows {
    /// For rows of `width` cells, at least 1, of a table in memory.
    ///
    /// Remainders of hashes by the width are taken without a division. Lemire, Kaser,
    /// Kurz, "Faster remainder by direct computation" (2019): with c = ceil(2^64 / d),
    /// the remainder of n by d is the high half of (c n mod 2^64) d, exactly, for n
    /// and d below 2^32. d = 2^32 works as well, and stands for every greater width,
    /// since those leave a 32-bit hash as it is.
    pub(super) fn new(width: u64) -> Self {
        let divisor = width.clamp(1, 1 << 32);
        // Wraps to 0 for 1, whose remainders are all 0.
        let reciprocal = (u64::MAX / divisor).wrapping_add(1);
        Self { width: width as usize, divisor, reciprocal }
    }

    /// The cell of `hash` within a row.
    #[inline(always)]
    fn column(self, hash: u32) -> usize {
        let fraction = self.reciprocal.wrapping_mul(u64::from(hash));
        ((u128::from(fraction) * u128::from(self.divisor)) >> 64) as usize
    }

    /// Where in the table the cells of hashes of the rows from `first_row` on are.
    /// Places in rows that the table does not have are meaningless.
    #[inline(always)]
    pub(super) fn places(self, first_row: usize, hashes: &[u32; LANES]) -> [usize; LANES] {
        let first = first_row.wrapping_mul(self.width);
        std::array::from_fn(|lane| {
            let start = first.wrapping_add(lane.wrapping_mul(self.width));
            start.wrapping_add(self.column(hashes[lane]))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::structures::hash::murmur2;

    #[test]
    fn columns_are_remainders_at_the_edges() {
        for width in [1, 2, 3, 7, 1 << 31, u32::MAX.into(), 1 << 32, (1 << 32) + 1, u64::MAX] {
            for hash in [0, 1, 2, 6, 7, 1 << 31, u32::MAX - 1, u32::MAX] {
                let expected = u64::from(hash) % width;
                assert_eq!(Rows::new(width).column(hash) as u64, expected, "{hash} % {width}");
            }
        }
    }

    proptest! {
        #[test]
        fn columns_are_remainders(hash: u32, width in 1..=u32::MAX) {
            prop_assert_eq!(Rows::new(width.into()).column(hash) as u32, hash % width);
        }

        #[test]
        fn lanes_are_the_hashes_of_their_seeds(bytes: Vec<u8>, first in 0..1usize << 33) {
            let seeds = row_seeds(first);
            let expected = seeds.map(|seed| murmur2(&bytes, seed));
            prop_assert_eq!(murmur2_lanes(&bytes, seeds), expected);
            let batch = murmur2_batch([&[], &bytes[..]].into_iter(), seeds);
            prop_assert_eq!(batch[1], expected);
            prop_assert_eq!(batch[2], [0; LANES]);
        }
    }
}
