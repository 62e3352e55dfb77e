//! Tests that every large allocation may fail: in whatever makes, grows, copies or loads
//! a structure an error comes back, and what was there is unchanged; what is saved or
//! dumped loads as if there had been memory.

#![forbid(unsafe_code)]

use std::fmt::Debug;

use super::{Fields, LoadError, Sink, bloom, cms, cuckoo, tdigest, topk};
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
fn topk_sketches_are_made_copied_listed_and_loaded_or_not() {
    let params = TopKParams::new(2000, 1000, 4, 0.9).unwrap();
    fails_cleanly(3, || TopK::new(params, Quota::UNLIMITED));
    let mut topk = TopK::new(params, Quota::UNLIMITED).unwrap();
    for number in 0..1500 {
        topk.add(&[(&item(number), 1)], Quota::UNLIMITED, |added| assert!(added.is_ok()));
    }
    fails_cleanly(3, || topk.try_clone());
    fails_cleanly(1, || topk.list().map(Iterator::count));
    let load = |fields: &mut Fields| topk::load(fields, topk::VERSION);
    let mut fields = Fields::default();
    topk::save(&topk, &mut fields);
    each_allocation_fails(3, || fields.clone(), load, |_| {});
    let mut fields = Fields::default();
    topk::save_plain(&topk, &mut fields);
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
fn t_digests_grow_answer_copy_merge_and_load_or_not() {
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
    let load = |fields: &mut Fields| tdigest::load(fields, tdigest::VERSION);
    let mut fields = Fields::default();
    tdigest::save(&digest, tdigest::Form::Exact, &mut fields);
    each_allocation_fails(2, || fields.clone(), load, |_| {});
    let mut fields = Fields::default();
    tdigest::save_plain(&digest, &mut fields);
    each_allocation_fails(2, || fields.clone(), load, |_| {});
}

/// Takes fields, for which there is always memory: only the allocations of a codec fail.
#[derive(Default)]
struct Unfailing(Fields);

impl Sink for Unfailing {
    fn unsigned(&mut self, value: u64) {
        failing::aside(|| self.0.unsigned(value));
    }

    fn double(&mut self, value: f64) {
        failing::aside(|| self.0.double(value));
    }

    fn string(&mut self, value: &[u8]) {
        failing::aside(|| self.0.string(value));
    }
}

/// Lets each large allocation of `save` fail in turn: what is written must load all the
/// same, and as the value that it was saved from. There are `failures` of them.
fn every_save_loads<T: PartialEq + Debug>(
    failures: u32,
    value: &T,
    save: impl Fn(&T, &mut Unfailing),
    load: impl Fn(&mut Fields) -> Result<T, LoadError>,
) {
    let mut failed_so_far = 0;
    for succeeding in 0.. {
        let mut written = Unfailing::default();
        let ((), failed) = failing::after(succeeding, || save(value, &mut written));
        let loaded = load(&mut written.0);
        assert_eq!(loaded.as_ref(), Ok(value), "after {succeeding} allocations");
        assert_eq!(written.0, Fields::default(), "fields are left");
        if !failed {
            break;
        }
        failed_so_far += 1;
    }
    assert_eq!(failed_so_far, failures);
}

/// A chain whose header is longer than the smallest block that fails.
fn long_chain() -> Bloom {
    let params = BloomParams { capacity: 1, error_rate: 0.01, expansion: 1, scaling: true };
    let mut chain = Bloom::redisbloom(params, Quota::UNLIMITED).unwrap();
    for number in 0..1000 {
        chain.insert(&item(number), Quota::UNLIMITED).unwrap();
    }
    assert!(bloom::header(&chain).len() > 4096);
    chain
}

#[test]
fn filters_and_count_min_sketches_are_saved_without_memory() {
    for filter in blooms().into_iter().chain([long_chain()]) {
        let load = |fields: &mut Fields| bloom::load(fields, bloom::VERSION);
        every_save_loads(0, &filter, bloom::save, load);
    }
    let filter = Cuckoo::new(cuckoo_params(), Quota::UNLIMITED).unwrap();
    let load = |fields: &mut Fields| cuckoo::load(fields, cuckoo::VERSION);
    every_save_loads(0, &filter, cuckoo::save, load);
    let size = Dimensions::new(2000, 5).unwrap();
    let sketch = Sketch::new(size, Quota::UNLIMITED).unwrap();
    let load = |fields: &mut Fields| cms::load(fields, cms::VERSION);
    every_save_loads(0, &sketch, cms::save, load);
}

/// The pieces of a dump, as `SCANDUMP` and the rewriting of an append-only file take
/// them.
#[test]
fn filters_are_dumped_without_memory() {
    for filter in blooms().into_iter().chain([long_chain()]) {
        let mut room = [0; bloom::MAX_HEADER];
        let mut copy = None;
        let ((), failed) = failing::after(0, || {
            let header = bloom::header_in(&filter, &mut room);
            copy = failing::aside(|| bloom::from_header(header, Quota::UNLIMITED).ok());
            let mut iterator = 1;
            while let Some((next, data)) = bloom::chunk(&filter, iterator) {
                bloom::load_chunk(copy.as_mut().unwrap(), next, data).unwrap();
                iterator = next;
            }
        });
        assert!(!failed);
        assert_eq!(copy, Some(filter));
    }
    let filter = Cuckoo::new(cuckoo_params(), Quota::UNLIMITED).unwrap();
    let (dumped, failed) = failing::after(0, || {
        (cuckoo::header(&filter).len(), cuckoo::chunk(&filter, 1).map(|(_, data)| data.len()))
    });
    assert!(!failed);
    assert_eq!(dumped, (cuckoo::HEADER_LEN, Some(filter.tables().next().unwrap().len())));
}

#[test]
fn topk_sketches_are_saved_whatever_fails() {
    let params = TopKParams::new(2000, 1000, 4, 0.9).unwrap();
    let mut topk = TopK::new(params, Quota::UNLIMITED).unwrap();
    for number in 0..1500 {
        topk.add(&[(&item(number), 1)], Quota::UNLIMITED, |added| assert!(added.is_ok()));
    }
    let long = [b'x'; 10_000];
    topk.add(&[(&long, 1), (b"", 2), (b"a\0b", 3)], Quota::UNLIMITED, |_| {});
    let load = |fields: &mut Fields| topk::load(fields, topk::VERSION);
    every_save_loads(2, &topk, topk::save, load);
    every_save_loads(0, &topk, topk::save_plain, load);
}

#[test]
fn t_digests_are_saved_whatever_fails() {
    let values: Vec<f64> = (0..3000).map(|i| f64::from(i * 7919 % 3000)).collect();
    let mut digest = TDigest::new(1000, Quota::UNLIMITED).unwrap();
    let load = |fields: &mut Fields| tdigest::load(fields, tdigest::VERSION);
    let exact = |digest: &TDigest, sink: &mut Unfailing| {
        tdigest::save(digest, tdigest::Form::Exact, sink);
    };
    // Empty, with a buffer alone, with centroids and a buffer.
    for failures in [0, 1, 1] {
        every_save_loads(failures, &digest, exact, load);
        every_save_loads(0, &digest, tdigest::save_plain, load);
        digest.add_all(&values, Quota::UNLIMITED).unwrap();
    }
    // The compressed form loads as another digest, of the same answers.
    let compressed = |digest: &TDigest| {
        let mut fields = Fields::default();
        tdigest::save(digest, tdigest::Form::Compressed, &mut fields);
        fields
    };
    for succeeding in 0..3 {
        let mut written = Unfailing::default();
        let save = || tdigest::save(&digest, tdigest::Form::Compressed, &mut written);
        let ((), failed) = failing::after(succeeding, save);
        assert_eq!(failed, succeeding < 2, "{succeeding}");
        let loaded = load(&mut written.0).unwrap();
        assert_eq!(compressed(&loaded), compressed(&digest));
    }
    // Centroids alone are written as they are.
    digest.compress();
    every_save_loads(0, &digest, exact, load);
}
