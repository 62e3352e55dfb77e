//! RedisBloom's layout, bit for bit: `k` probes anywhere in one bit array per link.
//!
//! The positions are double hashing over MurmurHash64A (Kirsch, Mitzenmacher, "Less
//! Hashing, Same Performance", 2006). Filters that come in by RedisBloom's RDB,
//! `DUMP` or `BF.LOADCHUNK` have this layout and keep it, with its weakness: in
//! links of few bits the probes of two items coincide too often, and the measured
//! rate exceeds the one asked for. The `blocked` layout is the answer to that.
#![forbid(unsafe_code)]

use crate::structures::BATCH;
use crate::structures::bloom::{CreateError, Insertion, LayerInfo, Params, Refusal};
use crate::structures::buffer::{Buffer, OutOfMemory, Part};
use crate::structures::hash;
use crate::structures::prefetch::prefetch;
use crate::structures::quota::Quota;

/// RedisBloom's option bits of a chain.
pub mod options {
    /// The bit count of a link is not rounded up to a power of two.
    pub const NO_ROUNDING: u32 = 1;
    /// `entries` is the exponent of the bit count.
    pub const ENTRIES_IS_BITS: u32 = 2;
    /// MurmurHash64A in place of MurmurHash2.
    pub const HASH_64: u32 = 4;
    /// A full filter refuses items in place of growing.
    pub const NON_SCALING: u32 = 8;
    /// Every bit that has a meaning.
    pub const KNOWN: u32 = NO_ROUNDING | ENTRIES_IS_BITS | HASH_64 | NON_SCALING;
}

/// Bytes that RedisBloom reports for a chain without its links.
const REPORTED_CHAIN: u64 = 32;
/// Bytes that RedisBloom reports for a link without its bit array.
const REPORTED_LINK: u64 = 64;

/// Most hash functions of a link. The strictest rate that a double can hold,
/// 5e-324, takes 1,074; data that claim more would stall every look-up.
pub const MAX_HASHES: u32 = 1_100;

/// Most links of a chain. Rates halve from link to link, so RedisBloom's own chains
/// end at some 1,074, where the rate reaches 0.
pub const MAX_LINKS: usize = 1_100;

/// Probes of an item that are tested before the others are even fetched: an absent
/// item passes two with one chance in four.
const FIRST_PROBES: u32 = 2;

/// Bit arrays of up to this many bytes are taken to be in a cache near the core:
/// fetching ahead costs more there than it saves.
const CACHED: usize = 256 * 1024;

/// The length of a link's bit array as stored, and what its probes are taken
/// modulo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitCount {
    /// The stored number of bits.
    pub bits: u64,
    /// Where not 0, the exponent of the modulus, which is then a power of two.
    pub n2: u8,
}

impl BitCount {
    /// What the positions of probes are taken modulo.
    pub fn modulus(self) -> u64 {
        if self.n2 == 0 { self.bits } else { 1 << self.n2 }
    }
}

/// The stored description of a link, without its bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkParams {
    /// Items that the link is made for.
    pub entries: u64,
    /// Its false positive rate when it holds them.
    pub error: f64,
    /// Bits per entry.
    pub bits_per_entry: f64,
    /// Probes per item.
    pub hashes: u32,
    /// The size of the bit array.
    pub bit_count: BitCount,
}

impl LinkParams {
    /// RedisBloom's sizing (specification, "Sizing of a link"). The shortened
    /// constants are its own; they decide the number of hashes where the rate is a
    /// power of two.
    ///
    /// `None` where no such link exists: nothing to hold, a rate that is 0, or a
    /// size beyond 2^63 bits.
    #[expect(clippy::approx_constant, reason = "RedisBloom's literals, to the digit")]
    pub fn for_entries(entries: u64, error: f64, options: u32) -> Option<Self> {
        const LN2: f64 = 0.693147180559945;
        const LN2_SQUARED: f64 = 0.480453013918201;
        const LARGEST: f64 = (1u64 << 63) as f64;
        if entries == 0 || !(error > 0.0 && error < 1.0) {
            return None;
        }
        let bits_per_entry = (error.ln() / LN2_SQUARED).abs();
        let hashes = (LN2 * bits_per_entry).ceil() as u32;
        let mut real_entries = entries;
        let bit_count = if options & options::ENTRIES_IS_BITS != 0 {
            let n2 = u8::try_from(entries).ok().filter(|n2| *n2 < 64)?;
            real_entries = ((1u64 << n2) as f64 / bits_per_entry) as u64;
            BitCount { bits: 1 << n2, n2 }
        } else {
            let exact = entries as f64 * bits_per_entry;
            if exact >= LARGEST {
                return None;
            }
            if options & options::NO_ROUNDING != 0 {
                BitCount { bits: (exact as u64).max(1), n2: 0 }
            } else {
                let n2 = (exact.log2().floor() + 1.0) as u8;
                let bits = 1u64.checked_shl(u32::from(n2))?;
                real_entries += ((bits as f64 - exact) as u64 as f64 / bits_per_entry) as u64;
                BitCount { bits, n2 }
            }
        };
        let bits = bit_count.bits.checked_next_multiple_of(64)?;
        Some(Self {
            entries: real_entries,
            error,
            bits_per_entry,
            hashes,
            bit_count: BitCount { bits, ..bit_count },
        })
    }

    /// Bytes of the bit array.
    pub fn bytes(&self) -> u64 {
        self.bit_count.bits.div_ceil(8)
    }
}

/// One bit array of a chain.
#[derive(Debug)]
pub struct Link {
    params: LinkParams,
    size: u64,
    bits: Buffer<u8>,
    modulus: Modulus,
}

impl PartialEq for Link {
    fn eq(&self, other: &Self) -> bool {
        (self.params, self.size) == (other.params, other.size) && self.bits == other.bits
    }
}

impl Link {
    /// A link without items, its bits zero.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn empty(params: LinkParams) -> Result<Self, OutOfMemory> {
        let bytes = usize::try_from(params.bytes()).map_err(|_| OutOfMemory)?;
        Ok(Self::new(params, 0, Buffer::zeroed(bytes)?))
    }

    /// A link over a stored bit array.
    ///
    /// `None` where the array is too short for the probes.
    pub fn from_bits(params: LinkParams, size: u64, bits: Buffer<u8>) -> Option<Self> {
        let modulus = params.bit_count.modulus();
        let reachable = bits.len() as u64 >= modulus.div_ceil(8) && modulus != 0;
        reachable.then(|| Self::new(params, size, bits))
    }

    fn new(params: LinkParams, size: u64, bits: Buffer<u8>) -> Self {
        let modulus = Modulus::new(params.bit_count.modulus());
        Self { params, size, bits, modulus }
    }

    /// The stored description.
    pub fn params(&self) -> &LinkParams {
        &self.params
    }

    /// Items counted in this link.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Sets the number of items, as a dump's header gives it.
    pub fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// The bit array; bit `p` is bit `p % 8` of byte `p / 8`.
    pub fn bits(&self) -> &Buffer<u8> {
        &self.bits
    }

    /// The bit array, to load chunks into and for the server's defragmentation.
    pub fn bits_mut(&mut self) -> &mut Buffer<u8> {
        &mut self.bits
    }

    /// The part of the bits that is set. Every bit of up to 1 MiB is looked at, and an
    /// even sample of larger links.
    fn fill_ratio(&self) -> f64 {
        const SAMPLE: usize = 1 << 20;
        let step = self.bits.len().div_ceil(SAMPLE).max(1);
        let (mut bytes, mut ones) = (0u64, 0u64);
        for byte in self.bits.iter().step_by(step) {
            bytes += 1;
            ones += u64::from(byte.count_ones());
        }
        ones as f64 / (bytes.max(1) * 8) as f64
    }

    #[inline]
    fn position(&self, hash: Pair, probe: u32) -> u64 {
        self.modulus.reduce(hash.a.wrapping_add(u64::from(probe).wrapping_mul(hash.b)))
    }

    #[inline]
    fn is_set(&self, position: u64) -> bool {
        self.bits[(position >> 3) as usize] >> (position & 7) & 1 != 0
    }

    /// Whether the bits of the probes `from..` are all set.
    #[inline]
    fn contains(&self, hash: Pair, from: u32) -> bool {
        (from..self.params.hashes).all(|probe| self.is_set(self.position(hash, probe)))
    }

    /// Sets the bits of an item; whether one of them was clear.
    fn set(&mut self, hash: Pair) -> bool {
        let mut changed = false;
        for probe in 0..self.params.hashes {
            let position = self.position(hash, probe);
            let byte = &mut self.bits[(position >> 3) as usize];
            let mask = 1 << (position & 7);
            changed |= *byte & mask == 0;
            *byte |= mask;
        }
        changed
    }

    fn prefetch(&self, hash: Pair, probes: std::ops::Range<u32>) {
        for probe in probes {
            prefetch(&self.bits, (self.position(hash, probe) >> 3) as usize);
        }
    }

    fn first_probes(&self) -> u32 {
        FIRST_PROBES.min(self.params.hashes)
    }

    fn is_cached(&self) -> bool {
        self.bits.len() <= CACHED
    }

    fn prefetch_first(&self, hash: Pair) {
        if !self.is_cached() {
            self.prefetch(hash, 0..self.first_probes());
        }
    }

    /// [`contains`](Self::contains) for all probes, those behind the first fetched
    /// together once the first have passed.
    #[inline]
    fn contains_in_two_rounds(&self, hash: Pair) -> bool {
        if self.is_cached() {
            return self.contains(hash, 0);
        }
        let first = self.first_probes();
        if !(0..first).all(|probe| self.is_set(self.position(hash, probe))) {
            return false;
        }
        self.prefetch(hash, first..self.params.hashes);
        self.contains(hash, first)
    }
}

/// The two hashes that an item's probes are made of.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    a: u64,
    b: u64,
}

impl Pair {
    fn of(item: &[u8], options: u32) -> Self {
        if options & options::HASH_64 != 0 {
            let a = hash::murmur64a(item, 0xc6a4_a793_5bd1_e995);
            Self { a, b: hash::murmur64a(item, a) }
        } else {
            let a = hash::murmur2(item, 0x9747_b28c);
            Self { a: a.into(), b: hash::murmur2(item, a).into() }
        }
    }
}

/// A chain of links, newest last.
#[derive(Debug, PartialEq)]
pub struct Chain {
    items: u64,
    options: u32,
    growth: u32,
    links: Vec<Link>,
}

impl Chain {
    /// An empty filter as RedisBloom's `BF.RESERVE` makes it: a scaling one starts
    /// at half the rate asked for, so that the sum over all links stays below it.
    ///
    /// # Errors
    ///
    /// As [`CreateError`] says.
    pub fn new(params: Params, quota: Quota<'_>) -> Result<Self, CreateError> {
        let base = options::NO_ROUNDING | options::HASH_64;
        let (options, error) = if params.scaling {
            (base, params.error_rate * 0.5)
        } else {
            (base | options::NON_SCALING, params.error_rate)
        };
        let first = LinkParams::for_entries(params.capacity, error, options)
            .ok_or(CreateError::Impossible)?;
        quota.ask(REPORTED_CHAIN, REPORTED_LINK + first.bytes())?;
        let mut links = Vec::new();
        links.try_reserve_exact(1).map_err(|_| CreateError::OutOfMemory)?;
        links.push(Link::empty(first)?);
        Ok(Self { items: 0, options, growth: params.expansion, links })
    }

    /// A chain of stored parts.
    ///
    /// `None` where there is no link, or more than [`MAX_LINKS`].
    pub fn from_links(items: u64, options: u32, growth: u32, links: Vec<Link>) -> Option<Self> {
        (1..=MAX_LINKS).contains(&links.len()).then_some(Self { items, options, growth, links })
    }

    /// Items counted, those that were new when added.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// RedisBloom's option bits.
    pub fn options(&self) -> u32 {
        self.options
    }

    /// Capacity of a further link as a multiple of the newest one's.
    pub fn growth(&self) -> u32 {
        self.growth
    }

    /// Whether a full chain gets a further link.
    pub fn scaling(&self) -> bool {
        self.options & options::NON_SCALING == 0
    }

    /// The links, newest last.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The links, to load chunks into and for the server's defragmentation.
    pub fn links_mut(&mut self) -> &mut [Link] {
        &mut self.links
    }

    /// Items that all links together are made for.
    pub fn capacity(&self) -> u64 {
        self.links.iter().fold(0, |sum, link| sum.saturating_add(link.params.entries))
    }

    /// The links as `BF.DEBUG` shows them, oldest first.
    pub fn layer_infos(&self) -> impl Iterator<Item = LayerInfo> {
        let hash_width = if self.options & options::HASH_64 != 0 { 64 } else { 32 };
        self.links.iter().map(move |link| LayerInfo {
            bytes: link.bits.len() as u64,
            bits: link.params.bit_count.bits,
            hashes: link.params.hashes,
            hash_width,
            capacity: link.params.entries,
            size: link.size,
            rate: link.params.error,
        })
    }

    /// Bytes as RedisBloom reports them.
    pub fn reported_bytes(&self) -> u64 {
        let links = self.links.iter().map(|link| REPORTED_LINK + link.bits.len() as u64);
        REPORTED_CHAIN + links.sum::<u64>()
    }

    /// The part of all bits that is set, 0 to 1; of large chains by a sample.
    pub fn fill_ratio(&self) -> f64 {
        let all: usize = self.links.iter().map(|link| link.bits.len()).sum();
        let set = self.links.iter().map(|link| link.fill_ratio() * link.bits.len() as f64);
        set.sum::<f64>() / all.max(1) as f64
    }

    /// The number of distinct items that the set bits speak for.
    pub fn estimated_items(&self) -> f64 {
        let of_link = |link: &Link| {
            let bits = link.params.bit_count.modulus() as f64;
            // Of a link that is full to the last bit all that is known is a bound.
            let clear = (1.0 - link.fill_ratio()).max(1.0 / bits);
            -clear.ln() * bits / f64::from(link.params.hashes)
        };
        self.links.iter().map(of_link).sum()
    }

    /// The false positive rate to be expected now, from the items in each link, as
    /// if probes were independent (in links of few bits they are not).
    pub fn estimated_rate(&self) -> f64 {
        let none = self.links.iter().map(|link| {
            let hashes = f64::from(link.params.hashes);
            let load = hashes * link.size as f64 / link.params.bit_count.modulus() as f64;
            1.0 - (1.0 - (-load).exp()).powf(hashes)
        });
        1.0 - none.product::<f64>()
    }

    /// A copy with memory of its own.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut links = Vec::new();
        links.try_reserve_exact(self.links.len()).map_err(|_| OutOfMemory)?;
        for link in &self.links {
            links.push(Link::new(link.params, link.size, link.bits.try_clone()?));
        }
        Ok(Self { links, ..*self })
    }

    /// Bytes of the chain and all that it owns, as they were asked for.
    pub fn heap_bytes(&self) -> u64 {
        let links: usize = self.links.iter().map(|link| link.bits.len()).sum();
        (size_of::<Self>() + self.links.capacity() * size_of::<Link>() + links) as u64
    }

    /// Shows every heap block below the chain itself.
    pub fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(&mut self.links);
        for link in &mut self.links {
            visit(&mut link.bits);
        }
    }

    /// Whether `item` is reported present.
    pub fn contains(&self, item: &[u8]) -> bool {
        let hash = Pair::of(item, self.options);
        self.links.iter().for_each(|link| link.prefetch_first(hash));
        self.has(hash)
    }

    /// [`contains`](Self::contains) for many items.
    ///
    /// # Panics
    ///
    /// Where the slices differ in length.
    pub fn contains_batch(&self, items: &[&[u8]], found: &mut [bool]) {
        assert_eq!(items.len(), found.len());
        for (items, found) in items.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            let mut hashes = [Pair::default(); BATCH];
            for (pair, item) in hashes.iter_mut().zip(items) {
                *pair = Pair::of(item, self.options);
            }
            found.fill(false);
            for link in self.links.iter().rev() {
                link.contains_hashed(&hashes[..items.len()], found);
            }
        }
    }

    /// Adds `item` unless it is reported present.
    ///
    /// # Errors
    ///
    /// As [`Refusal`] says.
    pub fn insert(&mut self, item: &[u8], quota: Quota<'_>) -> Insertion {
        let hash = Pair::of(item, self.options);
        self.prefetch_for_insert(hash);
        self.insert_hashed(hash, quota)
    }

    /// [`insert`](Self::insert) for many items in turn, into as many outcomes. It
    /// stops behind a [`Refusal::Full`]; the number of outcomes is returned.
    ///
    /// # Panics
    ///
    /// Where the slices differ in length.
    pub fn insert_batch(
        &mut self,
        items: &[&[u8]],
        quota: Quota<'_>,
        outcomes: &mut [Insertion],
    ) -> usize {
        assert_eq!(items.len(), outcomes.len());
        let mut done = 0;
        for items in items.chunks(BATCH) {
            let mut hashes = [Pair::default(); BATCH];
            for (pair, item) in hashes.iter_mut().zip(items) {
                *pair = Pair::of(item, self.options);
                self.prefetch_for_insert(*pair);
            }
            for pair in &hashes[..items.len()] {
                outcomes[done] = self.insert_hashed(*pair, quota);
                done += 1;
                if outcomes[done - 1] == Err(Refusal::Full) {
                    return done;
                }
            }
        }
        done
    }

    fn prefetch_for_insert(&self, hash: Pair) {
        let Some((newest, older)) = self.links.split_last() else { return };
        if !newest.is_cached() {
            newest.prefetch(hash, 0..newest.params.hashes);
        }
        older.iter().for_each(|link| link.prefetch_first(hash));
    }

    fn has(&self, hash: Pair) -> bool {
        self.links.iter().rev().any(|link| link.contains_in_two_rounds(hash))
    }

    fn insert_hashed(&mut self, hash: Pair, quota: Quota<'_>) -> Insertion {
        if self.has(hash) {
            return Ok(false);
        }
        if self.newest().is_none_or(|link| link.size >= link.params.entries) {
            self.grow(quota)?;
        }
        let newest = self.links.last_mut().ok_or(Refusal::CannotGrow)?;
        let changed = newest.set(hash);
        if changed {
            newest.size = newest.size.saturating_add(1);
            self.items = self.items.saturating_add(1);
        }
        Ok(changed)
    }

    fn newest(&self) -> Option<&Link> {
        self.links.last()
    }

    fn grow(&mut self, quota: Quota<'_>) -> Result<(), Refusal> {
        if !self.scaling() {
            return Err(Refusal::Full);
        }
        let newest = self.newest().ok_or(Refusal::CannotGrow)?;
        let entries = newest.params.entries.checked_mul(self.growth.into());
        let params = entries
            .and_then(|entries| {
                LinkParams::for_entries(entries, newest.params.error * 0.5, self.options)
            })
            .filter(|_| self.links.len() < MAX_LINKS)
            .ok_or(Refusal::CannotGrow)?;
        let link = quota
            .ask(self.reported_bytes(), REPORTED_LINK + params.bytes())
            .and_then(|()| self.links.try_reserve_exact(1).map_err(|_| OutOfMemory))
            .and_then(|()| Link::empty(params));
        self.links.push(link.map_err(|_| Refusal::CannotGrow)?);
        Ok(())
    }
}

impl Link {
    /// Marks as found the items of a batch that this link reports present.
    ///
    /// In two rounds, so that an absent item costs the lines of its first probes
    /// only, and those of all items load together.
    fn contains_hashed(&self, hashes: &[Pair], found: &mut [bool]) {
        if self.is_cached() {
            for (hash, found) in hashes.iter().zip(found) {
                *found = *found || self.contains(*hash, 0);
            }
            return;
        }
        let first = self.first_probes();
        for (hash, _) in hashes.iter().zip(&*found).filter(|(_, found)| !**found) {
            self.prefetch(*hash, 0..first);
        }
        let mut candidates = [0usize; BATCH];
        let mut count = 0;
        for (index, hash) in hashes.iter().enumerate() {
            let passed = (0..first).all(|probe| self.is_set(self.position(*hash, probe)));
            if !found[index] && passed {
                candidates[count] = index;
                count += 1;
                self.prefetch(*hash, first..self.params.hashes);
            }
        }
        for index in &candidates[..count] {
            found[*index] = self.contains(hashes[*index], first);
        }
    }
}

/// Remainders by a divisor that is fixed, without a division.
///
/// Granlund, Montgomery, "Division by Invariant Integers using Multiplication"
/// (1994), figure 4.1: exact for every 64-bit dividend and divisor.
#[derive(Debug, Clone, Copy)]
struct Modulus {
    divisor: u64,
    magic: u64,
    first_shift: u8,
    second_shift: u8,
}

impl Modulus {
    /// `divisor` must not be 0.
    fn new(divisor: u64) -> Self {
        // The least l with 2^l >= divisor.
        let l = 64 - (divisor - 1).leading_zeros();
        let magic = (((1u128 << l) - u128::from(divisor)) << 64) / u128::from(divisor) + 1;
        Self {
            divisor,
            magic: magic as u64,
            first_shift: l.min(1) as u8,
            second_shift: l.saturating_sub(1) as u8,
        }
    }

    #[inline(always)]
    fn reduce(self, dividend: u64) -> u64 {
        let high = ((u128::from(self.magic) * u128::from(dividend)) >> 64) as u64;
        let quotient = (high + ((dividend - high) >> self.first_shift)) >> self.second_shift;
        dividend.wrapping_sub(quotient.wrapping_mul(self.divisor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn chain(capacity: u64, error_rate: f64, expansion: u32, scaling: bool) -> Chain {
        let params = Params { capacity, error_rate, expansion, scaling };
        Chain::new(params, Quota::UNLIMITED).unwrap()
    }

    fn add_all(chain: &mut Chain, items: &[&str]) -> Vec<Insertion> {
        items.iter().map(|item| chain.insert(item.as_bytes(), Quota::UNLIMITED)).collect()
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn two_links_hold_the_bits_of_the_specification() {
        let mut v2 = chain(4, 0.1, 2, true);
        let added = add_all(&mut v2, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        assert!(added.iter().all(|outcome| *outcome == Ok(true)));
        assert_eq!(v2.links()[0].bits().as_bytes(), bytes("3045a08c50922120"));
        assert_eq!(v2.links()[1].bits().as_bytes(), bytes("7199c2d1c64d0dbc"));
        assert_eq!((v2.capacity(), v2.items(), v2.reported_bytes()), (12, 10, 176));
        assert_eq!(v2.links()[1].params().hashes, 6);
        assert_eq!(v2.links()[1].params().bits_per_entry, 7.677919270461653);
    }

    #[test]
    fn strict_and_non_scaling_links_hold_the_bits_of_the_specification() {
        let mut v3 = chain(10, 0.01, 2, false);
        add_all(&mut v3, &["foo", "bar", "baz"]);
        assert_eq!(v3.links()[0].bits().as_bytes(), bytes("08202a02080109010880880018101010"));
        let mut v7 = chain(2, 1e-9, 2, true);
        add_all(&mut v7, &["x", "y"]);
        assert_eq!(v7.links()[0].bits().as_bytes(), [0x44; 16]);
        assert_eq!(v7.links()[0].params().hashes, 31);
    }

    #[test]
    fn a_rate_that_is_a_power_of_two_takes_one_hash_more() {
        for (rate, hashes) in [(0.25, 3), (0.125, 4), (0.0625, 5)] {
            assert_eq!(LinkParams::for_entries(10, rate, 5).unwrap().hashes, hashes);
        }
    }

    #[test]
    fn a_full_non_scaling_filter_refuses_new_items_and_still_knows_the_old() {
        let mut filter = chain(2, 0.01, 2, false);
        assert_eq!(
            add_all(&mut filter, &["a", "b", "a", "c"])[2..],
            [Ok(false), Err(Refusal::Full)]
        );
        let items: [&[u8]; 4] = [b"a", b"c", b"b", b"d"];
        let mut outcomes = [Ok(true); 4];
        assert_eq!(filter.insert_batch(&items, Quota::UNLIMITED, &mut outcomes), 2);
        assert_eq!(outcomes[..2], [Ok(false), Err(Refusal::Full)]);
    }

    #[test]
    fn growth_that_is_refused_adds_nothing() {
        let mut filter = chain(2, 0.01, 2, true);
        let none = |_| false;
        for item in ["a", "b"] {
            assert_eq!(filter.insert(item.as_bytes(), Quota::new(&none)), Ok(true));
        }
        assert_eq!(filter.insert(b"c", Quota::new(&none)), Err(Refusal::CannotGrow));
        assert_eq!((filter.items(), filter.links().len()), (2, 1));
        assert_eq!(filter.insert(b"a", Quota::new(&none)), Ok(false));
    }

    #[test]
    fn a_rate_whose_half_is_zero_is_impossible() {
        let params = Params { capacity: 1, error_rate: 5e-324, expansion: 2, scaling: true };
        assert_eq!(Chain::new(params, Quota::UNLIMITED).unwrap_err(), CreateError::Impossible);
    }

    proptest! {
        #[test]
        fn remainders_are_exact(dividend: u64, divisor in 1u64.., shift in 0u32..64) {
            for divisor in [divisor, (divisor >> shift).max(1), 1 << shift] {
                prop_assert_eq!(Modulus::new(divisor).reduce(dividend), dividend % divisor);
                prop_assert_eq!(Modulus::new(divisor).reduce(u64::MAX), u64::MAX % divisor);
            }
        }

        #[test]
        fn many_item_operations_equal_single_ones(
            items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..200),
            capacity in 1u64..50,
            expansion in 1u32..4,
        ) {
            let mut one_by_one = chain(capacity, 0.01, expansion, true);
            let mut at_once = chain(capacity, 0.01, expansion, true);
            let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            let singly: Vec<_> =
                items.iter().map(|item| one_by_one.insert(item, Quota::UNLIMITED)).collect();
            let mut outcomes = vec![Ok(false); items.len()];
            prop_assert_eq!(
                at_once.insert_batch(&items, Quota::UNLIMITED, &mut outcomes), items.len());
            prop_assert_eq!(&singly, &outcomes);
            prop_assert_eq!(&one_by_one, &at_once);

            let members: HashSet<_> = items.iter().copied().collect();
            let asked: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
            let asked: Vec<&[u8]> =
                asked.iter().map(Vec::as_slice).chain(items.iter().copied()).collect();
            let mut found = vec![false; asked.len()];
            at_once.contains_batch(&asked, &mut found);
            for (item, found) in asked.iter().zip(&found) {
                prop_assert_eq!(*found, at_once.contains(item));
                prop_assert!(*found || !members.contains(item));
            }
        }
    }
}
