//! The stored form of a Top-K sketch, RedisBloom's type `TopK-TYPE`.
//!
//! ```text
//! unsigned  k
//! unsigned  width
//! unsigned  depth
//! double    decay
//! string    cells: fingerprint and count, 32 bits each, row by row
//! string    heap: k entries of 24 bytes
//!             fingerprint   32 bits
//!             item length   32 bits
//!             0             64 bits   an address in RedisBloom's
//!             count         32 bits
//!             draws         32 bits   padding in RedisBloom's
//! k strings item of each heap entry and a NUL; a lone NUL for none
//! ```
//!
//! All numbers are little-endian. `draws` of the first entry is the number of random
//! draws made so far, which decides the ones to come; it is 0 in the others.
//! RedisBloom does not read these bytes. In data that it wrote they hold anything,
//! which is as good a number to go on from: all copies of the data have the same.
//!
//! RedisBloom cuts items at their first NUL. Such an entry keeps what is left of the
//! item, and its fingerprint.
//!
//! That form takes memory for the heap and the longest item. Where there is none, the
//! plain form is written, which takes none at all. It is an empty sketch of one entry
//! and one cell, whose k has bit 32 set, and behind it:
//!
//! ```text
//! unsigned  k
//! unsigned  width
//! unsigned  depth
//! double    decay
//! string    cells, as above
//! unsigned  draws
//! k times   unsigned  count
//!           unsigned  0 for no item, else its fingerprint and 1
//!           string    the item, if there is one
//! ```
//!
//! RedisBloom reads the empty sketch, as it does not see that bit, and the server
//! refuses a value with more fields than were read.

#![forbid(unsafe_code)]

use super::{LoadError, Sink, Source, require};
use crate::structures::buffer::{Buffer, OutOfMemory};
use crate::structures::hash::murmur2;
use crate::structures::topk::{FINGERPRINT_SEED, Params, TopK};

/// The encoding version that is written, and the newest that is read.
pub const VERSION: i32 = 0;

/// Bytes of a stored heap entry.
const ENTRY: usize = 24;

/// The k that begins the plain form.
const PLAIN: u64 = 1 << 32 | 1;

/// Writes a sketch: as RedisBloom does, or in the plain form where there is no memory
/// for that.
pub fn save(topk: &TopK, sink: &mut impl Sink) {
    match Blobs::of(topk) {
        Ok(blobs) => save_as_redisbloom(topk, blobs, sink),
        Err(OutOfMemory) => save_plain(topk, sink),
    }
}

/// What RedisBloom's form has and the sketch has not.
struct Blobs {
    heap: Buffer<u8>,
    /// Room for the longest item and a NUL.
    text: Vec<u8>,
}

impl Blobs {
    fn of(topk: &TopK) -> Result<Self, OutOfMemory> {
        let size = (topk.params().k() as usize).checked_mul(ENTRY).ok_or(OutOfMemory)?;
        let mut heap = Buffer::<u8>::zeroed(size)?;
        let mut longest = 0;
        for (entry, stored) in heap.as_chunks_mut::<ENTRY>().0.iter_mut().zip(topk.stored()) {
            if let Some((fingerprint, item)) = stored.item {
                entry[..4].copy_from_slice(&fingerprint.to_le_bytes());
                entry[4..8].copy_from_slice(&(item.len() as u32).to_le_bytes());
                longest = longest.max(item.len());
            }
            // Untouched pages stay unmapped.
            if stored.count != 0 {
                entry[16..20].copy_from_slice(&stored.count.to_le_bytes());
            }
        }
        heap[20..ENTRY].copy_from_slice(&topk.draws().to_le_bytes());
        let mut text = Vec::new();
        text.try_reserve_exact(longest + 1).map_err(|_| OutOfMemory)?;
        Ok(Self { heap, text })
    }
}

fn save_as_redisbloom(topk: &TopK, blobs: Blobs, sink: &mut impl Sink) {
    let params = topk.params();
    let Blobs { heap, mut text } = blobs;
    sink.unsigned(params.k().into());
    sink.unsigned(params.width().into());
    sink.unsigned(params.depth().into());
    sink.double(params.decay());
    sink.string(topk.cells().as_bytes());
    sink.string(&heap);
    for stored in topk.stored() {
        text.clear();
        text.extend_from_slice(stored.item.map_or(&[], |item| item.1));
        text.push(0);
        sink.string(&text);
    }
}

/// Writes a sketch in the plain form, without any allocation.
pub fn save_plain(topk: &TopK, sink: &mut impl Sink) {
    sink.unsigned(PLAIN);
    sink.unsigned(1);
    sink.unsigned(1);
    sink.double(1.0);
    sink.string(&[0; 8]);
    sink.string(&[0; ENTRY]);
    sink.string(&[0]);

    let params = topk.params();
    sink.unsigned(params.k().into());
    sink.unsigned(params.width().into());
    sink.unsigned(params.depth().into());
    sink.double(params.decay());
    sink.string(topk.cells().as_bytes());
    sink.unsigned(topk.draws().into());
    for stored in topk.stored() {
        sink.unsigned(stored.count.into());
        match stored.item {
            Some((fingerprint, item)) => {
                sink.unsigned(u64::from(fingerprint) + 1);
                sink.string(item);
            }
            None => sink.unsigned(0),
        }
    }
}

/// Reads a sketch of encoding `version`.
///
/// # Errors
///
/// [`LoadError`] where the version is unknown, a field is missing, a parameter is
/// out of range, a length is not the one that they demand, or an item does not end
/// in a NUL.
pub fn load(source: &mut impl Source, version: i32) -> Result<TopK, LoadError> {
    if version != VERSION {
        return Err(LoadError::UnknownVersion(version));
    }
    let k = source.unsigned()?;
    if k == PLAIN {
        return load_plain(source);
    }
    let params = load_params(source, k)?;
    let k = params.k();
    let cells = load_cells(source, params)?;
    let heap = source.string()?;
    let (entries, rest) = heap.as_chunks::<ENTRY>();
    require(entries.len() as u64 == u64::from(k) && rest.is_empty(), "number of heap entries")?;

    let draws = entries.first().map_or(0, |entry| word(entry, 20));
    let mut topk = empty(params, cells, draws)?;
    for (place, entry) in (0..k).zip(entries) {
        let fingerprint = word(entry, 0);
        let item = item(source.string()?, fingerprint)?;
        topk.restore(place, word(entry, 16), item.map(|item| (fingerprint, item)))?;
    }
    Ok(topk)
}

/// Reads the plain form behind its first field.
fn load_plain(source: &mut impl Source) -> Result<TopK, LoadError> {
    // What else RedisBloom reads.
    let (width, depth, decay) = (source.unsigned()?, source.unsigned()?, source.double()?);
    let (cells, heap, item) = (source.string()?, source.string()?, source.string()?);
    let empty_sketch = (width, depth, decay) == (1, 1, 1.0)
        && *cells == [0; 8]
        && *heap == [0; ENTRY]
        && *item == [0];
    require(empty_sketch, "no empty sketch before a plain one")?;

    let k = source.unsigned()?;
    let params = load_params(source, k)?;
    let k = params.k();
    let cells = load_cells(source, params)?;
    let draws = number(source, "draws")?;
    // Grows with what is there: the heap, which takes memory for k entries, is made
    // when they have all come.
    let mut entries = Vec::new();
    for _ in 0..k {
        let count = number(source, "count")?;
        let item = match source.unsigned()?.checked_sub(1) {
            None => None,
            Some(fingerprint) => {
                let fingerprint = u32::try_from(fingerprint)
                    .map_err(|_| LoadError::Inconsistent("fingerprint"))?;
                let item = source.string()?;
                // RedisBloom's form has no place for such an entry.
                require(!item.is_empty() || fingerprint == empty_item(), "fingerprint")?;
                Some((fingerprint, item))
            }
        };
        entries.try_reserve(1).map_err(|_| LoadError::OutOfMemory)?;
        entries.push((count, item));
    }
    let mut topk = empty(params, cells, draws)?;
    for (place, (count, item)) in (0..k).zip(entries) {
        topk.restore(place, count, item)?;
    }
    Ok(topk)
}

/// Reads what follows a `k`, up to the decay.
fn load_params(source: &mut impl Source, k: u64) -> Result<Params, LoadError> {
    let k = u32::try_from(k).map_err(|_| LoadError::Inconsistent("k"))?;
    let width = number(source, "width")?;
    let depth = number(source, "depth")?;
    let params = Params::new(k, width, depth, source.double()?);
    params.ok_or(LoadError::Inconsistent("k, width, depth or decay"))
}

fn load_cells(source: &mut impl Source, params: Params) -> Result<Buffer<u64>, LoadError> {
    let cells = source.string()?;
    let size = params.cells().checked_mul(8);
    require(size == Some(cells.len() as u64), "number of cells")?;
    Buffer::from_bytes(cells).ok_or(LoadError::OutOfMemory)
}

/// A sketch whose list is still empty.
fn empty(params: Params, cells: Buffer<u64>, draws: u32) -> Result<TopK, LoadError> {
    TopK::with_cells(params, cells, draws)?.ok_or(LoadError::Inconsistent("number of cells"))
}

/// A number of 32 bits, stored in 64.
fn number(source: &mut impl Source, what: &'static str) -> Result<u32, LoadError> {
    u32::try_from(source.unsigned()?).map_err(|_| LoadError::Inconsistent(what))
}

/// The 32-bit number at `at` of a heap entry.
fn word(entry: &[u8; ENTRY], at: usize) -> u32 {
    entry[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The fingerprint of the empty item.
fn empty_item() -> u32 {
    murmur2(b"", FINGERPRINT_SEED)
}

/// The item of a stored string; `None` for none, which looks like the empty item,
/// but for its fingerprint.
fn item(stored: Box<[u8]>, fingerprint: u32) -> Result<Option<Box<[u8]>>, LoadError> {
    let mut bytes = stored.into_vec();
    require(bytes.pop() == Some(0), "item without its end")?;
    let none = bytes.is_empty() && fingerprint != empty_item();
    Ok((!none).then(|| bytes.into_boxed_slice()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{Field, Fields};
    use crate::structures::quota::Quota;

    /// `a`, which was counted 3 times, in a sketch of one cell.
    fn fields() -> Vec<Field> {
        let cells = [0x17, 0xf5, 0x3c, 0xf2, 3, 0, 0, 0];
        let heap = [&cells[..4], &[1, 0, 0, 0], &[0; 8], &[3, 0, 0, 0], &[0; 4]].concat();
        vec![
            Field::Unsigned(1),
            Field::Unsigned(1),
            Field::Unsigned(1),
            Field::Double(0.9),
            Field::String(cells.to_vec()),
            Field::String(heap),
            Field::String(b"a\0".to_vec()),
        ]
    }

    fn read(fields: Vec<Field>) -> Result<TopK, LoadError> {
        load(&mut Fields(fields.into()), VERSION)
    }

    fn saved(topk: &TopK) -> Vec<Field> {
        let mut fields = Fields::default();
        save(topk, &mut fields);
        fields.0.into()
    }

    fn add(topk: &mut TopK, item: &[u8], units: u32) {
        topk.add(&[(item, units)], Quota::UNLIMITED, |addition| assert!(addition.is_ok()));
    }

    fn listed(topk: &TopK) -> Vec<(Vec<u8>, u32)> {
        topk.list().unwrap().map(|entry| (entry.item.to_vec(), entry.count)).collect()
    }

    #[test]
    fn a_sketch_is_stored_as_redisbloom_stores_it() {
        let mut topk = TopK::new(Params::new(1, 1, 1, 0.9).unwrap(), Quota::UNLIMITED).unwrap();
        add(&mut topk, b"a", 3);
        assert_eq!(saved(&topk), fields());
        assert_eq!(read(fields()), Ok(topk));
    }

    /// The sketch of [`fields`] in the plain form, with room for one more item.
    fn plain() -> Vec<Field> {
        let cells = [0x17, 0xf5, 0x3c, 0xf2, 3, 0, 0, 0];
        let mut plain: Vec<_> = [1 << 32 | 1, 1, 1].map(Field::Unsigned).into();
        plain.push(Field::Double(1.0));
        plain.extend([8, 24, 1].map(|len| Field::String(vec![0; len])));
        plain.extend([2, 1, 1].map(Field::Unsigned));
        plain.push(Field::Double(0.9));
        plain.push(Field::String(cells.to_vec()));
        plain.extend([0, 0, 0, 3, 0xf23c_f517 + 1].map(Field::Unsigned));
        plain.push(Field::String(b"a".to_vec()));
        plain
    }

    #[test]
    fn the_plain_form_is_as_described() {
        let mut topk = TopK::new(Params::new(2, 1, 1, 0.9).unwrap(), Quota::UNLIMITED).unwrap();
        add(&mut topk, b"a", 3);
        let mut fields = Fields::default();
        save_plain(&topk, &mut fields);
        assert_eq!(fields.0, plain());
        assert_eq!(read(plain()), Ok(topk));
    }

    #[test]
    fn plain_data_that_make_no_sense_are_refused() {
        for len in 0..plain().len() {
            assert_eq!(read(plain()[..len].to_vec()), Err(LoadError::ShortRead), "{len}");
        }
        let beyond = Field::Unsigned(1 << 32);
        for (at, bad) in [
            (0, Field::Unsigned(1 << 33 | 1)),
            (1, Field::Unsigned(2)),
            (2, Field::Unsigned(0)),
            (3, Field::Double(0.9)),
            (4, Field::String(vec![0; 7])),
            (5, Field::String(vec![1; 24])),
            (6, Field::String(vec![])),
            (7, Field::Unsigned(0)),
            (7, beyond.clone()),
            (7, Field::Unsigned(PLAIN)),
            (8, Field::Unsigned(2)),
            (9, Field::Unsigned(0)),
            (10, Field::Double(0.0)),
            (10, Field::Double(f64::NAN)),
            (11, Field::String(vec![0; 7])),
            (12, beyond.clone()),
            (13, beyond),
            (16, Field::Unsigned((1 << 32) + 1)),
            (17, Field::String(vec![])),
        ] {
            let mut fields = plain();
            fields[at] = bad.clone();
            let refused = matches!(read(fields), Err(LoadError::Inconsistent(_)));
            assert!(refused, "{bad:?} at {at}");
        }
    }

    /// Nothing of this size is allocated before the entries are there.
    #[test]
    fn a_plain_list_that_claims_too_much_is_a_short_read() {
        let mut fields = plain();
        fields[7] = Field::Unsigned(u32::MAX.into());
        assert_eq!(read(fields), Err(LoadError::ShortRead));
    }

    #[test]
    fn redisbloom_s_addresses_are_ignored() {
        let mut fields = fields();
        let Field::String(heap) = &mut fields[5] else { unreachable!() };
        heap[8..16].fill(0x7f);
        let topk = read(fields).unwrap();
        assert_eq!(saved(&topk), super::tests::fields());
    }

    #[test]
    fn items_of_any_bytes_come_back_whole() {
        let mut topk = TopK::new(Params::new(7, 50, 3, 0.9).unwrap(), Quota::UNLIMITED).unwrap();
        for item in [&b""[..], b"\0", b"a\0b", b"a\0c", b"a", b"\r\n\xff"] {
            add(&mut topk, item, 2);
        }
        let loaded = read(saved(&topk)).unwrap();
        assert_eq!(listed(&loaded), listed(&topk));
        assert_eq!(loaded, topk);
    }

    #[test]
    fn an_item_that_redisbloom_cut_keeps_its_fingerprint() {
        let mut topk = TopK::new(Params::new(2, 50, 3, 0.9).unwrap(), Quota::UNLIMITED).unwrap();
        add(&mut topk, b"a\0b", 2);
        add(&mut topk, b"a", 1);
        let mut fields = saved(&topk);
        for field in &mut fields {
            if *field == Field::String(b"a\0b\0".to_vec()) {
                *field = Field::String(b"a\0".to_vec());
            }
        }
        let cut = read(fields).unwrap();
        assert_eq!(listed(&cut), [(b"a".to_vec(), 2), (b"a".to_vec(), 1)]);
        assert_eq!(read(saved(&cut)), Ok(cut));
    }

    #[test]
    fn an_item_that_is_there_twice_is_listed_once() {
        let mut topk = TopK::new(Params::new(2, 50, 3, 0.9).unwrap(), Quota::UNLIMITED).unwrap();
        add(&mut topk, b"a", 1);
        add(&mut topk, b"b", 2);
        let mut fields = saved(&topk);
        let (a, b) = (saved(&topk)[6].clone(), fields[7].clone());
        assert_eq!((a, &b), (Field::String(b"a\0".to_vec()), &Field::String(b"b\0".to_vec())));
        let Field::String(heap) = &mut fields[5] else { unreachable!() };
        heap.copy_within(ENTRY..ENTRY + 4, 0);
        fields[6] = b;
        let mut twice = read(fields).unwrap();
        assert_eq!(listed(&twice), [(b"b".to_vec(), 2)]);
        assert_eq!(read(saved(&twice)).as_ref(), Ok(&twice));
        add(&mut twice, b"c", 1);
        assert_eq!(listed(&twice), [(b"b".to_vec(), 2), (b"c".to_vec(), 1)]);
    }

    #[test]
    fn data_that_make_no_sense_are_refused() {
        let string = |len| Field::String(vec![0; len]);
        let many = Field::Unsigned(u32::MAX.into());
        for (at, field) in [
            (0, Field::Unsigned(0)),
            (0, Field::Unsigned(2)),
            (0, Field::Unsigned((1 << 32) + 2)),
            (0, many.clone()),
            (1, Field::Unsigned(0)),
            (1, many.clone()),
            (2, Field::Unsigned(0)),
            (2, many),
            (3, Field::Double(0.0)),
            (3, Field::Double(-0.5)),
            (3, Field::Double(7.0)),
            (3, Field::Double(f64::NAN)),
            (3, Field::Double(f64::INFINITY)),
            (4, string(0)),
            (4, string(7)),
            (4, string(9)),
            (5, string(0)),
            (5, string(23)),
            (5, string(25)),
            (5, string(48)),
            (6, string(0)),
            (6, Field::String(b"a".to_vec())),
        ] {
            let mut fields = fields();
            fields[at] = field.clone();
            let loaded = read(fields);
            assert!(matches!(loaded, Err(LoadError::Inconsistent(_))), "{at} {field:?} {loaded:?}");
        }
    }

    #[test]
    fn other_versions_and_short_data_are_refused() {
        for version in [-1, 1] {
            let loaded = load(&mut Fields(fields().into()), version);
            assert_eq!(loaded, Err(LoadError::UnknownVersion(version)));
        }
        for len in 0..fields().len() {
            assert_eq!(read(fields()[..len].to_vec()), Err(LoadError::ShortRead));
        }
    }

    proptest! {
        #[test]
        fn a_loaded_sketch_goes_the_way_of_the_saved_one(
            pairs in prop::collection::vec(("[a-h]{0,2}", 0..2000u32), 0..100),
            cut in 0..100usize,
        ) {
            let params = Params::new(4, 3, 2, 0.9).unwrap();
            let mut topk = TopK::new(params, Quota::UNLIMITED).unwrap();
            let (first, second) = pairs.split_at(cut.min(pairs.len()));
            for (item, units) in first {
                add(&mut topk, item.as_bytes(), *units);
            }
            let mut loaded = read(saved(&topk)).unwrap();
            for (item, units) in second {
                add(&mut topk, item.as_bytes(), *units);
                add(&mut loaded, item.as_bytes(), *units);
            }
            prop_assert_eq!(saved(&loaded), saved(&topk));
            let mut plain = Fields::default();
            save_plain(&topk, &mut plain);
            prop_assert_eq!(&load(&mut plain, VERSION).unwrap(), &topk);
            prop_assert_eq!(loaded, topk);
        }

        #[test]
        fn any_list_loads_and_works(
            heap in prop::collection::vec(any::<u8>(), 24 * 5),
            cells in prop::collection::vec(any::<u8>(), 8 * 6),
            items in prop::collection::vec("[ab]{0,1}", 5),
            decay in 1e-9..1.0f64,
            units in prop::collection::vec(any::<u32>(), 20),
        ) {
            let fixed = [5, 3, 2].map(Field::Unsigned);
            let strings = [heap, cells].map(Field::String);
            let items = items.into_iter().map(|item| Field::String([item.as_bytes(), b"\0"].concat()));
            let [heap, cells] = strings;
            let fields = fixed.into_iter().chain([Field::Double(decay), cells, heap]).chain(items);
            let mut topk = read(fields.collect()).unwrap();
            for (i, units) in units.into_iter().enumerate() {
                add(&mut topk, [&b"a"[..], b"b", b"", b"d"][i % 4], units);
            }
            prop_assert!(listed(&topk).len() <= 5);
            let again = read(saved(&topk));
            prop_assert_eq!(again.as_ref(), Ok(&topk));
        }
    }
}
