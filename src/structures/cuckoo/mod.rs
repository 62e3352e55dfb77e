//! Cuckoo filters: fingerprints of items in one of two buckets each, in a chain of
//! sub-filters that grows, newest last. Unlike a Bloom filter it can forget items
//! again and count them.
//!
//! Fan, Andersen, Kaminsky, Mitzenmacher, "Cuckoo Filter: Practically Better Than
//! Bloom" (2014). The slots are those that RedisBloom fills for the same calls.
//!
//! # Why deleting members never loses another member
//!
//! In a sub-filter, a stored fingerprint serves every item with this fingerprint and
//! this pair of buckets: its class. Items of one class are of one class in every
//! older sub-filter too, because numbers of buckets are powers of two that never
//! fall along the chain. So classes form trees, roots in the oldest sub-filter, and
//! the stored fingerprints can be assigned one to one to the items so that each lies
//! on the item's path to its root. Insertion keeps this, eviction moves nothing to
//! another class, and compaction moves fingerprints only towards the root.
//! [`Filter::delete`] frees the newest fingerprint on the path of its item. If
//! that was assigned to another item, then the one assigned to the deleted item,
//! nearer to the root, serves that other item as well.
//!
//! It takes a member, though: an item that was refused, or [`Outcome::Present`]
//! because of a false positive, is none, and deleting it may delete another.

#![forbid(unsafe_code)]

use super::BATCH;
use super::buffer::{Buffer, OutOfMemory, Part};
use super::quota::Quota;
use buckets::{Any, BucketSize, Buckets, Fixed};
use key::Key;

mod buckets;
mod compaction;
mod key;
mod shape;

pub use shape::{MAX_EXPANSION, MAX_SUB_FILTERS, Shape};

/// Size in slots up to which copies of one item may make a filter grow, whatever it
/// holds. See [`Outcome::TooManyCopies`].
const FREE_COPIES_SIZE: u64 = 256 * 1024;

/// What a filter is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// Slots of the first sub-filter, rounded up to a power of two of buckets.
    pub capacity: u64,
    /// Slots of a bucket, at least 1. Larger buckets fill better and give more false
    /// positives.
    pub bucket_size: u8,
    /// Fingerprints that one insertion may move before the filter grows, at least 1.
    pub max_iterations: u16,
    /// Size of each further sub-filter as a multiple of the one before, up to
    /// [`MAX_EXPANSION`], rounded up to a power of two; 0 for a filter that never
    /// grows.
    pub expansion: u16,
}

/// Why a filter could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateError {
    /// No memory, or none allowed.
    OutOfMemory,
    /// Parameters out of their ranges, or too large together.
    Impossible,
}

impl From<OutOfMemory> for CreateError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Which items an insertion takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insertion {
    /// All: an item can be in a filter several times.
    Every,
    /// Those that are not reported present.
    Absent,
}

/// How far an insertion may grow a filter.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Most sub-filters that growth may lead to. A filter that has more already (its
    /// data came from elsewhere) keeps them and takes items while there is room.
    pub sub_filters: usize,
    /// Asked before each growth.
    pub quota: Quota<'a>,
    /// Whether neither `sub_filters` nor [`Outcome::TooManyCopies`] holds: a replica
    /// has to follow a primary that has grown. Asked only where one of them would.
    pub lifted: &'a dyn Fn() -> bool,
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was added.
    Inserted,
    /// It was reported present and [`Insertion::Absent`] was asked for.
    Present,
    /// There is no room, and the filter does not grow: its expansion is 0, or it has
    /// as many sub-filters as [`Limits`] allow.
    Full,
    /// Both buckets of the newest sub-filter are full of copies of the item, and
    /// growth would make room for a few more copies at the price of a whole
    /// sub-filter, again and again. It is refused, unless [`Limits::lifted`], where the filter would have both
    /// more than 256 Ki slots and more than 4 times those of its first sub-filter,
    /// unless at least one slot of 16 is in use. RedisBloom grows without end.
    ///
    /// By the last condition, items that differ and collide by chance do grow a
    /// filter: even with buckets of one slot and 2^24 buckets, three items of one
    /// class are not to be expected before.
    TooManyCopies,
    /// There is no room, and no memory for another sub-filter, or none allowed, or
    /// it would exceed what the stored forms can say.
    NoMemory,
}

/// A cuckoo filter.
#[derive(Debug, PartialEq)]
pub struct Filter {
    items: u64,
    deletes: u64,
    shape: Shape,
    /// The slots of each sub-filter, oldest first. Never empty. A boxed slice: many
    /// users keep millions of small filters, and growth is rare.
    tables: Box<[Buffer<u8>]>,
}

impl Filter {
    /// An empty filter of one sub-filter.
    ///
    /// # Errors
    ///
    /// See [`CreateError`].
    pub fn new(params: Params, quota: Quota<'_>) -> Result<Self, CreateError> {
        Self::zeroed(Shape::of(params)?, 1, quota)
    }

    /// A filter of `sub_filters` empty sub-filters, as one made of a dump header is
    /// before its chunks are there.
    ///
    /// # Errors
    ///
    /// [`CreateError::Impossible`] where a filter of this shape cannot have that many
    /// sub-filters; none is too few. The quota is asked once, for all.
    pub fn zeroed(shape: Shape, sub_filters: usize, quota: Quota<'_>) -> Result<Self, CreateError> {
        if sub_filters == 0 {
            return Err(CreateError::Impossible);
        }
        let mut sum = 0_usize;
        for number in 0..sub_filters {
            let slots = shape.slots(number).ok_or(CreateError::Impossible)?;
            sum = sum.checked_add(slots).ok_or(OutOfMemory)?;
        }
        quota.ask(0, sum as u64)?;
        let mut tables = Vec::new();
        tables.try_reserve_exact(sub_filters).map_err(|_| OutOfMemory)?;
        for slots in (0..sub_filters).filter_map(|number| shape.slots(number)) {
            tables.push(Buffer::zeroed(slots)?);
        }
        Ok(Self { items: 0, deletes: 0, shape, tables: tables.into_boxed_slice() })
    }

    /// A filter of stored slots, oldest sub-filter first.
    ///
    /// # Errors
    ///
    /// Says what is wrong where there are none, or a number of slots is not what
    /// follows from the shape.
    pub fn of_tables(shape: Shape, tables: Vec<Buffer<u8>>) -> Result<Self, &'static str> {
        if tables.is_empty() {
            return Err("no sub-filters");
        }
        let sound =
            |(number, table): (usize, &Buffer<u8>)| shape.slots(number) == Some(table.len());
        if !tables.iter().enumerate().all(sound) {
            return Err("the slots of a sub-filter are not as many as they must be");
        }
        Ok(Self { items: 0, deletes: 0, shape, tables: tables.into_boxed_slice() })
    }

    /// Sets both counters, as the stored forms announce them: nothing but
    /// [`delete`](Self::delete) and what it says there depends on them.
    #[must_use]
    pub fn with_counters(self, items: u64, deletes: u64) -> Self {
        Self { items, deletes, ..self }
    }

    /// A second filter with the same content.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut tables = Vec::new();
        tables.try_reserve_exact(self.tables.len()).map_err(|_| OutOfMemory)?;
        for table in &self.tables {
            tables.push(table.try_clone()?);
        }
        Ok(Self { tables: tables.into_boxed_slice(), ..*self })
    }

    /// Items in the filter, by its counter.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Deletions since the last compaction, by the filter's counter.
    pub fn deletes(&self) -> u64 {
        self.deletes
    }

    /// The fixed numbers.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The slots of each sub-filter, oldest first: at least one, none empty.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator {
        self.tables.iter().map(|table| &**table)
    }

    /// Shows every heap block of the filter.
    pub fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(&mut self.tables);
        self.tables.iter_mut().for_each(|table| visit(table));
    }

    /// The memory of the sub-filters, for loading slots. Their lengths stay.
    pub fn buffers_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Buffer<u8>> {
        self.tables.iter_mut()
    }

    /// Slots of all sub-filters. Without a look at each: the sizes are a geometric
    /// series.
    pub fn slots(&self) -> u64 {
        let size = |table: Option<&Buffer<u8>>| table.map_or(0, |table| table.len() as u64);
        let (first, last) = (size(self.tables.first()), size(self.tables.last()));
        match self.shape.expansion() {
            0 | 1 => first * self.tables.len() as u64,
            factor => last + (last - first) / (u64::from(factor) - 1),
        }
    }

    /// Bytes that the filter holds on the heap, without what the allocator adds.
    pub fn heap_bytes(&self) -> u64 {
        self.slots() + size_of_val(&*self.tables) as u64
    }

    /// Whether `item` may be in the filter. `false` is certain.
    pub fn contains(&self, item: &[u8]) -> bool {
        let mut found = [false];
        self.contains_batch(&[item], &mut found);
        found[0]
    }

    /// As [`contains`](Self::contains) for each item, into the element of `found`
    /// with its index. Both have the same length.
    pub fn contains_batch(&self, items: &[&[u8]], found: &mut [bool]) {
        debug_assert_eq!(items.len(), found.len());
        match self.shape.bucket_size() {
            1 => self.find(items, found, Fixed::<1>),
            2 => self.find(items, found, Fixed::<2>),
            4 => self.find(items, found, Fixed::<4>),
            size => self.find(items, found, Any(size)),
        }
    }

    /// How often `item` may be in the filter: never less than it is.
    pub fn count(&self, item: &[u8]) -> u64 {
        let key = Key::of(item);
        let size = Any(self.shape.bucket_size());
        self.buckets(size).map(|buckets| buckets.count(key) as u64).sum()
    }

    /// Adds one item.
    pub fn insert(&mut self, item: &[u8], which: Insertion, limits: Limits<'_>) -> Outcome {
        let mut outcome = [Outcome::Full];
        self.insert_batch(&[item], which, limits, &mut outcome);
        outcome[0]
    }

    /// Adds the items in order, whatever becomes of those before; the outcome of
    /// each goes into the element of `outcomes` with its index. Both have the same
    /// length.
    pub fn insert_batch(
        &mut self,
        items: &[&[u8]],
        which: Insertion,
        limits: Limits<'_>,
        outcomes: &mut [Outcome],
    ) {
        debug_assert_eq!(items.len(), outcomes.len());
        match self.shape.bucket_size() {
            1 => self.fill(items, which, limits, outcomes, Fixed::<1>),
            2 => self.fill(items, which, limits, outcomes, Fixed::<2>),
            4 => self.fill(items, which, limits, outcomes, Fixed::<4>),
            size => self.fill(items, which, limits, outcomes, Any(size)),
        }
    }

    /// Removes one occurrence of `item`, which must have been added. Whether one was
    /// found.
    ///
    /// When more than a tenth of the remaining items has been deleted since the last
    /// time, a filter of several sub-filters is compacted, as far as it is not too
    /// large for that (see `compaction.rs`).
    pub fn delete(&mut self, item: &[u8]) -> bool {
        let key = Key::of(item);
        let size = Any(self.shape.bucket_size());
        self.prefetch(key, Insertion::Every, size);
        if !self.buckets_mut(size).rev().any(|mut buckets| buckets.take(key)) {
            return false;
        }
        self.items = self.items.saturating_sub(1);
        self.deletes = self.deletes.saturating_add(1);
        // In floating point, as RedisBloom compares them.
        if self.tables.len() > 1 && self.deletes as f64 > self.items as f64 * 0.10 {
            self.compact_after_deletes();
        }
        true
    }

    /// The sub-filters as buckets, oldest first.
    #[inline(always)]
    fn buckets<S: BucketSize>(
        &self,
        size: S,
    ) -> impl DoubleEndedIterator<Item = Buckets<&[u8], S>> {
        self.tables.iter().map(move |table| Buckets::new(&**table, size))
    }

    /// As [`buckets`](Self::buckets), to write into.
    #[inline(always)]
    fn buckets_mut<S: BucketSize>(
        &mut self,
        size: S,
    ) -> impl DoubleEndedIterator<Item = Buckets<&mut [u8], S>> {
        self.tables.iter_mut().map(move |table| Buckets::new(&mut **table, size))
    }

    /// `contains_batch` for buckets of one size.
    fn find<S: BucketSize>(&self, items: &[&[u8]], found: &mut [bool], size: S) {
        let prefetch = |key| self.buckets(size).for_each(|buckets| buckets.prefetch(key));
        if let ([item], [found]) = (items, &mut *found) {
            let key = Key::of(item);
            prefetch(key);
            *found = self.buckets(size).any(|buckets| buckets.hold(key));
            return;
        }
        let ahead = self.ahead();
        let mut keys = Lookahead::default();
        items
            .iter()
            .take(ahead)
            .enumerate()
            .for_each(|(number, item)| prefetch(keys.hash(number, item)));
        for (number, found) in found.iter_mut().enumerate() {
            let key = keys.get(number);
            *found = self.buckets(size).any(|buckets| buckets.hold(key));
            if let Some(item) = items.get(number + ahead) {
                prefetch(keys.hash(number + ahead, item));
            }
        }
    }

    /// `insert_batch` for buckets of one size.
    fn fill<S: BucketSize>(
        &mut self,
        items: &[&[u8]],
        which: Insertion,
        limits: Limits<'_>,
        outcomes: &mut [Outcome],
        size: S,
    ) {
        if let ([item], [outcome]) = (items, &mut *outcomes) {
            let key = Key::of(item);
            self.prefetch(key, which, size);
            *outcome = self.insert_key(key, which, limits, size);
            return;
        }
        let ahead = self.ahead();
        let mut keys = Lookahead::default();
        for (number, item) in items.iter().take(ahead).enumerate() {
            self.prefetch(keys.hash(number, item), which, size);
        }
        for (number, outcome) in outcomes.iter_mut().enumerate() {
            *outcome = self.insert_key(keys.get(number), which, limits, size);
            if let Some(item) = items.get(number + ahead) {
                self.prefetch(keys.hash(number + ahead, item), which, size);
            }
        }
    }

    #[inline(always)]
    fn insert_key<S: BucketSize>(
        &mut self,
        key: Key,
        which: Insertion,
        limits: Limits<'_>,
        size: S,
    ) -> Outcome {
        let outcome = match which {
            Insertion::Absent if self.buckets(size).any(|buckets| buckets.hold(key)) => {
                Outcome::Present
            }
            _ if self.put(key, size) => Outcome::Inserted,
            _ => self.make_room(key, limits, size),
        };
        self.items = self.items.saturating_add(u64::from(outcome == Outcome::Inserted));
        outcome
    }

    /// Asks for the memory that an insertion of `key` is about to use: of the newest
    /// sub-filter, which most likely has room, and of all where the item is looked
    /// for first.
    #[inline(always)]
    fn prefetch<S: BucketSize>(&self, key: Key, which: Insertion, size: S) {
        let sub_filters = match which {
            Insertion::Every => 1,
            Insertion::Absent => self.tables.len(),
        };
        self.buckets(size).rev().take(sub_filters).for_each(|buckets| buckets.prefetch(key));
    }

    /// Items whose memory is asked for before it is used: as many as keep the lines,
    /// two for each item and sub-filter, in the first-level cache.
    fn ahead(&self) -> usize {
        (BATCH / self.tables.len()).max(1)
    }

    /// Puts `key` into a free slot, of the newest sub-filter that has one for it.
    #[inline(always)]
    fn put<S: BucketSize>(&mut self, key: Key, size: S) -> bool {
        self.buckets_mut(size).rev().any(|mut buckets| buckets.put(key))
    }

    /// Inserts `key`, for which there is no free slot: by evictions from the newest
    /// sub-filter, or else into another one.
    #[cold]
    fn make_room<S: BucketSize>(&mut self, key: Key, limits: Limits<'_>, size: S) -> Outcome {
        let max_iterations = self.shape.max_iterations();
        // Where no slot at all is free, evictions are in vain.
        let some_free = self.items < self.slots();
        let Some(mut newest) = self.buckets_mut(size).next_back() else { return Outcome::Full };
        let copies = newest.hold_nothing_but(key);
        if !copies && some_free && newest.evict(key, max_iterations) {
            return Outcome::Inserted;
        }
        match self.grow(copies, limits) {
            Ok(()) if self.put(key, size) => Outcome::Inserted,
            Ok(()) => Outcome::Full,
            Err(outcome) => outcome,
        }
    }

    /// Adds an empty sub-filter, for an item of which there are `copies` everywhere
    /// or not.
    fn grow(&mut self, copies: bool, limits: Limits<'_>) -> Result<(), Outcome> {
        let count = self.tables.len();
        let at_limit = count >= limits.sub_filters;
        if self.shape.expansion() == 0 || at_limit && !(limits.lifted)() {
            return Err(Outcome::Full);
        }
        let more = self.shape.slots(count).ok_or(Outcome::NoMemory)?;
        if copies && !self.copies_may_add(more as u64) && !(limits.lifted)() {
            return Err(Outcome::TooManyCopies);
        }
        self.add_table(more, limits.quota).map_err(|OutOfMemory| Outcome::NoMemory)
    }

    /// The rule of [`Outcome::TooManyCopies`].
    fn copies_may_add(&self, more: u64) -> bool {
        let slots = self.slots();
        let first = self.tables.first().map_or(0, |table| table.len() as u64);
        slots.saturating_add(more) <= FREE_COPIES_SIZE.max(first.saturating_mul(4))
            || self.items >= slots / 16
    }

    fn add_table(&mut self, slots: usize, quota: Quota<'_>) -> Result<(), OutOfMemory> {
        quota.ask(self.heap_bytes(), (slots + size_of::<Buffer<u8>>()) as u64)?;
        let table = Buffer::zeroed(slots)?;
        let mut tables = std::mem::take(&mut self.tables).into_vec();
        let room = tables.try_reserve_exact(1).map_err(|_| OutOfMemory);
        if room.is_ok() {
            tables.push(table);
        }
        self.tables = tables.into_boxed_slice();
        room
    }
}

/// The keys of items whose turn is still to come, at most [`BATCH`] of them.
#[derive(Default)]
struct Lookahead([Key; BATCH]);

impl Lookahead {
    /// Makes and keeps the key of the item with this number.
    #[inline(always)]
    fn hash(&mut self, number: usize, item: &[u8]) -> Key {
        self.0[number % BATCH] = Key::of(item);
        self.get(number)
    }

    /// The key of the item with this number, if it is one of the last [`BATCH`].
    #[inline(always)]
    fn get(&self, number: usize) -> Key {
        self.0[number % BATCH]
    }
}

#[cfg(test)]
mod tests;
