//! Centroids into ascending order of their means.
//!
//! The order of equal means decides which centroids are merged with each other, so
//! where it matters it has to be the order that RedisBloom's unstable sort leaves:
//! [`sort`] takes the same steps (spec of the family, section 6). Where it does not
//! matter, which is the rule for measured values, a faster way leads to the same
//! result.

#![forbid(unsafe_code)]

use super::Centroid;

/// Ranges up to this length are sorted by insertion.
const SHORT: usize = 17;

/// Orders `centroids`, of which the first `merged` are in order already. `single`
/// says that all others have weight 1.
pub(super) fn order(centroids: &mut [Centroid], merged: usize, single: bool) {
    if !(single && centroids.len() > SHORT && merge_singles(centroids, merged)) {
        sort(centroids);
    }
}

/// Sorts the values of the centroids after the first `merged` and merges them with
/// those. Leaves everything as it is and returns `false` where the order among
/// equal means matters, or there is no memory to work in.
fn merge_singles(centroids: &mut [Centroid], merged: usize) -> bool {
    let (old, new) = centroids.split_at(merged);
    if !strictly_ordered(old) {
        return false;
    }
    let mut values = Vec::new();
    if values.try_reserve_exact(new.len()).is_err() {
        return false;
    }
    values.extend(new.iter().map(|centroid| centroid.mean));
    values.sort_unstable_by(f64::total_cmp);
    if zeros_differ(&values) || any_tied(old, &values) {
        return false;
    }
    // From the back, so that no old centroid is overwritten before it has moved.
    let (mut i, mut j) = (merged, values.len());
    while j > 0 {
        let value = values[j - 1];
        if i > 0 && centroids[i - 1].mean > value {
            centroids[i + j - 1] = centroids[i - 1];
            i -= 1;
        } else {
            centroids[i + j - 1] = Centroid { mean: value, weight: 1 };
            j -= 1;
        }
    }
    true
}

/// Whether the order of `centroids` is the only one, up to exchanges of the same
/// centroid with itself.
fn strictly_ordered(centroids: &[Centroid]) -> bool {
    let ordered = |pair: &[Centroid]| {
        let [a, b] = [pair[0], pair[1]];
        a.mean < b.mean || (a.mean.to_bits() == b.mean.to_bits() && a.weight == b.weight)
    };
    centroids.windows(2).all(ordered)
}

/// Whether `values`, which are in order, hold zeros of both signs.
fn zeros_differ(values: &[f64]) -> bool {
    values.windows(2).any(|pair| pair[0] == pair[1] && pair[0].to_bits() != pair[1].to_bits())
}

/// Whether a centroid has the mean of one of the `values`, and can be told from a
/// centroid of weight 1 with that value. Both are in order.
fn any_tied(centroids: &[Centroid], mut values: &[f64]) -> bool {
    centroids.iter().any(|centroid| {
        let below = values.partition_point(|value| *value < centroid.mean);
        values = &values[below..];
        values.first().is_some_and(|value| {
            *value == centroid.mean
                && (centroid.weight != 1 || value.to_bits() != centroid.mean.to_bits())
        })
    })
}

/// RedisBloom's sort: a quicksort with the median of three and a three-way
/// partition, that turns to heapsort where it gets too deep. Never quadratic.
fn sort(centroids: &mut [Centroid]) {
    if let Some(log2) = centroids.len().checked_ilog2() {
        quicksort(centroids, 2 * log2);
    }
}

fn quicksort(mut range: &mut [Centroid], mut depth_left: u32) {
    while range.len() > SHORT {
        if depth_left == 0 {
            return heapsort(range);
        }
        depth_left -= 1;
        let (below, above) = partition(range);
        let (left, rest) = range.split_at_mut(below);
        let right_from = rest.len() - above;
        let right = &mut rest[right_from..];
        let (smaller, larger) =
            if left.len() < right.len() { (left, right) } else { (right, left) };
        if smaller.len() > 1 {
            quicksort(smaller, depth_left);
        }
        range = larger;
    }
    insertion_sort(range);
}

/// Splits `range` around the median of its first, middle and last mean. Returns
/// how many are below it, then how many above; the equal ones lie between.
fn partition(range: &mut [Centroid]) -> (usize, usize) {
    let (mid, last) = ((range.len() - 1) / 2, range.len() - 1);
    for (a, b) in [(mid, 0), (last, 0), (last, mid)] {
        if range[a].mean < range[b].mean {
            range.swap(a, b);
        }
    }
    let pivot = range[mid].mean;
    // Below the pivot up to `below`, equal to it up to `i`, above it from `end`.
    let (mut below, mut i, mut end) = (0, 0, range.len());
    while i < end {
        let mean = range[i].mean;
        if mean < pivot {
            range.swap(i, below);
            below += 1;
            i += 1;
        } else if mean > pivot {
            end -= 1;
            range.swap(i, end);
        } else {
            i += 1;
        }
    }
    (below, range.len() - end)
}

fn insertion_sort(range: &mut [Centroid]) {
    for next in 1..range.len() {
        let centroid = range[next];
        let mut to = next;
        while to > 0 && range[to - 1].mean > centroid.mean {
            range[to] = range[to - 1];
            to -= 1;
        }
        range[to] = centroid;
    }
}

fn heapsort(range: &mut [Centroid]) {
    for root in (0..range.len() / 2).rev() {
        sift_down(range, root);
    }
    for end in (1..range.len()).rev() {
        range.swap(0, end);
        sift_down(&mut range[..end], 0);
    }
}

fn sift_down(heap: &mut [Centroid], mut node: usize) {
    loop {
        let left = 2 * node + 1;
        let Some(left_child) = heap.get(left) else { return };
        let right_is_larger = heap.get(left + 1).is_some_and(|right| right.mean > left_child.mean);
        let child = left + usize::from(right_is_larger);
        if heap[node].mean < heap[child].mean {
            heap.swap(node, child);
            node = child;
        } else {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn centroids(means: &[f64]) -> Vec<Centroid> {
        // Weights that differ, so that an exchange of equal means shows.
        let weight = |(i, mean): (usize, &f64)| Centroid { mean: *mean, weight: i as u64 + 1 };
        means.iter().enumerate().map(weight).collect()
    }

    #[test]
    fn short_ranges_keep_the_order_of_equal_means() {
        let mut few = centroids(&[2.0, 1.0, 2.0, 1.0, 2.0]);
        sort(&mut few);
        let weights: Vec<_> = few.iter().map(|c| c.weight).collect();
        assert_eq!(weights, [2, 4, 1, 3, 5]);
    }

    #[test]
    fn heapsort_orders() {
        let means: Vec<f64> = (0..1000).map(|i| f64::from(i * 7919 % 1000)).collect();
        let mut heap = centroids(&means);
        heapsort(&mut heap);
        assert!(heap.is_sorted_by_key(|c| c.mean));
        assert_eq!(heap.len(), 1000);
    }

    #[test]
    fn a_bad_case_of_quicksort_is_left_to_heapsort() {
        let mut many = centroids(&(0..5000).map(f64::from).rev().collect::<Vec<_>>());
        quicksort(&mut many, 1);
        assert!(many.is_sorted_by_key(|c| c.mean));
    }

    proptest! {
        #[test]
        fn sort_orders_and_loses_nothing(means in prop::collection::vec(-20i32..20, 0..400)) {
            let means: Vec<f64> = means.into_iter().map(f64::from).collect();
            let mut sorted = centroids(&means);
            sort(&mut sorted);
            prop_assert!(sorted.is_sorted_by_key(|c| c.mean));
            let mut weights: Vec<_> = sorted.iter().map(|c| c.weight).collect();
            weights.sort_unstable();
            prop_assert!(weights.into_iter().eq(1..=means.len() as u64));
            for c in &sorted {
                prop_assert_eq!(c.mean, means[c.weight as usize - 1]);
            }
        }

        #[test]
        fn the_fast_way_leaves_what_the_exact_one_leaves(
            mut old in prop::collection::vec((0u32..4000, 1u64..3), 0..40),
            new in prop::collection::vec(0u32..4000, 0..300),
            signs: bool,
        ) {
            old.sort_by_key(|(mean, _)| *mean);
            let mean = |m: u32| if signs && m.is_multiple_of(3) { -0.0 * f64::from(m) } else { f64::from(m) };
            let mut all: Vec<_> =
                old.iter().map(|(m, weight)| Centroid { mean: f64::from(*m), weight: *weight }).collect();
            all.extend(new.iter().map(|m| Centroid { mean: mean(*m), weight: 1 }));
            let bits = |c: &[Centroid]| -> Vec<_> { c.iter().map(|c| (c.mean.to_bits(), c.weight)).collect() };
            let mut exact = all.clone();
            sort(&mut exact);
            let before = bits(&all);
            if merge_singles(&mut all, old.len()) {
                prop_assert_eq!(bits(&all), bits(&exact));
            } else {
                prop_assert_eq!(bits(&all), before);
            }
        }
    }
}
