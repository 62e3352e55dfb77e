//! t-digest: the distribution of a stream of numbers in few centroids, fine at both
//! ends and coarse in the middle.
//!
//! Dunning, Ertl, "Computing extremely accurate quantiles using t-digests" (2019),
//! the merging variant, with the arithmetic of RedisBloom so that answers agree to
//! the last bit. New observations are appended to a buffer; where it is full they
//! are merged into the centroids.
//!
//! Reading changes nothing: questions are answered from a [`View`] in which the
//! buffer is merged, made when it is first asked for and kept until the digest
//! changes. RedisBloom merges in place, so that its digests depend on who has read
//! them.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::OnceLock;

use super::buffer::{Buffer, OutOfMemory};
use super::quota::Quota;

mod compress;
mod query;
mod sort;

pub use super::buffer::Centroid;
pub use query::View;

use compress::double;

/// The largest compression: with a larger one the capacity is beyond 2^31 - 1,
/// RedisBloom's type for it.
pub const MAX_COMPRESSION: u64 = 357_913_939;

/// The compression of `TDIGEST.CREATE` without one.
pub const DEFAULT_COMPRESSION: u64 = 100;

/// The largest total weight (RedisBloom counts in signed integers).
pub const MAX_WEIGHT: u64 = i64::MAX as u64;

/// Centroids that the first observation makes room for.
const FIRST_ROOM: usize = 8;

/// Why a digest could not be made or changed. It is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The compression is 0 or above [`MAX_COMPRESSION`].
    Compression,
    /// A value is infinite or not a number.
    NotFinite,
    /// The total weight would exceed [`MAX_WEIGHT`].
    Overflow,
    /// No memory, or none allowed.
    OutOfMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compression => "compression out of range",
            Self::NotFinite => "value is not a finite number",
            Self::Overflow => "total weight overflow",
            Self::OutOfMemory => "insufficient memory",
        })
    }
}

impl std::error::Error for Error {}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// A t-digest.
///
/// Equality is that of what is stored: views do not count.
pub struct TDigest {
    compression: f64,
    /// `merged` centroids in ascending order, then the buffered ones as they came,
    /// up to `used`; beyond that there is room. Grows up to the capacity.
    centroids: Buffer<Centroid>,
    merged: usize,
    used: usize,
    merged_weight: u64,
    unmerged_weight: u64,
    /// How often the buffer was merged into the centroids.
    compressions: u64,
    min: f64,
    max: f64,
    /// The arrays of the last view, until the next change.
    view: OnceLock<query::Arrays>,
}

/// The stored state of a digest, as the codec reads and writes it.
///
/// Whoever makes a digest of it vouches for its consistency.
pub(crate) struct Parts {
    pub(crate) compression: f64,
    /// See the fields of [`TDigest`].
    pub(crate) centroids: Buffer<Centroid>,
    pub(crate) merged: usize,
    pub(crate) used: usize,
    pub(crate) compressions: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Centroids that a digest of this compression holds at most, buffered ones
/// included: RedisBloom's 6c + 10. `None` for what is no compression.
pub(crate) fn capacity(compression: f64) -> Option<usize> {
    let whole = compression.floor();
    let valid = whole >= 1.0 && whole <= MAX_COMPRESSION as f64;
    valid.then(|| 6 * whole as usize + 10)
}

impl TDigest {
    /// An empty digest.
    ///
    /// `compression` trades accuracy for memory: a digest has about `compression`
    /// / 2 centroids and a buffer of 6 times `compression`. Memory is allocated as
    /// observations come, but `quota` is asked for all of it here.
    ///
    /// # Errors
    ///
    /// [`Error::Compression`] outside 1 to [`MAX_COMPRESSION`],
    /// [`Error::OutOfMemory`].
    pub fn new(compression: u64, quota: Quota<'_>) -> Result<Self, Error> {
        if compression == 0 || compression > MAX_COMPRESSION {
            return Err(Error::Compression);
        }
        Self::empty(compression as f64, quota)
    }

    /// An empty digest of a `compression` that may have a fraction.
    fn empty(compression: f64, quota: Quota<'_>) -> Result<Self, Error> {
        let capacity = capacity(compression).ok_or(Error::Compression)?;
        quota.ask(0, (size_of::<Self>() + capacity * size_of::<Centroid>()) as u64)?;
        Ok(Self::from_parts(Parts {
            compression,
            centroids: Buffer::empty(),
            merged: 0,
            used: 0,
            compressions: 0,
            min: f64::MAX,
            max: -f64::MAX,
        }))
    }

    /// A digest with this state.
    pub(crate) fn from_parts(parts: Parts) -> Self {
        let Parts { compression, centroids, merged, used, compressions, min, max } = parts;
        let weight = |of: &[Centroid]| of.iter().map(|centroid| centroid.weight).sum();
        Self {
            compression,
            merged_weight: weight(&centroids[..merged]),
            unmerged_weight: weight(&centroids[merged..used]),
            centroids,
            merged,
            used,
            compressions,
            min,
            max,
            view: OnceLock::new(),
        }
    }

    /// A new digest of all observations of `destination`, if given, and `sources`,
    /// in this order; a digest may be named more than once.
    ///
    /// Its compression is the one given, else that of `destination`, else the
    /// largest among `sources`.
    ///
    /// # Errors
    ///
    /// [`Error::Compression`] as [`new`](Self::new), or where there is none to
    /// take; [`Error::Overflow`]; [`Error::OutOfMemory`].
    pub fn merge(
        destination: Option<&Self>,
        sources: &[&Self],
        compression: Option<u64>,
        quota: Quota<'_>,
    ) -> Result<Self, Error> {
        let largest = || sources.iter().map(|source| source.compression).reduce(f64::max);
        let compression = compression
            .map(|given| given as f64)
            .or(destination.map(|digest| digest.compression))
            .or_else(largest)
            .ok_or(Error::Compression)?;
        let mut result = Self::empty(compression, quota)?;
        for source in destination.iter().chain(sources) {
            result.add_digest(source, quota)?;
        }
        Ok(result)
    }

    fn add_digest(&mut self, source: &Self, quota: Quota<'_>) -> Result<(), Error> {
        self.compress();
        self.check_weight(source.observations())?;
        let (centroids, len) = source.compressed()?;
        self.make_room(len, quota)?;
        self.append(centroids[..len].iter().copied());
        Ok(())
    }

    /// Adds observations: all, or on an error none.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`], [`Error::Overflow`], [`Error::OutOfMemory`].
    pub fn add_all(&mut self, values: &[f64], quota: Quota<'_>) -> Result<(), Error> {
        if !values.iter().all(|value| value.is_finite()) {
            return Err(Error::NotFinite);
        }
        self.check_weight(values.len() as u64)?;
        self.make_room(values.len(), quota)?;
        self.append(values.iter().map(|value| Centroid { mean: *value, weight: 1 }));
        Ok(())
    }

    /// Forgets all observations. The compression stays.
    pub fn reset(&mut self) {
        *self = Self::from_parts(Parts {
            compression: self.compression,
            centroids: Buffer::empty(),
            merged: 0,
            used: 0,
            compressions: 0,
            min: f64::MAX,
            max: -f64::MAX,
        });
    }

    /// The digest with its buffer merged, to ask questions. The first one after a
    /// change takes time in proportion to the observations in the buffer.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn view(&self) -> Result<View<'_>, OutOfMemory> {
        let arrays = match self.view.get() {
            Some(arrays) => arrays,
            None => {
                let arrays = self.view_arrays()?;
                self.view.get_or_init(|| arrays)
            }
        };
        Ok(View::new(arrays, self.min, self.max, self.observations()))
    }

    fn view_arrays(&self) -> Result<query::Arrays, OutOfMemory> {
        if self.merged == self.used {
            return query::Arrays::of(&self.centroids[..self.used]);
        }
        let (centroids, len) = self.compressed()?;
        query::Arrays::of(&centroids[..len])
    }

    /// What compressing leaves, in a copy: as many centroids of it as the second
    /// number says.
    pub(crate) fn compressed(&self) -> Result<(Buffer<Centroid>, usize), OutOfMemory> {
        let mut copy = Buffer::copy_of(&self.centroids[..self.used])?;
        let len = if self.merged == self.used { self.used } else { self.compress_into(&mut copy) };
        Ok((copy, len))
    }

    /// Compresses `centroids`, which are those of this digest.
    fn compress_into(&self, centroids: &mut [Centroid]) -> usize {
        let single = self.unmerged_weight == (self.used - self.merged) as u64;
        let total = double(self.merged_weight) + double(self.unmerged_weight);
        let mut len = compress::compress(centroids, self.merged, single, self.compression, total);
        while len >= self.capacity() - 1 {
            len = compress::halve(&mut centroids[..len]);
        }
        len
    }

    /// Merges the buffer, if there is one, into the centroids.
    pub(crate) fn compress(&mut self) {
        if self.merged < self.used {
            self.merge_buffer();
        }
    }

    fn merge_buffer(&mut self) {
        self.view.take();
        let mut centroids = std::mem::replace(&mut self.centroids, Buffer::empty());
        self.merged = self.compress_into(&mut centroids[..self.used]);
        self.centroids = centroids;
        self.used = self.merged;
        // The exact sum; RedisBloom rounds it to a double, which loses
        // observations above 2^53.
        self.merged_weight += std::mem::take(&mut self.unmerged_weight);
        self.compressions = self.compressions.saturating_add(1);
    }

    fn check_weight(&self, more: u64) -> Result<(), Error> {
        let total = self.observations().checked_add(more);
        if total.is_some_and(|total| total <= MAX_WEIGHT) { Ok(()) } else { Err(Error::Overflow) }
    }

    /// Appends to the buffer, for which there must be room, and weight to spare.
    fn append(&mut self, mut centroids: impl ExactSizeIterator<Item = Centroid>) {
        self.view.take();
        // RedisBloom leaves the last place of the capacity free.
        let full = self.capacity() - 1;
        while centroids.len() > 0 {
            if self.used >= full {
                // Also without a buffer: a loaded digest may be full of centroids.
                self.merge_buffer();
            }
            let free = full - self.used;
            for (place, centroid) in
                self.centroids[self.used..].iter_mut().zip(centroids.by_ref().take(free))
            {
                *place = centroid;
                self.used += 1;
                self.unmerged_weight += centroid.weight;
                if centroid.mean < self.min {
                    self.min = centroid.mean;
                }
                if centroid.mean > self.max {
                    self.max = centroid.mean;
                }
            }
        }
    }

    /// Makes room for `more` centroids, as far as the capacity goes.
    fn make_room(&mut self, more: usize, quota: Quota<'_>) -> Result<(), OutOfMemory> {
        let capacity = self.capacity();
        let needed = self.used.saturating_add(more).min(capacity);
        grow(&mut self.centroids, self.used, needed, capacity, quota)
    }

    /// A second digest in the same state.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self {
            centroids: Buffer::copy_of(&self.centroids[..self.used])?,
            view: OnceLock::new(),
            ..*self
        })
    }
}

/// Makes room in `centroids`, of which `used` are in use, for `needed` of at most
/// `limit`, by doubling.
fn grow(
    centroids: &mut Buffer<Centroid>,
    used: usize,
    needed: usize,
    limit: usize,
    quota: Quota<'_>,
) -> Result<(), OutOfMemory> {
    if needed <= centroids.len() {
        return Ok(());
    }
    let len = needed.max(2 * centroids.len()).max(FIRST_ROOM).min(limit);
    let more = (len - centroids.len()) * size_of::<Centroid>();
    quota.ask((size_of::<TDigest>() + centroids.size()) as u64, more as u64)?;
    let mut larger = Buffer::zeroed(len)?;
    larger[..used].copy_from_slice(&centroids[..used]);
    *centroids = larger;
    Ok(())
}

/// What a digest is and holds.
impl TDigest {
    /// The compression asked for. One loaded from a foreign file may have a
    /// fraction.
    pub fn compression(&self) -> f64 {
        self.compression
    }

    /// Centroids that it holds at most, buffered ones included.
    #[inline]
    pub fn capacity(&self) -> usize {
        // As `capacity`, whose range was checked when the digest was made.
        6 * self.compression as usize + 10
    }

    /// Observations, by weight.
    #[inline]
    pub fn observations(&self) -> u64 {
        self.merged_weight + self.unmerged_weight
    }

    /// Observations that are merged into centroids.
    pub fn merged_weight(&self) -> u64 {
        self.merged_weight
    }

    /// Observations in the buffer.
    pub fn unmerged_weight(&self) -> u64 {
        self.unmerged_weight
    }

    /// The centroids, in ascending order of their means.
    pub fn merged(&self) -> &[Centroid] {
        &self.centroids[..self.merged]
    }

    /// The buffer, in the order of arrival.
    pub fn unmerged(&self) -> &[Centroid] {
        &self.centroids[self.merged..self.used]
    }

    /// How often the buffer was merged into the centroids.
    pub fn compressions(&self) -> u64 {
        self.compressions
    }

    /// The smallest observation; `None` without any.
    pub fn min(&self) -> Option<f64> {
        (self.used > 0).then_some(self.min)
    }

    /// The largest observation; `None` without any.
    pub fn max(&self) -> Option<f64> {
        (self.used > 0).then_some(self.max)
    }

    /// Bytes that RedisBloom takes for a digest of this compression, from creation
    /// on: the "Memory usage" of `TDIGEST.INFO`. This one takes
    /// [`heap_bytes`](Self::heap_bytes).
    pub fn nominal_bytes(&self) -> u64 {
        80 + 16 * self.capacity() as u64
    }

    /// Bytes allocated, the last view included, without the struct itself.
    pub fn heap_bytes(&self) -> usize {
        self.stored_bytes() + self.view.get().map_or(0, query::Arrays::size)
    }

    /// Bytes allocated for what is stored: changes make and free them, reading
    /// never does.
    pub fn stored_bytes(&self) -> usize {
        self.centroids.size()
    }

    /// The stored memory, to move it. Drops the last view, which would be a second
    /// block.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut Buffer<Centroid>> {
        self.view.take();
        std::iter::once(&mut self.centroids)
    }
}

impl PartialEq for TDigest {
    fn eq(&self, other: &Self) -> bool {
        let state = |of: &Self| {
            (
                of.compression,
                of.merged,
                of.used,
                of.compressions,
                of.min.to_bits(),
                of.max.to_bits(),
            )
        };
        let bits = |of: &Centroid| (of.mean.to_bits(), of.weight);
        let (ours, theirs) = (&self.centroids[..self.used], &other.centroids[..other.used]);
        state(self) == state(other) && ours.iter().map(bits).eq(theirs.iter().map(bits))
    }
}

impl fmt::Debug for TDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TDigest")
            .field("compression", &self.compression)
            .field("compressions", &self.compressions)
            .field("min", &self.min)
            .field("max", &self.max)
            .field("merged", &self.merged())
            .field("unmerged", &self.unmerged())
            .finish()
    }
}

#[cfg(test)]
mod tests;
