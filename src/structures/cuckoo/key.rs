//! What a cuckoo filter knows of an item: a fingerprint and two hashes.

#![forbid(unsafe_code)]

use crate::structures::hash::murmur64a;

/// The multiplier between a fingerprint and the distance of its two buckets
/// (RedisBloom's).
const DISTANCE: u64 = 0x5bd1_e995;

/// An item's fingerprint and first hash; the second hash follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Key {
    /// The first hash; its low bits are the number of the first bucket.
    pub(super) hash: u64,
    /// 1 to 255.
    pub(super) fingerprint: u8,
}

impl Key {
    /// The key of an item.
    #[inline]
    pub(super) fn of(item: &[u8]) -> Self {
        let hash = murmur64a(item, 0);
        Self { hash, fingerprint: (hash % 255) as u8 + 1 }
    }

    /// The second hash.
    #[inline]
    pub(super) fn other_hash(self) -> u64 {
        partner(self.hash, self.fingerprint)
    }
}

/// The other bucket in which `fingerprint` may lie when it may lie in `bucket`, and
/// the other way round. Works on whole hashes and on their low bits alike, which is
/// why a fingerprint can move without its item.
#[inline]
pub(super) fn partner(bucket: u64, fingerprint: u8) -> u64 {
    bucket ^ (u64::from(fingerprint) * DISTANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_specification() {
        for (item, hash, fingerprint, other) in [
            (&b""[..], 0, 1, 0x5bd1e995),
            (b"a", 0x071717d2d36b6b11, 0xc4, 0x071717949fddbd05),
            (b"foo", 0xcdde38358fd25b01, 0xd9, 0xcdde38785b3ca44c),
            (b"hello world", 0xd3ba2368a832afce, 0x74, 0xd3ba2341332f784a),
            (b"item-2", 0xa5bb709a6c50b5f8, 0xd8, 0xa5bb70d7154da040),
            (b"\x00", 0x5825f5f3bd962979, 0x5f, 0x5825f5d1af738732),
            (b"\xff", 0x35a929b9e9362122, 0x26, 0x35a929b4481e8d3c),
            (b"same", 0x4d34c54116c791ed, 0xe6, 0x4d34c51368504a33),
            (b"123456789", 0x4977490251674330, 0x39, 0x4977491620da411d),
        ] {
            let key = Key::of(item);
            assert_eq!(key, Key { hash, fingerprint }, "{item:x?}");
            assert_eq!(key.other_hash(), other, "{item:x?}");
            assert_eq!(partner(other, fingerprint), hash, "{item:x?}");
        }
    }
}
