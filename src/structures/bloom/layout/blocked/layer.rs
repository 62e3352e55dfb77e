//! The bits of one layer, and the bits of an item in them.

#![forbid(unsafe_code)]

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

/// Items of a batch that still have to be looked for, by their place in it.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    place: [u8; BATCH],
    len: usize,
}

impl Pending {
    /// The items from `start` to before `end`, at most [`BATCH`].
    pub(super) fn range(start: usize, end: usize) -> Self {
        let len = end.min(BATCH).saturating_sub(start);
        Self { place: std::array::from_fn(|i| (start + i) as u8), len }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> {
        // The modulus spares the bounds checks of arrays of `BATCH`.
        self.place.iter().take(self.len).map(|&place| usize::from(place) % BATCH)
    }

    /// Keeps the items for which `keeps` holds; without a branch.
    #[inline(always)]
    fn retain(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        let mut kept = 0;
        for i in 0..self.len.min(BATCH) {
            let place = self.place[i];
            self.place[kept] = place;
            kept += usize::from(keeps(usize::from(place) % BATCH));
        }
        self.len = kept;
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

impl<W> Free<W> {
    #[inline(always)]
    pub(super) fn new(words: W, len: usize, probes: u8) -> Self {
        // The divisor is at least 1 by `Shape::is_plausible` and `sizing`.
        let slice = (len as u64 * 64) / u64::from(probes.max(1));
        Self { words, slice, probes: probes.into() }
    }

    /// The bits of an item: in each slice one, by the multiplication of 32 random
    /// bits with the slice's length (Lemire 2019; the bias is below 2^-13, as the
    /// slices of our layers are below 2^19 bits).
    #[inline(always)]
    fn bits(&self, hash: Hash, group: usize) -> impl Iterator<Item = usize> + use<W> {
        let (slice, first) = (self.slice, group * 4);
        let x = hash.word(2 * group as u64);
        let y = hash.word(2 * group as u64 + 1);
        let draws = [x & 0xffff_ffff, x >> 32, y & 0xffff_ffff, y >> 32];
        let here = self.probes.saturating_sub(first).min(4);
        (0..here).map(move |i| {
            let within = (draws[i] * slice) >> 32;
            ((first + i) as u64 * slice + within) as usize
        })
    }

    fn groups(&self) -> usize {
        self.probes.div_ceil(4)
    }
}

impl Free<&[u64]> {
    /// Four probes at a time without a branch between them: an absent item seldom
    /// takes a second group.
    #[inline(always)]
    fn contains(&self, hash: Hash) -> bool {
        (0..self.groups()).all(|group| {
            let bits = self.bits(hash, group);
            bits.fold(u64::MAX, |all, bit| all & self.words[bit / 64] >> (bit % 64)) & 1 == 1
        })
    }
}

impl Free<&mut [u64]> {
    #[inline(always)]
    fn insert(&mut self, hash: Hash) -> bool {
        let mut new = 0;
        for group in 0..self.groups() {
            for bit in self.bits(hash, group) {
                let (word, mask) = (&mut self.words[bit / 64], 1 << (bit % 64));
                new |= !*word & mask;
                *word |= mask;
            }
        }
        new != 0
    }
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

    /// The bits of an item in its line of `region`, nine bits of the hash for each:
    /// of the word after the one that chose the line, then of the low bits of that.
    #[inline(always)]
    fn bits(&self, hash: Hash, region: u64) -> impl Iterator<Item = usize> + use<L> {
        let (own, shared) = (hash.word(2 * region + 1), hash.word(2 * region));
        let spare = self.probes.saturating_sub(PROBES_IN_A_WORD);
        let nine = |word: u64, i: usize| (word >> (9 * i)) as usize & 511;
        let first = (0..self.probes.min(PROBES_IN_A_WORD)).map(move |i| nine(own, i));
        first.chain((0..spare).map(move |i| nine(shared, i)))
    }
}

impl Lined<&[Line]> {
    #[inline(always)]
    fn line_contains(&self, hash: Hash, region: u64) -> bool {
        let Line(words) = &self.all[self.line(hash, region)];
        let bits = self.bits(hash, region);
        bits.fold(u64::MAX, |all, bit| all & words[bit / 64] >> (bit % 64)) & 1 == 1
    }

    /// Line by line: the next lines are asked for, of the items that are left, when
    /// the present ones are done.
    fn retain_present(&self, hashes: &Hashes, items: &mut Pending) {
        for region in 0..self.regions {
            if region > 0 {
                for i in items.iter() {
                    prefetch(self.all, self.line(hashes[i], region));
                }
            }
            items.retain(|i| self.line_contains(hashes[i], region));
            if items.is_empty() {
                return;
            }
        }
    }
}

impl Lined<&mut [Line]> {
    #[inline(always)]
    fn insert(&mut self, hash: Hash) -> bool {
        let mut new = 0;
        for region in 0..self.regions {
            let bits = self.bits(hash, region);
            let number = self.line(hash, region);
            let Line(words) = &mut self.all[number];
            for bit in bits {
                let (word, mask) = (&mut words[bit / 64], 1 << (bit % 64));
                new |= !*word & mask;
                *word |= mask;
            }
        }
        new != 0
    }
}

impl View<'_> {
    /// Whether all bits of an item are set.
    #[inline(always)]
    pub(super) fn contains(&self, hash: Hash) -> bool {
        match self {
            Self::Free(free) => free.contains(hash),
            Self::Lines(lined) => (0..lined.regions).all(|i| lined.line_contains(hash, i)),
        }
    }

    /// Asks for the first lines of `items`, where the layer is large.
    pub(super) fn prefetch_first(&self, hashes: &Hashes, items: &Pending) {
        if let Self::Lines(lined) = self
            && size_of_val(lined.all) >= WORTH_PREFETCHING
        {
            for i in items.iter() {
                prefetch(lined.all, lined.line(hashes[i], 0));
            }
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

    /// Takes the items that are present out of `items` and marks them in `found`.
    pub(super) fn find(&self, hashes: &Hashes, items: &mut Pending, found: &mut [bool; BATCH]) {
        let mut present = *items;
        match self {
            Self::Free(free) => present.retain(|i| free.contains(hashes[i])),
            Self::Lines(lined) => lined.retain_present(hashes, &mut present),
        }
        if !present.is_empty() {
            for i in present.iter() {
                found[i] = true;
            }
            items.retain(|i| !found[i]);
        }
    }

    /// The bits as stored: little-endian words.
    pub(super) fn words(&self) -> impl Iterator<Item = &[u64]> {
        let (free, lines): (&[u64], &[Line]) = match self {
            Self::Free(free) => (free.words, &[]),
            Self::Lines(lined) => (&[], lined.all),
        };
        std::iter::once(free).chain(lines.iter().map(|Line(words)| words.as_slice()))
    }
}

impl ViewMut<'_> {
    /// Sets all bits of an item; whether one of them was new.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: Hash) -> bool {
        match self {
            Self::Free(free) => free.insert(hash),
            Self::Lines(lined) => lined.insert(hash),
        }
    }
}

/// The memory of a layer's bits.
#[derive(Debug, PartialEq)]
pub enum Bits {
    /// Of a layer without lines.
    Words(Buffer<u64>),
    /// Of a layer of lines.
    Lines(Buffer<Line>),
}

impl Bits {
    /// Zeros for a layer of `shape`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub(super) fn zeroed(shape: Shape) -> Result<Self, OutOfMemory> {
        let len = |count: u64| usize::try_from(count).map_err(|_| OutOfMemory);
        match shape {
            Shape::Free { words, .. } => Ok(Self::Words(Buffer::zeroed(len(words)?)?)),
            Shape::Lines { lines, regions, .. } => {
                let all = lines.checked_mul(regions.into()).ok_or(OutOfMemory)?;
                Ok(Self::Lines(Buffer::zeroed(len(all)?)?))
            }
        }
    }

    /// The bits as stored.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Words(words) => words.as_bytes(),
            Self::Lines(lines) => lines.as_bytes(),
        }
    }

    /// As [`as_bytes`](Self::as_bytes), to write into.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Words(words) => words.as_bytes_mut(),
            Self::Lines(lines) => lines.as_bytes_mut(),
        }
    }

    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        match self {
            Self::Words(words) => Ok(Self::Words(words.try_clone()?)),
            Self::Lines(lines) => Ok(Self::Lines(lines.try_clone()?)),
        }
    }
}

/// A layer with memory of its own.
#[derive(Debug, PartialEq)]
pub(super) struct Layer {
    pub(super) bits: Bits,
    pub(super) capacity: u64,
    pub(super) size: u64,
    /// Lines of a region; 0 without lines.
    lines: u64,
    regions: u8,
    probes: u8,
}

impl Layer {
    pub(super) fn new(shape: Shape, capacity: u64) -> Result<Self, OutOfMemory> {
        let bits = Bits::zeroed(shape)?;
        let (lines, regions, probes) = match shape {
            Shape::Free { probes, .. } => (0, 0, probes),
            Shape::Lines { lines, regions, probes } => (lines, regions, probes),
        };
        Ok(Self { bits, capacity, size: 0, lines, regions, probes })
    }

    pub(super) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { bits: self.bits.try_clone()?, ..*self })
    }

    pub(super) fn shape(&self) -> Shape {
        let Self { lines, regions, probes, .. } = *self;
        match &self.bits {
            Bits::Words(words) => Shape::Free { words: words.len() as u64, probes },
            Bits::Lines(_) => Shape::Lines { lines, regions, probes },
        }
    }

    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        match &self.bits {
            Bits::Words(words) => View::Free(Free::new(&**words, words.len(), self.probes)),
            Bits::Lines(all) => {
                View::Lines(Lined::new(all, self.lines, self.regions, self.probes))
            }
        }
    }

    #[inline(always)]
    pub(super) fn view_mut(&mut self) -> ViewMut<'_> {
        match &mut self.bits {
            Bits::Words(words) => {
                let len = words.len();
                ViewMut::Free(Free::new(&mut **words, len, self.probes))
            }
            Bits::Lines(all) => {
                ViewMut::Lines(Lined::new(all, self.lines, self.regions, self.probes))
            }
        }
    }
}
