//! Questions to a digest whose buffer is merged: quantiles, ranks, trimmed means.
//!
//! The formulae and their order of operations are RedisBloom's (spec of the
//! family, sections 7 to 11), so that answers agree to the last bit. They differ
//! where RedisBloom's have no finite value: no answer from a digest with
//! observations is NaN.

#![forbid(unsafe_code)]

use super::compress::double;
use super::{Buffer, Centroid, OutOfMemory};

/// Centroids in ascending order, as the formulae need them.
pub(super) struct Arrays {
    /// All means, all weights, and per centroid the weight of those before it.
    values: Buffer<f64>,
}

impl Arrays {
    /// Of `centroids`, which must be in order.
    pub(super) fn of(centroids: &[Centroid]) -> Result<Self, OutOfMemory> {
        let len = centroids.len();
        let mut values = Buffer::zeroed(3 * len)?;
        let mut before = 0.0;
        for (i, centroid) in centroids.iter().enumerate() {
            let weight = double(centroid.weight);
            values[i] = centroid.mean;
            values[len + i] = weight;
            values[2 * len + i] = before;
            before += weight;
        }
        Ok(Self { values })
    }

    /// Bytes allocated.
    pub(super) fn size(&self) -> usize {
        self.values.size()
    }
}

/// A digest with its buffer merged, to ask questions.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    means: &'a [f64],
    weights: &'a [f64],
    /// Per centroid the weight of those before it.
    before: &'a [f64],
    min: f64,
    max: f64,
    observations: u64,
    /// `observations` as a number.
    total: f64,
}

impl<'a> View<'a> {
    pub(super) fn new(arrays: &'a Arrays, min: f64, max: f64, observations: u64) -> Self {
        let len = arrays.values.len() / 3;
        let (means, rest) = arrays.values.split_at(len);
        let (weights, before) = rest.split_at(len);
        Self { means, weights, before, min, max, observations, total: double(observations) }
    }

    /// Number of centroids.
    pub fn len(&self) -> usize {
        self.means.len()
    }

    /// Whether there is no observation.
    pub fn is_empty(&self) -> bool {
        self.means.is_empty()
    }

    /// The value below which a share `q` of the observations lies, 0 <= `q` <= 1.
    /// NaN without observations.
    pub fn quantile(&self, q: f64) -> f64 {
        match self.means {
            [] => f64::NAN,
            [only] => *only,
            _ => self.value_at(q * self.total),
        }
    }

    /// The share of observations below `value`, where those equal to it count
    /// half. NaN without observations or for NaN.
    pub fn cdf(&self, value: f64) -> f64 {
        let (&[first, ..], &[.., last]) = (self.means, self.means) else {
            return f64::NAN;
        };
        if value.is_nan() {
            return f64::NAN;
        }
        if value < self.min {
            return 0.0;
        }
        if value > self.max {
            return 1.0;
        }
        if self.means.len() == 1 {
            // As many observations above it as below, for all that is known.
            return 0.5;
        }
        let share = if value < first {
            self.cdf_before_first(value)
        } else if value > last {
            self.cdf_after_last(value)
        } else {
            self.cdf_within(value)
        };
        // With weights of different magnitudes rounding goes beyond 1.
        share.clamp(0.0, 1.0)
    }

    /// How many observations are below `value`: -1 where it is smaller than all,
    /// the number of observations where it is larger than all. `None` without
    /// observations.
    pub fn rank(&self, value: f64) -> Option<i64> {
        if self.is_empty() {
            return None;
        }
        if value < self.min {
            return Some(-1);
        }
        if value > self.max {
            return Some(self.observations.cast_signed());
        }
        let rank = self.cdf(value) * self.total;
        let whole = rank.floor();
        // Halves go down.
        Some((if rank - whole > 0.5 { whole + 1.0 } else { whole }) as i64)
    }

    /// How many observations are above `value`: -1 where it is larger than all,
    /// the number of observations where it is smaller than all. `None` without
    /// observations.
    pub fn reverse_rank(&self, value: f64) -> Option<i64> {
        if self.is_empty() {
            return None;
        }
        if value < self.min {
            return Some(self.observations.cast_signed());
        }
        if value > self.max {
            return Some(-1);
        }
        let rank = (self.cdf(value) * self.total).round();
        Some((self.total - rank).round() as i64)
    }

    /// The value with `rank` observations below it: infinite where there are not
    /// more than `rank`, NaN without observations.
    pub fn by_rank(&self, rank: u64) -> f64 {
        if self.is_empty() {
            return f64::NAN;
        }
        if rank == 0 {
            return self.min;
        }
        if rank >= self.observations {
            return f64::INFINITY;
        }
        self.at_share(double(rank) / self.total)
    }

    /// The value with `rank` observations above it: negative infinity where there
    /// are not more than `rank`, NaN without observations.
    pub fn by_reverse_rank(&self, rank: u64) -> f64 {
        if self.is_empty() {
            return f64::NAN;
        }
        if rank == 0 {
            return self.max;
        }
        if rank >= self.observations {
            return f64::NEG_INFINITY;
        }
        self.at_share((self.total - double(rank) - 1.0) / self.total)
    }

    /// The mean of the observations between two shares, 0 <= `low` < `high` <= 1.
    /// Centroids that lie on a border count in part. NaN without observations.
    pub fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        match self.means {
            [] => return f64::NAN,
            [only] => return *only,
            _ => {}
        }
        let left = (self.total * low).floor();
        let right = (self.total * high).ceil();
        let (mut sum, mut count) = (0.0, 0.0);
        for (mean, take) in self.parts(left, right) {
            sum += mean * take;
            count += take;
        }
        if count == 0.0 {
            // The borders round to the same observation.
            return self.value_at(left);
        }
        let mean = sum / count;
        if mean.is_finite() {
            return mean;
        }
        // The sum is beyond the largest number.
        let mean: f64 = self.parts(left, right).map(|(mean, take)| mean * (take / count)).sum();
        mean.clamp(self.min, self.max)
    }

    /// Means of the centroids up to rank `right`, each with the part of its weight
    /// that lies between the two ranks.
    fn parts(&self, left: f64, right: f64) -> impl Iterator<Item = (f64, f64)> {
        let centroids = self.means.iter().zip(self.weights).zip(self.before);
        centroids.take_while(move |(_, before)| **before < right).map(
            move |((mean, weight), before)| {
                let take = weight - (left - before).max(0.0).min(*weight);
                (*mean, (right - before).max(0.0).min(take))
            },
        )
    }

    /// As [`quantile`](Self::quantile), but the minimum for all of the first
    /// observation.
    fn at_share(&self, q: f64) -> f64 {
        match self.means {
            [only] => *only,
            _ if q * self.total < 1.0 => self.min,
            _ => self.value_at(q * self.total),
        }
    }

    /// The value at the position `at` of all observations, for at least two
    /// centroids.
    fn value_at(&self, at: f64) -> f64 {
        let last = self.means.len() - 1;
        let (first_weight, last_weight) = (self.weights[0], self.weights[last]);
        if first_weight > 1.0 && at < first_weight / 2.0 {
            let step = (at - 1.0) / (first_weight / 2.0 - 1.0) * (self.means[0] - self.min);
            return finite_or(self.min + step, self.min);
        }
        if at > self.total - 1.0 {
            return self.max;
        }
        if last_weight > 1.0 && self.total - at <= last_weight / 2.0 {
            let left = self.total - at - 1.0;
            let step = left / (last_weight / 2.0 - 1.0) * (self.max - self.means[last]);
            return finite_or(self.max - step, self.max);
        }
        let right = self.first_centre_above(at);
        if right > last { self.max } else { self.value_between(right - 1, right, at) }
    }

    /// The first centroid, but not the one in front, whose middle lies above the
    /// position `at`; the number of centroids where none does.
    fn first_centre_above(&self, at: f64) -> usize {
        let (mut low, mut high) = (1, self.means.len());
        while low < high {
            let mid = low + (high - low) / 2;
            if self.before[mid] + self.weights[mid] / 2.0 > at {
                high = mid;
            } else {
                low = mid + 1;
            }
        }
        low
    }

    /// The value at the position `at` between the middles of two neighbours. A
    /// centroid of one observation is that value for half a position around it.
    fn value_between(&self, i: usize, j: usize, at: f64) -> f64 {
        let left = self.before[i] + self.weights[i] / 2.0;
        let right = left + (self.weights[i] + self.weights[j]) / 2.0;
        let (mut left_half, mut right_half) = (0.0, 0.0);
        if self.weights[i] == 1.0 {
            if at - left < 0.5 {
                return self.means[i];
            }
            left_half = 0.5;
        }
        if self.weights[j] == 1.0 {
            if right - at <= 0.5 {
                return self.means[j];
            }
            right_half = 0.5;
        }
        let from_left = at - left - left_half;
        let from_right = right - at - right_half;
        average(self.means[i], from_right, self.means[j], from_left)
    }

    /// Between the minimum and the first mean, which only foreign data have apart.
    fn cdf_before_first(&self, value: f64) -> f64 {
        if value == self.min {
            return 0.5 / self.total;
        }
        let share = spread(1.0, value, self.min, self.means[0]);
        (1.0 + share * (self.weights[0] / 2.0 - 1.0)) / self.total
    }

    /// Between the last mean and the maximum, which only foreign data have apart.
    fn cdf_after_last(&self, value: f64) -> f64 {
        if value == self.max {
            return 1.0 - 0.5 / self.total;
        }
        let last = self.means.len() - 1;
        // (max - value) / (max - mean), mirrored.
        let share = spread(1.0, -value, -self.max, -self.means[last]);
        1.0 - (1.0 + share * (self.weights[last] / 2.0 - 1.0)) / self.total
    }

    /// Between the first and the last mean.
    fn cdf_within(&self, value: f64) -> f64 {
        let last = self.means.len() - 1;
        let at = self.means.partition_point(|mean| *mean < value);
        if at == last && self.means[at] == value {
            return 1.0 - 0.5 / self.total;
        }
        if self.means[at] == value {
            let run = self.means[at..].iter().take_while(|mean| **mean == value).count();
            let equal: f64 = self.weights[at..at + run].iter().sum();
            return (self.before[at] + equal / 2.0) / self.total;
        }
        let (i, j) = (at - 1, at);
        let (left, right) = (self.weights[i], self.weights[j]);
        if left == 1.0 && right == 1.0 {
            return (self.before[i] + 1.0) / self.total;
        }
        let left_half = if left == 1.0 { 0.5 } else { 0.0 };
        let right_half = if right == 1.0 { 0.5 } else { 0.0 };
        let between = (left + right) / 2.0 - left_half - right_half;
        let inside = spread(between, value, self.means[i], self.means[j]);
        (((self.before[i] + left / 2.0) + left_half) + inside) / self.total
    }
}

/// The part of `width` that lies below `value` between `low` and `high`, which
/// differ.
fn spread(width: f64, value: f64, low: f64, high: f64) -> f64 {
    let exact = (width * (value - low)) / (high - low);
    if exact.is_finite() && high - low < f64::INFINITY {
        return exact;
    }
    // A difference or the product is beyond the largest number.
    width * ((value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0))
}

/// The mean of `x` with weight `a` and `y` with weight `b`, never outside of them.
fn average(x: f64, a: f64, y: f64, b: f64) -> f64 {
    let (x, a, y, b) = if x > y { (y, b, x, a) } else { (x, a, y, b) };
    let mean = (x * a + y * b) / (a + b);
    // NaN becomes the upper one.
    if mean < y { if mean > x { mean } else { x } } else { y }
}

fn finite_or(value: f64, otherwise: f64) -> f64 {
    if value.is_finite() { value } else { otherwise }
}
