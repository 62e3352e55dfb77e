//! Top-K: the k items with the largest counts, in fixed memory.
//!
//! Yang, Zhang, Li et al., "HeavyKeeper: an accurate algorithm for finding top-k
//! elephant flows" (2019). An item has one cell in each row; a cell counts for one
//! item at a time, known by its fingerprint, and other items that fall on it wear
//! its count down with a chance that falls exponentially (`decay.rs`). The largest of
//! an item's cells is its count; the k items with the largest ones are kept in a
//! min-heap (`heap.rs`).
//!
//! Replies are RedisBloom's wherever no random draw decides, with these exceptions:
//! counts stop at 2^32 - 1 where RedisBloom's start again at 0; items are whole,
//! whatever bytes are in them; an increment of 0 brings no item into the heap; and
//! items that are in the heap with count 0 are not said to be in the list, which
//! leaves them out.

#![forbid(unsafe_code)]

use std::cmp::Reverse;

use self::decay::{Contest, Decay, Random};
use self::heap::Heap;
use self::items::Item;
use super::BATCH;
use super::buffer::{Buffer, OutOfMemory, Part};
use super::prefetch::prefetch;
use super::quota::Quota;
use super::rows::{LANES, Rows, murmur2_batch, murmur2_lanes, row_seeds};

mod decay;
mod heap;
mod items;

/// Rows that are hashed together with the fingerprint.
const FIRST_ROWS: usize = LANES - 1;

/// The seed of fingerprints.
pub(crate) const FINGERPRINT_SEED: u32 = 1919;

/// What creation asks the quota for per entry of the list: 8 bytes of heap that are
/// allocated at once, and 48 of administration (at most) and [`SHORT_ITEM`] of item
/// that come when the entry is used.
const ENTRY_BYTES: u64 = 96;

/// Items up to this length are paid for with the entry; longer ones ask the quota.
const SHORT_ITEM: usize = 40;

/// What a sketch is made for. Only possible values can be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    k: u32,
    width: u32,
    depth: u32,
    decay: f64,
}

impl Params {
    /// A list of `k` items, `depth` rows of `width` cells, and the base of the
    /// chance of decay. `None` where a number is 0, or `decay` is not above 0 and at
    /// most 1.
    pub fn new(k: u32, width: u32, depth: u32, decay: f64) -> Option<Self> {
        let possible = k > 0 && width > 0 && depth > 0 && decay > 0.0 && decay <= 1.0;
        possible.then_some(Self { k, width, depth, decay })
    }

    /// Items in the list, at least 1.
    pub fn k(self) -> u32 {
        self.k
    }

    /// Cells per row, at least 1.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Rows, at least 1.
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Base of the chance of decay, above 0 and at most 1.
    pub fn decay(self) -> f64 {
        self.decay
    }

    /// Cells of the whole table.
    pub fn cells(self) -> u64 {
        u64::from(self.width) * u64::from(self.depth)
    }
}

/// An entry of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The item's bytes.
    pub item: &'a [u8],
    /// Its count when it was last added, above 0.
    pub count: u32,
}

/// An entry of the heap as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The count.
    pub count: u32,
    /// Fingerprint and bytes of the item.
    pub item: Option<(u32, &'a [u8])>,
}

/// What an item's addition did to the list: the item that it expelled, if any.
///
/// An error where memory for the item is refused. Where the quota refused it, the
/// addition did nothing.
pub type Addition = Result<Option<Box<[u8]>>, OutOfMemory>;

/// A Top-K sketch.
///
/// An item that wins none of its cells while the heap has room enters it all the
/// same, with count 0. It is reported when it is expelled, as RedisBloom does, but
/// not listed.
#[derive(Debug, PartialEq)]
pub struct TopK {
    params: Params,
    /// Row by row: the fingerprint in the low half, the count in the high one.
    cells: Buffer<u64>,
    heap: Heap,
    /// Random draws made so far, modulo 2^32.
    draws: u32,
    decay: Decay,
    rows: Rows,
}

impl TopK {
    /// An empty sketch. Its pages stay unmapped until used.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where `quota` or the allocator refuses: 8 bytes per cell, and
    /// 96 per entry of the list, all that it can take with items of up to 40 bytes.
    pub fn new(params: Params, quota: Quota<'_>) -> Result<Self, OutOfMemory> {
        let cells = params.cells();
        let list = u64::from(params.k) * ENTRY_BYTES;
        quota.ask(0, cells.checked_mul(8).and_then(|c| c.checked_add(list)).ok_or(OutOfMemory)?)?;
        let cells = Buffer::zeroed(usize::try_from(cells).map_err(|_| OutOfMemory)?)?;
        Self::with_cells(params, cells, 0)?.ok_or(OutOfMemory)
    }

    /// A sketch with stored cells and number of draws, its list still empty: see
    /// [`restore`](Self::restore). `Ok(None)` where there are not as many cells as
    /// the parameters say.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn with_cells(
        params: Params,
        cells: Buffer<u64>,
        draws: u32,
    ) -> Result<Option<Self>, OutOfMemory> {
        if cells.len() as u64 != params.cells() {
            return Ok(None);
        }
        let heap = Heap::new(params.k)?;
        let (decay, rows) = (Decay::new(params.decay), Rows::new(params.width.into()));
        Ok(Some(Self { params, cells, heap, draws, decay, rows }))
    }

    /// Fills the entry at `place` of the heap, below k, with what is stored for it:
    /// the count and, if any, fingerprint and bytes of the item. Each place once, in
    /// order. Of several entries with one item, which RedisBloom can leave behind,
    /// the last keeps it.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    ///
    /// # Panics
    ///
    /// Where `place` is not below k.
    pub fn restore(
        &mut self,
        place: u32,
        count: u32,
        item: Option<(u32, Box<[u8]>)>,
    ) -> Result<(), OutOfMemory> {
        self.heap.restore(place, count, item)
    }

    /// A second sketch with the same content.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let (cells, heap) = (self.cells.try_clone()?, self.heap.try_clone()?);
        Ok(Self { cells, heap, decay: self.decay.clone(), ..*self })
    }

    /// What it was made for.
    pub fn params(&self) -> Params {
        self.params
    }

    /// All cells, row by row: the fingerprint in the low half, the count in the high
    /// one.
    pub fn cells(&self) -> &Buffer<u64> {
        &self.cells
    }

    /// The entries of the heap, k of them, in order.
    pub fn stored(&self) -> impl Iterator<Item = Stored<'_>> {
        self.heap.entries().map(|(count, item)| Stored {
            count,
            item: item.map(|item| (item.fingerprint, &*item.bytes)),
        })
    }

    /// Random draws made so far, modulo 2^32. Part of the state: it decides the
    /// draws to come.
    pub fn draws(&self) -> u32 {
        self.draws
    }

    /// Bytes on the heap, items included.
    pub fn heap_bytes(&self) -> u64 {
        self.cells.size() as u64 + self.heap.heap_bytes()
    }

    /// How many entries of the heap have an item, at most k.
    pub fn items(&self) -> usize {
        self.heap.len()
    }

    /// Shows every heap block of the sketch, those of the items included.
    pub fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(&mut self.cells);
        self.heap.parts(visit);
    }

    /// Adds each pair's units to its item, in order, and calls `each` with what that
    /// did to the list. Whether anything changed.
    pub fn add(
        &mut self,
        pairs: &[(&[u8], u32)],
        quota: Quota<'_>,
        mut each: impl FnMut(Addition),
    ) -> bool {
        let mut changed = false;
        for batch in pairs.chunks(BATCH) {
            let hashed = self.hash(batch.iter().map(|pair| pair.0));
            for (&(item, units), hashed) in batch.iter().zip(&hashed) {
                each(self.add_one(item, units, hashed, quota, &mut changed));
            }
        }
        changed
    }

    /// Calls `each` for each item, in order, with whether it is in the list.
    pub fn query(&self, items: &[&[u8]], mut each: impl FnMut(bool)) {
        for batch in items.chunks(BATCH) {
            let hashed = self.hash(batch.iter().copied());
            for (item, hashed) in batch.iter().zip(&hashed) {
                let number = self.heap.find(hashed.fingerprint, item);
                each(number.is_some_and(|number| self.heap.count(number) > 0));
            }
        }
    }

    /// Calls `each` for each item, in order, with the largest count of its cells, 0
    /// where it has none. For an item in the list, cells below the smallest count of
    /// the list do not count. The list's own count of an item can be larger: see
    /// [`list`](Self::list).
    pub fn count(&self, items: &[&[u8]], mut each: impl FnMut(u32)) {
        for batch in items.chunks(BATCH) {
            let hashed = self.hash(batch.iter().copied());
            for (item, hashed) in batch.iter().zip(&hashed) {
                each(self.count_one(item, hashed));
            }
        }
    }

    /// The items of the list by falling count, equal ones in the order of the heap.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where there is no room for 16 bytes per item listed.
    pub fn list(&self) -> Result<impl ExactSizeIterator<Item = Listed<'_>>, OutOfMemory> {
        let mut order: Vec<(u32, &Item)> = Vec::new();
        order.try_reserve_exact(self.heap.len()).map_err(|_| OutOfMemory)?;
        let listed = self.heap.iter().filter(|&(_, count)| count > 0);
        order.extend(listed.map(|(item, count)| (count, item)));
        order.sort_unstable_by_key(|&(count, item)| (Reverse(count), item.place));
        Ok(order.into_iter().map(|(count, item)| Listed { item: &item.bytes, count }))
    }

    /// Fingerprints and places of a batch. Asks for the cells to be loaded.
    #[inline]
    fn hash<'a>(&self, items: impl ExactSizeIterator<Item = &'a [u8]>) -> [Hashed; BATCH] {
        let count = items.len();
        let mut seeds = row_seeds(0);
        seeds[FIRST_ROWS] = FINGERPRINT_SEED;
        let hashes = murmur2_batch(items, seeds);
        let rows = self.depth().min(FIRST_ROWS);
        let mut hashed = [Hashed::default(); BATCH];
        for (hashed, hashes) in hashed.iter_mut().zip(&hashes).take(count) {
            let places = self.rows.places(0, hashes);
            places[..rows].iter().for_each(|&place| prefetch(&self.cells, place));
            *hashed = Hashed { fingerprint: hashes[FIRST_ROWS], places };
        }
        hashed
    }

    /// Rows as an index: a table in memory has no more than fit.
    fn depth(&self) -> usize {
        self.params.depth as usize
    }

    /// The places of an item's cells in the rows from `first_row` on, and how many
    /// there are: for the rows behind the ones in [`Hashed`].
    fn further_places(&self, item: &[u8], first_row: usize) -> ([usize; LANES], usize) {
        let count = LANES.min(self.depth() - first_row);
        let hashes = murmur2_lanes(item, row_seeds(first_row));
        (self.rows.places(first_row, &hashes), count)
    }

    fn count_one(&self, item: &[u8], hashed: &Hashed) -> u32 {
        let listed = self.heap.find(hashed.fingerprint, item).is_some();
        let least = if listed { self.heap.root() } else { 0 };
        let largest = |places: &[usize]| {
            let cells = places.iter().map(|&place| unpack(self.cells[place]));
            let own = cells.filter(|&(holder, n)| holder == hashed.fingerprint && n >= least);
            own.map(|(_, count)| count).max().unwrap_or(0)
        };
        let mut best = largest(&hashed.places[..self.depth().min(FIRST_ROWS)]);
        for first_row in (FIRST_ROWS..self.depth()).step_by(LANES) {
            let (places, rows) = self.further_places(item, first_row);
            best = best.max(largest(&places[..rows]));
        }
        best
    }

    fn add_one(
        &mut self,
        item: &[u8],
        units: u32,
        hashed: &Hashed,
        quota: Quota<'_>,
        changed: &mut bool,
    ) -> Addition {
        // Asked before anything changes, and whether or not the item will get into
        // the list: a refusal leaves no trace.
        if item.len() > SHORT_ITEM {
            quota.ask(self.heap_bytes(), item.len() as u64)?;
        }
        *changed |= units > 0;
        let fingerprint = hashed.fingerprint;
        let root = self.heap.root();
        let rows = self.depth().min(FIRST_ROWS);
        let mut best = self.add_to_cells(fingerprint, units, &hashed.places[..rows]);
        for first_row in (FIRST_ROWS..self.depth()).step_by(LANES) {
            let (places, rows) = self.further_places(item, first_row);
            best = best.max(self.add_to_cells(fingerprint, units, &places[..rows]));
        }
        if best < root {
            return Ok(None);
        }
        if let Some(number) = self.heap.find(fingerprint, item) {
            *changed |= self.heap.set(number, best);
            return Ok(None);
        }
        if units == 0 { Ok(None) } else { self.heap.replace_root(fingerprint, item, best) }
    }

    /// Adds units to an item's cells in up to [`LANES`] rows, and returns the largest
    /// count that it has there, 0 if it has none of the cells.
    ///
    /// What is in the cells of an item is hard to foretell. So all of them are first
    /// looked at without branches, and only those that another item holds and may
    /// lose are dealt with one by one.
    #[inline]
    fn add_to_cells(&mut self, fingerprint: u32, units: u32, places: &[usize]) -> u32 {
        let Self { cells, draws, decay, .. } = self;
        let (mut best, mut contested) = (0, 0u32);
        for (row, &place) in places.iter().enumerate() {
            let cell = &mut cells[place];
            let (holder, count) = unpack(*cell);
            let open = (holder == fingerprint) | (count == 0);
            let sum = count.saturating_add(units);
            // A sum of 0 leaves an empty cell as it is.
            *cell = if open & (sum != 0) { pack(fingerprint, sum) } else { *cell };
            best = best.max(if open { sum } else { 0 });
            contested |= u32::from(!open & decay.can_lose(count)) << row;
        }
        if units == 0 {
            return best;
        }
        let mut random = Random { draws, salt: fingerprint };
        while contested != 0 {
            let cell = &mut cells[places[contested.trailing_zeros() as usize]];
            contested &= contested - 1;
            let (holder, count) = unpack(*cell);
            *cell = match decay.contest(count, units, &mut random) {
                Contest::Held(rest) => pack(holder, rest),
                Contest::TakenOver(count) => {
                    best = best.max(count);
                    pack(fingerprint, count)
                }
            };
        }
        best
    }
}

/// What is computed of an item ahead of its turn.
#[derive(Debug, Clone, Copy, Default)]
struct Hashed {
    fingerprint: u32,
    /// Of its cells in the first [`FIRST_ROWS`] rows.
    places: [usize; LANES],
}

/// Fingerprint and count of a cell.
#[inline(always)]
fn unpack(cell: u64) -> (u32, u32) {
    (cell as u32, (cell >> 32) as u32)
}

/// A cell of fingerprint and count.
#[inline(always)]
fn pack(fingerprint: u32, count: u32) -> u64 {
    u64::from(count) << 32 | u64::from(fingerprint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::structures::hash::murmur2;
    use crate::structures::quota::Growth;

    fn topk(k: u32, width: u32, depth: u32, decay: f64) -> TopK {
        let params = Params::new(k, width, depth, decay).unwrap();
        TopK::new(params, Quota::UNLIMITED).unwrap()
    }

    fn add(topk: &mut TopK, pairs: &[(&str, u32)]) -> Vec<Option<String>> {
        let pairs: Vec<_> = pairs.iter().map(|&(item, units)| (item.as_bytes(), units)).collect();
        let mut expelled = Vec::new();
        topk.add(&pairs, Quota::UNLIMITED, |addition| {
            let item = addition.unwrap().map(|item| String::from_utf8(item.into()).unwrap());
            expelled.push(item);
        });
        expelled
    }

    fn list(topk: &TopK) -> Vec<(String, u32)> {
        let text = |item: &[u8]| String::from_utf8(item.to_vec()).unwrap();
        topk.list().unwrap().map(|listed| (text(listed.item), listed.count)).collect()
    }

    fn query(topk: &TopK, items: &[&[u8]]) -> Vec<bool> {
        let mut replies = Vec::new();
        topk.query(items, |listed| replies.push(listed));
        replies
    }

    fn count(topk: &TopK, items: &[&[u8]]) -> Vec<u32> {
        let mut replies = Vec::new();
        topk.count(items, |count| replies.push(count));
        replies
    }

    #[test]
    fn impossible_parameters_are_refused() {
        for (k, width, depth, decay) in [
            (0, 1, 1, 0.9),
            (1, 0, 1, 0.9),
            (1, 1, 0, 0.9),
            (1, 1, 1, 0.0),
            (1, 1, 1, 1.000_000_1),
            (1, 1, 1, f64::NAN),
            (1, 1, 1, -0.5),
        ] {
            assert_eq!(Params::new(k, width, depth, decay), None);
        }
        let largest = Params::new(3, u32::MAX, u32::MAX, 0.9).unwrap();
        assert_eq!(TopK::new(largest, Quota::UNLIMITED), Err(OutOfMemory));
    }

    #[test]
    fn cells_and_heap_are_those_of_redisbloom() {
        let mut topk = topk(3, 31, 2, 0.9);
        assert_eq!(add(&mut topk, &[("foo", 10), ("bar", 20), ("baz", 5)]), [None, None, None]);
        let used: Vec<_> = topk
            .cells()
            .iter()
            .map(|&cell| unpack(cell))
            .enumerate()
            .filter(|c| c.1.1 > 0)
            .collect();
        assert_eq!(
            used,
            [
                (3, (2_168_257_652, 5)),
                (7, (1_080_345_600, 10)),
                (28, (794_882_702, 20)),
                (34, (2_168_257_652, 5)),
                (45, (794_882_702, 20)),
                (50, (1_080_345_600, 10)),
            ]
        );
        let heap: Vec<_> =
            topk.stored().map(|entry| (entry.count, entry.item.unwrap().1)).collect();
        assert_eq!(heap, [(5, &b"baz"[..]), (10, b"foo"), (20, b"bar")]);
        assert_eq!(add(&mut topk, &[("qux", 7)]), [Some("baz".into())]);
        assert_eq!(
            add(&mut topk, &[("baz", 1), ("baz", 1), ("baz", 1)]),
            [None, Some("qux".into()), None]
        );
        let expected = [("bar", 20), ("foo", 10), ("baz", 8)].map(|(i, n)| (i.to_owned(), n));
        assert_eq!(list(&topk), expected);
        assert_eq!(count(&topk, &[b"foo", b"bar", b"baz", b"qux"]), [10, 20, 8, 7]);
    }

    #[test]
    fn an_increment_of_zero_brings_nothing_in() {
        let mut topk = topk(2, 50, 3, 0.9);
        assert_eq!(add(&mut topk, &[("ghost", 0)]), [None]);
        assert_eq!(topk, super::tests::topk(2, 50, 3, 0.9));
        assert_eq!(add(&mut topk, &[("a", 1), ("b", 1), ("a", 0)]), [None, None, None]);
        assert_eq!(query(&topk, &[b"ghost", b"a", b"b"]), [false, true, true]);
    }

    #[test]
    fn what_is_not_listed_is_not_said_to_be_in_the_list() {
        let mut topk = topk(2, 1, 1, 1.0);
        assert_eq!(add(&mut topk, &[("a", 9), ("b", 3)]), [None, None]);
        assert_eq!(list(&topk), [("a".to_owned(), 9)]);
        assert_eq!(query(&topk, &[b"a", b"b"]), [true, false]);
    }

    #[test]
    fn counts_stop_at_their_greatest_value() {
        let mut topk = topk(2, 10, 2, 0.9);
        add(&mut topk, &[("a", u32::MAX - 1), ("a", 1), ("a", 1), ("a", u32::MAX)]);
        assert_eq!(list(&topk), [("a".to_owned(), u32::MAX)]);
        assert_eq!(count(&topk, &[b"a"]), [u32::MAX]);
    }

    #[test]
    fn the_quota_is_asked_before_anything_changes() {
        let params = Params::new(10, 8, 7, 0.9).unwrap();
        let less = |growth: Growth| growth.more < 8 * 56 + 96 * 10;
        assert_eq!(TopK::new(params, Quota::new(&less)), Err(OutOfMemory));
        let mut topk = topk(10, 8, 7, 0.9);
        let before = topk.try_clone().unwrap();
        let none = |_: Growth| false;
        let mut additions = Vec::new();
        topk.add(&[(&[0; 41], 1)], Quota::new(&none), |addition| additions.push(addition));
        assert_eq!(additions, [Err(OutOfMemory)]);
        assert_eq!(topk, before);
        topk.add(&[(&[0; 40], 1)], Quota::new(&none), |addition| additions.push(addition));
        assert_eq!(additions, [Err(OutOfMemory), Ok(None)]);
    }

    #[test]
    fn a_full_list_of_short_items_is_within_what_creation_asked_for() {
        for k in [1, 2, 7, 100, 1000, 1025] {
            let mut topk = topk(k, 2000, 4, 0.9);
            let table = 2000 * 4 * 8;
            for i in 0..3 * k {
                add(&mut topk, &[(&format!("{i:040}"), i + 1)]);
                let most = table + u64::from(k) * ENTRY_BYTES;
                assert!(topk.heap_bytes() <= most, "{k}: {}", topk.heap_bytes());
            }
            assert_eq!(topk.list().unwrap().len(), k as usize);
        }
    }

    /// `items` adds over `different` items, the n-th of which is 1/n as frequent as
    /// the first.
    fn zipf(items: usize, different: u32) -> Vec<u32> {
        let weights: Vec<f64> = (1..=different).map(|n| 1.0 / f64::from(n)).collect();
        let total: f64 = weights.iter().sum();
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut x = (state >> 11) as f64 / (1u64 << 53) as f64 * total;
            weights.iter().position(|weight| {
                x -= weight;
                x < 0.0
            })
        };
        (0..items).map(|_| draw().unwrap_or(0) as u32).collect()
    }

    #[test]
    fn the_heaviest_items_of_a_skewed_stream_are_found() {
        let stream = zipf(40_000, 2000);
        // Small tables, in which heavy items meet others in every row.
        for (decay, most_missed) in [(0.9, 2), (0.5, 4), (0.99, 4)] {
            let mut single = topk(20, 50, 4, decay);
            let mut lumps = topk(20, 50, 4, decay);
            for part in stream.chunks(2000) {
                let mut totals = std::collections::BTreeMap::new();
                for item in part {
                    add(&mut single, &[(&item.to_string(), 1)]);
                    *totals.entry(item).or_default() += 1;
                }
                for (item, total) in totals {
                    add(&mut lumps, &[(&item.to_string(), total)]);
                }
            }
            for topk in [single, lumps] {
                let missed = (0..20)
                    .filter(|heavy: &u32| query(&topk, &[heavy.to_string().as_bytes()]) == [false]);
                let missed = missed.count();
                assert!(missed <= most_missed, "{decay}: {missed} missed in {:?}", list(&topk));
            }
        }
    }

    /// The specification, with decay 1, in which every unit hits.
    struct Model {
        width: usize,
        cells: Vec<(u32, u32)>,
        heap: Vec<(u32, Option<String>, u32)>,
    }

    impl Model {
        fn places(&self, item: &str) -> Vec<usize> {
            let row = |row| murmur2(item.as_bytes(), row as u32) as usize % self.width;
            (0..self.cells.len() / self.width).map(|r| r * self.width + row(r)).collect()
        }

        fn add(&mut self, item: &str, units: u32) -> Option<String> {
            let fingerprint = murmur2(item.as_bytes(), FINGERPRINT_SEED);
            let root = self.heap[0].2;
            let mut best = 0;
            for place in self.places(item) {
                let cell = &mut self.cells[place];
                if cell.1 == 0 {
                    *cell = (fingerprint, units);
                    best = best.max(units);
                } else if cell.0 == fingerprint {
                    cell.1 += units;
                    best = best.max(cell.1);
                } else {
                    for left in (1..=units).rev() {
                        cell.1 -= 1;
                        if cell.1 == 0 {
                            *cell = (fingerprint, left);
                            best = best.max(left);
                            break;
                        }
                    }
                }
            }
            if best < root {
                return None;
            }
            let known = self.heap.iter().rposition(|entry| entry.1.as_deref() == Some(item));
            if let Some(place) = known {
                self.heap[place].2 = best;
                self.sift_down(place);
                return None;
            }
            let new = (fingerprint, Some(item.to_owned()), best);
            let old = std::mem::replace(&mut self.heap[0], new);
            self.sift_down(0);
            old.1
        }

        fn smaller_child(&self, place: usize) -> Option<usize> {
            let children = (2 * place + 1..2 * place + 3).filter(|&child| child < self.heap.len());
            children.min_by_key(|&child| self.heap[child].2)
        }

        fn sift_down(&mut self, mut place: usize) {
            let count = self.heap[place].2;
            let mut first = true;
            while let Some(child) = self.smaller_child(place) {
                let child_count = self.heap[child].2;
                if child_count > count || (child_count == count && !first) {
                    break;
                }
                self.heap.swap(place, child);
                place = child;
                first = false;
            }
        }

        fn list(&self) -> Vec<(String, u32)> {
            let mut list: Vec<_> = self.heap.iter().filter(|entry| entry.2 > 0).collect();
            list.sort_by_key(|entry| Reverse(entry.2));
            list.iter().map(|entry| (entry.1.clone().unwrap(), entry.2)).collect()
        }
    }

    proptest! {
        #[test]
        fn without_randomness_it_does_what_the_specification_says(
            k in 1..12u32,
            width in 1..20u32,
            depth in 1..18u32,
            pairs in prop::collection::vec(("[a-h]{0,2}", 1..40u32), 0..120),
        ) {
            let mut topk = topk(k, width, depth, 1.0);
            let mut model = Model {
                width: width as usize,
                cells: vec![(0, 0); (width * depth) as usize],
                heap: vec![(0, None, 0); k as usize],
            };
            let pairs: Vec<_> = pairs.iter().map(|(item, units)| (&item[..], *units)).collect();
            let expected: Vec<_> =
                pairs.iter().map(|(item, units)| model.add(item, *units)).collect();
            prop_assert_eq!(add(&mut topk, &pairs), expected);
            prop_assert_eq!(list(&topk), model.list());
            let cells: Vec<_> = topk.cells().iter().map(|&cell| unpack(cell)).collect();
            prop_assert_eq!(cells, model.cells);
        }

        #[test]
        fn an_addition_tells_whether_it_changed_anything(
            k in 1..6u32,
            pairs in prop::collection::vec(("[a-h]{0,2}", 0..40u32), 0..120),
        ) {
            let mut topk = topk(k, 3, 3, 0.5);
            for (item, units) in &pairs {
                for units in [*units, 0] {
                    let before = topk.try_clone().unwrap();
                    let changed = topk.add(&[(item.as_bytes(), units)], Quota::UNLIMITED, |_| ());
                    prop_assert_eq!(changed, topk != before || units > 0);
                }
            }
        }

        #[test]
        fn the_same_additions_lead_to_the_same_state(
            pairs in prop::collection::vec(("[a-h]{0,2}", 0..2000u32), 0..150),
            cut in 0..150usize,
        ) {
            let pairs: Vec<_> = pairs.iter().map(|(item, units)| (&item[..], *units)).collect();
            let mut whole = topk(4, 3, 9, 0.9);
            let replies = add(&mut whole, &pairs);
            // In other portions, and on a copy from the middle on.
            let (first, second) = pairs.split_at(cut.min(pairs.len()));
            let mut parts = topk(4, 3, 9, 0.9);
            let mut expelled = add(&mut parts, first);
            let mut parts = parts.try_clone().unwrap();
            expelled.extend(second.iter().flat_map(|&pair| add(&mut parts, &[pair])));
            prop_assert_eq!(expelled, replies);
            prop_assert_eq!(parts, whole);
        }
    }
}
