//! Stored forms of cuckoo filters, all of them RedisBloom's: the RDB fields of
//! versions 0 to 4, and the header and chunks of `CF.SCANDUMP`.
//!
//! A dump is the header followed by the slots of all sub-filters, oldest first, cut
//! into chunks. It is loaded by making an empty filter of the header and writing the
//! chunks into it: if that ends early, the rest of the slots stays free.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use super::chunks::{self, MAX_CHUNK};
use super::{LoadError, Sink, Source, require};
use crate::structures::buffer::Buffer;
use crate::structures::cuckoo::{CreateError, Filter, MAX_SUB_FILTERS, Shape};
use crate::structures::quota::Quota;

/// The encoding version that is written.
pub const VERSION: i32 = 4;

/// Bytes of a dump header.
pub const HEADER_LEN: usize = 38;

/// Evictions per insertion of filters from before version 4, which did not store
/// them: RedisBloom's default.
const LEGACY_MAX_ITERATIONS: u64 = 20;

/// Writes the fields of the current [`VERSION`].
pub fn save(filter: &Filter, sink: &mut impl Sink) {
    let shape = filter.shape();
    let bucket_size = u64::from(shape.bucket_size());
    sink.unsigned(filter.tables().len() as u64);
    sink.unsigned(shape.buckets());
    sink.unsigned(filter.items());
    sink.unsigned(filter.deletes());
    sink.unsigned(bucket_size);
    sink.unsigned(shape.max_iterations().into());
    sink.unsigned(shape.expansion().into());
    for table in filter.tables() {
        sink.unsigned(table.len() as u64 / bucket_size);
        sink.string(table);
    }
}

/// Reads a filter of any encoding version.
///
/// Versions before 4 stored neither bucket size nor expansion; all sub-filters had
/// one size. RedisBloom takes them from its configuration, here they follow from the
/// slots. (The modules that wrote these versions used another hash function. As in
/// RedisBloom, the filter loads and most of its items are not found: a caller can
/// warn of it, but a server that cannot start would be worse.)
///
/// # Errors
///
/// See [`LoadError`]. The numbers have to be in the ranges of [`Shape`] and every
/// sub-filter of the size that follows from it. The counters are taken as they are:
/// those of RedisBloom need not fit the slots.
pub fn load(source: &mut impl Source, version: i32) -> Result<Filter, LoadError> {
    match version {
        0..=3 => load_legacy(source),
        VERSION => load_current(source),
        _ => Err(LoadError::UnknownVersion(version)),
    }
}

fn load_current(source: &mut impl Source) -> Result<Filter, LoadError> {
    let count = load_count(source)?;
    let buckets = source.unsigned()?;
    let items = source.unsigned()?;
    let deletes = source.unsigned()?;
    let bucket_size = source.unsigned()?;
    let max_iterations = source.unsigned()?;
    let expansion = source.unsigned()?;
    let shape = Shape::new(buckets, bucket_size, max_iterations, expansion)
        .map_err(LoadError::Inconsistent)?;
    let tables = load_tables(count, || {
        let buckets = source.unsigned()?;
        let table = load_slots(source)?;
        // No overflow: with a bucket size of at most 255, the product of the right
        // number is far below.
        let slots = buckets.checked_mul(bucket_size);
        require(slots == Some(table.len() as u64), "slots are not buckets times bucket size")?;
        Ok(table)
    })?;
    let filter = Filter::of_tables(shape, tables).map_err(LoadError::Inconsistent)?;
    Ok(filter.with_counters(items, deletes))
}

fn load_legacy(source: &mut impl Source) -> Result<Filter, LoadError> {
    let count = load_count(source)?;
    let buckets = source.unsigned()?;
    let items = source.unsigned()?;
    require(buckets != 0, "no buckets")?;
    let tables = load_tables(count, || load_slots(source))?;
    let slots = tables.first().map_or(0, |table| table.len() as u64);
    let shape = Shape::new(buckets, slots / buckets, LEGACY_MAX_ITERATIONS, 1)
        .map_err(LoadError::Inconsistent)?;
    let filter = Filter::of_tables(shape, tables).map_err(LoadError::Inconsistent)?;
    Ok(filter.with_counters(items, 0))
}

/// The number of sub-filters.
fn load_count(source: &mut impl Source) -> Result<usize, LoadError> {
    let count = usize::try_from(source.unsigned()?).unwrap_or(usize::MAX);
    require((1..=MAX_SUB_FILTERS).contains(&count), "the number of sub-filters")?;
    Ok(count)
}

/// `count` sub-filters, each read by `next`.
fn load_tables(
    count: usize,
    mut next: impl FnMut() -> Result<Buffer<u8>, LoadError>,
) -> Result<Vec<Buffer<u8>>, LoadError> {
    let mut tables = Vec::new();
    tables.try_reserve_exact(count).map_err(|_| LoadError::OutOfMemory)?;
    for _ in 0..count {
        tables.push(next()?);
    }
    Ok(tables)
}

fn load_slots(source: &mut impl Source) -> Result<Buffer<u8>, LoadError> {
    Buffer::from_bytes(source.string()?).ok_or(LoadError::OutOfMemory)
}

/// The header of a dump: its fields in the order in which they are stored, packed,
/// little-endian.
#[derive(Serialize, Deserialize)]
struct Header {
    items: u64,
    buckets: u64,
    deletes: u64,
    sub_filters: u64,
    bucket_size: u16,
    max_iterations: u16,
    expansion: u16,
}

/// The header of a filter's dump.
pub fn header(filter: &Filter) -> [u8; HEADER_LEN] {
    let shape = filter.shape();
    let header = Header {
        items: filter.items(),
        buckets: shape.buckets(),
        deletes: filter.deletes(),
        sub_filters: filter.tables().len() as u64,
        bucket_size: shape.bucket_size().into(),
        max_iterations: shape.max_iterations(),
        expansion: shape.expansion(),
    };
    let mut bytes = [0; HEADER_LEN];
    chunks::pack(&header, &mut bytes);
    bytes
}

/// An empty filter as a dump header announces it, to [`load_chunk`] into. The
/// counters are those of the header already.
///
/// # Errors
///
/// [`LoadError::ShortRead`] if `bytes` are not [`HEADER_LEN`] many, and as for
/// [`load`]. The quota is asked for all sub-filters at once.
pub fn from_header(mut bytes: &[u8], quota: Quota<'_>) -> Result<Filter, LoadError> {
    if bytes.len() != HEADER_LEN {
        return Err(LoadError::ShortRead);
    }
    let header: Header = chunks::unpack(&mut bytes).ok_or(LoadError::ShortRead)?;
    let shape = Shape::new(
        header.buckets,
        header.bucket_size.into(),
        header.max_iterations.into(),
        header.expansion.into(),
    )
    .map_err(LoadError::Inconsistent)?;
    let count = usize::try_from(header.sub_filters).unwrap_or(usize::MAX);
    let filter = Filter::zeroed(shape, count, quota).map_err(|error| match error {
        CreateError::OutOfMemory => LoadError::OutOfMemory,
        CreateError::Impossible => LoadError::Inconsistent("the number of sub-filters"),
    })?;
    Ok(filter.with_counters(header.items, header.deletes))
}

/// The chunk of a dump at `iterator`, and the iterator of the one after it. `None`
/// behind the last slot. Iterator 1 is the first slot.
///
/// A sub-filter of up to [`MAX_CHUNK`] bytes is one chunk: it is returned as a whole
/// even if `iterator` lies inside it, and the next iterator is `iterator` plus its
/// length all the same (RedisBloom's; a dump never asks for it). A larger one gives
/// chunks of at most [`MAX_CHUNK`] bytes.
pub fn chunk(filter: &Filter, iterator: u64) -> Option<(u64, &[u8])> {
    let mut offset = iterator.checked_sub(1)?;
    for table in filter.tables() {
        let len = table.len() as u64;
        if offset >= len {
            offset -= len;
            continue;
        }
        let chunk = if table.len() <= MAX_CHUNK {
            table
        } else {
            let rest = table.get(offset as usize..).unwrap_or_default();
            rest.get(..MAX_CHUNK).unwrap_or(rest)
        };
        return Some((iterator.checked_add(chunk.len() as u64)?, chunk));
    }
    None
}

/// Why a chunk was refused: it is empty, or does not lie within one sub-filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkError;

/// Writes the slots of a chunk, which ends just before `iterator`: the number that
/// came with it from [`chunk`]. The counters stay those of the header.
///
/// # Errors
///
/// [`ChunkError`], and nothing was written.
pub fn load_chunk(filter: &mut Filter, iterator: i64, data: &[u8]) -> Result<(), ChunkError> {
    if data.is_empty() {
        return Err(ChunkError);
    }
    let end = u64::try_from(iterator).ok().and_then(|iterator| iterator.checked_sub(1));
    let start = end.and_then(|end| end.checked_sub(data.len() as u64)).ok_or(ChunkError)?;
    let mut start = usize::try_from(start).map_err(|_| ChunkError)?;
    for table in filter.buffers_mut() {
        if start >= table.len() {
            start -= table.len();
            continue;
        }
        // No overflow: both are sizes of memory.
        let target = table.get_mut(start..start + data.len()).ok_or(ChunkError)?;
        target.copy_from_slice(data);
        return Ok(());
    }
    Err(ChunkError)
}

#[cfg(test)]
mod tests {
    use super::super::{Field, Fields};
    use super::*;
    use crate::structures::cuckoo::{Insertion, Limits, Outcome, Params};
    use crate::structures::quota::Growth;

    const LIMITS: Limits<'static> =
        Limits { sub_filters: 32, quota: Quota::UNLIMITED, lifted: &|| false };

    fn filter(capacity: u64, bucket_size: u8, expansion: u16, items: u32) -> Filter {
        let params = Params { capacity, bucket_size, max_iterations: 20, expansion };
        let mut filter = Filter::new(params, Quota::UNLIMITED).unwrap();
        for item in 0..items {
            let item = format!("e{item}");
            let outcome = filter.insert(item.as_bytes(), Insertion::Every, LIMITS);
            assert_eq!(outcome, Outcome::Inserted);
        }
        filter
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    fn numbers(numbers: &[u64]) -> impl Iterator<Item = Field> {
        numbers.iter().copied().map(Field::Unsigned)
    }

    /// The specification's filter C2, as RedisBloom stores it.
    fn c2() -> Fields {
        let mut fields = Fields::default();
        fields.0.extend(numbers(&[4, 4, 24, 0, 2, 20, 1]));
        for table in
            ["c2ea1e0b8c73eece", "f2b2fe821cdc7578", "ecc2ca8beed6b900", "d000000000000000"]
        {
            fields.0.extend([Field::Unsigned(4), Field::String(bytes(table))]);
        }
        fields
    }

    #[test]
    fn the_fields_are_those_of_redisbloom() {
        let mut saved = Fields::default();
        save(&filter(8, 2, 1, 24), &mut saved);
        assert_eq!(saved, c2());
        assert_eq!(load(&mut c2(), 4).unwrap(), filter(8, 2, 1, 24));
    }

    #[test]
    fn a_saved_filter_loads_as_it_was() {
        for (capacity, bucket_size, expansion) in [(8, 1, 1), (64, 2, 2), (9, 3, 4), (510, 255, 0)]
        {
            let mut before = filter(capacity, bucket_size, expansion, 8);
            before.delete(b"e3");
            let mut fields = Fields::default();
            save(&before, &mut fields);
            assert_eq!(load(&mut fields, VERSION).unwrap(), before);
            assert!(fields.0.is_empty());
        }
    }

    #[test]
    fn fields_that_end_early_are_a_short_read() {
        for len in 0..c2().0.len() {
            let mut fields = c2();
            fields.0.truncate(len);
            assert_eq!(load(&mut fields, 4), Err(LoadError::ShortRead), "{len} fields");
        }
    }

    #[test]
    fn fields_that_make_no_sense_are_refused() {
        for (field, values) in [
            (0, &[0, 65536, u64::MAX][..]),
            (1, &[0, 3, 8, 1 << 56, u64::MAX]),
            (4, &[0, 1, 3, 256, 65538, u64::MAX]),
            (5, &[0, 65536, u64::MAX]),
            (6, &[0, 2, 3, 65537, u64::MAX]),
            (7, &[0, 2, 8, u64::MAX]),
            (9, &[0, 2, 8, u64::MAX]),
        ] {
            for &value in values {
                let mut fields = c2();
                fields.0[field] = Field::Unsigned(value);
                let loaded = load(&mut fields, 4);
                let refused = matches!(loaded, Err(LoadError::Inconsistent(_)));
                assert!(refused, "field {field} = {value}: {loaded:?}");
            }
        }
        for len in [0, 1, 7, 9, 16] {
            let mut fields = c2();
            fields.0[8] = Field::String(vec![1; len]);
            assert!(matches!(load(&mut fields, 4), Err(LoadError::Inconsistent(_))), "{len}");
        }
    }

    #[test]
    fn counters_that_do_not_fit_the_slots_are_taken_as_they_are() {
        let mut fields = c2();
        fields.0[2] = Field::Unsigned(u64::MAX);
        fields.0[3] = Field::Unsigned(u64::MAX);
        let loaded = load(&mut fields, 4).unwrap();
        assert_eq!((loaded.items(), loaded.deletes()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn old_versions_load_with_the_bucket_size_of_their_slots() {
        for version in 0..=3 {
            let mut fields = Fields::default();
            fields.0.extend(numbers(&[2, 8, 21]));
            fields.0.extend([Field::String(vec![7; 16]), Field::String(vec![0; 16])]);
            let loaded = load(&mut fields, version).unwrap();
            assert_eq!(loaded.shape(), Shape::new(8, 2, 20, 1).unwrap());
            assert_eq!((loaded.items(), loaded.deletes(), loaded.tables().len()), (21, 0, 2));
        }
        for (count, buckets, slots) in [(0, 8, 16), (1, 0, 16), (1, 8, 15), (1, 8, 0), (1, 6, 12)] {
            let mut fields = Fields::default();
            fields.0.extend(numbers(&[count, buckets, 21]));
            fields.0.push_back(Field::String(vec![0; slots]));
            let loaded = load(&mut fields, 3);
            assert!(matches!(loaded, Err(LoadError::Inconsistent(_))), "{loaded:?}");
        }
    }

    #[test]
    fn unknown_versions_are_refused() {
        for version in [-1, 5, i32::MAX, i32::MIN] {
            assert_eq!(load(&mut c2(), version), Err(LoadError::UnknownVersion(version)));
        }
    }

    #[test]
    fn the_header_is_that_of_redisbloom() {
        let header_of_c2 = bytes(
            "1800000000000000 0400000000000000 0000000000000000 0400000000000000 0200 1400 0100",
        );
        assert_eq!(header(&filter(8, 2, 1, 24))[..], header_of_c2);
        // The specification's C8.
        let c8 = bytes(
            "0700000000000000 0400000000000000 0300000000000000 0200000000000000 0200 1400 0200",
        );
        let loaded = from_header(&c8, Quota::UNLIMITED).unwrap();
        assert_eq!(loaded.shape(), Shape::new(4, 2, 20, 2).unwrap());
        assert_eq!((loaded.items(), loaded.deletes()), (7, 3));
        assert_eq!(loaded.tables().collect::<Vec<_>>(), [&[0; 8][..], &[0; 16]]);
        assert_eq!(header(&loaded)[..], c8);
    }

    #[test]
    fn hostile_headers_are_refused() {
        let sound = header(&filter(8, 2, 1, 24));
        for len in [0, 1, 37] {
            assert_eq!(from_header(&sound[..len], Quota::UNLIMITED), Err(LoadError::ShortRead));
        }
        for (offset, value) in [
            (8, &[0; 8][..]),
            (8, &[3, 0, 0, 0, 0, 0, 0, 0]),
            (8, &[0, 0, 0, 0, 0, 0, 0, 1]),
            (8, &[255; 8]),
            (24, &[0; 8]),
            (24, &[0, 0, 1, 0, 0, 0, 0, 0]),
            (24, &[1, 0, 1, 0, 0, 0, 0, 0]),
            (24, &[255; 8]),
            (32, &[0, 0]),
            (32, &[0, 1]),
            (34, &[0, 0]),
            (36, &[0, 0]),
            (36, &[3, 0]),
            (36, &[255, 255]),
        ] {
            let mut hostile = sound;
            hostile[offset..offset + value.len()].copy_from_slice(value);
            let loaded = from_header(&hostile, Quota::UNLIMITED);
            let refused = matches!(loaded, Err(LoadError::Inconsistent(_)));
            assert!(refused, "{value:?} at {offset}: {loaded:?}");
        }
    }

    #[test]
    fn a_header_that_claims_too_much_memory_is_refused_before_anything_is_allocated() {
        let limit = |growth: Growth| growth.total <= 1000;
        let mut claim = header(&filter(8, 2, 1, 0));
        claim[24..26].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(from_header(&claim, Quota::new(&limit)), Err(LoadError::OutOfMemory));
        claim[8..16].copy_from_slice(&(1_u64 << 55).to_le_bytes());
        assert_eq!(from_header(&claim, Quota::UNLIMITED), Err(LoadError::OutOfMemory));
    }

    #[test]
    fn a_dump_loads_as_the_filter_it_was_made_of() {
        let before = filter(64, 2, 2, 1000);
        let mut loaded = from_header(&header(&before), Quota::UNLIMITED).unwrap();
        let mut iterator = 1;
        while let Some((next, data)) = chunk(&before, iterator) {
            load_chunk(&mut loaded, next as i64, data).unwrap();
            iterator = next;
        }
        assert_eq!(loaded, before);
    }

    #[test]
    fn small_sub_filters_are_whole_chunks_and_large_ones_are_cut() {
        let small = filter(8, 2, 1, 24);
        assert_eq!(chunk(&small, 0), None);
        assert_eq!(chunk(&small, 9).unwrap(), (17, &bytes("f2b2fe821cdc7578")[..]));
        assert_eq!(chunk(&small, 12).unwrap(), (20, &bytes("f2b2fe821cdc7578")[..]));
        assert_eq!(chunk(&small, 33), None);
        assert_eq!(chunk(&small, u64::MAX), None);

        let large = filter(2 * MAX_CHUNK as u64, 2, 1, 0);
        let half = 1 + MAX_CHUNK as u64;
        for (iterator, next, len) in [
            (1, half, MAX_CHUNK),
            (half, half + MAX_CHUNK as u64, MAX_CHUNK),
            (half + 10, half + MAX_CHUNK as u64, MAX_CHUNK - 10),
        ] {
            let (after, data) = chunk(&large, iterator).unwrap();
            assert_eq!((after, data.len()), (next, len), "{iterator}");
        }
        assert_eq!(chunk(&large, half + MAX_CHUNK as u64), None);
    }

    #[test]
    fn chunks_that_do_not_lie_within_one_sub_filter_are_refused() {
        let mut target = filter(8, 2, 2, 14);
        let slots: Vec<_> = target.tables().map(<[u8]>::len).collect();
        assert_eq!(slots, [8, 16]);
        let before = target.try_clone().unwrap();
        for (iterator, len) in [
            (9, 0),
            (0, 8),
            (-5, 1),
            (1, 1),
            (5, 8),
            (10, 9),
            (18, 10),
            (33, 8),
            (26, 1),
            (1000, 8),
            (i64::MAX, 4),
            (i64::MIN, 1),
        ] {
            let refused = load_chunk(&mut target, iterator, &vec![9; len]);
            assert_eq!(refused, Err(ChunkError), "{len} bytes at {iterator}");
            assert_eq!(target, before);
        }
        assert_eq!(load_chunk(&mut target, 25, &[9; 16]), Ok(()));
        assert_eq!(load_chunk(&mut target, 6, &[1, 2, 3]), Ok(()));
        assert_eq!(target.tables().next().unwrap()[2..5], [1, 2, 3]);
        assert_eq!(target.items(), 14);
    }
}
