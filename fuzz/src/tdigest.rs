//! t-digests: stored form, and operations with what must hold of every digest.

use ferrobloom::codec::Fields;
use ferrobloom::codec::tdigest::{self as codec, Form};
use ferrobloom::structures::tdigest::TDigest;

use super::input::Input;
use super::{MOST_OPERATIONS, QUOTA};

/// Version, the fields of a digest, operations.
pub fn rdb_tdigest(data: &[u8]) {
    let mut input = Input(data);
    let version = input.byte().cast_signed();
    let Ok(mut digest) = codec::load(&mut input, version.into()) else { return };
    reload(&digest);
    ask(&digest, &mut input);
    operate(&mut digest, &mut input);
    reload(&digest);
}

/// Compression, then operations.
pub fn ops_tdigest(data: &[u8]) {
    let mut input = Input(data);
    let Ok(mut digest) = TDigest::new(input.size(), QUOTA) else { return };
    operate(&mut digest, &mut input);
    reload(&digest);
}

fn operate(digest: &mut TDigest, input: &mut Input<'_>) {
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        match input.byte() % 5 {
            0 => {
                let values: Vec<_> = (0..input.byte()).map(|_| value(input)).collect();
                let before = digest.observations();
                let added = match digest.add_all(&values, QUOTA) {
                    Ok(()) => values.len() as u64,
                    Err(_) => 0,
                };
                assert_eq!(digest.observations(), before + added, "all or none");
            }
            1 => ask(digest, input),
            2 => {
                let other = digest.try_clone().unwrap();
                assert_eq!(other, *digest);
                let compression = input.flag().then(|| input.size());
                let destination = input.flag().then_some(&*digest);
                let parts = 1 + u64::from(destination.is_some());
                if let Ok(merged) = TDigest::merge(destination, &[&other], compression, QUOTA) {
                    assert_eq!(merged.observations(), other.observations() * parts);
                    // Stored bounds may lie beyond the centroids, which alone are merged.
                    assert!(merged.min() >= other.min() && merged.max() <= other.max());
                    *digest = merged;
                }
            }
            3 if input.byte() == 0 => {
                digest.reset();
                assert_eq!(digest.observations(), 0);
            }
            _ => {
                std::hint::black_box((digest.nominal_bytes(), digest.heap_bytes()));
                std::hint::black_box((digest.compressions(), digest.merged_weight()));
            }
        }
        check(digest);
    }
}

/// A value: a small whole number, or any bits.
fn value(input: &mut Input<'_>) -> f64 {
    match input.byte() {
        255 => f64::from_bits(input.number()),
        small => f64::from(small) - 100.0,
    }
}

fn check(digest: &TDigest) {
    let (merged, unmerged) = (digest.merged(), digest.unmerged());
    assert!(merged.len() + unmerged.len() <= digest.capacity());
    assert_eq!(
        digest.observations(),
        merged.iter().chain(unmerged).map(|centroid| centroid.weight).sum::<u64>()
    );
    for centroid in merged.iter().chain(unmerged) {
        assert!(centroid.mean.is_finite() && centroid.weight > 0);
        assert!(digest.min().is_some_and(|min| min <= centroid.mean));
        assert!(digest.max().is_some_and(|max| max >= centroid.mean));
    }
}

fn ask(digest: &TDigest, input: &mut Input<'_>) {
    let view = digest.view().unwrap();
    assert_eq!(view.is_empty(), digest.observations() == 0);
    if view.is_empty() {
        return;
    }
    for step in 0..=10 {
        let quantile = view.quantile(f64::from(step) / 10.0);
        // Not always within the bounds: with a heavy first centroid, which only stored
        // data has, RedisBloom's interpolation goes below the minimum.
        assert!(quantile.is_finite(), "{quantile} is no quantile");
    }
    for _ in 0..input.byte() % 8 {
        let (value, rank) = (value(input), input.size());
        let share = view.cdf(value);
        assert!(value.is_nan() || (0.0..=1.0).contains(&share), "{share} is no share");
        std::hint::black_box((view.rank(value), view.reverse_rank(value)));
        std::hint::black_box((view.by_rank(rank), view.by_reverse_rank(rank)));
        let (low, high) = (f64::from(input.byte()) / 255.0, f64::from(input.byte()) / 255.0);
        if low < high {
            let mean = view.trimmed_mean(low, high);
            assert!(mean.is_finite(), "{mean} is no mean");
        }
    }
}

/// What is saved loads as an equal digest, and the compressed form loads as well: both
/// as far as doubles hold the weights. The plain form is always equal.
fn reload(digest: &TDigest) {
    let mut fields = Fields::default();
    codec::save_plain(digest, &mut fields);
    assert_eq!(codec::load(&mut fields, codec::VERSION).as_ref(), Ok(digest));
    let exact = digest.observations() < 1 << f64::MANTISSA_DIGITS;
    for form in [Form::Exact, Form::Compressed] {
        let mut fields = Fields::default();
        codec::save(digest, form, &mut fields);
        let loaded = codec::load(&mut fields, codec::VERSION).unwrap();
        assert!(!exact || loaded.observations() == digest.observations());
        // Marks of the buffer's places take bits too.
        if form == Form::Exact && digest.observations() < 1 << 32 {
            assert_eq!(loaded, *digest);
        }
    }
}
