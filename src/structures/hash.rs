//! The hash functions, behind names that say what they are for.
//!
//! RedisBloom's structures are fixed to two functions of Austin Appleby's
//! MurmurHash2 family (public domain), described in the compatibility
//! specification. Multiplication is modulo 2^64 or 2^32, input is read
//! little-endian whatever the host.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// MurmurHash64A, the 64-bit variant for 64-bit platforms.
#[inline]
pub fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut h = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        h = (h ^ k).wrapping_mul(M);
    }
    if !tail.is_empty() {
        h = (h ^ little_endian(tail)).wrapping_mul(M);
    }
    h ^= h >> R;
    h = h.wrapping_mul(M);
    h ^ (h >> R)
}

/// MurmurHash2, the 32-bit original. The length enters modulo 2^32.
#[inline]
pub fn murmur2(bytes: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut h = seed ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    if !tail.is_empty() {
        h = (h ^ little_endian(tail) as u32).wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// xxh3-128 with a seed, as its low and high half: the hash of our own layouts.
#[inline]
pub fn seeded128(bytes: &[u8], seed: u64) -> (u64, u64) {
    let hash = xxh3_128_with_seed(bytes, seed);
    (hash as u64, (hash >> 64) as u64)
}

/// Up to seven bytes as a number, the first byte lowest.
#[inline]
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `n` bytes of the specification's sequence `P`.
    fn p(n: usize) -> Vec<u8> {
        (0..n).map(|i| (7 * i + 3) as u8).collect()
    }

    #[test]
    fn murmur64a_gives_the_vectors_of_the_specification() {
        const SEED: u64 = 0xc6a4_a793_5bd1_e995;
        for (item, a, b, zero) in [
            (p(0), 0x1ab11ea5a7b2c56e, 0xbbddcb5ab56dd547, 0),
            (p(1), 0x77116fc6d1ba1b16, 0xdd69aab97fc9c7d0, 0xeff73957675199d4),
            (p(7), 0xee4133dba9b89b8f, 0xc0fd5aaa1c8a9604, 0x1d5d24eb3d5f786d),
            (p(8), 0xc2e32c688d33a7db, 0xa9128abb412d4e54, 0xf7b07c9937b469c3),
            (p(9), 0x48cdea437031688f, 0xd66af46325ac4b14, 0x67b2fe24ebcf6f34),
            (p(33), 0x4f4034d1431ddb0d, 0x292355957ee50d79, 0x331d09ecd0c3c950),
            (b"hello world".to_vec(), 0xbae8fb35317acde1, 0xa5c3078260d44436, 0xd3ba2368a832afce),
            (vec![0], 0, 0x5825f5f3bd962979, 0x5825f5f3bd962979),
            (vec![0x78; 1000], 0x454cbbadcd8996e4, 0xac53dc6b4acefe01, 0x532e509f3d4e1b10),
        ] {
            assert_eq!(murmur64a(&item, SEED), a, "{item:x?}");
            assert_eq!(murmur64a(&item, a), b, "{item:x?}");
            assert_eq!(murmur64a(&item, 0), zero, "{item:x?}");
        }
    }

    #[test]
    fn murmur2_gives_the_vectors_of_the_specification() {
        for (item, a, b) in [
            (p(0), 0x106e08d9, 0x456d9087),
            (p(1), 0x237ccf2a, 0xc2637606),
            (p(10), 0x7874ea98, 0x1273ddb5),
            (b"foo".to_vec(), 0x23a256d0, 0x9fbc0655),
            (vec![0x78; 1000], 0xc050b11e, 0xa22db63e),
        ] {
            assert_eq!(murmur2(&item, 0x9747_b28c), a, "{item:x?}");
            assert_eq!(murmur2(&item, a), b, "{item:x?}");
        }
        assert_eq!(murmur2(b"", 1919), 0x4a8566e0);
        assert_eq!(murmur2(b"hello world", 7), 0xdf433920);
    }
}
