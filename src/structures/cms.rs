//! Count-min sketch: counts of items within a bound, in fixed memory.
//!
//! Cormode, Muthukrishnan, "An improved data stream summary: the count-min sketch
//! and its applications" (2005). An item has one cell in each row; an increment
//! raises them all, and the smallest of them is the estimate: never below the true
//! count, since other items can only have raised cells further. Cells are 32 bits
//! wide and saturate.

#![forbid(unsafe_code)]

use super::BATCH;
use super::buffer::{Buffer, OutOfMemory, Part};
use super::prefetch::prefetch;
use super::quota::Quota;
use super::rows::{LANES, Rows, murmur2_batch, row_seeds};

/// An estimate that says only "this or more": what saturated cells hold.
pub const SATURATED: u32 = u32::MAX;

/// Cells that are merged at a time: 16 KiB of sums.
const BLOCK: usize = 2048;

/// The size of a sketch. Only possible ones can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimensions {
    width: u64,
    depth: u64,
}

impl Dimensions {
    /// `depth` rows of `width` cells. `None` where either is 0, or there are more
    /// cells than 2^63 - 1 (RedisBloom's bound; memory is another question).
    pub fn new(width: u64, depth: u64) -> Option<Self> {
        let cells = width.checked_mul(depth)?;
        (1..=i64::MAX as u64).contains(&cells).then_some(Self { width, depth })
    }

    /// For estimates that are too high by more than `error` times the sum of all
    /// increments with a chance of at most `probability`. `None` where these are not
    /// above 0 and below 1, or as for [`new`](Self::new).
    ///
    /// Width is ceil(2 / error), depth is ceil(log2(1 / probability)), the latter
    /// in single precision: so RedisBloom computes them, and sketches merge only
    /// with sketches of their size.
    pub fn by_probability(error: f64, probability: f64) -> Option<Self> {
        let width = (2.0 / error).ceil();
        let depth = ((probability as f32).log10() / 0.5f32.log10()).ceil();
        // As real numbers, both bounds are 2^63.
        let fits = width < i64::MAX as f64 && depth < i64::MAX as f32;
        let possible = error > 0.0 && error < 1.0 && probability > 0.0 && probability < 1.0;
        if fits && possible { Self::new(width as u64, depth as u64) } else { None }
    }

    /// Cells per row, at least 1.
    pub fn width(self) -> u64 {
        self.width
    }

    /// Rows, at least 1.
    pub fn depth(self) -> u64 {
        self.depth
    }

    /// Cells of the whole table, at most 2^63 - 1.
    pub fn cells(self) -> u64 {
        self.width * self.depth
    }
}

/// Why sketches were not merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeError {
    /// A source is not of the destination's size.
    Dimensions,
    /// A weighted sum leaves the range of a cell or of the total.
    Overflow,
}

/// One of the sketches that are merged.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a> {
    /// The destination, as it is before the merge.
    Destination,
    /// Another sketch.
    Other(&'a Sketch),
}

/// A count-min sketch.
#[derive(Debug, PartialEq)]
pub struct Sketch {
    dimensions: Dimensions,
    count: u64,
    /// Row by row.
    cells: Buffer<u32>,
    rows: Rows,
}

impl Sketch {
    /// An empty sketch. Its pages stay unmapped until used.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where `quota` or the allocator refuses 4 bytes per cell.
    pub fn new(dimensions: Dimensions, quota: Quota<'_>) -> Result<Self, OutOfMemory> {
        let bytes = dimensions.cells().checked_mul(4).ok_or(OutOfMemory)?;
        quota.ask(0, bytes)?;
        let len = usize::try_from(dimensions.cells()).map_err(|_| OutOfMemory)?;
        Self::from_parts(dimensions, 0, Buffer::zeroed(len)?).ok_or(OutOfMemory)
    }

    /// A sketch of stored parts. `None` where there are not as many cells as the
    /// dimensions say.
    pub fn from_parts(dimensions: Dimensions, count: u64, cells: Buffer<u32>) -> Option<Self> {
        let rows = Rows::new(dimensions.width);
        let fits = cells.len() as u64 == dimensions.cells();
        fits.then_some(Self { dimensions, count, cells, rows })
    }

    /// A second sketch with the same content.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { cells: self.cells.try_clone()?, ..*self })
    }

    /// The size.
    pub fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    /// The sum of all increments, as 64 bits without a sign, the stored form.
    ///
    /// Increments stop at 2^63 - 1, the largest number that a reply holds.
    /// RedisBloom lets the total run over and shows it with a sign; a greater total
    /// can therefore come from its data, and goes on as the negative number that
    /// it is there.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All cells, row by row.
    pub fn cells(&self) -> &Buffer<u32> {
        &self.cells
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.cells.size() as u64
    }

    /// Shows every heap block of the sketch.
    pub fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(&mut self.cells);
    }

    /// Adds each pair's amount to its item, in order, and calls `each` with the
    /// item's new estimate. Items may repeat.
    pub fn increment(&mut self, pairs: &[(&[u8], u64)], mut each: impl FnMut(u32)) {
        for batch in pairs.chunks(BATCH) {
            let mut estimates = [SATURATED; BATCH];
            for first_row in (0..self.depth()).step_by(LANES) {
                let (places, rows) = self.locate(batch.iter().map(|pair| pair.0), first_row);
                for ((pair, places), estimate) in batch.iter().zip(&places).zip(&mut estimates) {
                    // What does not fit a cell fills it.
                    let amount = u32::try_from(pair.1).unwrap_or(SATURATED);
                    let mut least = *estimate;
                    for &place in &places[..rows] {
                        let cell = &mut self.cells[place];
                        *cell = cell.saturating_add(amount);
                        least = least.min(*cell);
                    }
                    *estimate = least;
                }
            }
            for (&(_, amount), &estimate) in batch.iter().zip(&estimates) {
                let amount = i64::try_from(amount).unwrap_or(i64::MAX);
                self.count = self.count.cast_signed().saturating_add(amount).cast_unsigned();
                each(estimate);
            }
        }
    }

    /// Calls `each` with the estimate of each item, in order.
    pub fn query(&self, items: &[&[u8]], mut each: impl FnMut(u32)) {
        for batch in items.chunks(BATCH) {
            let mut estimates = [SATURATED; BATCH];
            for first_row in (0..self.depth()).step_by(LANES) {
                let (places, rows) = self.locate(batch.iter().copied(), first_row);
                for (places, estimate) in places.iter().zip(&mut estimates).take(batch.len()) {
                    let mut least = *estimate;
                    for &place in &places[..rows] {
                        least = least.min(self.cells[place]);
                    }
                    *estimate = least;
                }
            }
            estimates[..batch.len()].iter().for_each(|&estimate| each(estimate));
        }
    }

    /// Makes this sketch the weighted sum of `sources`, which may repeat; its own
    /// content counts only where it is among them. Nothing is written unless all
    /// of it can be.
    ///
    /// # Errors
    ///
    /// [`MergeError::Dimensions`] where a source has another size.
    /// [`MergeError::Overflow`] where, for a cell or the total, a product or a
    /// partial sum leaves the signed 64-bit range, or the end is negative or more
    /// than a cell holds.
    pub fn merge(&mut self, sources: &[(Operand<'_>, i64)]) -> Result<(), MergeError> {
        let same_size = |source: &Sketch| source.dimensions == self.dimensions;
        if !sources.iter().all(|source| same_size(self.operand(source.0))) {
            return Err(MergeError::Dimensions);
        }
        let count = self.merged_count(sources).ok_or(MergeError::Overflow)?;
        // With weights of any use no sum comes near the range's end, and then nothing
        // need be checked on the way: twice as fast.
        let weights = sources.iter().try_fold(0u64, |sum, s| sum.checked_add(s.1.unsigned_abs()));
        let safe = weights.is_some_and(|sum| sum <= i64::MAX as u64 / u64::from(SATURATED));
        for first in (0..self.cells.len()).step_by(BLOCK) {
            self.merged_cells(sources, safe, first).ok_or(MergeError::Overflow)?;
        }
        for first in (0..self.cells.len()).step_by(BLOCK) {
            let sums = self.merged_cells(sources, safe, first).ok_or(MergeError::Overflow)?;
            for (cell, sum) in self.cells[first..].iter_mut().zip(sums) {
                // Both fit (checked above). Cells that stay 0 are not written, so
                // that untouched pages stay unmapped.
                if i64::from(*cell) != sum {
                    *cell = sum as u32;
                }
            }
        }
        self.count = count;
        Ok(())
    }

    /// The total after a merge; `None` out of range.
    fn merged_count(&self, sources: &[(Operand<'_>, i64)]) -> Option<u64> {
        let mut sum = 0i64;
        for &(source, weight) in sources {
            let product = i128::from(weight) * i128::from(self.operand(source).count);
            sum = sum.checked_add(i64::try_from(product).ok()?)?;
        }
        u64::try_from(sum).ok()
    }

    /// The [`BLOCK`] cells from `first` on after a merge, fewer at the end of the
    /// table, where the rest is 0; `None` where one is out of range. `safe` tells that
    /// no partial sum can be.
    fn merged_cells(
        &self,
        sources: &[(Operand<'_>, i64)],
        safe: bool,
        first: usize,
    ) -> Option<[i64; BLOCK]> {
        let mut sums = [0i64; BLOCK];
        let mut overflow = false;
        for &(source, weight) in sources {
            let cells = &self.operand(source).cells[first..];
            match (safe, weight) {
                (true, 1) => add_cells(&mut sums, cells, |sum, cell| sum + cell),
                (true, _) => add_cells(&mut sums, cells, |sum, cell| sum + weight * cell),
                (false, _) => add_cells(&mut sums, cells, |sum, cell| {
                    let (product, too_large) = weight.overflowing_mul(cell);
                    let (total, too_large_in_all) = sum.overflowing_add(product);
                    overflow |= too_large | too_large_in_all;
                    total
                }),
            }
        }
        let fit = sums.iter().fold(true, |fit, &sum| fit & (0..=SATURATED.into()).contains(&sum));
        (fit && !overflow).then_some(sums)
    }

    fn operand<'a>(&'a self, source: Operand<'a>) -> &'a Self {
        match source {
            Operand::Destination => self,
            Operand::Other(sketch) => sketch,
        }
    }

    /// Rows as an index: a table in memory has no more than fit.
    fn depth(&self) -> usize {
        self.dimensions.depth as usize
    }

    /// Where the cells of a batch are in the up to [`LANES`] rows from `first_row`
    /// on, and the number of those rows. Asks for all of them to be loaded.
    #[inline]
    fn locate<'a>(
        &self,
        items: impl ExactSizeIterator<Item = &'a [u8]>,
        first_row: usize,
    ) -> ([[usize; LANES]; BATCH], usize) {
        let rows = LANES.min(self.depth() - first_row);
        let count = items.len();
        let hashes = murmur2_batch(items, row_seeds(first_row));
        let mut places = [[0; LANES]; BATCH];
        for (places, hashes) in places.iter_mut().zip(&hashes).take(count) {
            *places = self.rows.places(first_row, hashes);
            places[..rows].iter().for_each(|&place| prefetch(&self.cells, place));
        }
        (places, rows)
    }
}

/// Replaces each sum by what `add` makes of it and its cell.
#[inline(always)]
fn add_cells(sums: &mut [i64], cells: &[u32], mut add: impl FnMut(i64, i64) -> i64) {
    for (sum, &cell) in sums.iter_mut().zip(cells) {
        *sum = add(*sum, cell.into());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::structures::hash::murmur2;

    fn sketch(width: u64, depth: u64) -> Sketch {
        Sketch::new(Dimensions::new(width, depth).unwrap(), Quota::UNLIMITED).unwrap()
    }

    fn increment(sketch: &mut Sketch, pairs: &[(&[u8], u64)]) -> Vec<u32> {
        let mut estimates = Vec::new();
        sketch.increment(pairs, |estimate| estimates.push(estimate));
        estimates
    }

    fn query(sketch: &Sketch, items: &[&[u8]]) -> Vec<u32> {
        let mut estimates = Vec::new();
        sketch.query(items, |estimate| estimates.push(estimate));
        estimates
    }

    #[test]
    fn sizes_are_those_of_the_specification() {
        for (error, probability, width, depth) in [
            (0.999, 0.9, 3, 1),
            (0.7, 0.5, 3, 1),
            (0.5, 0.2499999999, 4, 2),
            (0.3, 0.25, 7, 2),
            (0.1, 0.24999, 20, 3),
            (0.01, 0.125, 200, 3),
            (0.0033, 0.1, 607, 4),
            (0.003, 0.05, 667, 5),
            (0.001, 0.01, 2000, 7),
            (0.001, 0.001, 2000, 10),
            (0.001, 0.0009765625, 2000, 10),
            (0.001, 1e-4, 2000, 14),
            (0.001, 1e-6, 2000, 20),
            (0.001, 1e-9, 2000, 30),
            (0.001, 1e-39, 2000, 130),
            (0.001, 1e-45, 2000, 149),
        ] {
            let expected = Dimensions::new(width, depth);
            assert_eq!(Dimensions::by_probability(error, probability), expected);
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (error, probability) in [(0.1, 1e-46), (0.1, 0.99999999), (2e-19, 0.5), (1e-18, 1e-9)] {
            assert_eq!(Dimensions::by_probability(error, probability), None);
        }
        for (width, depth) in [(0, 1), (1, 0), (i64::MAX as u64, 2), (1 << 62, 2), (1 << 63, 1)] {
            assert_eq!(Dimensions::new(width, depth), None);
        }
        let largest = Dimensions::new(i64::MAX as u64, 1).unwrap();
        assert_eq!(Sketch::new(largest, Quota::UNLIMITED), Err(OutOfMemory));
    }

    #[test]
    fn a_quota_is_asked_for_all_cells() {
        let dimensions = Dimensions::new(1000, 7).unwrap();
        let below = |growth: crate::structures::quota::Growth| growth.more < 28_000;
        assert_eq!(Sketch::new(dimensions, Quota::new(&below)), Err(OutOfMemory));
        let enough = |growth: crate::structures::quota::Growth| growth.total == 28_000;
        assert!(Sketch::new(dimensions, Quota::new(&enough)).is_ok());
    }

    #[test]
    fn cells_are_those_of_redisbloom() {
        let mut sketch = sketch(16, 4);
        let pairs: [(&[u8], u64); 5] =
            [(b"foo", 1), (b"bar", 2), (b"baz", 3), (b"hello world", 4), (b"", 5)];
        assert_eq!(increment(&mut sketch, &pairs), [1, 2, 3, 4, 5]);
        #[rustfmt::skip]
        let rows = [
            5, 0, 0, 0, 0, 1, 0, 5, 0, 4, 0, 0, 0, 0, 0, 0,
            0, 0, 3, 0, 0, 0, 5, 0, 0, 2, 1, 0, 0, 0, 4, 0,
            1, 0, 0, 3, 0, 0, 0, 0, 0, 2, 0, 4, 0, 5, 0, 0,
            4, 0, 0, 0, 5, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 2,
        ];
        assert_eq!(**sketch.cells(), rows);
        assert_eq!(query(&sketch, &[b"foo", b"", b"nope"]), [1, 5, 0]);
        assert_eq!(sketch.count(), 15);
    }

    #[test]
    fn cells_and_the_total_saturate() {
        let mut sketch = sketch(5, 2);
        let c: &[u8] = b"c";
        let most = i64::MAX as u64;
        assert_eq!(increment(&mut sketch, &[(c, most), (c, 1), (c, most)]), [SATURATED; 3]);
        assert_eq!(sketch.count(), most);
    }

    #[test]
    fn a_total_that_ran_over_in_redisbloom_goes_on() {
        let dimensions = Dimensions::new(1, 1).unwrap();
        let cells = Buffer::copy_of(&[5]).unwrap();
        let mut sketch = Sketch::from_parts(dimensions, u64::MAX, cells).unwrap();
        assert_eq!(increment(&mut sketch, &[(b"z", 2)]), [7]);
        assert_eq!(sketch.count(), 1);
    }

    #[test]
    fn a_merge_out_of_range_changes_nothing() {
        let mut d = sketch(5, 2);
        let mut a = sketch(5, 2);
        increment(&mut d, &[(b"x", 3)]);
        increment(&mut a, &[(b"x", 10)]);
        let before = d.try_clone().unwrap();
        let a = Operand::Other(&a);
        for weights in [
            &[i64::MAX][..],
            &[-1],
            &[429_496_730],
            &[922_337_203_685_477_580, 922_337_203_685_477_580],
            &[i64::MIN, 1],
        ] {
            let sources: Vec<_> = weights.iter().map(|&weight| (a, weight)).collect();
            assert_eq!(d.merge(&sources), Err(MergeError::Overflow), "{weights:?}");
            assert_eq!(d, before);
        }
        let sources = [922_337_203_685_477_500, -922_337_203_685_477_498].map(|weight| (a, weight));
        assert_eq!(d.merge(&sources), Ok(()));
        assert_eq!(query(&d, &[b"x"]), [20]);
        assert_eq!(d.count(), 20);
    }

    #[test]
    fn a_destination_may_be_a_source() {
        let mut d = sketch(50, 3);
        let mut a = sketch(50, 3);
        increment(&mut d, &[(b"x", 3)]);
        increment(&mut a, &[(b"x", 10), (b"y", 1)]);
        let sources = [(Operand::Destination, 2), (Operand::Other(&a), 5)];
        assert_eq!(d.merge(&sources), Ok(()));
        assert_eq!(query(&d, &[b"x", b"y"]), [56, 5]);
        assert_eq!(d.count(), 61);
        assert_eq!(d.merge(&[(Operand::Other(&sketch(3, 50)), 1)]), Err(MergeError::Dimensions));
        assert_eq!(d.merge(&[(Operand::Other(&sketch(50, 3)), 1)]), Ok(()));
        assert_eq!(query(&d, &[b"x", b"y"]), [0, 0]);
    }

    /// The definition, without batches.
    struct Model {
        width: u32,
        rows: Vec<Vec<u64>>,
        count: u64,
    }

    impl Model {
        fn cell(&mut self, item: &[u8], row: usize) -> &mut u64 {
            let column = murmur2(item, row as u32) % self.width;
            &mut self.rows[row][column as usize]
        }

        fn increment(&mut self, item: &[u8], amount: u64) -> u32 {
            self.count = (self.count + amount).min(i64::MAX as u64);
            let estimate = (0..self.rows.len()).map(|row| {
                let cell = self.cell(item, row);
                *cell = (*cell + amount).min(SATURATED.into());
                *cell
            });
            estimate.min().unwrap() as u32
        }
    }

    fn amount() -> impl Strategy<Value = u64> {
        prop_oneof![3 => 0..100u64, 1 => 4_000_000_000..=i64::MAX as u64]
    }

    /// Weights around those with which no sum can leave the range, and at its ends.
    fn weight() -> impl Strategy<Value = i64> {
        let border = i64::MAX / i64::from(SATURATED);
        let edges = vec![0, 1, -1, border - 1, border, border + 1, i64::MAX, i64::MIN];
        prop_oneof![-3..4i64, prop::sample::select(edges)]
    }

    proptest! {
        #[test]
        fn a_merge_is_the_weighted_sum_or_an_error(
            sources in prop::collection::vec((prop_oneof![0..3u32, Just(SATURATED)], weight()), 1..4),
        ) {
            let dimensions = Dimensions::new(1, 1).unwrap();
            let of = |cell| {
                Sketch::from_parts(dimensions, 0, Buffer::copy_of(&[cell]).unwrap()).unwrap()
            };
            let sketches: Vec<_> = sources.iter().map(|&(cell, weight)| (of(cell), weight)).collect();
            let operands: Vec<_> =
                sketches.iter().map(|(sketch, weight)| (Operand::Other(sketch), *weight)).collect();
            let product = |cell: u32, weight: i64| weight.checked_mul(cell.into());
            let sum = sources.iter().try_fold(0i64, |sum, &(cell, weight)| {
                sum.checked_add(product(cell, weight)?)
            });
            let sum = sum.and_then(|sum| u32::try_from(sum).ok());
            let mut merged = of(7);
            prop_assert_eq!(merged.merge(&operands).ok(), sum.map(|_| ()));
            prop_assert_eq!(merged, of(sum.unwrap_or(7)));
        }

        #[test]
        fn batches_do_what_single_increments_do(
            width in 1..40u32,
            depth in 1..20usize,
            pairs in prop::collection::vec(("[a-f]{0,6}", amount()), 0..100),
        ) {
            let row = vec![0; width as usize];
            let mut model = Model { width, rows: vec![row; depth], count: 0 };
            let mut sketch = sketch(width.into(), depth as u64);
            let pairs: Vec<_> = pairs.iter().map(|(item, n)| (item.as_bytes(), *n)).collect();
            let expected: Vec<_> =
                pairs.iter().map(|pair| model.increment(pair.0, pair.1)).collect();
            prop_assert_eq!(increment(&mut sketch, &pairs), expected);
            prop_assert_eq!(sketch.count(), model.count);
            let expected: Vec<_> = pairs.iter().map(|pair| model.increment(pair.0, 0)).collect();
            let items: Vec<_> = pairs.iter().map(|pair| pair.0).collect();
            prop_assert_eq!(query(&sketch, &items), expected);
        }
    }
}
