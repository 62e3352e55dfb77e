//! Many centroids into few: neighbours are merged as long as the result is small
//! for where it lies, so that the tails stay fine and the middle gets coarse.

#![forbid(unsafe_code)]

use std::f64::consts::PI;

use super::{Centroid, sort};

/// Orders `centroids` and merges neighbours, in place. Returns how many are left;
/// what follows them has no meaning any more.
///
/// The first `merged` must be in order; `single` says that the others have weight
/// 1. `total` is the weight of all.
pub(super) fn compress(
    centroids: &mut [Centroid],
    merged: usize,
    single: bool,
    compression: f64,
    total: f64,
) -> usize {
    sort::order(centroids, merged, single);
    // Nothing to merge, and ln 1 is no divisor.
    if total <= 1.0 {
        return centroids.len();
    }
    merge_neighbours(centroids, compression, total)
}

/// One pass from the smallest to the largest: Dunning's merging digest with the
/// size bound z = weight * compression / (2 pi n ln n) <= q (1 - q) at both ends of
/// the merged centroid, in RedisBloom's order of operations, to the last bit.
fn merge_neighbours(centroids: &mut [Centroid], compression: f64, total: f64) -> usize {
    let Some((mut current, mut kept)) = centroids.first().map(|first| (*first, 0)) else {
        return 0;
    };
    let norm = compression / (((2.0 * PI) * total) * total.ln());
    let mut before = 0.0;
    let mut bound_before = 0.0;
    for i in 1..centroids.len() {
        let next = centroids[i];
        let weight = double(current.weight) + double(next.weight);
        let z = weight * norm;
        let q = (before + weight) / total;
        if z <= bound_before && z <= q * (1.0 - q) {
            current.weight += next.weight;
            current.mean = weighted_mean(current, next);
        } else {
            before += double(current.weight);
            let q = before / total;
            bound_before = q * (1.0 - q);
            centroids[kept] = current;
            kept += 1;
            current = next;
        }
    }
    centroids[kept] = current;
    kept + 1
}

/// The mean of `into`, which counts `next` in its weight already, with `next`, whose
/// mean is not below it. Between the two: rounding would go beyond them now and then,
/// and the centroid after `next` can have the same mean.
fn weighted_mean(into: Centroid, next: Centroid) -> f64 {
    let step = ((next.mean - into.mean) * double(next.weight)) / double(into.weight);
    let mut mean = into.mean + step;
    if !mean.is_finite() {
        // The difference of the means, or its multiple, is beyond the largest number.
        let share = double(next.weight) / double(into.weight);
        mean = into.mean * (1.0 - share) + next.mean * share;
    }
    mean.max(into.mean).min(next.mean)
}

/// Merges centroids in pairs, the first and the last aside: about half are left.
/// Keeps a digest within its capacity whose weights differ so much, by powers of
/// hundreds, that no neighbours are small enough for each other.
pub(super) fn halve(centroids: &mut [Centroid]) -> usize {
    let Some(last) = centroids.len().checked_sub(1).filter(|last| *last > 2) else {
        return centroids.len();
    };
    let mut kept = 1;
    for i in (1..last).step_by(2) {
        let mut pair = centroids[i];
        if i + 1 < last {
            let next = centroids[i + 1];
            pair.weight += next.weight;
            pair.mean = weighted_mean(pair, next);
        }
        centroids[kept] = pair;
        kept += 1;
    }
    centroids[kept] = centroids[last];
    kept + 1
}

/// A weight as a number. Weights are below 2^63, and signed integers convert
/// faster.
#[inline]
pub(super) fn double(weight: u64) -> f64 {
    weight.cast_signed() as f64
}
