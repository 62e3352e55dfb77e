use std::cell::Cell;

use proptest::prelude::*;

use super::*;

const FREE: Quota<'static> = Quota::UNLIMITED;

fn digest(compression: u64, values: &[f64]) -> TDigest {
    let mut digest = TDigest::new(compression, FREE).unwrap();
    digest.add_all(values, FREE).unwrap();
    digest
}

fn centroids(digest: &TDigest) -> Vec<(f64, u64)> {
    let (centroids, len) = digest.compressed().unwrap();
    centroids[..len].iter().map(|c| (c.mean, c.weight)).collect()
}

/// Numbers in [0, 1) that look random, the same in each run.
fn uniform(seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed * 2 + 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    })
}

#[test]
fn one_to_a_hundred_gives_the_centroids_of_redisbloom() {
    let values: Vec<_> = (1..=100).map(f64::from).collect();
    let digest = digest(10, &values);
    assert_eq!((digest.merged().len(), digest.merged_weight()), (9, 69));
    assert_eq!((digest.unmerged().len(), digest.compressions()), (31, 1));
    let expected =
        [(1.0, 1), (2.5, 2), (7.0, 7), (21.5, 22), (56.0, 47), (87.0, 15), (96.5, 4), (99.0, 1)];
    assert_eq!(centroids(&digest)[..8], expected);
    let view = digest.view().unwrap();
    assert_eq!(view.quantile(0.9), 90.5);
    assert_eq!(view.trimmed_mean(0.1, 0.9), 50.775);
}

#[test]
fn equal_values_are_merged_in_the_order_of_redisbloom() {
    let values: Vec<_> = (0..60).map(|i| f64::from(i % 5)).collect();
    let expected = [
        (0.0, 1),
        (0.0, 5),
        (1.148_148_148_148_148_1, 27),
        (3.136_363_636_363_636_2, 22),
        (4.0, 4),
        (4.0, 1),
    ];
    assert_eq!(centroids(&digest(5, &values)), expected);
}

#[test]
fn a_lone_observation_is_every_quantile() {
    let digest = digest(100, &[123.0]);
    let view = digest.view().unwrap();
    assert_eq!(view.quantile(0.9), 123.0);
    assert_eq!(view.cdf(123.0), 0.5);
    assert_eq!(view.trimmed_mean(0.0, 1.0), 123.0);
    assert_eq!((view.rank(123.0), view.reverse_rank(123.0)), (Some(0), Some(0)));
    assert_eq!((view.by_rank(0), view.by_rank(1)), (123.0, f64::INFINITY));
}

#[test]
fn an_empty_digest_knows_nothing() {
    let digest = digest(100, &[]);
    let view = digest.view().unwrap();
    assert!(view.is_empty());
    assert!(view.quantile(0.5).is_nan() && view.cdf(0.0).is_nan());
    assert!(view.by_rank(0).is_nan() && view.by_reverse_rank(9).is_nan());
    assert!(view.trimmed_mean(0.0, 1.0).is_nan());
    assert_eq!((view.rank(0.0), view.reverse_rank(0.0)), (None, None));
    assert_eq!((digest.min(), digest.max()), (None, None));
}

#[test]
fn a_heavy_last_centroid_gives_the_maximum_and_not_nan() {
    let values = [
        2, 0, 0, 2, 0, 0, 2, 0, 2, 2, 1, 1, 1, 0, 0, 2, 1, 1, 0, 0, 2, 1, 0, 2, 0, 1, 0, 0, 2, 0,
        0, 2, 2, 0, 1, 2, 2, 2, 0, 1,
    ];
    let digest = digest(3, &values.map(f64::from));
    assert_eq!(centroids(&digest).last(), Some(&(2.0, 2)));
    assert_eq!(digest.view().unwrap().by_rank(39), 2.0);
    assert_eq!(digest.view().unwrap().quantile(0.975), 2.0);
}

#[test]
fn cuts_that_round_to_one_observation_give_it() {
    let digest = digest(100, &[1.0, 2.0, 3.0]);
    let low = 1.0_f64 / 3.0;
    let mean = digest.view().unwrap().trimmed_mean(low, low.next_up());
    assert_eq!(mean, 2.0);
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let values: Vec<_> = (0..500).map(|i| if i % 2 == 0 { f64::MAX } else { -f64::MAX }).collect();
    let digest = digest(5, &values);
    assert!(centroids(&digest).iter().all(|(mean, _)| mean.is_finite()));
    let view = digest.view().unwrap();
    for i in 0..=100 {
        let share = f64::from(i) / 100.0;
        assert!(view.quantile(share).is_finite());
        assert!((0.0..=1.0).contains(&view.cdf((share - 0.5) * f64::MAX)));
        assert!(view.trimmed_mean(share / 2.0, 0.5 + share / 2.0).is_finite());
    }
}

#[test]
fn values_that_are_not_finite_change_nothing() {
    let mut digest = digest(100, &[1.0]);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(digest.add_all(&[2.0, bad], FREE), Err(Error::NotFinite));
    }
    assert_eq!(digest, self::digest(100, &[1.0]));
}

#[test]
fn a_total_weight_beyond_the_limit_changes_nothing() {
    let heavy = |weight| {
        let centroids = Buffer::copy_of(&[Centroid { mean: 1.0, weight }]).unwrap();
        let (min, max) = (1.0, 1.0);
        TDigest::from_parts(Parts {
            compression: 100.0,
            centroids,
            merged: 1,
            used: 1,
            compressions: 1,
            min,
            max,
        })
    };
    let mut digest = heavy(MAX_WEIGHT - 1);
    assert_eq!(digest.add_all(&[1.0, 2.0], FREE), Err(Error::Overflow));
    assert_eq!(digest, heavy(MAX_WEIGHT - 1));
    assert_eq!(digest.add_all(&[1.0], FREE), Ok(()));
    assert_eq!(digest.observations(), MAX_WEIGHT);
    let merged = TDigest::merge(None, &[&digest, &digest], None, FREE);
    assert_eq!(merged.unwrap_err(), Error::Overflow);
}

#[test]
fn observations_beyond_doubles_are_counted_exactly() {
    let weight = 1 << 53;
    let centroids = Buffer::copy_of(&[Centroid { mean: 1.0, weight }; 2]).unwrap();
    let mut digest = TDigest::from_parts(Parts {
        compression: 100.0,
        centroids,
        merged: 2,
        used: 2,
        compressions: 1,
        min: 1.0,
        max: 1.0,
    });
    digest.add_all(&[1.0], FREE).unwrap();
    digest.compress();
    assert_eq!(digest.observations(), (1 << 54) + 1);
}

#[test]
fn weights_too_different_to_merge_do_not_exceed_the_capacity() {
    // Each 300 times the one before, up to the middle and down again.
    let up = (0..8).map(|i| 300_u64.saturating_pow(i).min(1 << 59));
    let weights: Vec<_> = up.clone().chain(up.rev()).collect();
    let all: Vec<_> = (0..)
        .zip(&weights)
        .map(|(i, weight)| Centroid { mean: f64::from(i), weight: *weight })
        .collect();
    let mut digest = TDigest::from_parts(Parts {
        compression: 1.0,
        centroids: Buffer::copy_of(&all).unwrap(),
        merged: 16,
        used: 16,
        compressions: 1,
        min: 0.0,
        max: 15.0,
    });
    let before = digest.observations();
    for i in 0..1000 {
        digest.add_all(&[f64::from(i % 20)], FREE).unwrap();
        assert!(digest.merged().len() + digest.unmerged().len() < digest.capacity());
    }
    assert_eq!(digest.observations(), before + 1000);
    assert_eq!((digest.min(), digest.max()), (Some(0.0), Some(19.0)));
}

#[test]
fn many_equal_values_do_not_take_quadratic_time() {
    let digest = digest(10_000, &vec![0.0; 300_000]);
    assert_eq!(digest.observations(), 300_000);
    assert_eq!(digest.view().unwrap().quantile(0.5), 0.0);
}

#[test]
fn creation_asks_for_all_memory_and_takes_none() {
    let asked = Cell::new(0);
    let allows = |growth: super::super::quota::Growth| {
        asked.set(growth.total);
        growth.total < 1_000_000
    };
    let quota = Quota::new(&allows);
    assert_eq!(TDigest::new(100_000_000, quota).unwrap_err(), Error::OutOfMemory);
    assert!(asked.get() > 16 * 600_000_010);
    assert_eq!(TDigest::new(100_000_000, FREE).unwrap().heap_bytes(), 0);
    assert!(TDigest::new(MAX_COMPRESSION, FREE).is_ok());
    for wrong in [0, MAX_COMPRESSION + 1, u64::MAX] {
        assert_eq!(TDigest::new(wrong, FREE).unwrap_err(), Error::Compression);
    }
    assert_eq!(digest(100, &[]).nominal_bytes(), 9840);
}

#[test]
fn an_addition_without_memory_changes_nothing() {
    let mut digest = digest(100, &[1.0]);
    let none = Quota::new(&|_| false);
    assert_eq!(digest.add_all(&[2.0; 50], none), Err(Error::OutOfMemory));
    assert_eq!(digest, self::digest(100, &[1.0]));
    // There is room for a few more.
    assert_eq!(digest.add_all(&[2.0, 3.0], none), Ok(()));
}

#[test]
fn memory_grows_up_to_the_capacity() {
    let mut digest = digest(10, &[]);
    for value in uniform(1).take(1000) {
        digest.add_all(&[value], FREE).unwrap();
        assert!(digest.heap_bytes() <= 16 * digest.capacity());
    }
    assert_eq!(digest.heap_bytes(), 16 * digest.capacity());
}

#[test]
fn a_merge_takes_compression_from_the_argument_the_destination_or_the_largest_source() {
    let (a, b, c) = (digest(50, &[1.0]), digest(200, &[2.0]), digest(100, &[3.0]));
    let compression = |destination, given| {
        TDigest::merge(destination, &[&a, &b], given, FREE).unwrap().compression()
    };
    assert_eq!(compression(Some(&c), Some(7)), 7.0);
    assert_eq!(compression(Some(&c), None), 100.0);
    assert_eq!(compression(None, None), 200.0);
    let merged = TDigest::merge(Some(&c), &[&a, &b, &a], None, FREE).unwrap();
    assert_eq!(merged.observations(), 4);
    assert_eq!((merged.min(), merged.max()), (Some(1.0), Some(3.0)));
    let huge = TDigest::merge(None, &[&a], Some(100_000_000_000), FREE);
    assert_eq!(huge.unwrap_err(), Error::Compression);
}

#[test]
fn reset_forgets_all_but_the_compression() {
    let values: Vec<_> = uniform(3).take(5000).collect();
    let mut digest = digest(33, &values);
    digest.reset();
    assert_eq!(digest, self::digest(33, &[]));
}

/// The largest difference between the rank asked for and those of the answer.
fn worst_rank_error(values: &[f64], compression: u64) -> f64 {
    let digest = digest(compression, values);
    let view = digest.view().unwrap();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let share = |count: usize| count as f64 / sorted.len() as f64;
    let mut worst: f64 = 0.0;
    for i in 0..=1000 {
        let q = f64::from(i) / 1000.0;
        let answer = view.quantile(q);
        let below = share(sorted.partition_point(|value| *value < answer));
        let up_to = share(sorted.partition_point(|value| *value <= answer));
        worst = worst.max(below - q).max(q - up_to);
    }
    worst
}

#[test]
fn quantiles_are_accurate_on_common_distributions() {
    let pairs = || uniform(7).zip(uniform(11));
    let normal = |(u, v): (f64, f64)| {
        (-2.0 * (1.0 - u).ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    };
    let count = 100_000;
    let cases: [(&str, Vec<f64>); 5] = [
        ("uniform", uniform(5).take(count).collect()),
        ("normal", pairs().map(normal).take(count).collect()),
        ("lognormal", pairs().map(|p| normal(p).exp()).take(count).collect()),
        ("power law", uniform(5).map(|u| 1.0 / (1.0 - u)).take(count).collect()),
        ("ascending", (0..count).map(|i| i as f64).collect()),
    ];
    for (name, values) in cases {
        for (compression, allowed) in [(20, 0.15), (100, 0.03), (1000, 0.003)] {
            let error = worst_rank_error(&values, compression);
            assert!(error < allowed, "{name} at {compression}: {error}");
        }
    }
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        prop::collection::vec(-1e6..1e6, 1..2000),
        prop::collection::vec((-8_i32..8).prop_map(f64::from), 1..2000),
        prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 1..300),
    ]
}

/// How far an answer may be off in a number that lies between others: rounding.
fn tolerance(digest: &TDigest) -> f64 {
    (digest.min().unwrap().abs().max(digest.max().unwrap().abs())) * 1e-12
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn quantiles_ascend_within_the_bounds(values in values(), compression in 1_u64..120) {
        let digest = digest(compression, &values);
        let view = digest.view().unwrap();
        let slack = tolerance(&digest);
        let (min, max) = (digest.min().unwrap(), digest.max().unwrap());
        prop_assert_eq!(view.quantile(1.0), max);
        let mut last = min;
        for i in 0..=200 {
            let answer = view.quantile(f64::from(i) / 200.0);
            prop_assert!((min..=max).contains(&answer));
            prop_assert!(answer >= last - slack, "{} after {}", answer, last);
            last = answer;
        }
    }

    #[test]
    fn ranks_ascend_and_turn_back(values in values(), compression in 1_u64..120) {
        let digest = digest(compression, &values);
        let view = digest.view().unwrap();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let mut last = 0.0;
        for value in &sorted {
            let share = view.cdf(*value);
            prop_assert!((0.0..=1.0).contains(&share) && share >= last - 1e-12);
            last = share;
            let (rank, reverse) = (view.rank(*value).unwrap(), view.reverse_rank(*value).unwrap());
            let count = values.len() as i64;
            prop_assert!((count - 1..=count).contains(&(rank + reverse)), "{} {}", rank, reverse);
        }
        for rank in 0..values.len() as u64 {
            prop_assert!(view.by_rank(rank).is_finite() && view.by_reverse_rank(rank).is_finite());
        }
        prop_assert_eq!(view.by_rank(values.len() as u64), f64::INFINITY);
    }

    #[test]
    fn a_digest_that_merged_nothing_knows_every_observation(
        mut values in prop::collection::vec(-1000_i32..1000, 2..200)
    ) {
        // Below half the compression, no two are small enough for each other.
        let all: Vec<_> = values.iter().copied().map(f64::from).collect();
        let digest = digest(10_000, &all);
        values.sort_unstable();
        let view = digest.view().unwrap();
        for (rank, value) in values.iter().enumerate() {
            // A rank as a share, and back, may round down.
            let near = |answer: f64| {
                answer == f64::from(*value) || answer == f64::from(values[rank.saturating_sub(1)])
            };
            prop_assert!(near(view.by_rank(rank as u64)));
            prop_assert!(near(view.by_reverse_rank((values.len() - 1 - rank) as u64)));
            let below = values.partition_point(|other| other < value) as f64;
            let equal = values.partition_point(|other| other <= value) as f64 - below;
            let share = view.cdf(f64::from(*value));
            prop_assert!((share - (below + equal / 2.0) / values.len() as f64).abs() < 1e-12);
        }
    }

    #[test]
    fn reading_changes_nothing_that_is_stored(
        batches in prop::collection::vec((values(), any::<bool>()), 1..6),
        compression in 1_u64..50,
    ) {
        let mut read = digest(compression, &[]);
        let mut unread = digest(compression, &[]);
        for (values, look) in &batches {
            read.add_all(values, FREE).unwrap();
            unread.add_all(values, FREE).unwrap();
            if *look {
                let before = read.try_clone().unwrap();
                let view = read.view().unwrap();
                let answers = (view.quantile(0.3), view.cdf(values[0]), view.trimmed_mean(0.1, 0.9));
                let again = read.view().unwrap();
                prop_assert_eq!(answers.0.to_bits(), again.quantile(0.3).to_bits());
                prop_assert!(answers.1.is_finite() && answers.2.is_finite());
                prop_assert_eq!(&read, &before);
            }
        }
        prop_assert_eq!(&read, &unread);
        prop_assert_eq!(read.view().unwrap().quantile(0.7), unread.view().unwrap().quantile(0.7));
    }

    #[test]
    fn batches_and_single_additions_are_the_same(values in values(), compression in 1_u64..30) {
        let mut single = digest(compression, &[]);
        for value in &values {
            single.add_all(&[*value], FREE).unwrap();
        }
        prop_assert_eq!(single, digest(compression, &values));
    }

    #[test]
    fn a_merge_keeps_all_observations(
        parts in prop::collection::vec(values(), 1..5), compression in 1_u64..100
    ) {
        let digests: Vec<_> = parts.iter().map(|part| digest(compression, part)).collect();
        let sources: Vec<_> = digests.iter().collect();
        let merged = TDigest::merge(None, &sources, None, FREE).unwrap();
        let all: Vec<_> = parts.concat();
        prop_assert_eq!(merged.observations(), all.len() as u64);
        prop_assert_eq!(merged.min(), all.iter().copied().reduce(f64::min));
        prop_assert_eq!(merged.max(), all.iter().copied().reduce(f64::max));
        let view = merged.view().unwrap();
        prop_assert!(view.quantile(0.5).is_finite());
    }
}

/// Centroids in order, with weights of all magnitudes and a sum below 2^63.
fn extreme_centroids() -> impl Strategy<Value = Vec<Centroid>> {
    let few = prop::sample::select(vec![-5.0, -3.0, -0.7, 0.1, 0.3, 5.0]);
    let mean = prop_oneof![3 => few, 1 => -4.0..4.0, 1 => (-30..30_i8).prop_map(f64::from)];
    let shift = prop_oneof![1 => 7..14_u32, 1 => 7..64_u32, 1 => Just(63)];
    let weight = (any::<u64>(), shift).prop_map(|(bits, shift)| (bits >> shift).max(1));
    let centroid = (mean, weight).prop_map(|(mean, weight)| Centroid { mean, weight });
    prop::collection::vec(centroid, 1..60).prop_map(|mut centroids| {
        centroids.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        centroids
    })
}

/// A digest with these centroids: as one compressed, or as a buffer.
fn digest_of(centroids: &[Centroid], compression: f64, compressed: bool) -> TDigest {
    TDigest::from_parts(Parts {
        compression,
        merged: if compressed { centroids.len() } else { 0 },
        used: centroids.len(),
        centroids: Buffer::copy_of(centroids).unwrap(),
        compressions: 1,
        min: centroids[0].mean,
        max: centroids[centroids.len() - 1].mean,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn means_stay_in_order_and_within_the_bounds_whatever_the_weights(
        centroids in extreme_centroids(),
        compression in 10..500_u16,
    ) {
        let digest = digest_of(&centroids, compression.into(), false);
        let (merged, len) = digest.compressed().unwrap();
        prop_assert!(merged[..len].is_sorted_by(|a, b| a.mean <= b.mean), "{:?}", &merged[..len]);
        prop_assert!(digest.min().unwrap() <= merged[0].mean);
        prop_assert!(merged[len - 1].mean <= digest.max().unwrap());
    }

    #[test]
    fn shares_are_shares_whatever_the_weights(
        centroids in extreme_centroids(),
        values in prop::collection::vec(-31.0..31.0, 1..20),
    ) {
        let digest = digest_of(&centroids, 100.0, true);
        let view = digest.view().unwrap();
        let means = centroids.iter().map(|centroid| centroid.mean);
        for value in values.into_iter().chain(means) {
            let share = view.cdf(value);
            prop_assert!((0.0..=1.0).contains(&share), "{share} is no share");
        }
    }
}

/// 0.1 - -3 is rounded up, and the weights leave all of it.
#[test]
fn the_mean_of_a_light_and_a_heavy_centroid_is_not_beyond_the_heavy_one() {
    let centroids = [(-5.0, 1 << 60), (-3.0, 1), (0.1, 1 << 56), (0.1, 1 << 60), (5.0, 1 << 60)];
    let centroids = centroids.map(|(mean, weight)| Centroid { mean, weight });
    let digest = digest_of(&centroids, 300.0, false);
    let (merged, len) = digest.compressed().unwrap();
    assert_eq!(len, 4, "the light one is merged: {:?}", &merged[..len]);
    assert_eq!(merged[1], Centroid { mean: 0.1, weight: (1 << 56) + 1 });
}
