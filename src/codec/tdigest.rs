//! t-digest in RDB files and DUMP payloads: `TDIS-TYPE`, encoding version 0.
//!
//! Fields: compression, minimum, maximum, capacity, merged and unmerged nodes,
//! compressions, merged and unmerged weight, the means and then the weights of the
//! merged nodes. The format has no place for the buffer, so RedisBloom merges it
//! when it saves, and a replica that was fed from the file goes other ways than its
//! primary. [`Form::Exact`] keeps the buffer in a way that RedisBloom reads as a
//! sound digest.
//!
//! To merge or to sort takes memory. Where there is none, the plain form is written,
//! which takes none at all. It is an empty digest of compression 1 and unmerged weight
//! 0.5, and behind it:
//!
//! ```text
//! double    compression
//! double    minimum
//! double    maximum
//! unsigned  merged nodes
//! unsigned  buffered nodes
//! unsigned  compressions
//! per node  double    mean
//!           unsigned  weight
//! ```
//!
//! RedisBloom reads the empty digest, and the server refuses a value with more fields
//! than were read.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use super::{LoadError, Sink, Source, require};
use crate::structures::buffer::{Buffer, OutOfMemory};
use crate::structures::tdigest::{Centroid, MAX_WEIGHT, Parts, TDigest, capacity};

/// The encoding version written, and the only one there is.
pub const VERSION: i32 = 0;

/// The unmerged weight of an exact form is the number of buffered nodes divided by
/// this: below 1, so 0 for RedisBloom, which truncates it.
const BUFFER_UNIT: f64 = (1_u64 << 32) as f64;

/// The unmerged weight that tells the plain form: of 2^31 nodes in a digest of none.
const PLAIN: f64 = 0.5;
/// The capacity of compression 1.
const PLAIN_CAPACITY: u64 = 16;

/// From here on not every integer is a double.
const EXACT_DOUBLES: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// How to save a digest whose buffer is not empty, where there is memory for it. Both
/// forms load into a digest that gives the same answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As RedisBloom saves: the buffer merged into the centroids.
    Compressed,
    /// What loads is equal to what was saved, and stays equal however both go on.
    ///
    /// Buffered nodes are written among the merged ones, in order of their means,
    /// uncompressed. A fraction in their weight, which RedisBloom truncates, tells
    /// them and their place in the buffer. Where the weights leave no bits for it
    /// (2^43 and more at compression 100), [`Compressed`](Self::Compressed) is
    /// written.
    Exact,
}

/// Writes `digest`: in the form asked for, or in the plain one where there is no
/// memory for that. All load into a digest that gives the same answers.
pub fn save(digest: &TDigest, form: Form, sink: &mut impl Sink) {
    if save_as_redisbloom(digest, form, sink).is_err() {
        save_plain(digest, sink);
    }
}

/// An error comes before the first field.
fn save_as_redisbloom(
    digest: &TDigest,
    form: Form,
    sink: &mut impl Sink,
) -> Result<(), OutOfMemory> {
    let (merged, buffer) = (digest.merged(), digest.unmerged());
    let pair = |node: &Centroid| (node.mean, node.weight as f64);
    let compressions = digest.compressions();
    if buffer.is_empty() {
        save_fields(digest, compressions, 0.0, merged.iter().map(pair), sink);
    } else if form == Form::Exact && can_mark(buffer) {
        let nodes = marked_nodes(digest)?;
        let nodes = nodes.iter().map(|node| (node.mean, node.weight));
        save_fields(digest, compressions, buffer.len() as f64 / BUFFER_UNIT, nodes, sink);
    } else {
        let (centroids, len) = digest.compressed()?;
        let nodes = centroids[..len].iter().map(pair);
        save_fields(digest, compressions.saturating_add(1), 0.0, nodes, sink);
    }
    Ok(())
}

/// Writes `digest` in the plain form, without any allocation. What loads is equal to
/// what was saved.
pub fn save_plain(digest: &TDigest, sink: &mut impl Sink) {
    let first = [1.0, f64::MAX, -f64::MAX];
    first.into_iter().for_each(|number| sink.double(number));
    sink.unsigned(PLAIN_CAPACITY);
    (0..3).for_each(|_| sink.unsigned(0));
    sink.double(0.0);
    sink.double(PLAIN);

    let (min, max) = bounds(digest);
    sink.double(digest.compression());
    sink.double(min);
    sink.double(max);
    sink.unsigned(digest.merged().len() as u64);
    sink.unsigned(digest.unmerged().len() as u64);
    sink.unsigned(digest.compressions());
    for node in digest.merged().iter().chain(digest.unmerged()) {
        sink.double(node.mean);
        sink.unsigned(node.weight);
    }
}

/// Minimum and maximum. An empty digest is saved with the bounds that every value
/// lies beyond.
fn bounds(digest: &TDigest) -> (f64, f64) {
    (digest.min().unwrap_or(f64::MAX), digest.max().unwrap_or(-f64::MAX))
}

fn save_fields(
    digest: &TDigest,
    compressions: u64,
    unmerged_weight: f64,
    nodes: impl ExactSizeIterator<Item = (f64, f64)> + Clone,
    sink: &mut impl Sink,
) {
    let (min, max) = bounds(digest);
    sink.double(digest.compression());
    sink.double(min);
    sink.double(max);
    sink.unsigned(digest.capacity() as u64);
    sink.unsigned(nodes.len() as u64);
    sink.unsigned(0);
    sink.unsigned(compressions);
    sink.double(digest.observations() as f64);
    sink.double(unmerged_weight);
    for (mean, _) in nodes.clone() {
        sink.double(mean);
    }
    for (_, weight) in nodes {
        sink.double(weight);
    }
}

/// Values of the fraction that marks a place in a buffer of `len`: place `i` is
/// `(i + 1) / marks(len)`, so that no place is 0.
fn marks(len: usize) -> f64 {
    (len + 1).next_power_of_two() as f64
}

/// Whether the weights of this buffer have bits left for the marks.
fn can_mark(buffer: &[Centroid]) -> bool {
    let limit = EXACT_DOUBLES / marks(buffer.len());
    buffer.iter().all(|node| (node.weight as f64) < limit)
}

/// A node as written.
struct Node {
    mean: f64,
    weight: f64,
    /// Among all nodes, those of the buffer last.
    place: usize,
}

/// All nodes in order of their means, equal ones in the order of the digest.
fn marked_nodes(digest: &TDigest) -> Result<Vec<Node>, OutOfMemory> {
    let (merged, buffer) = (digest.merged(), digest.unmerged());
    let mut nodes = Vec::new();
    nodes.try_reserve_exact(merged.len() + buffer.len()).map_err(|_| OutOfMemory)?;
    nodes.extend(merged.iter().enumerate().map(|(place, node)| Node {
        mean: node.mean,
        weight: node.weight as f64,
        place,
    }));
    let marks = marks(buffer.len());
    nodes.extend(buffer.iter().enumerate().map(|(i, node)| Node {
        mean: node.mean,
        weight: node.weight as f64 + (i + 1) as f64 / marks,
        place: merged.len() + i,
    }));
    nodes.sort_unstable_by(|a, b| {
        // Means are finite.
        let means = a.mean.partial_cmp(&b.mean).unwrap_or(Ordering::Equal);
        means.then(a.place.cmp(&b.place))
    });
    Ok(nodes)
}

/// Reads a digest that was written with encoding version `version`.
///
/// # Errors
///
/// [`LoadError`] where the data end early, are of a later version, or do not
/// describe a digest.
pub fn load(source: &mut impl Source, version: i32) -> Result<TDigest, LoadError> {
    if version != VERSION {
        return Err(LoadError::UnknownVersion(version));
    }
    let Some(header) = Header::load(source)? else { return load_plain(source) };
    let means = load_means(source, &header)?;
    let centroids = load_weights(source, &header, &means)?;
    header.digest(centroids)
}

/// Reads the plain form behind the empty digest.
fn load_plain(source: &mut impl Source) -> Result<TDigest, LoadError> {
    let (compression, capacity) = load_compression(source)?;
    let (min, max) = (source.double()?, source.double()?);
    require(min.is_finite() && max.is_finite(), "minimum or maximum is not a number")?;
    let (merged, buffered) = (source.unsigned()?, source.unsigned()?);
    let used = merged.checked_add(buffered).filter(|used| *used <= capacity);
    let used = used.ok_or(LoadError::Inconsistent("more nodes than the capacity"))? as usize;
    let merged = merged as usize;
    let compressions = load_compressions(source)?;
    // Grows with what is there, not with what the header claims.
    let mut nodes = Vec::new();
    let (mut least, mut total) = (min, 0_u64);
    for place in 0..used {
        let (mean, weight) = (source.double()?, source.unsigned()?);
        require(least <= mean && mean <= max, "means are not in order")?;
        // Those of the buffer are in no order.
        least = if place + 1 < merged { mean } else { min };
        require(weight > 0, "weight of a node")?;
        let sum = total.checked_add(weight).filter(|sum| *sum <= MAX_WEIGHT);
        total = sum.ok_or(LoadError::Inconsistent("sum of weights"))?;
        nodes.try_reserve(1).map_err(|_| LoadError::OutOfMemory)?;
        nodes.push(Centroid { mean, weight });
    }
    let (min, max) = if used > 0 { (min, max) } else { (f64::MAX, -f64::MAX) };
    let centroids = Buffer::copy_of(&nodes)?;
    Ok(TDigest::from_parts(Parts { compression, centroids, merged, used, compressions, min, max }))
}

/// The compression and the capacity that it demands.
fn load_compression(source: &mut impl Source) -> Result<(f64, u64), LoadError> {
    let compression = source.double()?;
    let capacity = capacity(compression).ok_or(LoadError::Inconsistent("compression"))?;
    Ok((compression, capacity as u64))
}

fn load_compressions(source: &mut impl Source) -> Result<u64, LoadError> {
    let compressions = source.unsigned()?;
    require(i64::try_from(compressions).is_ok(), "negative number of compressions")?;
    Ok(compressions)
}

/// The fields before the nodes.
struct Header {
    compression: f64,
    min: f64,
    max: f64,
    nodes: usize,
    /// How many of the nodes are of the buffer.
    buffered: usize,
    /// The one observation of a digest saved by RedisBloom before July 2026, which
    /// did not write it as a node: it is the minimum, and the maximum.
    lone: bool,
    compressions: u64,
    weight: f64,
}

impl Header {
    /// `None` for what begins the plain form.
    fn load(source: &mut impl Source) -> Result<Option<Self>, LoadError> {
        let (compression, capacity) = load_compression(source)?;
        let (min, max) = (source.double()?, source.double()?);
        require(min.is_finite() && max.is_finite(), "minimum or maximum is not a number")?;
        require(source.unsigned()? == capacity, "capacity")?;
        let nodes = source.unsigned()?;
        require(nodes <= capacity, "more nodes than the capacity")?;
        let nodes = nodes as usize;
        let lone = match source.unsigned()? {
            0 => false,
            unmerged => {
                require(unmerged == 1 && nodes == 0 && min == max, "unmerged nodes")?;
                true
            }
        };
        let compressions = load_compressions(source)?;
        let (weight, unmerged_weight) = (source.double()?, source.double()?);
        require(weight.is_finite(), "merged weight")?;
        if nodes == 0 && !lone && unmerged_weight == PLAIN {
            return Ok(None);
        }
        let buffered = if lone {
            require(weight == 0.0 && unmerged_weight == 1.0, "weight of a lone observation")?;
            0
        } else {
            let buffered = unmerged_weight * BUFFER_UNIT;
            let whole = (0.0..=nodes as f64).contains(&buffered) && buffered.fract() == 0.0;
            require(whole, "unmerged weight")?;
            buffered as usize
        };
        Ok(Some(Self { compression, min, max, nodes, buffered, lone, compressions, weight }))
    }

    fn merged(&self) -> usize {
        self.nodes - self.buffered
    }

    /// The digest with these centroids, the merged ones first.
    fn digest(self, mut centroids: Buffer<Centroid>) -> Result<TDigest, LoadError> {
        let (merged, mut used) = (self.merged(), self.nodes);
        if self.lone {
            centroids = Buffer::copy_of(&[Centroid { mean: self.min, weight: 1 }])?;
            used = 1;
        }
        let (min, max) = if used > 0 { (self.min, self.max) } else { (f64::MAX, -f64::MAX) };
        let Self { compression, compressions, .. } = self;
        Ok(TDigest::from_parts(Parts {
            compression,
            centroids,
            merged,
            used,
            compressions,
            min,
            max,
        }))
    }
}

/// A mean that lies between the one before it and the maximum, `low` and `high`, but for
/// rounding: RedisBloom's weighted means go beyond those of their neighbours now and
/// then, and a snapshot with such a digest must load.
fn settled(mean: f64, low: f64, high: f64) -> f64 {
    const ROUNDING: f64 = 1e-12;
    let near = |other: f64| (mean - other).abs() <= ROUNDING * mean.abs().max(other.abs());
    if !mean.is_finite() {
        mean
    } else if mean < low && near(low) {
        low
    } else if mean > high && near(high) {
        high
    } else {
        mean
    }
}

fn load_means(source: &mut impl Source, header: &Header) -> Result<Vec<f64>, LoadError> {
    // Grows with what is there, not with what the header claims.
    let mut means = Vec::new();
    let mut last = header.min;
    for _ in 0..header.nodes {
        let mean = settled(source.double()?, last, header.max);
        require(last <= mean && mean <= header.max, "means are not in order")?;
        last = mean;
        means.try_reserve(1).map_err(|_| LoadError::OutOfMemory)?;
        means.push(mean);
    }
    Ok(means)
}

/// Reads the weights of the nodes with these means. Returns the nodes in their
/// places, those of the buffer last.
fn load_weights(
    source: &mut impl Source,
    header: &Header,
    means: &[f64],
) -> Result<Buffer<Centroid>, LoadError> {
    let mut centroids = Buffer::<Centroid>::zeroed(means.len())?;
    let merged = header.merged();
    let marks = marks(header.buffered);
    let mut places_of_merged = 0..merged;
    let mut total = 0_u128;
    for mean in means {
        let field = source.double()?;
        require((1.0..=MAX_WEIGHT as f64).contains(&field), "weight of a node")?;
        let weight = (field as u64).min(MAX_WEIGHT);
        let mark = field.fract() * marks;
        require(mark.fract() == 0.0, "fraction of a weight")?;
        let place = match mark as usize {
            0 => places_of_merged.next(),
            mark => Some(merged + mark - 1),
        };
        let free = place.and_then(|place| centroids.get_mut(place)).filter(|node| node.weight == 0);
        let node = free.ok_or(LoadError::Inconsistent("place in the buffer"))?;
        *node = Centroid { mean: *mean, weight };
        total += u128::from(weight);
    }
    let total = limit_sum(&mut centroids, total)?;
    // RedisBloom rounds the sum each time it compresses, the weights once.
    let slack = if header.weight < EXACT_DOUBLES { 0.0 } else { header.weight * 1e-6 };
    require((header.weight - total as f64).abs() <= slack, "sum of weights")?;
    Ok(centroids)
}

/// Brings the sum of all weights down to what there may be, where it is more because
/// the weights were rounded to doubles; returns it. Else a digest of nearly
/// [`MAX_WEIGHT`] could be saved and not be loaded.
fn limit_sum(centroids: &mut [Centroid], total: u128) -> Result<u64, LoadError> {
    /// Of a weight of 62 bits.
    const LARGEST_ROUNDING: u128 = 512;
    let excess = total.saturating_sub(MAX_WEIGHT.into());
    let rounding = LARGEST_ROUNDING * centroids.len() as u128;
    require(excess <= rounding, "sum of weights")?;
    if excess > 0 {
        let heaviest = centroids.iter_mut().max_by_key(|centroid| centroid.weight);
        let heaviest = heaviest.filter(|centroid| u128::from(centroid.weight) > excess);
        heaviest.ok_or(LoadError::Inconsistent("sum of weights"))?.weight -= excess as u64;
    }
    Ok(total.min(MAX_WEIGHT.into()) as u64)
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
