//! The bits of one layer, and the bits of an item in them.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::super::super::Insertion;
use super::sizing::Shape;
use crate::structures::BATCH;
use crate::structures::buffer::{Buffer, Line, OutOfMemory};
use crate::structures::hash;
use crate::structures::prefetch::prefetch;

/// Probes of an item in a line that its own word of the hash is good for.
const PROBES_IN_A_WORD: usize = 7;
/// Layers below this are in the second-level cache when they are in use.
const WORTH_PREFETCHING: usize = 128 * 1024;

/// All that a chain knows of an item: 128 bits, and as many words as a layer needs,
/// drawn from them.
///
/// The layers of a chain share the words. An item's lines in two layers are then
/// related, but what makes it a false positive are the other items in them, which
/// are not; and the rates of the layers are summed, which needs no independence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hash {
    a: u64,
    b: u64,
}

impl Hash {
    /// Hashes `item` with the key's seed.
    #[inline(always)]
    pub(super) fn of(item: &[u8], seed: u64) -> Self {
        let (a, b) = hash::seeded128(item, seed);
        Self { a, b }
    }

    /// Word `n`: the two halves of the hash, then folded products of them with
    /// constants added (the odd ones are 2^64 divided by the golden ratio and by
    /// the root of 3).
    #[inline(always)]
    fn word(self, n: u64) -> u64 {
        match n {
            0 => self.a,
            1 => self.b,
            _ => {
                let a = self.a ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let b = self.b.wrapping_add(n.wrapping_mul(0x93cd_3a2c_8198_e269));
                let product = u128::from(a) * u128::from(b);
                (product >> 64) as u64 ^ product as u64
            }
        }
    }
}

/// Some of the items of a batch, a bit for each.
///
/// A list of places would do too, but compacting it without branches stores to
/// addresses that depend on the tests before, and processors then wait with the
/// next load: the tests of a batch would run one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places(u32);

const _: () = assert!(BATCH == u32::BITS as usize);

impl Places {
    /// None.
    pub(super) const NONE: Self = Self(0);

    /// The places from `start` to before `end`, at most [`BATCH`].
    pub(super) fn range(start: usize, end: usize) -> Self {
        let below = |end: usize| if end >= BATCH { u32::MAX } else { (1 << end) - 1 };
        Self(below(end) & !below(start))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains(self, place: usize) -> bool {
        self.0 >> (place % BATCH) & 1 == 1
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Calls `run` with each place, which is below [`BATCH`].
    #[inline(always)]
    fn each(self, mut run: impl FnMut(usize)) {
        let mut rest = self.0;
        while rest != 0 {
            run(rest.trailing_zeros() as usize % BATCH);
            rest &= rest - 1;
        }
    }

    /// The places for which `keeps` holds; without a branch on it.
    #[inline(always)]
    fn filter(self, mut keeps: impl FnMut(usize) -> bool) -> Self {
        let mut kept = 0;
        self.each(|place| kept |= u32::from(keeps(place)) << place);
        Self(kept)
    }
}

/// The hashes of a batch.
pub(super) type Hashes = [Hash; BATCH];

/// A layer without lines: `probes` slices of `slice` bits.
#[derive(Clone, Copy)]
pub(super) struct Free<W> {
    words: W,
    slice: u64,
    probes: usize,
}

/// A layer of lines: `regions` regions of `lines` lines, `probes` bits in a line.
#[derive(Clone, Copy)]
pub(super) struct Lined<L> {
    all: L,
    lines: u64,
    regions: u64,
    probes: usize,
}

/// A layer to look into.
#[derive(Clone, Copy)]
pub(super) enum View<'a> {
    Free(Free<&'a [u64]>),
    Lines(Lined<&'a [Line]>),
}

/// A layer to set bits in.
pub(super) enum ViewMut<'a> {
    Free(Free<&'a mut [u64]>),
    Lines(Lined<&'a mut [Line]>),
}

/// Bits of a slice where `len` words are cut into `probes` slices.
#[inline(always)]
pub(super) fn slice_of(len: usize, probes: u8) -> u64 {
    // At least 1 of each, by `sizing` and `Shape::is_plausible`.
    len as u64 * 64 / u64::from(probes.max(1))
}

impl<W> Free<W> {
    #[inline(always)]
    pub(super) fn new(words: W, slice: u64, probes: u8) -> Self {
        Self { words, slice, probes: probes.into() }
    }

    /// The bits of an item in the slices from `4 * group` on, of which there may be
    /// fewer than four: one in each, by the multiplication of 32 random bits with
    /// the slice's length (Lemire 2019; the bias is below 2^-13, as the slices of
    /// our layers are below 2^19 bits).
    #[inline(always)]
    fn bits(&self, hash: Hash, group: usize) -> [usize; 4] {
        let x = hash.word(2 * group as u64);
        let y = hash.word(2 * group as u64 + 1);
        let draws = [x & 0xffff_ffff, x >> 32, y & 0xffff_ffff, y >> 32];
        let start = 4 * group as u64 * self.slice;
        std::array::from_fn(|i| {
            (start + i as u64 * self.slice + ((draws[i] * self.slice) >> 32)) as usize
        })
    }
}

impl Free<&[u64]> {
    /// Four probes at a time without a branch between them: an absent item seldom
    /// takes a second group.
    #[inline(always)]
    fn contains(&self, hash: Hash) -> bool {
        let test = |bit: usize| self.words[bit / 64] >> (bit % 64);
        for group in 0..self.probes / 4 {
            let bits = self.bits(hash, group);
            if bits.iter().fold(1, |all, &bit| all & test(bit)) == 0 {
                return false;
            }
        }
        let (group, rest) = (self.probes / 4, self.probes % 4);
        rest == 0 || self.bits(hash, group)[..rest].iter().fold(1, |all, &bit| all & test(bit)) == 1
    }
}

impl Free<&[u64]> {
    /// Those of `items` that have all their bits set.
    fn filter(&self, hashes: &Hashes, items: Places) -> Places {
        if self.probes < 3 {
            return items.filter(|i| self.contains(hashes[i]));
        }
        let test = |bit: usize| self.words[bit / 64] >> (bit % 64);
        let left = items.filter(|i| {
            let [a, b, c, _] = self.bits(hashes[i], 0);
            test(a) & test(b) & test(c) & 1 == 1
        });
        left.filter(|i| self.contains(hashes[i]))
    }
}

impl Free<&mut [u64]> {
    #[inline(always)]
    fn insert(&mut self, hash: Hash) -> bool {
        let mut new = 0;
        for group in 0..self.probes.div_ceil(4) {
            let here = (self.probes - 4 * group).min(4);
            for &bit in &self.bits(hash, group)[..here] {
                let (word, mask) = (&mut self.words[bit / 64], 1 << (bit % 64));
                new |= !*word & mask;
                *word |= mask;
            }
        }
        new != 0
    }
}

/// Calls `$run` with the number of probes as a constant, so that its loop over them
/// is unrolled: that is a third of the time of a batch whose lines are in the cache.
macro_rules! with_constant_probes {
    ($probes:expr, $run:ident($($argument:expr),*)) => {
        match $probes {
            1 => $run::<1>($($argument),*),
            2 => $run::<2>($($argument),*),
            3 => $run::<3>($($argument),*),
            4 => $run::<4>($($argument),*),
            5 => $run::<5>($($argument),*),
            6 => $run::<6>($($argument),*),
            7 => $run::<7>($($argument),*),
            8 => $run::<8>($($argument),*),
            9 => $run::<9>($($argument),*),
            _ => $run::<10>($($argument),*),
        }
    };
}

impl<L> Lined<L> {
    #[inline(always)]
    pub(super) fn new(all: L, lines: u64, regions: u8, probes: u8) -> Self {
        Self { all, lines, regions: regions.into(), probes: probes.into() }
    }

    /// The number of an item's line in `region`.
    #[inline(always)]
    fn line(&self, hash: Hash, region: u64) -> usize {
        let draw = u128::from(hash.word(2 * region));
        let within = (draw * u128::from(self.lines)) >> 64;
        (region * self.lines + within as u64) as usize
    }
}

/// Bit `i` of an item in its line of `region`: nine bits of the hash, of the word
/// after the one that chose the line, then of the low bits of that.
#[inline(always)]
fn bit_in_line(hash: Hash, region: u64, i: usize) -> usize {
    let bits = match i.checked_sub(PROBES_IN_A_WORD) {
        None => hash.word(2 * region + 1) >> (9 * i),
        Some(i) => hash.word(2 * region) >> (9 * i),
    };
    (bits & 511) as usize
}

#[inline(always)]
fn test_line<const PROBES: usize>(line: &Line, hash: Hash, region: u64) -> bool {
    let mut all = 1;
    for i in 0..PROBES {
        let bit = bit_in_line(hash, region, i);
        all &= line.0[bit / 64] >> (bit % 64);
    }
    all == 1
}

#[inline(always)]
fn set_line<const PROBES: usize>(line: &mut Line, hash: Hash, region: u64) -> bool {
    let mut new = 0;
    for i in 0..PROBES {
        let bit = bit_in_line(hash, region, i);
        let (word, mask) = (&mut line.0[bit / 64], 1 << (bit % 64));
        new |= !*word & mask;
        *word |= mask;
    }
    new != 0
}

#[inline(always)]
fn contains_in_lines<const PROBES: usize>(lined: &Lined<&[Line]>, hash: Hash) -> bool {
    test_line::<PROBES>(&lined.all[lined.line(hash, 0)], hash, 0)
        && (1..lined.regions)
            .all(|region| test_line::<PROBES>(&lined.all[lined.line(hash, region)], hash, region))
}

#[inline(always)]
fn insert_into_lines<const PROBES: usize>(lined: &mut Lined<&mut [Line]>, hash: Hash) -> bool {
    let mut new = false;
    for region in 0..lined.regions {
        let number = lined.line(hash, region);
        new |= set_line::<PROBES>(&mut lined.all[number], hash, region);
    }
    new
}

/// Those of `items` that have all their bits set. Line by line: the next lines are
/// asked for, of the items that are left, when the present ones are done.
fn filter_by_lines<const PROBES: usize>(
    lined: &Lined<&[Line]>,
    hashes: &Hashes,
    items: Places,
) -> Places {
    let test = |i: usize, region: u64| {
        let hash: Hash = hashes[i];
        test_line::<PROBES>(&lined.all[lined.line(hash, region)], hash, region)
    };
    // Most items of most layers are absent, and three probes tell seven in eight.
    let mut left = items.filter(|i| {
        let line = &lined.all[lined.line(hashes[i], 0)];
        match PROBES {
            1 => test_line::<1>(line, hashes[i], 0),
            2 => test_line::<2>(line, hashes[i], 0),
            _ => test_line::<3>(line, hashes[i], 0),
        }
    });
    if PROBES > 3 {
        left = left.filter(|i| test(i, 0));
    }
    for region in 1..lined.regions {
        left.each(|i| prefetch(lined.all, lined.line(hashes[i], region)));
        left = left.filter(|i| test(i, region));
    }
    left
}

impl View<'_> {
    /// Whether all bits of an item are set.
    #[inline(always)]
    pub(super) fn contains(&self, hash: Hash) -> bool {
        match self {
            Self::Free(free) => free.contains(hash),
            Self::Lines(lined) => {
                with_constant_probes!(lined.probes, contains_in_lines(lined, hash))
            }
        }
    }

    /// Asks for the first lines of `items`, where the layer is large.
    #[inline(always)]
    pub(super) fn prefetch_first(&self, hashes: &Hashes, items: Places) {
        if let Self::Lines(lined) = self
            && size_of_val(lined.all) >= WORTH_PREFETCHING
        {
            items.each(|i| prefetch(lined.all, lined.line(hashes[i], 0)));
        }
    }

    /// Asks for all lines of an item, where the layer is large.
    #[inline(always)]
    pub(super) fn prefetch_all(&self, hash: Hash) {
        if let Self::Lines(lined) = self
            && size_of_val(lined.all) >= WORTH_PREFETCHING
        {
            for region in 0..lined.regions {
                prefetch(lined.all, lined.line(hash, region));
            }
        }
    }

    /// Those of `items` that have all their bits set.
    #[inline(always)]
    pub(super) fn filter(&self, hashes: &Hashes, items: Places) -> Places {
        match self {
            Self::Free(free) => free.filter(hashes, items),
            Self::Lines(lined) => {
                with_constant_probes!(lined.probes, filter_by_lines(lined, hashes, items))
            }
        }
    }
}

/// Items to be added to a layer one after another.
pub(super) struct Run<'a> {
    pub(super) hashes: &'a Hashes,
    /// Those that are not to be added, as an older layer has them.
    pub(super) present: Places,
    pub(super) places: Range<usize>,
    /// How many new ones the layer takes.
    pub(super) room: u64,
}

impl Run<'_> {
    /// Adds the items by `insert`, which tells whether one was new, until there is no
    /// room. Returns the place that it came to, and how many were new.
    #[inline(always)]
    fn each(self, out: &mut [Insertion], mut insert: impl FnMut(Hash) -> bool) -> (usize, u64) {
        let mut added = 0;
        for place in self.places.clone() {
            if added == self.room {
                return (place, added);
            }
            let new = !self.present.contains(place) && insert(self.hashes[place % BATCH]);
            added += u64::from(new);
            out[place] = Ok(new);
        }
        (self.places.end, added)
    }
}

fn run_into_lines<const PROBES: usize>(
    lined: &mut Lined<&mut [Line]>,
    run: Run<'_>,
    out: &mut [Insertion],
) -> (usize, u64) {
    run.each(out, |hash| insert_into_lines::<PROBES>(lined, hash))
}

impl ViewMut<'_> {
    /// Adds the items of `run`, see [`Run::each`].
    pub(super) fn insert_run(&mut self, run: Run<'_>, out: &mut [Insertion]) -> (usize, u64) {
        match self {
            Self::Free(free) => run.each(out, |hash| free.insert(hash)),
            Self::Lines(lined) => {
                with_constant_probes!(lined.probes, run_into_lines(lined, run, out))
            }
        }
    }

    /// Sets all bits of an item; whether one of them was new.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: Hash) -> bool {
        match self {
            Self::Free(free) => free.insert(hash),
            Self::Lines(lined) => {
                with_constant_probes!(lined.probes, insert_into_lines(lined, hash))
            }
        }
    }
}

/// The bits of a layer outside the chain's block, and how they are found.
#[derive(Debug, PartialEq)]
pub enum Bits {
    /// Of a layer without lines.
    Words {
        /// The bits.
        words: Buffer<u64>,
        /// Bits of a slice.
        slice: u32,
        /// Bits of an item.
        probes: u8,
    },
    /// Of a layer of lines.
    Lines {
        /// The bits.
        all: Buffer<Line>,
        /// Lines of a region.
        lines: u32,
        /// Lines of an item.
        regions: u8,
        /// Bits of an item in one of its lines.
        probes: u8,
    },
}

impl Bits {
    /// Zeros for a layer of `shape`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    fn zeroed(shape: Shape) -> Result<Self, OutOfMemory> {
        match shape {
            Shape::Free { words, probes } => {
                let words = Buffer::zeroed(usize::try_from(words).map_err(|_| OutOfMemory)?)?;
                let slice =
                    u32::try_from(slice_of(words.len(), probes)).map_err(|_| OutOfMemory)?;
                Ok(Self::Words { words, slice, probes })
            }
            Shape::Lines { lines, regions, probes } => {
                let lines = u32::try_from(lines).map_err(|_| OutOfMemory)?;
                let all = (lines as usize).checked_mul(regions.into()).ok_or(OutOfMemory)?;
                Ok(Self::Lines { all: Buffer::zeroed(all)?, lines, regions, probes })
            }
        }
    }

    /// The bits as stored.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Words { words, .. } => words.as_bytes(),
            Self::Lines { all, .. } => all.as_bytes(),
        }
    }

    /// As [`as_bytes`](Self::as_bytes), to write into.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Words { words, .. } => words.as_bytes_mut(),
            Self::Lines { all, .. } => all.as_bytes_mut(),
        }
    }

    fn shape(&self) -> Shape {
        match *self {
            Self::Words { ref words, probes, .. } => {
                Shape::Free { words: words.len() as u64, probes }
            }
            Self::Lines { lines, regions, probes, .. } => {
                Shape::Lines { lines: lines.into(), regions, probes }
            }
        }
    }
}

/// A layer outside the chain's block.
#[derive(Debug, PartialEq)]
pub(super) struct Layer {
    pub(super) bits: Bits,
    pub(super) capacity: u64,
    pub(super) size: u64,
}

impl Layer {
    pub(super) fn new(shape: Shape, capacity: u64) -> Result<Self, OutOfMemory> {
        Ok(Self { bits: Bits::zeroed(shape)?, capacity, size: 0 })
    }

    pub(super) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut copy = Self { bits: Bits::zeroed(self.shape())?, ..*self };
        copy.bits.as_bytes_mut().copy_from_slice(self.bits.as_bytes());
        Ok(copy)
    }

    pub(super) fn shape(&self) -> Shape {
        self.bits.shape()
    }

    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        match &self.bits {
            Bits::Words { words, slice, probes } => {
                View::Free(Free::new(words, (*slice).into(), *probes))
            }
            Bits::Lines { all, lines, regions, probes } => {
                View::Lines(Lined::new(all, (*lines).into(), *regions, *probes))
            }
        }
    }

    #[inline(always)]
    pub(super) fn view_mut(&mut self) -> ViewMut<'_> {
        match &mut self.bits {
            Bits::Words { words, slice, probes } => {
                ViewMut::Free(Free::new(words, (*slice).into(), *probes))
            }
            Bits::Lines { all, lines, regions, probes } => {
                ViewMut::Lines(Lined::new(all, (*lines).into(), *regions, *probes))
            }
        }
    }
}
