//! Tests that every large allocation may fail, in whatever makes, grows, copies, loads
//! or saves a structure: an error comes back, and what was there is unchanged.

#![forbid(unsafe_code)]

use std::fmt::Debug;

use super::{Fields, bloom, cms, cuckoo, tdigest, topk};
use crate::host::alloc::failing;
use crate::structures::bloom::{Filter as Bloom, Params as BloomParams};
use crate::structures::cms::{Dimensions, Sketch};
use crate::structures::cuckoo::{Filter as Cuckoo, Insertion, Limits, Outcome, Params};
use crate::structures::quota::Quota;
use crate::structures::tdigest::TDigest;
use crate::structures::topk::{Params as TopKParams, TopK};

const LIMITS: Limits<'static> =
    Limits { sub_filters: 32, quota: Quota::UNLIMITED, lifted: &|| false };

/// Lets each large allocation of `attempt` fail in turn: it must return an error then,
/// or get round it and return what it does without a failure. `prepare` makes what it
/// works on, `check` is shown that after each error, of which `at_least` so many come.
fn each_allocation_fails<T, R: PartialEq + Debug, E: Debug>(
    at_least: u32,
    mut prepare: impl FnMut() -> T,
    mut attempt: impl FnMut(&mut T) -> Result<R, E>,
    mut check: impl FnMut(&T),
) {
    let expected = attempt(&mut prepare()).unwrap();
    let mut errors = 0;
    for succeeding in 0.. {
        let mut subject = prepare();
        let (result, failed) = failing::after(succeeding, || attempt(&mut subject));
        match result {
            Ok(result) => assert_eq!(result, expected),
            Err(error) => {
                assert!(failed, "{error:?} for no reason");
                check(&subject);
                errors += 1;
            }
        }
        if !failed {
            break;
        }
    }
    assert!(errors >= at_least, "only {errors} errors");
}

/// As above, where there is nothing to check.
fn fails_cleanly<R: PartialEq + Debug, E: Debug>(
    at_least: u32,
    mut attempt: impl FnMut() -> Result<R, E>,
) {
    each_allocation_fails(at_least, || (), |()| attempt(), |()| {});
}

fn blooms() -> Vec<Bloom> {
    let params = BloomParams { capacity: 10_000, error_rate: 0.01, expansion: 2, scaling: true };
    vec![
        Bloom::redisbloom(params, Quota::UNLIMITED).unwrap(),
        Bloom::blocked(params, 7, Quota::UNLIMITED).unwrap(),
    ]
}

/// Items that nobody else adds.
fn item(number: u32) -> [u8; 8] {
    (u64::from(number) << 32 | 1).to_le_bytes()
}

#[test]
fn bloom_filters_are_made_and_copied_or_not() {
    let params = BloomParams { capacity: 10_000, error_rate: 0.01, expansion: 2, scaling: true };
    fails_cleanly(1, || Bloom::redisbloom(params, Quota::UNLIMITED));
    fails_cleanly(1, || Bloom::blocked(params, 7, Quota::UNLIMITED));
    for filter in blooms() {
        fails_cleanly(1, || filter.try_clone());
    }
}

#[test]
fn a_bloom_filter_that_cannot_grow_stays_as_it_is() {
    for filter in blooms() {
        let mut full = filter;
        let mut number = 0;
        while full.items() < full.capacity() {
            full.insert(&item(number), Quota::UNLIMITED).unwrap();
            number += 1;
        }
        let layers = full.layers();
        let next = (number..).map(item).find(|item| !full.contains(item)).unwrap();
        each_allocation_fails(
            1,
            || full.try_clone().unwrap(),
            |filter| {
                let done = filter.insert(&next, Quota::UNLIMITED);
                assert!(done.is_err() || filter.layers() == layers + 1);
                done
            },
            |filter| assert_eq!(*filter, full),
        );
    }
}

#[test]
fn stored_bloom_filters_load_or_not() {
    for filter in blooms() {
        let mut fields = Fields::default();
        bloom::save(&filter, &mut fields);
        let load = |fields: &mut Fields| bloom::load(fields, bloom::VERSION);
        each_allocation_fails(0, || fields.clone(), load, |_| {});
        let header = bloom::header(&filter);
        fails_cleanly(1, || bloom::from_header(&header, Quota::UNLIMITED));
    }
}

fn cuckoo_params() -> Params {
    Params { capacity: 8192, bucket_size: 2, max_iterations: 20, expansion: 1 }
}

#[test]
fn cuckoo_filters_are_made_copied_and_loaded_or_not() {
    fails_cleanly(1, || Cuckoo::new(cuckoo_params(), Quota::UNLIMITED));
    let filter = Cuckoo::new(cuckoo_params(), Quota::UNLIMITED).unwrap();
    fails_cleanly(1, || filter.try_clone());
    let mut fields = Fields::default();
    cuckoo::save(&filter, &mut fields);
    let load = |fields: &mut Fields| cuckoo::load(fields, cuckoo::VERSION);
    each_allocation_fails(0, || fields.clone(), load, |_| {});
    let header = cuckoo::header(&filter);
    fails_cleanly(1, || cuckoo::from_header(&header, Quota::UNLIMITED));
}

#[test]
fn a_cuckoo_filter_that_cannot_grow_stays_as_it_is() {
    let mut full = Cuckoo::new(cuckoo_params(), Quota::UNLIMITED).unwrap();
    // Copies of one item fill its two buckets, and the next one needs a sub-filter.
    for _ in 0..4 {
        full.insert(b"item", Insertion::Every, LIMITS);
    }
    assert_eq!(full.tables().len(), 1);
    each_allocation_fails(
        1,
        || full.try_clone().unwrap(),
        |filter| match filter.insert(b"item", Insertion::Every, LIMITS) {
            Outcome::Inserted => Ok(()),
            other => Err(other),
        },
        |filter| assert_eq!(*filter, full),
    );
}

#[test]
fn count_min_sketches_are_made_copied_and_loaded_or_not() {
    let size = Dimensions::new(2000, 5).unwrap();
    fails_cleanly(1, || Sketch::new(size, Quota::UNLIMITED));
    let sketch = Sketch::new(size, Quota::UNLIMITED).unwrap();
    fails_cleanly(1, || sketch.try_clone());
    let mut fields = Fields::default();
    cms::save(&sketch, &mut fields);
    let load = |fields: &mut Fields| cms::load(fields, cms::VERSION);
    each_allocation_fails(0, || fields.clone(), load, |_| {});
}

#[test]
fn topk_sketches_are_made_copied_listed_saved_and_loaded_or_not() {
    let params = TopKParams::new(2000, 1000, 4, 0.9).unwrap();
    fails_cleanly(3, || TopK::new(params, Quota::UNLIMITED));
    let mut topk = TopK::new(params, Quota::UNLIMITED).unwrap();
    for number in 0..1500 {
        topk.add(&[(&item(number), 1)], Quota::UNLIMITED, |added| assert!(added.is_ok()));
    }
    fails_cleanly(3, || topk.try_clone());
    fails_cleanly(1, || topk.list().map(Iterator::count));
    fails_cleanly(1, || topk::save(&topk, &mut Nowhere));
    let mut fields = Fields::default();
    topk::save(&topk, &mut fields).unwrap();
    let load = |fields: &mut Fields| topk::load(fields, topk::VERSION);
    each_allocation_fails(3, || fields.clone(), load, |_| {});
}

#[test]
fn a_long_item_enters_a_topk_list_or_not() {
    let topk = TopK::new(TopKParams::new(3, 8, 7, 0.9).unwrap(), Quota::UNLIMITED).unwrap();
    let long = [b'x'; 10_000];
    each_allocation_fails(
        1,
        || topk.try_clone().unwrap(),
        |topk| {
            let mut result = Ok(());
            topk.add(&[(&long, 1)], Quota::UNLIMITED, |added| result = added.map(|_| ()));
            result
        },
        |topk| {
            topk.query(&[&long], |listed| assert!(!listed));
            assert_eq!(topk.list().unwrap().count(), 0);
        },
    );
}

#[test]
fn t_digests_grow_answer_copy_merge_save_and_load_or_not() {
    let values: Vec<f64> = (0..3000).map(f64::from).collect();
    let empty = TDigest::new(1000, Quota::UNLIMITED).unwrap();
    each_allocation_fails(
        1,
        || empty.try_clone().unwrap(),
        |digest| digest.add_all(&values, Quota::UNLIMITED),
        |digest| assert_eq!(*digest, empty),
    );
    let mut digest = empty.try_clone().unwrap();
    digest.add_all(&values, Quota::UNLIMITED).unwrap();
    fails_cleanly(1, || digest.try_clone());
    each_allocation_fails(
        2,
        || digest.try_clone().unwrap(),
        |digest| digest.view().map(|view| view.quantile(0.5)),
        |copy| assert_eq!(*copy, digest),
    );
    fails_cleanly(2, || TDigest::merge(None, &[&digest, &digest], None, Quota::UNLIMITED));
    for form in [tdigest::Form::Exact, tdigest::Form::Compressed] {
        fails_cleanly(1, || tdigest::save(&digest, form, &mut Nowhere));
    }
    let mut fields = Fields::default();
    tdigest::save(&digest, tdigest::Form::Exact, &mut fields).unwrap();
    let load = |fields: &mut Fields| tdigest::load(fields, tdigest::VERSION);
    each_allocation_fails(2, || fields.clone(), load, |_| {});
}

/// Takes fields and keeps none, so that only the allocations of a codec are seen.
struct Nowhere;

impl super::Sink for Nowhere {
    fn unsigned(&mut self, _: u64) {}
    fn double(&mut self, _: f64) {}
    fn string(&mut self, _: &[u8]) {}
}
