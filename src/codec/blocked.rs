//! Stored forms of the blocked Bloom layout.
//!
//! Both begin with one header, in bincode's fixed-width little-endian encoding:
//! `Fixed`, then a `Layer` for each layer, oldest first.
//!
//! - RDB: RedisBloom's four leading unsigned fields with a number of layers of 0
//!   (which RedisBloom refuses), the header as a string, then the bits of each
//!   layer as strings of [`MAX_CHUNK`] bytes and a last one with the rest.
//! - Dump: the header as the first chunk, then the bits by the rules of
//!   RedisBloom's iterators. RedisBloom's loader refuses the header, as no number of
//!   links fits its length.

#![forbid(unsafe_code)]

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::chunks::{self, ChunkError, MAX_CHUNK};
use super::{LoadError, Sink, Source, require};
use crate::structures::bloom::Params;
use crate::structures::bloom::layout::blocked::sizing::Shape;
use crate::structures::bloom::layout::blocked::{Chain, Record, RestoreError};
use crate::structures::quota::Quota;

/// What a header begins with. RedisBloom reads bytes 8 to 11 as the number of links:
/// 28015 of them, which no header of ours is long enough for.
const MAGIC: [u8; 12] = *b"ferrobloom\0\0";
/// Version of the header and of what follows from it: how bits are found and layers
/// are sized.
const VERSION: u16 = 1;
/// Most layers of a chain. A chain that doubles has at most 64; one that does not
/// grow by itself merges layers, and has about 220 when its capacity reaches 2^64.
const MOST_LAYERS: u32 = 256;
/// RedisBloom's option bits: 1 (sizes not rounded to powers of two) and 4 (64-bit
/// hash) in all filters made today, 8 in those that do not scale.
const OPTIONS: u64 = 5;
const NON_SCALING: u64 = 8;

/// The part of a header that all chains have.
#[derive(Debug, Serialize, Deserialize)]
struct Fixed {
    magic: [u8; 12],
    version: u16,
    /// 1 if the filter scales, else 0.
    scaling: u16,
    expansion: u32,
    layers: u32,
    seed: u64,
    capacity: u64,
    error_rate: f64,
}

/// A layer in a header.
#[derive(Debug, Serialize, Deserialize)]
struct Layer {
    capacity: u64,
    size: u64,
    /// 64-bit words of a layer without lines, else lines of a region.
    units: u64,
    /// Regions of a layer of lines, 0 without lines.
    regions: u8,
    /// Bits of an item, in each of its lines if the layer has some.
    probes: u8,
}

/// The leading fields of the RDB form that are not in the header too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lead {
    /// Items in the filter.
    pub items: u64,
    /// RedisBloom's option bits.
    pub options: u64,
    /// The expansion.
    pub growth: u64,
}

/// Writes the RDB form, the four leading fields included.
pub fn save(chain: &Chain, sink: &mut impl Sink) {
    let lead = lead(chain);
    sink.unsigned(lead.items);
    sink.unsigned(0);
    sink.unsigned(lead.options);
    sink.unsigned(lead.growth);
    sink.string(header_in(chain, &mut [0; MAX_HEADER]));
    for bytes in chain.layer_bytes() {
        for chunk in bytes.chunks(MAX_CHUNK) {
            sink.string(chunk);
        }
    }
}

fn lead(chain: &Chain) -> Lead {
    Lead {
        items: chain.items(),
        options: OPTIONS | if chain.scaling() { 0 } else { NON_SCALING },
        growth: chain.expansion().into(),
    }
}

/// Reads the RDB form, from the header on. The caller has read the four leading
/// fields, and found that the second, the number of layers, is 0.
///
/// A layer is allocated when its first chunk, of the right length, has arrived, and
/// its memory stays untouched until the bits come: so what a hostile header claims
/// costs nothing.
///
/// # Errors
///
/// [`LoadError`].
pub fn load(lead: Lead, source: &mut impl Source) -> Result<Chain, LoadError> {
    let header = source.string()?;
    let (fixed, mut records) = parse(&header)?;
    let mut chain: Option<Chain> = None;
    for _ in 0..fixed.layers {
        let record = take::<Layer>(&mut records)?.record();
        let total = record.shape.bytes();
        let first = source.string()?;
        require(first.len() as u64 == total.min(MAX_CHUNK as u64), "length of a bit string")?;
        add_layer(&mut chain, &fixed, record)?;
        let layer = chain.as_mut().and_then(|chain| chain.layer_bytes_mut().last());
        let mut rest = layer.into_iter().flat_map(|bytes| bytes.chunks_mut(MAX_CHUNK));
        if let Some(chunk) = rest.next() {
            chunk.copy_from_slice(&first);
        }
        drop(first);
        for chunk in rest {
            let bits = source.string()?;
            require(bits.len() == chunk.len(), "length of a bit string")?;
            chunk.copy_from_slice(&bits);
        }
    }
    let chain = chain.ok_or(LoadError::Inconsistent("no layers"))?;
    require(self::lead(&chain) == lead, "leading fields")?;
    Ok(chain)
}

/// Bytes of a packed [`Fixed`].
const FIXED_HEADER: usize = 48;
/// Bytes of a packed [`Layer`].
const LAYER_HEADER: usize = 26;

/// Most bytes of a header.
pub const MAX_HEADER: usize = FIXED_HEADER + LAYER_HEADER * MOST_LAYERS as usize;

/// Bytes of the header of `chain`.
pub fn header_len(chain: &Chain) -> usize {
    FIXED_HEADER + LAYER_HEADER * chain.records().count()
}

/// The header of a dump, all but the bits, put into `room`, for which [`MAX_HEADER`]
/// bytes are always enough.
///
/// # Panics
///
/// Where there is not room enough.
pub fn header_in<'a>(chain: &Chain, room: &'a mut [u8]) -> &'a [u8] {
    let whole = room.len();
    let params = chain.params();
    let fixed = Fixed {
        magic: MAGIC,
        version: VERSION,
        scaling: params.scaling.into(),
        expansion: params.expansion,
        layers: chain.records().count() as u32,
        seed: chain.seed(),
        capacity: params.capacity,
        error_rate: params.error_rate,
    };
    let mut rest = chunks::pack(&fixed, room);
    for record in chain.records() {
        rest = chunks::pack(&Layer::of(record), rest);
    }
    let length = whole - rest.len();
    &room[..length]
}

/// Whether a first dump chunk is one of this layout.
pub fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The filter that a header describes, its bits 0. The quota is asked for all of it
/// before any is allocated.
///
/// # Errors
///
/// [`LoadError`].
pub fn from_header(bytes: &[u8], quota: Quota<'_>) -> Result<Chain, LoadError> {
    let (fixed, records) = parse(bytes)?;
    let (mut total, mut ahead) = (0u64, records);
    for _ in 0..fixed.layers {
        let bytes = take::<Layer>(&mut ahead)?.record().shape.bytes();
        total = total.checked_add(bytes).ok_or(LoadError::OutOfMemory)?;
    }
    quota.ask(0, total)?;
    let (mut chain, mut records) = (None, records);
    for _ in 0..fixed.layers {
        add_layer(&mut chain, &fixed, take::<Layer>(&mut records)?.record())?;
    }
    chain.ok_or(LoadError::Inconsistent("no layers"))
}

fn add_layer(chain: &mut Option<Chain>, fixed: &Fixed, record: Record) -> Result<(), LoadError> {
    match chain {
        Some(chain) => Ok(chain.restore_next(record)?),
        None => {
            let params = Params {
                capacity: fixed.capacity,
                error_rate: fixed.error_rate,
                expansion: fixed.expansion,
                scaling: fixed.scaling == 1,
            };
            *chain = Some(Chain::restore(&params, fixed.seed, record)?);
            Ok(())
        }
    }
}

/// The fixed part, and the layers' bytes, which are as many as it says.
fn parse(bytes: &[u8]) -> Result<(Fixed, &[u8]), LoadError> {
    let mut rest = bytes;
    let fixed = take::<Fixed>(&mut rest)?;
    require(fixed.magic == MAGIC, "magic")?;
    if fixed.version != VERSION {
        return Err(LoadError::UnknownVersion(fixed.version.into()));
    }
    require(fixed.scaling <= 1, "scaling")?;
    require((1..=MOST_LAYERS).contains(&fixed.layers), "number of layers")?;
    let mut ahead = rest;
    for _ in 0..fixed.layers {
        take::<Layer>(&mut ahead)?;
    }
    require(ahead.is_empty(), "length of the header")?;
    Ok((fixed, rest))
}

/// Takes a value off the front of `bytes`.
fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, LoadError> {
    chunks::unpack(bytes).ok_or(LoadError::Inconsistent("short header"))
}

impl Layer {
    fn of(record: Record) -> Self {
        let (units, regions, probes) = match record.shape {
            Shape::Free { words, probes } => (words, 0, probes),
            Shape::Lines { lines, regions, probes } => (lines, regions, probes),
        };
        Self { capacity: record.capacity, size: record.size, units, regions, probes }
    }

    fn record(&self) -> Record {
        let Self { capacity, size, units, regions, probes } = *self;
        let shape = match regions {
            0 => Shape::Free { words: units, probes },
            _ => Shape::Lines { lines: units, regions, probes },
        };
        Record { shape, capacity, size }
    }
}

impl From<RestoreError> for LoadError {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::OutOfMemory => Self::OutOfMemory,
            RestoreError::Invalid(what) => Self::Inconsistent(what),
        }
    }
}

/// A data chunk of a dump, see [`chunks::chunk_at`].
pub fn chunk(chain: &Chain, iterator: i64) -> Option<(i64, &[u8])> {
    chunks::chunk_at(chain.layer_bytes(), iterator)
}

/// Copies a data chunk into place.
///
/// # Errors
///
/// As [`ChunkError`] says; nothing is written then.
pub fn load_chunk(chain: &mut Chain, iterator: i64, data: &[u8]) -> Result<(), ChunkError> {
    let lengths = chain.layer_bytes().map(<[u8]>::len);
    let (index, offset) = chunks::place_of(lengths, iterator, data.len())?;
    let layer = chain.layer_bytes_mut().nth(index).ok_or(ChunkError::NoSuchPlace)?;
    layer[offset..][..data.len()].copy_from_slice(data);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{Field, Fields};

    fn params(error_rate: f64, capacity: u64, scaling: bool) -> Params {
        Params { capacity, error_rate, expansion: 2, scaling }
    }

    fn header(chain: &Chain) -> Vec<u8> {
        let mut room = [0; MAX_HEADER];
        let header = header_in(chain, &mut room);
        assert_eq!(header.len(), header_len(chain));
        header.to_vec()
    }

    fn filled(params: &Params, items: u64) -> Chain {
        let mut chain = Chain::new(params, 0x0123_4567_89ab_cdef, Quota::UNLIMITED).unwrap();
        for i in 0..items {
            let _ = chain.insert(&i.to_le_bytes(), Quota::UNLIMITED);
        }
        chain
    }

    fn saved(chain: &Chain) -> Fields {
        let mut fields = Fields::default();
        save(chain, &mut fields);
        fields
    }

    fn loaded(mut fields: Fields) -> Result<Chain, LoadError> {
        let [items, layers, options, growth] =
            std::array::from_fn(|_| Source::unsigned(&mut fields).unwrap());
        assert_eq!(layers, 0);
        let lead = Lead { items, options, growth };
        let chain = load(lead, &mut fields)?;
        assert_eq!(fields, Fields::default(), "fields are left");
        Ok(chain)
    }

    fn dumped(chain: &Chain) -> Chain {
        let mut copy = from_header(&header(chain), Quota::UNLIMITED).unwrap();
        let mut iterator = 1;
        while let Some((next, bytes)) = chunk(chain, iterator) {
            load_chunk(&mut copy, next, bytes).unwrap();
            iterator = next;
        }
        copy
    }

    #[test]
    fn the_header_is_these_bytes() {
        let mut chain = filled(&params(0.01, 100, true), 0);
        chain.insert(b"foo", Quota::UNLIMITED).unwrap();
        let mut expected = b"ferrobloom\0\0".to_vec();
        expected.extend([1, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend(0x0123_4567_89ab_cdef_u64.to_le_bytes());
        expected.extend(100u64.to_le_bytes());
        expected.extend(0.01f64.to_le_bytes());
        // The layer: capacity, items, words, regions, probes.
        expected.extend(100u64.to_le_bytes());
        expected.extend(1u64.to_le_bytes());
        expected.extend([18, 0, 0, 0, 0, 0, 0, 0, 0, 6]);
        assert_eq!(header(&chain), expected);
        assert!(is_header(&expected));
        assert!(!is_header(&[0; 73]));
    }

    #[test]
    fn the_rdb_form_is_these_fields() {
        let mut chain = filled(&params(0.1, 4, false), 0);
        chain.insert(b"foo", Quota::UNLIMITED).unwrap();
        let bits = vec![0, 0, 0, 0, 8, 0, 0, 0];
        let expected = [
            Field::Unsigned(1),
            Field::Unsigned(0),
            Field::Unsigned(13),
            Field::Unsigned(2),
            Field::String(header(&chain)),
            Field::String(bits),
        ];
        assert_eq!(saved(&chain).0, expected);
    }

    #[test]
    fn bits_are_found_as_version_1_finds_them() {
        // A sum over the bits, for each kind of layer.
        let sum = |chain: &Chain| {
            let words = chain.layer_bytes().flat_map(|bytes| bytes.as_chunks::<8>().0);
            words.fold(0u64, |sum, word| {
                sum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from_le_bytes(*word)
            })
        };
        let sums = [(0.01, 100, 3000), (1e-4, 20_000, 20_000), (0.01, 60_000, 60_000)]
            .map(|(rate, capacity, items)| sum(&filled(&params(rate, capacity, true), items)));
        assert_eq!(
            sums,
            [586_587_585_807_117_062, 8_626_369_645_025_964_620, 6_605_836_602_032_026_589]
        );
    }

    #[test]
    fn large_layers_go_in_several_strings() {
        let chain = filled(&params(0.01, 20_000_000, true), 1000);
        let fields = saved(&chain);
        let lengths: Vec<usize> = fields.0.iter().skip(5).map(length).collect();
        let total: usize = chain.layer_bytes().map(<[u8]>::len).sum();
        assert_eq!(lengths, [MAX_CHUNK, total - MAX_CHUNK]);
        assert_eq!(loaded(fields).unwrap(), chain);
        assert_eq!(dumped(&chain), chain);
    }

    fn length(field: &Field) -> usize {
        match field {
            Field::String(bytes) => bytes.len(),
            _ => 0,
        }
    }

    #[test]
    fn chunks_keep_to_redisblooms_iterator() {
        let chain = filled(&params(0.01, 100, true), 250);
        let layers: Vec<&[u8]> = chain.layer_bytes().collect();
        let (first, second) = (layers[0].len() as i64, layers[1].len() as i64);
        assert_eq!(layers.len(), 2);
        assert_eq!(chunk(&chain, 1), Some((1 + first, layers[0])));
        assert_eq!(chunk(&chain, 5), Some((1 + first, &layers[0][4..])));
        assert_eq!(chunk(&chain, 1 + first), Some((1 + first + second, layers[1])));
        for outside in [1 + first + second, 0, -1, i64::MIN, i64::MAX] {
            assert_eq!(chunk(&chain, outside), None);
        }

        let mut copy = from_header(&header(&chain), Quota::UNLIMITED).unwrap();
        let (a, b) = (layers[0], layers[1]);
        for (iterator, data, error) in [
            (0, &a[..0], ChunkError::BadData),
            (-5, &a[..4], ChunkError::BadData),
            (3, &a[..4], ChunkError::BadData),
            (4, &a[..4], ChunkError::NoSuchPlace),
            (1 + first + second, &a[..0], ChunkError::NoSuchPlace),
            (i64::MAX, &a[..4], ChunkError::NoSuchPlace),
            (2 + first, a, ChunkError::TooLong),
            // It begins at the last byte of the first layer.
            (first + second, &[0].repeat(second as usize), ChunkError::TooLong),
        ] {
            assert_eq!(load_chunk(&mut copy, iterator, data), Err(error), "{iterator}");
        }
        assert!(copy.layer_bytes().flatten().all(|&byte| byte == 0));
        assert_eq!(load_chunk(&mut copy, 1, &[]), Ok(()));
        // In any order and size within a layer.
        assert_eq!(load_chunk(&mut copy, 1 + first + second, b), Ok(()));
        assert_eq!(load_chunk(&mut copy, 1 + first, &a[3..]), Ok(()));
        assert_eq!(load_chunk(&mut copy, 4, &a[..3]), Ok(()));
        assert_eq!(copy, chain);
    }

    #[test]
    fn the_quota_decides_on_all_that_a_header_claims() {
        let chain = filled(&params(0.01, 1_000_000, true), 0);
        let allow = |growth: crate::structures::quota::Growth| growth.total < 1_000_000;
        let refused = from_header(&header(&chain), Quota::new(&allow));
        assert_eq!(refused, Err(LoadError::OutOfMemory));
    }

    #[test]
    fn a_claim_without_bits_is_refused_before_its_memory_is_taken() {
        // 2^59 bytes, which no allocator has: so an attempt would be out of memory.
        let mut fixed = parse(&header(&filled(&params(0.01, 100, true), 0))).unwrap().0;
        fixed.capacity = u32::MAX.into();
        let units = u64::from(u32::MAX) / 2;
        let layer = Layer { capacity: fixed.capacity, size: 0, units, regions: 1, probes: 7 };
        let mut header = vec![0; FIXED_HEADER + LAYER_HEADER];
        chunks::pack(&layer, chunks::pack(&fixed, &mut header));
        let lead = Lead { items: 0, options: 5, growth: 2 };
        for bits in [vec![], vec![0; 100], vec![0; MAX_CHUNK - 1]] {
            let strings = [header.clone(), bits].map(Field::String);
            let result = load(lead, &mut Fields(strings.into()));
            assert_eq!(result, Err(LoadError::Inconsistent("length of a bit string")));
        }
        let result = load(lead, &mut Fields([Field::String(header)].into()));
        assert_eq!(result, Err(LoadError::ShortRead));
    }

    #[test]
    fn each_contradiction_is_refused() {
        let chain = filled(&params(0.01, 100, true), 250);
        let good = header(&chain);
        let change = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            let mut fields = saved(&chain);
            fields.0[4] = Field::String(bad.clone());
            let by_rdb = loaded(fields).expect_err("loaded");
            // The bits come after a dump's header, the numbers are refused alike.
            if let Err(by_dump) = from_header(&bad, Quota::UNLIMITED) {
                assert!(
                    by_rdb == by_dump
                        || by_rdb == LoadError::Inconsistent("length of a bit string")
                );
            }
            by_rdb
        };
        assert_eq!(change(0, b"F"), LoadError::Inconsistent("magic"));
        assert_eq!(change(12, &[2]), LoadError::UnknownVersion(2));
        for (at, bytes) in [
            (14, &[2u8][..]),                // scaling
            (14, &[0]),                      // two layers without scaling
            (16, &[3]),                      // expansion
            (16, &[0, 0, 1, 0]),             // expansion beyond 16 bits
            (20, &[0]),                      // layers
            (20, &[1]),                      // fewer than there are
            (20, &[3]),                      // more than there are
            (20, &[255; 4]),                 // far more
            (32, &[0; 8]),                   // capacity
            (32, &[255; 8]),                 // capacity
            (40, &0f64.to_le_bytes()),       // rate
            (40, &1f64.to_le_bytes()),       // rate
            (40, &f64::NAN.to_le_bytes()),   // rate
            (40, &(-0.01f64).to_le_bytes()), // rate
            (48, &[99]),                     // capacity of a layer
            (56, &[99]),                     // a layer that is not full
            (56, &[101]),                    // too many items
            (64, &[19]),                     // words
            (64, &[0; 8]),                   // words
            (64, &[255; 8]),                 // words
            (72, &[1]),                      // lines in place of words
            (73, &[0]),                      // probes
            (73, &[81]),                     // probes
            (48 + 26, &[201]),               // capacity of the second
            (48 + 26 + 8, &[9]),             // the leading count of items
        ] {
            let error = change(at, bytes);
            assert!(matches!(error, LoadError::Inconsistent(_)), "{at}: {error}");
        }
        for length in [0, 11, 47, 48, 74, good.len() - 1] {
            assert!(from_header(&good[..length], Quota::UNLIMITED).is_err());
        }
        assert!(from_header(&[&good[..], &[0]].concat(), Quota::UNLIMITED).is_err());
        let lead = lead(&chain);
        for lead in [
            Lead { items: lead.items - 1, ..lead },
            Lead { options: 13, ..lead },
            Lead { growth: 3, ..lead },
        ] {
            let mut fields = saved(&chain);
            fields.0.drain(..4);
            assert_eq!(load(lead, &mut fields), Err(LoadError::Inconsistent("leading fields")));
        }
    }

    proptest! {
        #[test]
        fn what_is_saved_or_dumped_loads_and_grows_the_same(
            exponent in 1..8, capacity in 1..3000u64, scaling: bool, items in 0..6000u64,
        ) {
            let mut chain = filled(&params(0.25 / f64::from(exponent).exp(), capacity, scaling), items);
            let mut copies = [loaded(saved(&chain)).unwrap(), dumped(&chain)];
            for copy in &mut copies {
                prop_assert_eq!(&*copy, &chain);
            }
            for i in 6000..7000u64 {
                let expected = chain.insert(&i.to_le_bytes(), Quota::UNLIMITED);
                for copy in &mut copies {
                    prop_assert_eq!(copy.insert(&i.to_le_bytes(), Quota::UNLIMITED), expected);
                }
            }
            for copy in copies {
                prop_assert_eq!(saved(&copy), saved(&chain));
            }
        }

        #[test]
        fn hostile_headers_never_panic(at in 0..100usize, bytes: [u8; 4], items in 0..300u64) {
            let mut bad = header(&filled(&params(0.01, 100, true), items));
            for (i, byte) in bytes.into_iter().enumerate() {
                if let Some(target) = bad.get_mut(at + i) {
                    *target = byte;
                }
            }
            let allow = |growth: crate::structures::quota::Growth| growth.total < 1 << 24;
            if let Ok(mut chain) = from_header(&bad, Quota::new(&allow)) {
                for i in 0..2000u64 {
                    let _ = chain.insert(&i.to_le_bytes(), Quota::new(&allow));
                }
                let _ = (chain.items(), chain.capacity(), chain.layers(), chain.estimated_rate());
                prop_assert!(is_header(&header(&chain)));
            }
        }
    }
}
