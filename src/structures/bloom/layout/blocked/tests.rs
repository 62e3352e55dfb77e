//! What the blocked layout promises: the rate, the memory, and that nothing but
//! parameters, seed and items decides what a chain becomes.

use std::cell::Cell;
use std::collections::HashSet;

use proptest::prelude::*;

use super::super::super::{Insertion, Refusal};
use super::*;

fn params(error_rate: f64, capacity: u64, expansion: u32, scaling: bool) -> Params {
    Params { capacity, error_rate, expansion, scaling }
}

fn chain(error_rate: f64, capacity: u64, expansion: u32) -> Chain {
    Chain::new(&params(error_rate, capacity, expansion, true), 42, Quota::UNLIMITED).unwrap()
}

fn add(chain: &mut Chain, item: &[u8]) -> Insertion {
    chain.insert(item, Quota::UNLIMITED)
}

/// Adds numbers from 0 on until the chain counts `items`.
fn fill(chain: &mut Chain, items: u64) {
    for i in 0u64.. {
        if chain.items() == items {
            return;
        }
        add(chain, &i.to_le_bytes()).unwrap();
    }
}

/// How many of `queries` numbers that were not added are reported.
fn false_positives(chain: &Chain, queries: u64) -> u64 {
    let mut count = 0;
    for start in (0..queries).step_by(1000) {
        let items: Vec<_> = (start..start + 1000).map(|i| (1 << 40 | i).to_le_bytes()).collect();
        let items: Vec<&[u8]> = items.iter().map(|item| item.as_slice()).collect();
        let mut found = vec![false; items.len()];
        chain.contains_batch(&items, &mut found);
        count += found.iter().filter(|&&found| found).count() as u64;
    }
    count
}

/// At most the rate asked for, and four standard deviations of the sample.
fn assert_rate(chain: &Chain, queries: u64) {
    let expected = chain.error_rate() * queries as f64;
    let count = false_positives(chain, queries) as f64;
    assert!(count <= expected + 4.0 * expected.sqrt() + 1.0, "{count} of {queries}: {chain:?}");
}

#[test]
fn the_rate_holds_in_chains_of_small_layers() {
    for (rate, capacity, expansion, items, queries) in [
        (1e-4, 100, 2, 20_000, 200_000),
        (1e-4, 5, 2, 2_000, 200_000),
        (1e-6, 10, 2, 10, 200_000),
        (1e-6, 10, 2, 1_000, 200_000),
        (0.001, 1, 1, 500, 100_000),
        (0.25, 2, 2, 100, 20_000),
        (0.01, 3, 1, 3_000, 20_000),
        (0.05, 1000, 2, 30_000, 20_000),
        (1e-5, 1, 32768, 20_000, 200_000),
    ] {
        let mut chain = chain(rate, capacity, expansion);
        fill(&mut chain, items);
        assert_rate(&chain, queries);
    }
}

#[test]
fn the_rate_holds_in_one_full_layer() {
    for (rate, capacity) in [(0.01, 1), (0.01, 10), (0.01, 1000), (0.01, 30_000), (1e-3, 20_000)] {
        for scaling in [true, false] {
            let params = params(rate, capacity, 2, scaling);
            let mut chain = Chain::new(&params, 7, Quota::UNLIMITED).unwrap();
            fill(&mut chain, capacity);
            assert_eq!((chain.layers(), chain.capacity()), (1, capacity));
            assert_rate(&chain, 100_000);
        }
    }
}

#[test]
fn the_measured_rate_is_the_estimated_one() {
    for (rate, capacity, items) in [(0.1, 40, 40), (0.02, 20_000, 20_000), (0.02, 100, 20_000)] {
        let (mut counted, mut expected) = (0.0, 0.0);
        for seed in 0..20 {
            let params = params(rate, capacity, 2, true);
            let mut chain = Chain::new(&params, seed, Quota::UNLIMITED).unwrap();
            fill(&mut chain, items);
            expected += chain.estimated_rate() * 10_000.0;
            counted += false_positives(&chain, 10_000) as f64;
        }
        let ratio = counted / expected;
        assert!((0.9..1.1).contains(&ratio), "{ratio} for {rate} {capacity} {items}");
    }
}

/// With the limits between the shares of `sizing`.
const RATES: [f64; 16] = [
    0.25, 0.1, 0.07, 0.069, 0.05, 0.04, 0.039, 0.01, 0.003, 0.0011, 0.00109, 0.001, 1e-4, 1e-5,
    1e-6, 1e-7,
];

#[test]
fn a_layer_takes_no_more_memory_than_redisblooms() {
    for rate in RATES {
        for capacity in [1, 2, 5, 10, 60, 100, 999, 5000, 20_000, 123_456, 1_000_000, 50_000_000] {
            let shape = sizing::shape(rate, capacity, 0, true).unwrap();
            let ours = Chain::first_bytes(shape) as f64;
            assert!(ours <= redisbloom(rate, capacity, 1, 1), "{rate} {capacity}: {ours}");
            let shape = sizing::shape(rate, capacity, 0, false).unwrap();
            let ours = Chain::first_bytes(shape) as f64;
            // RedisBloom's exceeds a lax rate before it refuses items.
            let limit = 1.035 * (1.0 + rate / 2.0) * redisbloom(rate * 2.0, capacity, 1, 1);
            assert!(ours <= limit, "{rate} {capacity}");
        }
    }
}

#[test]
fn a_chain_takes_at_most_3_percent_more_than_redisblooms() {
    for rate in RATES {
        for capacity in [1u64, 10, 60, 100, 1000, 8000, 12_345, 20_000, 1_000_000] {
            for expansion in [1u64, 2, 3, 4, 8] {
                let mut ours = 0.0;
                for index in 0..10u32 {
                    let capacity_here = capacity * expansion.pow(index);
                    // No shape where it exceeds the address space.
                    let shape = sizing::shape(rate, capacity_here, index as usize, true);
                    let Some(shape) = shape else { break };
                    ours += match index {
                        0 => Chain::first_bytes(shape) as f64,
                        _ => Chain::further_bytes(shape) as f64,
                    };
                    let theirs = redisbloom(rate, capacity, expansion, index + 1);
                    assert!(ours <= 1.03 * theirs, "{rate} {capacity} {expansion} {index}");
                }
            }
        }
    }
}

/// Bytes of RedisBloom's chain of so many links (specification, sections 6 and 8).
fn redisbloom(rate: f64, capacity: u64, expansion: u64, links: u32) -> f64 {
    let link = |i: u32| {
        let bits_an_item = (rate / 2f64.powi(i as i32 + 1)).ln().abs() / 0.480453013918201;
        let bits = (capacity * expansion.pow(i)) as f64 * bits_an_item;
        64.0 + 8.0 * (bits / 64.0).ceil().max(1.0)
    };
    32.0 + (0..links).map(link).sum::<f64>()
}

#[test]
fn a_small_key_is_one_allocation_of_a_small_size_class() {
    for (rate, capacity, class) in [(0.01, 60, 128), (0.01, 100, 192)] {
        let chain = chain(rate, capacity, 2);
        assert_eq!(chain.heap_bytes(), chain.block().1.size() as u64);
        assert!(chain.heap_bytes() <= class);
    }
    assert_eq!(size_of::<Chain>(), size_of::<usize>());
    assert_eq!((Thin::<Head, Note>::size_for(0), size_of::<Node>()), (40, 48));
}

#[test]
fn counts_and_capacities_are_redisblooms() {
    // Specification, 15.2: V2, and V5 but for its one false positive.
    let mut two = chain(0.1, 4, 2);
    fill(&mut two, 10);
    assert_eq!((two.items(), two.capacity(), two.layers()), (10, 12, 2));
    let mut three = chain(0.001, 3, 3);
    fill(&mut three, 12);
    assert_eq!((three.capacity(), three.layers()), (12, 2));
    fill(&mut three, 13);
    assert_eq!((three.capacity(), three.layers()), (39, 3));
}

#[test]
fn equal_layers_are_reported_one_by_one_and_kept_in_few() {
    let mut chain = chain(0.001, 2, 1);
    let mut numbers = 0u64..;
    for items in 1..3000u64 {
        while chain.items() < items {
            add(&mut chain, &numbers.next().unwrap().to_le_bytes()).unwrap();
        }
        let layers = items.div_ceil(2);
        assert_eq!((chain.layers(), chain.capacity()), (layers, 2 * layers), "{items}");
    }
    assert!(chain.depth() < 45, "{}", chain.depth());
    assert!((chain.heap_bytes() as f64) < redisbloom(0.001, 2, 1, 1000));
}

#[test]
fn a_filter_that_does_not_scale_refuses_at_its_capacity() {
    let mut chain = Chain::new(&params(0.01, 3, 2, false), 1, Quota::UNLIMITED).unwrap();
    fill(&mut chain, 3);
    let items: [&[u8]; 4] = [&[0; 8], b"new", b"other", &[0; 8]];
    let mut out = [Ok(true); 4];
    let before = chain.try_clone().unwrap();
    assert_eq!(chain.insert_batch(&items, Quota::UNLIMITED, &mut out), 2);
    assert_eq!(out[..2], [Ok(false), Err(Refusal::Full)]);
    assert_eq!(add(&mut chain, b"new"), Err(Refusal::Full));
    assert_eq!(add(&mut chain, &[0; 8]), Ok(false));
    assert_eq!(chain, before);
}

#[test]
fn a_refused_layer_is_asked_for_once_and_leaves_the_rest_working() {
    let mut chain = chain(0.01, 3, 2);
    fill(&mut chain, 3);
    let before = chain.try_clone().unwrap();
    let asked = Cell::new(0);
    let refuse = |_| {
        asked.set(asked.get() + 1);
        false
    };
    let items: [&[u8]; 4] = [b"new", &[0; 8], b"other", b"third"];
    let mut out = [Ok(true); 4];
    assert_eq!(chain.insert_batch(&items, Quota::new(&refuse), &mut out), 4);
    let refused = Err(Refusal::CannotGrow);
    assert_eq!(out, [refused, Ok(false), refused, refused]);
    assert_eq!(asked.get(), 1);
    assert_eq!(chain, before);
    assert_eq!(add(&mut chain, b"new"), Ok(true));
}

#[test]
fn the_quota_is_asked_for_all_that_is_taken() {
    for (rate, capacity) in [(0.01, 10), (0.01, 100_000)] {
        let asked = Cell::new(0);
        let allow = |growth: crate::structures::quota::Growth| {
            asked.set(growth.total);
            true
        };
        let quota = Quota::new(&allow);
        let mut chain = Chain::new(&params(rate, capacity, 2, true), 3, quota).unwrap();
        assert!((chain.heap_bytes()..=chain.heap_bytes() + 100).contains(&asked.get()));
        for i in 0..=capacity {
            chain.insert(&i.to_le_bytes(), quota).unwrap();
        }
        while chain.layers() < 2 {
            chain.insert(&chain.items().to_be_bytes(), quota).unwrap();
        }
        assert!((chain.heap_bytes()..=chain.heap_bytes() + 100).contains(&asked.get()));
    }
}

#[test]
fn impossible_parameters_are_refused() {
    for (params, error) in [
        (params(0.0, 1, 2, true), CreateError::Impossible),
        (params(1.0, 1, 2, true), CreateError::Impossible),
        (params(f64::NAN, 1, 2, true), CreateError::Impossible),
        (params(5e-324, 1, 2, true), CreateError::Impossible),
        (params(0.01, 0, 2, true), CreateError::Impossible),
        (params(0.01, 1 << 32, 2, true), CreateError::Impossible),
        (params(0.01, 1, 1 << 16, true), CreateError::Impossible),
    ] {
        let refuse_large = |growth: crate::structures::quota::Growth| growth.total < 1 << 40;
        let result = Chain::new(&params, 1, Quota::new(&refuse_large));
        assert_eq!(result.err(), Some(error), "{params:?}");
    }
    let none = |_| false;
    let result = Chain::new(&params(0.01, 1, 2, true), 1, Quota::new(&none));
    assert_eq!(result.err(), Some(CreateError::OutOfMemory));
    // Rates beyond what can be measured are made as the strictest one.
    assert!(Chain::new(&params(1e-300, 1000, 2, true), 1, Quota::UNLIMITED).is_ok());
    assert!(Chain::new(&params(5e-324, 1000, 2, false), 1, Quota::UNLIMITED).is_ok());
}

#[test]
fn growth_that_cannot_be_numbered_is_refused() {
    let mut chain = chain(0.01, 1, 0);
    assert_eq!(add(&mut chain, b"a"), Ok(true));
    assert_eq!(add(&mut chain, b"b"), Err(Refusal::CannotGrow));
}

#[test]
fn other_seeds_give_other_bits() {
    let mut chains =
        [1, 2].map(|seed| Chain::new(&params(0.01, 100, 2, true), seed, Quota::UNLIMITED).unwrap());
    for chain in &mut chains {
        fill(chain, 50);
    }
    let [a, b] = &chains;
    assert_ne!(a.layer_bytes().next(), b.layer_bytes().next());
    assert_ne!(a, b);
}

#[test]
fn fill_ratio_counts_bits() {
    let mut chain = chain(0.01, 200_000, 2);
    assert_eq!((chain.fill_ratio(), chain.estimated_rate()), (0.0, 0.0));
    fill(&mut chain, 200_000);
    let ones: u32 = chain.layer_bytes().flatten().map(|byte| byte.count_ones()).sum();
    let bits = chain.layer_bytes().flatten().count() * 8;
    assert_eq!(chain.fill_ratio(), f64::from(ones) / bits as f64);
}

#[test]
fn a_chain_survives_the_move_of_all_its_blocks() {
    let mut chain = chain(0.01, 100, 2);
    fill(&mut chain, 5000);
    let before = chain.try_clone().unwrap();
    let mut moved = 0;
    chain.parts(&mut |part| {
        let (old, layout) = part.block();
        // SAFETY: a copy of the whole block takes the old one's place.
        unsafe {
            let new = NonNull::new(std::alloc::alloc(layout)).unwrap();
            new.copy_from_nonoverlapping(old, layout.size());
            std::alloc::dealloc(old.as_ptr(), layout);
            part.moved_to(new);
        }
        moved += 1;
    });
    // Its own block, and for each further layer a node and the bits.
    assert_eq!(moved, 1 + 2 * (chain.records().count() - 1));
    let raw = chain.into_raw();
    // SAFETY: from `into_raw` one line above.
    assert_eq!(unsafe { Chain::from_raw(raw) }, before);
}

#[test]
fn lines_are_cache_lines_in_grown_copied_and_restored_chains() {
    let mut chain = chain(0.01, 20_000, 2);
    fill(&mut chain, 100_000);
    let mut copy = chain.try_clone().unwrap();
    let mut records = chain.records();
    let mut restored = Chain::restore(&chain.params(), 42, records.next().unwrap()).unwrap();
    records.for_each(|record| restored.restore_next(record).unwrap());
    for chain in [&mut chain, &mut copy, &mut restored] {
        let mut seen = 0;
        chain.parts(&mut |part| {
            let (block, layout) = part.block();
            if layout.align() == 64 {
                assert_eq!(block.addr().get() % 64, 0);
                seen += 1;
            }
        });
        assert_eq!(seen, 3);
    }
}

/// Sizes are part of what replicas must agree on: of the stored form's version 1.
#[test]
fn sizes_are_fixed_to_the_last_bit() {
    use Shape::{Free, Lines};
    for (rate, capacity, index, scaling, shape) in [
        (0.01, 100, 0, true, Free { words: 18, probes: 6 }),
        (1e-6, 10, 0, true, Free { words: 5, probes: 16 }),
        (0.01, 50_000_000, 0, true, Lines { lines: 537_983, regions: 2, probes: 4 }),
        (0.001, 50_000_000, 0, true, Lines { lines: 769_703, regions: 2, probes: 5 }),
        (1e-4, 50_000_000, 0, true, Lines { lines: 669_883, regions: 3, probes: 5 }),
        (0.01, 819_200, 13, true, Lines { lines: 18_735, regions: 2, probes: 7 }),
    ] {
        assert_eq!(sizing::shape(rate, capacity, index, scaling), Some(shape));
    }
}

#[derive(Debug, Clone)]
enum Step {
    One(u16),
    Many(Vec<u16>),
}

fn step() -> impl Strategy<Value = Step> {
    let item = || 0..3000u16;
    let many = proptest::collection::vec(item(), 0..200);
    prop_oneof![item().prop_map(Step::One), many.prop_map(Step::Many)]
}

fn any_params() -> impl Strategy<Value = Params> {
    let rates = proptest::sample::select(vec![0.25, 0.01, 1e-3, 1e-6]);
    let capacities = prop_oneof![1..20u64, Just(2000), Just(8000)];
    (rates, capacities, 1..4u32, any::<bool>()).prop_map(
        |(error_rate, capacity, expansion, scaling)| {
            params(error_rate, capacity, expansion, scaling)
        },
    )
}

proptest! {
    #[test]
    fn batches_do_as_single_items_do_and_no_item_is_lost(
        params in any_params(),
        seed: u64,
        steps in proptest::collection::vec(step(), 1..20),
    ) {
        let new = || Chain::new(&params, seed, Quota::UNLIMITED).unwrap();
        let (mut batched, mut single, mut model) = (new(), new(), HashSet::new());
        for step in steps {
            let numbers = match step { Step::One(item) => vec![item], Step::Many(items) => items };
            let items: Vec<[u8; 2]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
            let items: Vec<&[u8]> = items.iter().map(|item| item.as_slice()).collect();
            let mut out = vec![Ok(false); items.len()];
            let done = batched.insert_batch(&items, Quota::UNLIMITED, &mut out);
            let mut expected = Vec::new();
            for item in &items {
                expected.push(add(&mut single, item));
                if expected.last() == Some(&Err(Refusal::Full)) {
                    break;
                }
            }
            prop_assert_eq!(&out[..done], &expected);
            prop_assert_eq!(&batched, &single);
            for (number, outcome) in numbers.iter().zip(&out[..done]) {
                match outcome {
                    Ok(true) => prop_assert!(model.insert(*number)),
                    Ok(false) => {}
                    Err(_) => prop_assert!(!model.contains(number)),
                }
            }
            prop_assert_eq!(batched.items(), model.len() as u64);
        }
        let all: Vec<[u8; 2]> = (0..3000u16).map(u16::to_le_bytes).collect();
        let all: Vec<&[u8]> = all.iter().map(|item| item.as_slice()).collect();
        let mut found = vec![false; all.len()];
        batched.contains_batch(&all, &mut found);
        for (number, found) in found.into_iter().enumerate() {
            prop_assert!(found || !model.contains(&(number as u16)));
            prop_assert_eq!(found, batched.contains(all[number]));
        }
    }

    #[test]
    fn a_restored_chain_is_the_same_and_grows_the_same(
        params in any_params(),
        seed: u64,
        items in 0..5000u64,
    ) {
        let mut chain = Chain::new(&params, seed, Quota::UNLIMITED).unwrap();
        fill(&mut chain, if params.scaling { items } else { items.min(params.capacity) });
        let mut records = chain.records();
        let mut copy = Chain::restore(&params, seed, records.next().unwrap()).unwrap();
        for record in records {
            copy.restore_next(record).unwrap();
        }
        for (to, from) in copy.layer_bytes_mut().zip(chain.layer_bytes()) {
            to.copy_from_slice(from);
        }
        prop_assert_eq!(&copy, &chain);
        for i in 10_000..10_500u64 {
            prop_assert_eq!(add(&mut copy, &i.to_le_bytes()), add(&mut chain, &i.to_le_bytes()));
        }
        prop_assert_eq!(copy, chain);
    }

    #[test]
    fn every_size_asked_for_is_plausible_and_keeps_its_rate(
        exponent in 1..1000u32,
        capacity in prop_oneof![1..1000u64, 1..=1u64 << 30, 1..=1u64 << 36],
        index in 0..80usize,
        scaling: bool,
    ) {
        let rate = 0.25 * 10f64.powf(-f64::from(exponent) / 50.0);
        let shape = sizing::shape(rate, capacity, index, scaling).unwrap();
        prop_assert!(shape.is_plausible(capacity));
        let budget = sizing::budget(rate, index, scaling);
        prop_assert!(shape.rate(capacity) <= budget * 1.000_001);
    }
}
