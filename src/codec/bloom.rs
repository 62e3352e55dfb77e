//! Stored Bloom filters: which layout, and RedisBloom's own forms.
//!
//! RDB encoding version 4 (specification, "RDB"), fields in order:
//!
//! ```text
//! items  links  options(>= 2)  growth(>= 4)
//! per link: entries  error  hashes  bits/entry  bits(>= 1)  n2(>= 1)  bit array  size
//! ```
//!
//! Dump header: 20 bytes, then 53 per link, packed and little-endian.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use super::blocked::{self, Lead};
use super::chunks::{self, ChunkError};
use super::{LoadError, Sink, Source, require};
use crate::structures::bloom::Filter;
use crate::structures::bloom::layout::redisbloom::{
    BitCount, Chain, Link, LinkParams, MAX_HASHES, MAX_LINKS, options,
};
use crate::structures::buffer::{Buffer, OutOfMemory};
use crate::structures::quota::Quota;

/// The encoding version that is written.
pub const VERSION: i32 = 4;

/// Growth of filters written before it was stored.
const OLD_GROWTH: u32 = 2;

/// Writes a filter in the current version.
pub fn save(filter: &Filter, sink: &mut impl Sink) {
    match filter {
        Filter::RedisBloom(chain) => save_chain(chain, sink),
        Filter::Blocked(chain) => blocked::save(chain, sink),
    }
}

/// Reads a filter of any encoding version.
///
/// # Errors
///
/// As [`LoadError`] says.
pub fn load(source: &mut impl Source, version: i32) -> Result<Filter, LoadError> {
    if !(0..=VERSION).contains(&version) {
        return Err(LoadError::UnknownVersion(version));
    }
    let items = source.unsigned()?;
    let links = source.unsigned()?;
    let options = if version >= 2 { source.unsigned()? } else { 0 };
    let growth = if version >= 4 { source.unsigned()? } else { OLD_GROWTH.into() };
    if version == VERSION && links == 0 {
        return blocked::load(Lead { items, options, growth }, source).map(Filter::Blocked);
    }
    let chain = load_chain(source, version, Start { items, links, options, growth })?;
    Ok(Filter::RedisBloom(Box::new(chain)))
}

/// The header chunk of a dump, in memory of its own.
pub fn header(filter: &Filter) -> Vec<u8> {
    let length = match filter {
        Filter::RedisBloom(chain) => CHAIN_HEADER + LINK_HEADER * chain.links().len(),
        Filter::Blocked(chain) => blocked::header_len(chain),
    };
    let mut room = vec![0; length];
    header_in(filter, &mut room);
    room
}

/// The header chunk of a dump, put into `room`, for which [`MAX_HEADER`] bytes are
/// always enough.
///
/// # Panics
///
/// Where there is not room enough.
pub fn header_in<'a>(filter: &Filter, room: &'a mut [u8]) -> &'a [u8] {
    match filter {
        Filter::RedisBloom(chain) => chain_header(chain, room),
        Filter::Blocked(chain) => blocked::header_in(chain, room),
    }
}

/// A filter as a header chunk describes it, its bits still zero.
///
/// # Errors
///
/// As [`LoadError`] says.
pub fn from_header(bytes: &[u8], quota: Quota<'_>) -> Result<Filter, LoadError> {
    if blocked::is_header(bytes) {
        return blocked::from_header(bytes, quota).map(Filter::Blocked);
    }
    chain_from_header(bytes, quota).map(|chain| Filter::RedisBloom(Box::new(chain)))
}

/// A data chunk of a dump, see [`chunks::chunk_at`].
pub fn chunk(filter: &Filter, iterator: i64) -> Option<(i64, &[u8])> {
    match filter {
        Filter::RedisBloom(chain) => {
            chunks::chunk_at(chain.links().iter().map(|link| link.bits().as_bytes()), iterator)
        }
        Filter::Blocked(chain) => blocked::chunk(chain, iterator),
    }
}

/// Copies a data chunk into place.
///
/// # Errors
///
/// As [`ChunkError`] says.
pub fn load_chunk(filter: &mut Filter, iterator: i64, data: &[u8]) -> Result<(), ChunkError> {
    match filter {
        Filter::RedisBloom(chain) => {
            let lengths = chain.links().iter().map(|link| link.bits().len());
            let (index, offset) = chunks::place_of(lengths, iterator, data.len())?;
            let array = chain.links_mut()[index].bits_mut();
            array[offset..][..data.len()].copy_from_slice(data);
            Ok(())
        }
        Filter::Blocked(chain) => blocked::load_chunk(chain, iterator, data),
    }
}

fn save_chain(chain: &Chain, sink: &mut impl Sink) {
    sink.unsigned(chain.items());
    sink.unsigned(chain.links().len() as u64);
    sink.unsigned(chain.options().into());
    sink.unsigned(chain.growth().into());
    for link in chain.links() {
        let params = link.params();
        sink.unsigned(params.entries);
        sink.double(params.error);
        sink.unsigned(params.hashes.into());
        sink.double(params.bits_per_entry);
        sink.unsigned(params.bit_count.bits);
        sink.unsigned(params.bit_count.n2.into());
        sink.string(link.bits().as_bytes());
        sink.unsigned(link.size());
    }
}

/// The leading fields of a stored chain.
struct Start {
    items: u64,
    links: u64,
    options: u64,
    growth: u64,
}

fn load_chain(source: &mut impl Source, version: i32, start: Start) -> Result<Chain, LoadError> {
    let options = u32::try_from(start.options).ok().filter(|bits| bits & !options::KNOWN == 0);
    let options = options.ok_or(LoadError::Inconsistent("option bits"))?;
    let growth = u32::try_from(start.growth).map_err(|_| LoadError::Inconsistent("growth"))?;
    require((1..=MAX_LINKS as u64).contains(&start.links), "number of links")?;
    let mut links = Vec::new();
    for _ in 0..start.links {
        links.try_reserve_exact(1).map_err(|_| OutOfMemory)?;
        links.push(load_link(source, version)?);
    }
    Chain::from_links(start.items, options, growth, links)
        .ok_or(LoadError::Inconsistent("number of links"))
}

fn load_link(source: &mut impl Source, version: i32) -> Result<Link, LoadError> {
    let entries = source.unsigned()?;
    let error = source.double()?;
    let hashes = source.unsigned()?;
    let bits_per_entry = source.double()?;
    let (bits, n2) = if version >= 1 {
        (source.unsigned()?, source.unsigned()?)
    } else {
        ((entries as f64 * bits_per_entry) as u64, 0)
    };
    let array = source.string()?;
    let size = source.unsigned()?;

    let hashes = u32::try_from(hashes).map_err(|_| LoadError::Inconsistent("hashes"))?;
    let n2 = u8::try_from(n2).map_err(|_| LoadError::Inconsistent("bit exponent"))?;
    let array_bits = array.len() as u64 * 8;
    // RedisBloom 1.x and 2.0 stored 0 bits beside the exponent.
    let bits = if bits == 0 && n2 > 0 { array_bits } else { bits };
    let params =
        LinkParams { entries, error, bits_per_entry, hashes, bit_count: BitCount { bits, n2 } };
    check_link(&params)?;
    require(array_bits == bits, "length of a bit array")?;
    let array = Buffer::from_bytes(array).ok_or(LoadError::OutOfMemory)?;
    Link::from_bits(params, size, array).ok_or(LoadError::Inconsistent("length of a bit array"))
}

/// What RedisBloom's newest version requires of a link, and bounds on what would
/// otherwise stall look-ups: hashes, and numbers that are none.
#[expect(clippy::approx_constant, reason = "RedisBloom's literal, to the digit")]
fn check_link(params: &LinkParams) -> Result<(), LoadError> {
    const LN2: f64 = 0.693147180559945;
    require(params.error > 0.0 && params.error < 1.0, "error rate")?;
    require(params.bits_per_entry > 0.0, "bits per entry")?;
    let hashes = (LN2 * params.bits_per_entry).ceil();
    require(f64::from(params.hashes) == hashes, "hashes for these bits per entry")?;
    require((1..=MAX_HASHES).contains(&params.hashes), "number of hashes")?;
    let BitCount { bits, n2 } = params.bit_count;
    require(n2 <= 63 && (n2 == 0 || bits >= 1 << n2), "bit exponent")?;
    require(bits != 0 && bits % 8 == 0, "number of bits")
}

#[derive(Serialize, Deserialize)]
struct ChainHeader {
    items: u64,
    links: u32,
    options: u32,
    growth: u32,
}

#[derive(Serialize, Deserialize)]
struct LinkHeader {
    bytes: u64,
    bits: u64,
    size: u64,
    error: f64,
    bits_per_entry: f64,
    hashes: u32,
    entries: u64,
    n2: u8,
}

/// Bytes of a packed [`ChainHeader`].
const CHAIN_HEADER: usize = 20;
/// Bytes of a packed [`LinkHeader`].
const LINK_HEADER: usize = 53;

/// Most bytes of a header in either layout.
pub const MAX_HEADER: usize = CHAIN_HEADER + LINK_HEADER * MAX_LINKS;

const _: () = assert!(blocked::MAX_HEADER <= MAX_HEADER);

fn chain_header<'a>(chain: &Chain, room: &'a mut [u8]) -> &'a [u8] {
    let whole = room.len();
    let header = ChainHeader {
        items: chain.items(),
        links: chain.links().len() as u32,
        options: chain.options(),
        growth: chain.growth(),
    };
    let mut rest = chunks::pack(&header, room);
    for link in chain.links() {
        let params = link.params();
        let header = LinkHeader {
            bytes: link.bits().len() as u64,
            bits: params.bit_count.bits,
            size: link.size(),
            error: params.error,
            bits_per_entry: params.bits_per_entry,
            hashes: params.hashes,
            entries: params.entries,
            n2: params.bit_count.n2,
        };
        rest = chunks::pack(&header, rest);
    }
    let length = whole - rest.len();
    &room[..length]
}

fn chain_from_header(mut bytes: &[u8], quota: Quota<'_>) -> Result<Chain, LoadError> {
    let length = bytes.len();
    let header: ChainHeader = chunks::unpack(&mut bytes).ok_or(LoadError::ShortRead)?;
    require(header.options & !options::KNOWN == 0, "option bits")?;
    let count = header.links as usize;
    require((1..=MAX_LINKS).contains(&count), "number of links")?;
    require(length == CHAIN_HEADER + LINK_HEADER * count, "length of the header")?;

    let mut described = Vec::new();
    described.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
    let (mut total, mut items) = (0u64, 0u64);
    for _ in 0..count {
        let header: LinkHeader = chunks::unpack(&mut bytes).ok_or(LoadError::ShortRead)?;
        let params = LinkParams {
            entries: header.entries,
            error: header.error,
            bits_per_entry: header.bits_per_entry,
            hashes: header.hashes,
            bit_count: BitCount { bits: header.bits, n2: header.n2 },
        };
        check_link(&params)?;
        require(header.bytes == params.bytes(), "bytes for these bits")?;
        items = items.checked_add(header.size).ok_or(LoadError::Inconsistent("items"))?;
        total = total.checked_add(header.bytes).ok_or(OutOfMemory)?;
        described.push((params, header.size));
    }
    require(items == header.items, "items")?;
    // For all links at once: many small ones together may be too much.
    quota.ask(0, total)?;

    let mut links = Vec::new();
    links.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
    for (params, size) in described {
        let mut link = Link::empty(params)?;
        link.set_size(size);
        links.push(link);
    }
    Chain::from_links(items, header.options, header.growth, links)
        .ok_or(LoadError::Inconsistent("number of links"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Field, Fields};
    use crate::structures::bloom::Params;

    fn filter() -> Filter {
        let params = Params { capacity: 4, error_rate: 0.1, expansion: 2, scaling: true };
        let mut chain = Chain::new(params, Quota::UNLIMITED).unwrap();
        for item in b"abcdefghij" {
            chain.insert(&[*item], Quota::UNLIMITED).unwrap();
        }
        Filter::RedisBloom(Box::new(chain))
    }

    fn saved() -> Fields {
        let mut fields = Fields::default();
        save(&filter(), &mut fields);
        fields
    }

    #[test]
    fn the_header_has_the_bytes_of_the_specification() {
        let hex: String = header(&filter()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0a00000000000000020000000500000002000000080000000000000040000000\
             0000000004000000000000009a9999999999a93f4af7d49edef0184005000000\
             0400000000000000000800000000000000400000000000000006000000000000\
             009a9999999999993f0bd81f7830b61e4006000000080000000000000000"
        );
    }

    #[test]
    fn a_filter_comes_back_from_its_fields_and_from_its_chunks() {
        let filter = filter();
        assert_eq!(load(&mut saved(), VERSION).unwrap(), filter);

        let mut copy = from_header(&header(&filter), Quota::UNLIMITED).unwrap();
        assert_ne!(copy, filter);
        let mut iterator = 1;
        while let Some((next, data)) = chunk(&filter, iterator) {
            load_chunk(&mut copy, next, data).unwrap();
            iterator = next;
        }
        assert_eq!(iterator, 17);
        assert_eq!(copy, filter);
    }

    #[test]
    fn every_field_that_lies_is_refused() {
        use Field::{Double, Unsigned};
        // Field numbers: 0 items, 1 links, 2 options, 3 growth; of the first link
        // 4 entries, 5 error, 6 hashes, 7 bits/entry, 8 bits, 9 n2, 10 array.
        for (index, lie) in [
            (1, Unsigned(0)),
            (1, Unsigned(1 << 36)),
            (2, Unsigned(16)),
            (2, Unsigned(1 << 32)),
            (3, Unsigned(1 << 32)),
            (5, Double(0.0)),
            (5, Double(1.0)),
            (5, Double(f64::NAN)),
            (6, Unsigned(4)),
            (6, Unsigned(1 << 32)),
            (7, Double(f64::NAN)),
            (7, Double(-6.0)),
            (7, Double(3e9)),
            (8, Unsigned(0)),
            (8, Unsigned(128)),
            (8, Unsigned(63)),
            (9, Unsigned(7)),
            (9, Unsigned(64)),
            (9, Unsigned(256)),
            (10, Field::String(vec![])),
            (10, Field::String(vec![0; 7])),
        ] {
            let mut fields = saved();
            fields.0[index] = lie.clone();
            assert!(load(&mut fields, VERSION).is_err(), "field {index} as {lie:?}");
        }
        for length in 0..saved().0.len() {
            let mut fields = saved();
            fields.0.truncate(length);
            assert_eq!(load(&mut fields, VERSION), Err(LoadError::ShortRead));
        }
        assert_eq!(load(&mut saved(), 5), Err(LoadError::UnknownVersion(5)));
    }

    #[test]
    fn a_filter_of_an_old_release_without_bit_count_loads() {
        let mut fields = saved();
        fields.0[8] = Field::Unsigned(0);
        fields.0[9] = Field::Unsigned(6);
        let Ok(Filter::RedisBloom(chain)) = load(&mut fields, VERSION) else { panic!() };
        assert_eq!(chain.links()[0].params().bit_count, BitCount { bits: 64, n2: 6 });
    }

    #[test]
    fn a_header_that_reserves_more_than_allowed_is_refused() {
        let none = |_| false;
        assert_eq!(from_header(&header(&filter()), Quota::new(&none)), Err(LoadError::OutOfMemory));
    }

    #[test]
    fn a_header_of_any_other_length_is_refused() {
        let header = header(&filter());
        for length in 0..header.len() {
            assert!(from_header(&header[..length], Quota::UNLIMITED).is_err());
        }
        let longer = [header.as_slice(), &[0]].concat();
        assert!(from_header(&longer, Quota::UNLIMITED).is_err());
    }
}
