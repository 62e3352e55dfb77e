use proptest::prelude::*;

use super::super::{Field, Fields};
use super::*;
use crate::structures::quota::Quota;

const FREE: Quota<'static> = Quota::UNLIMITED;

fn digest(compression: u64, values: &[f64]) -> TDigest {
    let mut digest = TDigest::new(compression, FREE).unwrap();
    digest.add_all(values, FREE).unwrap();
    digest
}

fn saved(digest: &TDigest, form: Form) -> Fields {
    let mut fields = Fields::default();
    save(digest, form, &mut fields);
    fields
}

fn loaded(fields: &Fields) -> Result<TDigest, LoadError> {
    let mut fields = fields.clone();
    let digest = load(&mut fields, VERSION)?;
    assert!(fields.0.is_empty());
    Ok(digest)
}

/// Compression 10: 2.5 x 4, 20 x 16, 60 x 16, 95 x 4.
fn sound() -> Fields {
    let header = [
        Field::Double(10.0),
        Field::Double(0.0),
        Field::Double(100.0),
        Field::Unsigned(70),
        Field::Unsigned(4),
        Field::Unsigned(0),
        Field::Unsigned(5),
        Field::Double(40.0),
        Field::Double(0.0),
    ];
    let nodes = [2.5, 20.0, 60.0, 95.0, 4.0, 16.0, 16.0, 4.0].map(Field::Double);
    Fields(header.into_iter().chain(nodes).collect())
}

#[test]
fn heavy_outer_centroids_answer_as_in_redisbloom() {
    let digest = loaded(&sound()).unwrap();
    let view = digest.view().unwrap();
    assert_eq!(view.cdf(0.0), 0.0125);
    assert_eq!(view.cdf(1.0), 0.034999999999999996);
    assert_eq!(view.quantile(0.96), 97.0);
    assert_eq!(view.trimmed_mean(0.05, 0.5), 18.055555555555557);
    assert_eq!(saved(&digest, Form::Compressed), sound());
    assert_eq!(saved(&digest, Form::Exact), sound());
}

#[test]
fn the_compressed_form_is_that_of_redisbloom() {
    let fields = saved(&digest(100, &[1.0, 2.0, 3.0]), Form::Compressed);
    let header = [Field::Unsigned(610), Field::Unsigned(3), Field::Unsigned(0), Field::Unsigned(1)];
    let doubles = |values: &[f64]| values.iter().copied().map(Field::Double).collect::<Vec<_>>();
    let mut expected = doubles(&[100.0, 1.0, 3.0]);
    expected.extend(header);
    expected.extend(doubles(&[3.0, 0.0, 1.0, 2.0, 3.0, 1.0, 1.0, 1.0]));
    assert_eq!(fields.0, expected);
}

#[test]
fn the_exact_form_marks_the_buffer_by_fractions() {
    let fields = saved(&digest(100, &[3.0, 1.0, 2.0]), Form::Exact);
    let doubles = |from: usize| -> Vec<_> { fields.0.iter().skip(from).cloned().collect() };
    assert_eq!(fields.0[4], Field::Unsigned(3));
    assert_eq!(fields.0[6], Field::Unsigned(0));
    let expected = [3.0, 3.0 / 4294967296.0, 1.0, 2.0, 3.0, 1.5, 1.75, 1.25].map(Field::Double);
    assert_eq!(doubles(7), expected);
}

#[test]
fn weights_without_bits_for_marks_are_saved_compressed() {
    let mut digest = loaded(&sound()).unwrap();
    digest.add_all(&[50.0], FREE).unwrap();
    let mut heavy = sound();
    heavy.0[7] = Field::Double(24.0 + 2_f64.powi(53));
    heavy.0[14] = Field::Double(2_f64.powi(53) - 16.0);
    heavy.0[15] = Field::Double(32.0);
    let heavy = loaded(&heavy).unwrap();
    let merged = TDigest::merge(Some(&digest), &[&heavy], None, FREE).unwrap();
    assert!(!merged.unmerged().is_empty());
    assert_eq!(saved(&merged, Form::Exact), saved(&merged, Form::Compressed));
    assert_eq!(loaded(&saved(&merged, Form::Exact)).unwrap().observations(), merged.observations());
}

#[test]
fn an_empty_digest_comes_back_empty() {
    for form in [Form::Compressed, Form::Exact] {
        assert_eq!(loaded(&saved(&digest(7, &[]), form)).unwrap(), digest(7, &[]));
    }
}

#[test]
fn the_lone_observation_of_an_old_file_is_its_minimum() {
    let mut fields = saved(&digest(100, &[]), Form::Compressed);
    fields.0[1] = Field::Double(42.5);
    fields.0[2] = Field::Double(42.5);
    fields.0[5] = Field::Unsigned(1);
    fields.0[8] = Field::Double(1.0);
    let digest = loaded(&fields).unwrap();
    assert_eq!(digest.observations(), 1);
    assert_eq!(digest.view().unwrap().quantile(0.5), 42.5);
    fields.0[2] = Field::Double(43.0);
    assert!(loaded(&fields).is_err());
}

#[test]
fn a_fraction_in_the_compression_is_kept() {
    let mut fields = sound();
    fields.0[0] = Field::Double(10.7);
    let digest = loaded(&fields).unwrap();
    assert_eq!((digest.compression(), digest.capacity()), (10.7, 70));
    assert_eq!(saved(&digest, Form::Exact), fields);
}

#[test]
fn later_versions_are_refused() {
    for version in [-1, 1, 999] {
        assert_eq!(load(&mut sound(), version), Err(LoadError::UnknownVersion(version)));
    }
}

#[test]
fn every_shortened_file_is_refused() {
    for len in 0..sound().0.len() {
        let mut short = sound();
        short.0.truncate(len);
        assert_eq!(load(&mut short, VERSION), Err(LoadError::ShortRead), "{len} fields");
    }
}

#[test]
fn contradictions_are_refused() {
    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;
    let doubles: [(usize, &[f64]); 9] = [
        (0, &[0.0, -1.0, NAN, 1e30, INF, 0.9, 11.0]),
        (1, &[NAN, -INF, 3.0]),
        (2, &[NAN, INF, 94.0]),
        (7, &[NAN, INF, 39.0, 41.0, 40.5, -40.0]),
        (8, &[NAN, INF, -1.0, 0.5, 1.0, 5.0, 1e300]),
        (9, &[NAN, -INF, -1.0, 21.0]),
        (11, &[NAN, INF, 19.0, 96.0]),
        (12, &[NAN, INF, 101.0]),
        (13, &[NAN, INF, 0.0, -4.0, 4.5, 0.5, 1e300, 9223372036854775808.0]),
    ];
    let unsigned: [(usize, &[u64]); 4] = [
        (3, &[0, 69, 71, u64::MAX]),
        (4, &[3, 71, 200_000, u64::MAX]),
        (5, &[1, 2_000_000, u64::MAX]),
        (6, &[u64::MAX, 1 << 63]),
    ];
    let doubles = doubles.iter().flat_map(|(at, v)| v.iter().map(|v| (*at, Field::Double(*v))));
    let unsigned = unsigned.iter().flat_map(|(at, v)| v.iter().map(|v| (*at, Field::Unsigned(*v))));
    for (at, field) in doubles.chain(unsigned) {
        let mut fields = sound();
        fields.0[at] = field.clone();
        let result = load(&mut fields, VERSION);
        assert!(matches!(result, Err(LoadError::Inconsistent(_))), "{at} {field:?}: {result:?}");
    }
}

/// The means of the sound digest are the fields 9 to 12: 2.5, 20, 60 and 95 of up to 100.
#[test]
fn means_out_of_order_by_rounding_are_put_in_order_and_others_refused() {
    let mean_of = |at: usize, mean: f64| {
        let mut fields = sound();
        fields.0[at] = Field::Double(mean);
        loaded(&fields).map(|digest| digest.merged().iter().map(|c| c.mean).collect::<Vec<_>>())
    };
    let mut twice = sound();
    twice.0[10] = Field::Double(60.0_f64.next_up());
    let means: Vec<_> = loaded(&twice).unwrap().merged().iter().map(|c| c.mean).collect();
    assert_eq!(means, [2.5, 60.0_f64.next_up(), 60.0_f64.next_up(), 95.0]);
    assert_eq!(mean_of(12, 100.0_f64.next_up()).unwrap()[3], 100.0);
    assert!(mean_of(10, 60.001).is_err());
    assert!(mean_of(12, 100.001).is_err());
}

#[test]
fn a_place_in_the_buffer_is_taken_once() {
    let mut fields = saved(&digest(100, &[3.0, 1.0, 2.0]), Form::Exact);
    for wrong in [1.0, 1.25, 1.125, 1.999] {
        fields.0[13] = Field::Double(wrong);
        assert!(loaded(&fields).is_err(), "{wrong}");
    }
}

#[test]
fn nodes_that_are_only_claimed_take_no_memory() {
    let mut fields = Fields(sound().0.into_iter().take(12).collect());
    fields.0[0] = Field::Double(357_913_939.0);
    fields.0[3] = Field::Unsigned(2_147_483_644);
    fields.0[4] = Field::Unsigned(2_147_483_644);
    assert_eq!(load(&mut fields, VERSION), Err(LoadError::ShortRead));
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        prop::collection::vec(-1e6..1e6, 0..300),
        prop::collection::vec((-8_i32..8).prop_map(f64::from), 0..300),
        prop::collection::vec(prop_oneof![Just(0.0), Just(-0.0), Just(1.0)], 0..100),
    ]
}

/// Digests as commands leave them, merged ones included.
fn digests() -> impl Strategy<Value = TDigest> {
    (1_u64..60, values(), prop::option::of(values())).prop_map(|(compression, first, second)| {
        let first = digest(compression, &first);
        match second {
            None => first,
            Some(second) => {
                let second = digest(compression, &second);
                let mut merged = TDigest::merge(Some(&first), &[&second], None, FREE).unwrap();
                merged.add_all(&[3.0, 1.0], FREE).unwrap();
                merged
            }
        }
    })
}

fn plain(digest: &TDigest) -> Fields {
    let mut fields = Fields::default();
    save_plain(digest, &mut fields);
    fields
}

/// Compression 10, bounds 0 and 100: 20 x 16 and 60 x 1 merged, 95 x 1 and 3 x 7 in the
/// buffer.
fn sound_plain() -> Fields {
    let doubles = |values: &[f64]| values.iter().copied().map(Field::Double).collect::<Vec<_>>();
    let mut fields = doubles(&[1.0, f64::MAX, -f64::MAX]);
    fields.extend([16, 0, 0, 0].map(Field::Unsigned));
    fields.extend(doubles(&[0.0, 0.5, 10.0, 0.0, 100.0]));
    fields.extend([2, 2, 5].map(Field::Unsigned));
    for (mean, weight) in [(20.0, 16), (60.0, 1), (95.0, 1), (3.0, 7)] {
        fields.extend([Field::Double(mean), Field::Unsigned(weight)]);
    }
    Fields(fields.into())
}

#[test]
fn the_plain_form_is_as_described() {
    let digest = loaded(&sound_plain()).unwrap();
    assert_eq!((digest.merged().len(), digest.unmerged().len()), (2, 2));
    assert_eq!((digest.observations(), digest.compressions()), (25, 5));
    assert_eq!((digest.min(), digest.max()), (Some(0.0), Some(100.0)));
    assert_eq!(plain(&digest), sound_plain());
}

#[test]
fn plain_data_that_make_no_sense_are_refused() {
    for len in 0..sound_plain().0.len() {
        let mut fields = sound_plain();
        fields.0.truncate(len);
        assert_eq!(loaded(&fields), Err(LoadError::ShortRead), "{len}");
    }
    for (at, bad) in [
        (0, Field::Double(2.0)),
        (1, Field::Double(f64::NAN)),
        (3, Field::Unsigned(17)),
        (5, Field::Unsigned(1)),
        (7, Field::Double(f64::NAN)),
        (9, Field::Double(0.0)),
        (10, Field::Double(f64::NAN)),
        (10, Field::Double(30.0)),
        (11, Field::Double(f64::INFINITY)),
        (11, Field::Double(90.0)),
        (12, Field::Unsigned(69)),
        (13, Field::Unsigned(u64::MAX)),
        (14, Field::Unsigned(u64::MAX)),
        (15, Field::Double(61.0)),
        (15, Field::Double(f64::NAN)),
        (21, Field::Double(-1.0)),
        (21, Field::Double(f64::NAN)),
        (16, Field::Unsigned(0)),
        (16, Field::Unsigned(MAX_WEIGHT)),
        (22, Field::Unsigned(u64::MAX)),
    ] {
        let mut fields = sound_plain();
        fields.0[at] = bad.clone();
        let refused = matches!(loaded(&fields), Err(LoadError::Inconsistent(_)));
        assert!(refused, "{bad:?} at {at}");
    }
}

proptest! {
    #[test]
    fn the_exact_form_comes_back_equal_and_stays_so(mut digest in digests(), more in values()) {
        let mut copy = loaded(&saved(&digest, Form::Exact)).unwrap();
        prop_assert_eq!(&copy, &digest);
        digest.add_all(&more, FREE).unwrap();
        copy.add_all(&more, FREE).unwrap();
        prop_assert_eq!(&copy, &digest);
    }

    #[test]
    fn the_plain_form_comes_back_equal(digest in digests()) {
        let copy = loaded(&plain(&digest)).unwrap();
        prop_assert_eq!(&copy, &digest);
    }

    #[test]
    fn a_reader_that_truncates_weights_finds_a_sound_digest_in_the_exact_form(digest in digests()) {
        let mut fields = saved(&digest, Form::Exact);
        let nodes = digest.merged().len() + digest.unmerged().len();
        for at in (9 + nodes..9 + 2 * nodes).chain([8]) {
            if let Field::Double(value) = &mut fields.0[at] {
                *value = value.trunc();
            }
        }
        let read = loaded(&fields).unwrap();
        prop_assert_eq!(read.merged().len(), nodes);
        prop_assert_eq!(read.observations(), digest.observations());
        prop_assert_eq!((read.min(), read.max()), (digest.min(), digest.max()));
    }

    #[test]
    fn both_forms_answer_alike(digest in digests()) {
        let compressed = saved(&digest, Form::Compressed);
        let copy = loaded(&compressed).unwrap();
        prop_assert_eq!(saved(&copy, Form::Compressed), compressed);
        prop_assert_eq!(copy.observations(), digest.observations());
        let (ours, theirs) = (digest.view().unwrap(), copy.view().unwrap());
        for i in 0..=50 {
            let q = f64::from(i) / 50.0;
            prop_assert_eq!(ours.quantile(q).to_bits(), theirs.quantile(q).to_bits());
            prop_assert_eq!(ours.cdf(q * 10.0).to_bits(), theirs.cdf(q * 10.0).to_bits());
        }
    }

    #[test]
    fn what_loads_from_damaged_fields_works(
        digest in digests(),
        exact: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..4), 1..4),
    ) {
        let mut fields = saved(&digest, if exact { Form::Exact } else { Form::Compressed });
        for (at, bits, kind) in damage {
            let at = at.index(fields.0.len());
            let field = &mut fields.0[at];
            *field = match (&field, kind) {
                (Field::Double(_), 0) => Field::Double(f64::from_bits(bits)),
                (Field::Double(value), 1) => Field::Double(value + (bits % 3) as f64 / 2.0),
                (Field::Double(value), _) => Field::Double(f64::from_bits(value.to_bits() ^ 1 << (bits % 64))),
                (Field::Unsigned(_), 0) => Field::Unsigned(bits),
                (Field::Unsigned(value), _) => Field::Unsigned(value ^ 1 << (bits % 64)),
                (other, _) => (*other).clone(),
            };
        }
        if let Ok(mut digest) = load(&mut fields, VERSION) {
            for _ in 0..2 {
                let empty = digest.observations() == 0;
                let view = digest.view().unwrap();
                for i in 0..=20 {
                    let share = f64::from(i) / 20.0;
                    prop_assert_eq!(view.quantile(share).is_nan(), empty);
                    prop_assert_eq!(view.cdf(share * 1e6).is_nan(), empty);
                    prop_assert_eq!(view.trimmed_mean(share / 2.0, 1.0 - share / 3.0).is_nan(), empty);
                    prop_assert_eq!(view.by_rank(i as u64).is_nan(), empty);
                }
                let _ = digest.add_all(&[0.5; 100], FREE);
            }
        }
    }
}

#[test]
fn a_digest_of_the_greatest_weight_loads_although_its_weights_are_rounded_up() {
    // As doubles, 2^62 + 1024 and 2^62 - 512: more than there may be.
    let weights = [(1 << 62) + 600, (1 << 62) - 601];
    let centroids = [(1.0, weights[0]), (2.0, weights[1])];
    let digest = TDigest::from_parts(Parts {
        compression: 100.0,
        centroids: Buffer::copy_of(&centroids.map(|(mean, weight)| Centroid { mean, weight }))
            .unwrap(),
        merged: 2,
        used: 2,
        compressions: 70,
        min: 1.0,
        max: 2.0,
    });
    assert_eq!(digest.observations(), MAX_WEIGHT);
    for form in [Form::Exact, Form::Compressed] {
        let digest = loaded(&saved(&digest, form)).unwrap();
        assert_eq!(digest.observations(), MAX_WEIGHT);
        assert!(loaded(&saved(&digest, form)).is_ok(), "and once more");
    }
}

#[test]
fn weights_that_are_too_great_together_are_refused() {
    let mut fields = sound();
    for weight in fields.0.iter_mut().skip(13).take(2) {
        *weight = Field::Double(5e18);
    }
    assert_eq!(loaded(&fields), Err(LoadError::Inconsistent("sum of weights")));
}
