//! The blocked layout: an item is hashed once with the key's secret seed, and its
//! bits lie in few cache lines of each layer, or, in layers of a few kilobytes,
//! anywhere.
//!
//! Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters"
//! (2007); Almeida et al., "Scalable Bloom Filters" (2007). [`sizing`] has the
//! formulas.
//!
//! A chain is a value of one pointer. Its block holds the parameters and, where it
//! is small, the first layer's bits: a key with a small filter is one allocation.
//! What a chain becomes depends on its parameters, its seed and the items in their
//! order, on nothing else.

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

use self::layer::{Free, Hash, Hashes, Layer, Pending, View, ViewMut};
use self::sizing::Shape;
use super::super::{CreateError, Insertion, Params, Refusal};
use crate::structures::BATCH;
use crate::structures::buffer::{Line, OutOfMemory};
use crate::structures::quota::Quota;
use crate::structures::thin::{Thin, bytes_of, bytes_of_mut};

mod layer;
pub mod sizing;

pub use self::layer::Bits;

/// First layers of up to so many bytes lie in the chain's own block.
const INLINE_BYTES: u64 = 4096;

/// Further layers each have one layer of RedisBloom's until there are so many.
/// From then on, where layers do not grow by themselves (expansion 1), a layer
/// takes the place of as many as hold a quarter of all capacity before it: so a
/// chain of a million equal layers is some eighty deep. Counts and capacities are
/// reported as if each was there.
const LAYERS_OF_THEIR_OWN: usize = 16;

/// The head of a chain's block.
#[derive(Debug)]
struct Head {
    seed: u64,
    error_rate: f64,
    /// The layers that are not in the block itself, oldest first.
    further: Option<Box<Vec<Layer>>>,
    /// Items that the first layer is made for.
    capacity: u32,
    /// Items in the first layer, if it is in the block.
    size: u32,
}

/// What else a chain is made with.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Note {
    expansion: u16,
    /// Bits of an item in the first layer, if that is in the block.
    probes: u8,
    scaling: bool,
}

/// A scalable Bloom filter in the blocked layout.
#[repr(transparent)]
pub struct Chain(Thin<Head, Note>);

/// A layer as it is stored, but for its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Where the bits of an item lie.
    pub shape: Shape,
    /// Items that the layer is made for.
    pub capacity: u64,
    /// Items in it.
    pub size: u64,
}

/// What there is to tell about a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerInfo {
    /// What is stored of it.
    pub record: Record,
    /// The false positive rate that it keeps to when it is full.
    pub error_rate: f64,
}

impl Chain {
    /// An empty filter. `seed` keeps others from computing which items collide: it
    /// should be random and secret.
    ///
    /// # Errors
    ///
    /// [`CreateError::OutOfMemory`] where the quota or the allocator refuses, and
    /// [`CreateError::Impossible`] for a capacity of 0 or beyond 32 bits, a rate
    /// outside of 0 to 1 or whose half is 0 in a filter that scales, or an
    /// expansion beyond 16 bits.
    pub fn new(params: &Params, seed: u64, quota: Quota<'_>) -> Result<Self, CreateError> {
        let rate = params.error_rate;
        let valid = rate > 0.0 && rate < 1.0 && !(params.scaling && rate * 0.5 == 0.0);
        if !valid || params.capacity == 0 {
            return Err(CreateError::Impossible);
        }
        let shape = sizing::shape(rate, params.capacity, 0, params.scaling);
        let shape = shape.ok_or(CreateError::OutOfMemory)?;
        quota.ask(0, Self::first_bytes(shape))?;
        Self::with_first(params, seed, shape)
    }

    /// An empty filter with a first layer of `shape`.
    fn with_first(params: &Params, seed: u64, shape: Shape) -> Result<Self, CreateError> {
        let capacity = u32::try_from(params.capacity).map_err(|_| CreateError::Impossible)?;
        let expansion = u16::try_from(params.expansion).map_err(|_| CreateError::Impossible)?;
        let head = Head { seed, error_rate: params.error_rate, further: None, capacity, size: 0 };
        let note = Note { expansion, probes: 0, scaling: params.scaling };
        if let Shape::Free { words, probes } = shape
            && shape.bytes() <= INLINE_BYTES
        {
            return Ok(Self(Thin::new(head, Note { probes, ..note }, words as usize)?));
        }
        let mut chain = Self(Thin::new(head, note, 0)?);
        chain.push(Layer::new(shape, params.capacity)?)?;
        Ok(chain)
    }

    /// Bytes of a chain with one layer of `shape`.
    fn first_bytes(shape: Shape) -> u64 {
        if matches!(shape, Shape::Free { .. }) && shape.bytes() <= INLINE_BYTES {
            return (Thin::<Head, Note>::size_for(0) as u64).saturating_add(shape.bytes());
        }
        let fixed = Thin::<Head, Note>::size_for(0) + size_of::<Vec<Layer>>();
        (fixed as u64).saturating_add(Self::further_bytes(shape))
    }

    /// Bytes of a layer of `shape` outside the block, with what aligning it to a
    /// line may take.
    fn further_bytes(shape: Shape) -> u64 {
        shape.bytes().saturating_add((size_of::<Layer>() + size_of::<Line>()) as u64)
    }

    fn push(&mut self, layer: Layer) -> Result<(), OutOfMemory> {
        let further = &mut self.0.parts_mut().0.further;
        let layers = further.get_or_insert_default();
        layers.try_reserve_exact(1).map_err(|_| OutOfMemory)?;
        layers.push(layer);
        Ok(())
    }

    /// Whether the item was added before; or seems so, at the rate asked for.
    #[inline]
    pub fn contains(&self, item: &[u8]) -> bool {
        let hash = Hash::of(item, self.seed());
        let Some(further) = &self.0.head().further else {
            return self.inline().is_some_and(|first| first.contains(hash));
        };
        if let Some(newest) = further.last() {
            newest.view().prefetch_all(hash);
        }
        further.iter().rev().any(|layer| layer.view().contains(hash))
            || self.inline().is_some_and(|first| first.contains(hash))
    }

    /// As [`contains`](Self::contains) for each of `items`, into the same places of
    /// `found`; what is longer of the two is left alone.
    pub fn contains_batch(&self, items: &[&[u8]], found: &mut [bool]) {
        let layers = self.depth();
        for (items, found) in items.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            let hashes = self.hash(items);
            let mut present = [false; BATCH];
            self.find(layers, &hashes, Pending::range(0, items.len()), &mut present);
            let len = found.len().min(items.len());
            found[..len].copy_from_slice(&present[..len]);
        }
    }

    #[inline(always)]
    fn hash(&self, items: &[&[u8]]) -> Hashes {
        let seed = self.seed();
        let mut hashes = [Hash::default(); BATCH];
        for (hash, item) in hashes.iter_mut().zip(items) {
            *hash = Hash::of(item, seed);
        }
        hashes
    }

    /// Marks which of `items` the oldest `layers` layers report. The newest of them
    /// are looked at first, as they hold the most items; while one is looked at,
    /// the lines of the next are on their way.
    fn find(
        &self,
        layers: usize,
        hashes: &Hashes,
        mut items: Pending,
        found: &mut [bool; BATCH],
    ) {
        let mut views = (0..layers).rev().filter_map(|i| self.view(i)).peekable();
        if let Some(first) = views.peek() {
            first.prefetch_first(hashes, &items);
        }
        while let Some(view) = views.next() {
            if let Some(next) = views.peek() {
                next.prefetch_first(hashes, &items);
            }
            view.find(hashes, &mut items, found);
            if items.is_empty() {
                return;
            }
        }
    }

    /// Adds an item unless it is reported present.
    ///
    /// # Errors
    ///
    /// [`Refusal`], which leaves the filter as it was.
    #[inline]
    pub fn insert(&mut self, item: &[u8], quota: Quota<'_>) -> Insertion {
        let hash = Hash::of(item, self.seed());
        let newest = self.depth() - 1;
        if newest > 0 && (0..newest).rev().any(|i| self.layer_contains(i, hash)) {
            return Ok(false);
        }
        self.insert_into_newest(hash, || true, quota)
    }

    /// As [`insert`](Self::insert) for each of `items` in order, with the outcomes
    /// in `out`. Ends after the first [`Refusal::Full`]; goes on after
    /// [`Refusal::CannotGrow`], without asking for memory again.
    ///
    /// Returns how many items were dealt with: all that `out` has places for, or as
    /// many as came up to the one that found the filter full.
    pub fn insert_batch(
        &mut self,
        items: &[&[u8]],
        quota: Quota<'_>,
        out: &mut [Insertion],
    ) -> usize {
        let (mut done, mut stuck) = (0, false);
        for (items, out) in items.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            let len = items.len().min(out.len());
            let here = self.insert_chunk(&items[..len], quota, &mut stuck, &mut out[..len]);
            done += here;
            if here > 0 && out[here - 1] == Err(Refusal::Full) {
                break;
            }
        }
        done
    }

    fn insert_chunk(
        &mut self,
        items: &[&[u8]],
        quota: Quota<'_>,
        stuck: &mut bool,
        out: &mut [Insertion],
    ) -> usize {
        let hashes = self.hash(items);
        let (mut done, mut present) = (0, [false; BATCH]);
        // Once more whenever a layer was added: the newest has then become one of
        // the older ones.
        while done < items.len() {
            let newest = self.depth() - 1;
            if let Some(view) = self.view(newest) {
                for hash in &hashes[done..items.len()] {
                    view.prefetch_all(*hash);
                }
            }
            if newest > 0 {
                self.find(newest, &hashes, Pending::range(done, items.len()), &mut present);
            }
            while done < items.len() && self.depth() == newest + 1 {
                let outcome = match present[done] {
                    true => Ok(false),
                    false => self.insert_into_newest(hashes[done], || !*stuck, quota),
                };
                out[done] = outcome;
                done += 1;
                match outcome {
                    Err(Refusal::Full) => return done,
                    Err(Refusal::CannotGrow) => *stuck = true,
                    Ok(_) => {}
                }
            }
        }
        done
    }

    /// Adds an item that no older layer reports. `may_grow` is asked before a layer
    /// is added.
    #[inline(always)]
    fn insert_into_newest(
        &mut self,
        hash: Hash,
        may_grow: impl FnOnce() -> bool,
        quota: Quota<'_>,
    ) -> Insertion {
        let newest = self.newest();
        if newest.size < newest.capacity {
            return Ok(self.set(hash));
        }
        if self.layer_contains(self.depth() - 1, hash) {
            return Ok(false);
        }
        if !self.scaling() {
            return Err(Refusal::Full);
        }
        if !may_grow() {
            return Err(Refusal::CannotGrow);
        }
        self.grow(quota).map_err(|OutOfMemory| Refusal::CannotGrow)?;
        Ok(self.set(hash))
    }

    /// Sets the item's bits in the newest layer and counts it if one was new.
    #[inline(always)]
    fn set(&mut self, hash: Hash) -> bool {
        let (head, note, words) = self.0.parts_mut();
        if let Some(layer) = head.further.as_mut().and_then(|layers| layers.last_mut()) {
            let new = layer.view_mut().insert(hash);
            layer.size += u64::from(new);
            return new;
        }
        let len = words.len();
        let new = ViewMut::Free(Free::new(words, len, note.probes)).insert(hash);
        head.size += u32::from(new);
        new
    }

    /// Adds a layer.
    #[cold]
    fn grow(&mut self, quota: Quota<'_>) -> Result<(), OutOfMemory> {
        let capacity = self.next_capacity().ok_or(OutOfMemory)?;
        let shape = sizing::shape(self.error_rate(), capacity, self.depth(), self.scaling());
        let shape = shape.ok_or(OutOfMemory)?;
        quota.ask(self.heap_bytes(), Self::further_bytes(shape))?;
        self.push(Layer::new(shape, capacity)?)
    }

    /// Items that a layer after the newest would be made for. `None` where the
    /// number is 0 or exceeds 64 bits.
    fn next_capacity(&self) -> Option<u64> {
        let expansion = u64::from(self.0.note().expansion);
        let next = self.newest().capacity.checked_mul(expansion)?;
        if expansion != 1 || self.depth() < LAYERS_OF_THEIR_OWN {
            return (next > 0).then_some(next);
        }
        let one = u64::from(self.0.head().capacity);
        let held = self.records().try_fold(0u64, |sum, layer| sum.checked_add(layer.capacity))?;
        (held / 4).div_ceil(one).max(1).checked_mul(one)
    }

    /// The layer in the block, if there is one.
    #[inline(always)]
    fn inline(&self) -> Option<View<'_>> {
        let words = self.0.words();
        let free = || View::Free(Free::new(words, words.len(), self.0.note().probes));
        (!words.is_empty()).then(free)
    }

    #[inline(always)]
    fn further(&self) -> &[Layer] {
        self.0.head().further.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Layers in memory.
    #[inline(always)]
    fn depth(&self) -> usize {
        usize::from(!self.0.words().is_empty()) + self.further().len()
    }

    /// Layer `index`, oldest first.
    #[inline(always)]
    fn view(&self, index: usize) -> Option<View<'_>> {
        let inline = usize::from(!self.0.words().is_empty());
        match index.checked_sub(inline) {
            Some(index) => self.further().get(index).map(Layer::view),
            None => self.inline(),
        }
    }

    #[inline(always)]
    fn layer_contains(&self, index: usize, hash: Hash) -> bool {
        self.view(index).is_some_and(|view| view.contains(hash))
    }

    fn first_record(&self) -> Option<Record> {
        let head = self.0.head();
        let words = self.0.words().len() as u64;
        let shape = Shape::Free { words, probes: self.0.note().probes };
        let (capacity, size) = (head.capacity.into(), head.size.into());
        (words > 0).then_some(Record { shape, capacity, size })
    }

    /// The newest layer's capacity and size, without its shape.
    #[inline(always)]
    fn newest(&self) -> Fill {
        let head = self.0.head();
        match self.further().last() {
            Some(layer) => Fill { capacity: layer.capacity, size: layer.size },
            None => Fill { capacity: head.capacity.into(), size: head.size.into() },
        }
    }
}

/// How far a layer is filled.
struct Fill {
    capacity: u64,
    size: u64,
}

/// What a chain tells of itself.
impl Chain {
    /// The layers as stored, oldest first, without their bits.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let further = self.further().iter().map(|layer| Record {
            shape: layer.shape(),
            capacity: layer.capacity,
            size: layer.size,
        });
        self.first_record().into_iter().chain(further)
    }

    /// The layers, oldest first.
    pub fn layer_infos(&self) -> impl Iterator<Item = LayerInfo> + '_ {
        self.records().enumerate().map(|(index, record)| LayerInfo {
            record,
            error_rate: sizing::budget(self.error_rate(), index, self.scaling()),
        })
    }

    /// The bits of the layers as stored, oldest first.
    pub fn layer_bytes(&self) -> impl Iterator<Item = &[u8]> {
        let inline = Some(self.0.words()).filter(|words| !words.is_empty()).map(bytes_of);
        inline.into_iter().chain(self.further().iter().map(|layer| layer.bits.as_bytes()))
    }

    /// As [`layer_bytes`](Self::layer_bytes), to write into.
    pub fn layer_bytes_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (head, _, words) = self.0.parts_mut();
        let inline = Some(words).filter(|words| !words.is_empty()).map(bytes_of_mut);
        let further = head.further.as_deref_mut().map_or(&mut [][..], Vec::as_mut_slice);
        inline.into_iter().chain(further.iter_mut().map(|layer| layer.bits.as_bytes_mut()))
    }

    /// The memory of the layers outside the chain's own block.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut Bits> {
        let further = self.0.parts_mut().0.further.as_deref_mut();
        further.map_or(&mut [][..], Vec::as_mut_slice).iter_mut().map(|layer| &mut layer.bits)
    }

    /// Items that were added.
    pub fn items(&self) -> u64 {
        self.records().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }

    /// Items that the filter is made for so far, as RedisBloom counts them.
    pub fn capacity(&self) -> u64 {
        let all = self.records().fold(0u64, |sum, layer| sum.saturating_add(layer.capacity));
        all - self.unused_layers() * u64::from(self.0.head().capacity)
    }

    /// Layers, as RedisBloom counts them.
    pub fn layers(&self) -> u64 {
        let one = u64::from(self.0.head().capacity).max(1);
        let all = self.records().map(|layer| if self.merges() { layer.capacity / one } else { 1 });
        all.sum::<u64>() - self.unused_layers()
    }

    /// Whether a layer may stand for many.
    fn merges(&self) -> bool {
        self.0.note().expansion == 1
    }

    /// Of the layers that the newest stands for, those that RedisBloom would not
    /// have made yet.
    fn unused_layers(&self) -> u64 {
        let one = u64::from(self.0.head().capacity).max(1);
        let newest = self.newest();
        match self.merges() {
            true => newest.capacity / one - newest.size.div_ceil(one).max(1),
            false => 0,
        }
    }

    /// The capacity of a further layer as a multiple of the one before.
    pub fn expansion(&self) -> u32 {
        self.0.note().expansion.into()
    }

    /// Whether a full filter gets a further layer.
    pub fn scaling(&self) -> bool {
        self.0.note().scaling
    }

    /// The false positive rate asked for.
    pub fn error_rate(&self) -> f64 {
        self.0.head().error_rate
    }

    /// The key's secret.
    #[inline(always)]
    pub fn seed(&self) -> u64 {
        self.0.head().seed
    }

    /// What the filter was made for.
    pub fn params(&self) -> Params {
        Params {
            capacity: self.0.head().capacity.into(),
            error_rate: self.error_rate(),
            expansion: self.expansion(),
            scaling: self.scaling(),
        }
    }

    /// The false positive rate that is to be expected now, from the number of items
    /// in each layer: 0 while empty, at most the rate asked for.
    pub fn estimated_rate(&self) -> f64 {
        let none = self.records().map(|layer| 1.0 - layer.shape.rate(layer.size));
        1.0 - none.product::<f64>()
    }

    /// The part of the bits that is set, 0 to 1. Looks at each bit of up to 1 MiB,
    /// and at an even sample of larger filters.
    pub fn fill_ratio(&self) -> f64 {
        const SAMPLE: usize = 1 << 17;
        let all: usize = self.layer_bytes().map(|bytes| bytes.len() / 8).sum();
        // Chunks of a line, so that the sample of a lined layer is one of lines.
        let step = all.div_ceil(SAMPLE).max(1);
        let views = (0..self.depth()).filter_map(|i| self.view(i));
        let (mut words, mut ones) = (0u64, 0u64);
        for view in views {
            for word in view.words().step_by(step).flatten() {
                words += 1;
                ones += u64::from(word.count_ones());
            }
        }
        ones as f64 / (words.max(1) * 64) as f64
    }

    /// Bytes that the filter takes: its block, its layers and their table.
    pub fn heap_bytes(&self) -> u64 {
        let block = self.0.block().1.size();
        let table = self.0.head().further.as_ref().map_or(0, |layers| {
            size_of::<Vec<Layer>>() + layers.capacity() * size_of::<Layer>()
        });
        let bits = self.further().iter().map(|layer| layer.bits.as_bytes().len() as u64);
        bits.sum::<u64>() + (block + table) as u64
    }

    /// A second filter with the same content.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let head = self.0.head();
        let copied = Head { further: None, ..*head };
        let mut copy = Self(Thin::new(copied, *self.0.note(), self.0.words().len())?);
        copy.0.parts_mut().2.copy_from_slice(self.0.words());
        for layer in self.further() {
            copy.push(layer.try_clone()?)?;
        }
        Ok(copy)
    }
}

/// Why stored layers do not make a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// No memory.
    OutOfMemory,
    /// A number that no chain has; says which.
    Invalid(&'static str),
}

impl From<OutOfMemory> for RestoreError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// How a chain is made of what was stored: [`restore`](Self::restore) with the
/// first layer, then [`restore_next`](Self::restore_next) for each other. Memory is
/// taken as the layers come, zeroed and untouched.
impl Chain {
    /// A chain with the stored first layer, its bits 0.
    ///
    /// # Errors
    ///
    /// [`RestoreError`].
    pub fn restore(params: &Params, seed: u64, first: Record) -> Result<Self, RestoreError> {
        let rate = params.error_rate;
        require(rate > 0.0 && rate < 1.0, "error rate")?;
        require((1..=u32::MAX.into()).contains(&params.capacity), "capacity")?;
        require(first.capacity == params.capacity, "capacity of the first layer")?;
        require(u16::try_from(params.expansion).is_ok(), "expansion")?;
        Self::check(first)?;
        let mut chain = match Self::with_first(params, seed, first.shape) {
            Ok(chain) => chain,
            Err(CreateError::OutOfMemory) => return Err(RestoreError::OutOfMemory),
            Err(CreateError::Impossible) => return Err(RestoreError::Invalid("parameters")),
        };
        let head = chain.0.parts_mut().0;
        match head.further.as_mut().and_then(|layers| layers.first_mut()) {
            Some(layer) => layer.size = first.size,
            // At most the capacity, which has 32 bits.
            None => head.size = first.size as u32,
        }
        Ok(chain)
    }

    /// Adds the stored next layer, its bits 0.
    ///
    /// # Errors
    ///
    /// [`RestoreError`], also where the chain so far would not have grown.
    pub fn restore_next(&mut self, next: Record) -> Result<(), RestoreError> {
        let newest = self.newest();
        require(self.scaling(), "layers of a filter that does not scale")?;
        require(newest.size == newest.capacity, "layer after one with room")?;
        require(self.next_capacity() == Some(next.capacity), "capacity of a layer")?;
        Self::check(next)?;
        let mut layer = Layer::new(next.shape, next.capacity)?;
        layer.size = next.size;
        Ok(self.push(layer)?)
    }

    fn check(record: Record) -> Result<(), RestoreError> {
        require(record.size <= record.capacity, "items of a layer")?;
        require(record.shape.is_plausible(record.capacity), "shape of a layer")
    }
}

fn require(holds: bool, what: &'static str) -> Result<(), RestoreError> {
    if holds { Ok(()) } else { Err(RestoreError::Invalid(what)) }
}

/// A chain as an address.
impl Chain {
    /// Gives the chain away as the address of its block, a multiple of 8.
    pub fn into_raw(self) -> NonNull<()> {
        self.0.into_raw()
    }

    /// Takes back what [`into_raw`](Self::into_raw) gave away.
    ///
    /// # Safety
    ///
    /// `block` must come from `into_raw`, and only one value may own it.
    pub unsafe fn from_raw(block: NonNull<()>) -> Self {
        // SAFETY: `Chain` is a `Thin` of just these types; the rest is the caller's.
        Self(unsafe { Thin::from_raw(block) })
    }

    /// The block, as the allocator knows it.
    pub fn block(&self) -> (NonNull<u8>, Layout) {
        self.0.block()
    }

    /// Tells the chain that its block has moved.
    ///
    /// # Safety
    ///
    /// As for [`Thin::moved_to`].
    pub unsafe fn moved_to(&mut self, block: NonNull<u8>) {
        // SAFETY: the same contract.
        unsafe { self.0.moved_to(block) }
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.0.head(), other.0.head());
        (a.seed, a.error_rate.to_bits(), a.capacity, a.size)
            == (b.seed, b.error_rate.to_bits(), b.capacity, b.size)
            && self.0.note() == other.0.note()
            && self.0.words() == other.0.words()
            && self.further() == other.further()
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the seed, which is secret, and the bits, which are many.
        f.debug_struct("Chain")
            .field("params", &self.params())
            .field("layers", &self.records().collect::<Vec<_>>())
            .finish()
    }
}
