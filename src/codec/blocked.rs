//! Stored forms of the blocked Bloom layout.
//!
//! Both begin with one header, in bincode's fixed-width little-endian encoding:
//! [`Fixed`], then a [`Layer`] for each layer, oldest first.
//!
//! - RDB: RedisBloom's four leading unsigned fields with a number of layers of 0
//!   (which RedisBloom refuses), the header as a string, then the bits of each
//!   layer as strings of [`MAX_CHUNK`] bytes and a last one with the rest.
//! - Dump: the header as the first chunk, then the bits by the rules of
//!   RedisBloom's iterators. RedisBloom's loader refuses the header, as no number of
//!   links fits its length.

#![forbid(unsafe_code)]

use bincode::config::standard;
use serde::{Deserialize, Serialize};
use serde::de::DeserializeOwned;

use super::{LoadError, MAX_CHUNK, Sink, Source, require};
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

const CONFIG: fn() -> FixedInts = || standard().with_little_endian().with_fixed_int_encoding();
type FixedInts =
    bincode::config::Configuration<bincode::config::LittleEndian, bincode::config::Fixint>;

/// Writes the RDB form, the four leading fields included.
pub fn save(chain: &Chain, sink: &mut impl Sink) {
    let lead = lead(chain);
    sink.unsigned(lead.items);
    sink.unsigned(0);
    sink.unsigned(lead.options);
    sink.unsigned(lead.growth);
    sink.string(&header(chain));
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

/// The header of a dump: all but the bits.
pub fn header(chain: &Chain) -> Vec<u8> {
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
    let mut bytes = encode(&fixed);
    for record in chain.records() {
        bytes.extend(encode(&Layer::of(record)));
    }
    bytes
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
    let decoded = bincode::serde::decode_from_slice(bytes, CONFIG());
    let (value, length) = decoded.map_err(|_| LoadError::Inconsistent("short header"))?;
    *bytes = bytes.get(length..).unwrap_or_default();
    Ok(value)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, CONFIG()).expect("numbers always encode")
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

/// Why a data chunk was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// The iterator is not above 0, or less than the chunk is long.
    BadData,
    /// The chunk begins behind the last layer.
    NoLink,
    /// The chunk exceeds the layer that it begins in.
    TooBig,
}

/// The chunk at `iterator`, at least 1, with the iterator after it. `None` at the
/// end and outside.
pub fn chunk(chain: &Chain, iterator: i64) -> Option<(i64, &[u8])> {
    let mut offset = u64::try_from(iterator.checked_sub(1)?).ok()?;
    for bytes in chain.layer_bytes() {
        if offset < bytes.len() as u64 {
            let rest = &bytes[offset as usize..];
            let chunk = &rest[..rest.len().min(MAX_CHUNK)];
            return Some((iterator.checked_add(chunk.len() as i64)?, chunk));
        }
        offset -= bytes.len() as u64;
    }
    None
}

/// Writes a chunk that ends before `iterator`.
///
/// # Errors
///
/// [`ChunkError`]; nothing is written then.
pub fn load_chunk(chain: &mut Chain, iterator: i64, data: &[u8]) -> Result<(), ChunkError> {
    let end = u64::try_from(iterator).map_err(|_| ChunkError::BadData)?;
    let start = end.checked_sub(data.len() as u64).ok_or(ChunkError::BadData)?;
    if end == 0 {
        return Err(ChunkError::BadData);
    }
    let mut offset = start.checked_sub(1).ok_or(ChunkError::NoLink)?;
    for bytes in chain.layer_bytes_mut() {
        if offset < bytes.len() as u64 {
            let rest = &mut bytes[offset as usize..];
            let target = rest.get_mut(..data.len()).ok_or(ChunkError::TooBig)?;
            target.copy_from_slice(data);
            return Ok(());
        }
        offset -= bytes.len() as u64;
    }
    Err(ChunkError::NoLink)
}
