//! The filter against vectors of RedisBloom, against the specification read word for
//! word, and against a multiset.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const ANY: Limits<'static> =
    Limits { sub_filters: usize::MAX, quota: Quota::UNLIMITED, lifted: &|| false };

fn filter(capacity: u64, bucket_size: u8, max_iterations: u16, expansion: u16) -> Filter {
    let params = Params { capacity, bucket_size, max_iterations, expansion };
    Filter::new(params, Quota::UNLIMITED).unwrap()
}

fn add(filter: &mut Filter, item: &[u8]) -> Outcome {
    filter.insert(item, Insertion::Every, ANY)
}

fn add_all(filter: &mut Filter, prefix: &str, count: u32) -> Vec<Outcome> {
    let items: Vec<_> = (0..count).map(|number| format!("{prefix}{number}")).collect();
    let items: Vec<_> = items.iter().map(String::as_bytes).collect();
    let mut outcomes = vec![Outcome::NoMemory; items.len()];
    filter.insert_batch(&items, Insertion::Every, ANY, &mut outcomes);
    outcomes
}

fn hex(slots: &[u8]) -> String {
    slots.iter().map(|slot| format!("{slot:02x}")).collect()
}

fn tables(filter: &Filter) -> Vec<String> {
    filter.tables().map(hex).collect()
}

mod vectors_of_redisbloom {
    use super::*;

    #[test]
    fn one_sub_filter() {
        let mut c1 = filter(8, 2, 20, 1);
        for item in [b"a", b"b", b"c", b"d"] {
            assert_eq!(add(&mut c1, item), Outcome::Inserted);
        }
        assert_eq!(tables(&c1), ["0000c4cb00001006"]);
        assert_eq!((c1.items(), c1.deletes(), c1.slots()), (4, 0, 8));
    }

    #[test]
    fn several_sub_filters_of_one_size_with_evictions() {
        let mut c2 = filter(8, 2, 20, 1);
        assert_eq!(add_all(&mut c2, "e", 24), [Outcome::Inserted; 24]);
        assert_eq!(
            tables(&c2),
            ["c2ea1e0b8c73eece", "f2b2fe821cdc7578", "ecc2ca8beed6b900", "d000000000000000"]
        );
    }

    #[test]
    fn buckets_of_one_slot_and_a_deletion() {
        let mut c3 = filter(8, 1, 9, 2);
        for item in b'a'..=b'p' {
            assert_eq!(add(&mut c3, &[item]), Outcome::Inserted);
        }
        assert!(c3.delete(b"a"));
        assert_eq!(tables(&c3), ["0006cb00ed000010", "00bc001c85cd0015b600a90071bb714b"]);
        assert_eq!((c3.items(), c3.deletes()), (15, 1));
    }

    #[test]
    fn buckets_of_three_slots() {
        let mut c4 = filter(12, 3, 5, 3);
        assert_eq!(add_all(&mut c4, "v", 30), [Outcome::Inserted; 30]);
        assert_eq!(c4.shape().expansion(), 4);
        assert_eq!(
            tables(&c4),
            [
                "bad35053abe1e84333a5178c",
                "e3d623000000490700f4000000000067a1003c0000000000c90000aa572dfe00\
                 00000000000000f69900140000fd0000"
            ]
        );
    }

    #[test]
    fn rejections_of_a_filter_that_does_not_grow() {
        let mut c5 = filter(16, 1, 5, 0);
        let outcomes = add_all(&mut c5, "i", 24);
        let full: Vec<_> = (0..24).filter(|&item| outcomes[item] == Outcome::Full).collect();
        assert_eq!(full, [11, 12, 15, 18, 19, 20, 22, 23]);
        assert_eq!(tables(&c5), ["9d6db645064ebdecad70c2c04ad46b7b"]);
        assert_eq!(c5.items(), 16);
    }

    #[test]
    fn copies_over_growing_sub_filters_and_compaction_after_deletions() {
        let mut c6 = filter(16, 2, 20, 2);
        for _ in 0..14 {
            assert_eq!(add(&mut c6, b"same"), Outcome::Inserted);
        }
        assert_eq!((c6.tables().len(), c6.slots(), c6.count(b"same")), (4, 240, 14));
        let after: Vec<_> = (0..6)
            .map(|_| {
                assert!(c6.delete(b"same"));
                (c6.items(), c6.deletes(), c6.tables().len())
            })
            .collect();
        assert_eq!(after, [(13, 1, 4), (12, 0, 3), (11, 1, 3), (10, 0, 3), (9, 0, 3), (8, 0, 2)]);
        assert_eq!(
            tables(&c6),
            [
                "000000000000e6e60000e6e600000000",
                "000000000000e6e6000000000000000000000000000000000000e6e600000000"
            ]
        );
    }

    #[test]
    fn compaction_after_deletions_and_then_an_explicit_one() {
        let mut c7 = filter(8, 2, 20, 1);
        add_all(&mut c7, "e", 60);
        for item in 0..30 {
            assert!(c7.delete(format!("e{item}").as_bytes()));
        }
        assert_eq!((c7.items(), c7.deletes(), c7.tables().len()), (30, 1, 5));
        c7.compact();
        assert_eq!((c7.items(), c7.deletes()), (30, 0));
        assert_eq!(
            tables(&c7),
            ["6a30830b8cba4cba", "60503ee43c70214d", "ec06153f4ed6cf37", "9800273dada74100"]
        );
    }

    #[test]
    fn slots_after_each_eviction() {
        let mut c9 = filter(8, 2, 20, 0);
        for (item, slots) in [
            "0000000000009300",
            "000000005e009300",
            "000000005e0093d0",
            "850000005e0093d0",
            "85e500005e0093d0",
            "07e585005e0093d0",
            "139385e55e00d007",
            "139385e55ed2d007",
            "139385e55ed2d007",
            "139385e55ed2d007",
        ]
        .iter()
        .enumerate()
        {
            let outcome = add(&mut c9, format!("t{item}").as_bytes());
            assert_eq!(outcome == Outcome::Inserted, item < 8, "t{item}");
            assert_eq!(tables(&c9), [*slots], "t{item}");
        }
        let mut c10 = filter(8, 1, 4, 0);
        for item in 0..7 {
            add(&mut c10, format!("u{item}").as_bytes());
        }
        assert_eq!(tables(&c10), ["e73f3f6700bb1dcd"]);
        let refused =
            (7..14).filter(|item| add(&mut c10, format!("u{item}").as_bytes()) == Outcome::Full);
        assert_eq!(refused.collect::<Vec<_>>(), [7, 8, 9, 10, 12, 13]);
        assert_eq!(tables(&c10), ["e73f3f67e2bb1dcd"]);
    }
}

/// The specification, section 11, word for word.
struct Naive {
    tables: Vec<Vec<u8>>,
    buckets: u64,
    bucket_size: usize,
    max_iterations: usize,
    expansion: u64,
    items: u64,
    deletes: u64,
}

impl Naive {
    fn new(buckets: u64, bucket_size: usize, max_iterations: usize, expansion: u64) -> Self {
        let tables = vec![vec![0; buckets as usize * bucket_size]];
        Self { tables, buckets, bucket_size, max_iterations, expansion, items: 0, deletes: 0 }
    }

    fn slot(&self, table: usize, hash: u64, slot: usize) -> usize {
        let buckets = (self.tables[table].len() / self.bucket_size) as u64;
        (hash % buckets) as usize * self.bucket_size + slot
    }

    fn first(&self, table: usize, hash: u64, value: u8) -> Option<usize> {
        (0..self.bucket_size)
            .map(|slot| self.slot(table, hash, slot))
            .find(|&slot| self.tables[table][slot] == value)
    }

    fn first_of_both(&self, table: usize, key: Key, value: u8) -> Option<usize> {
        self.first(table, key.hash, value).or_else(|| self.first(table, key.other_hash(), value))
    }

    fn exists(&self, key: Key) -> bool {
        (0..self.tables.len())
            .any(|table| self.first_of_both(table, key, key.fingerprint).is_some())
    }

    fn insert(&mut self, key: Key) -> bool {
        loop {
            for table in (0..self.tables.len()).rev() {
                if let Some(slot) = self.first_of_both(table, key, 0) {
                    self.tables[table][slot] = key.fingerprint;
                    self.items += 1;
                    return true;
                }
            }
            if self.evict(key) {
                self.items += 1;
                return true;
            }
            if self.expansion == 0 {
                return false;
            }
            let buckets = self.buckets * self.expansion.pow(self.tables.len() as u32);
            self.tables.push(vec![0; buckets as usize * self.bucket_size]);
        }
    }

    fn evict(&mut self, key: Key) -> bool {
        let table = self.tables.len() - 1;
        let (mut fingerprint, mut hash, mut victim) = (key.fingerprint, key.hash, 0);
        let before = self.tables[table].clone();
        for _ in 0..self.max_iterations {
            let slot = self.slot(table, hash, victim);
            std::mem::swap(&mut self.tables[table][slot], &mut fingerprint);
            hash ^= u64::from(fingerprint) * 0x5bd1e995;
            if let Some(slot) = self.first(table, hash, 0) {
                self.tables[table][slot] = fingerprint;
                return true;
            }
            victim = (victim + 1) % self.bucket_size;
        }
        self.tables[table] = before;
        false
    }

    fn delete(&mut self, key: Key) -> bool {
        for table in (0..self.tables.len()).rev() {
            if let Some(slot) = self.first_of_both(table, key, key.fingerprint) {
                self.tables[table][slot] = 0;
                self.items -= 1;
                self.deletes += 1;
                if self.tables.len() > 1 && self.deletes as f64 > self.items as f64 * 0.10 {
                    self.compact(true);
                }
                return true;
            }
        }
        false
    }

    fn compact(&mut self, stop_at_failure: bool) {
        for table in (1..self.tables.len()).rev() {
            let mut ok = true;
            for from in 0..self.tables[table].len() {
                let fingerprint = self.tables[table][from];
                if fingerprint == 0 {
                    continue;
                }
                let key = Key { hash: (from / self.bucket_size) as u64, fingerprint };
                let home =
                    (0..table).find_map(|older| Some((older, self.first_of_both(older, key, 0)?)));
                match home {
                    Some((older, slot)) => {
                        self.tables[older][slot] = fingerprint;
                        self.tables[table][from] = 0;
                    }
                    None => ok = false,
                }
            }
            if ok && table + 1 == self.tables.len() {
                self.tables.pop();
            }
            if !ok && stop_at_failure {
                break;
            }
        }
        self.deletes = 0;
    }
}

#[derive(Debug, Clone)]
enum Call {
    Add(u16),
    AddAbsent(u16),
    Delete(u16),
    Compact,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let item = 0..400_u16;
    let call = prop_oneof![
        8 => item.clone().prop_map(Call::Add),
        4 => item.clone().prop_map(Call::AddAbsent),
        6 => item.prop_map(Call::Delete),
        1 => Just(Call::Compact),
    ];
    prop::collection::vec(call, 0..500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_slots_are_those_of_the_specification(
        calls in calls(),
        log2_buckets in 0..6_u32,
        bucket_size in prop_oneof![Just(1), Just(2), Just(3), Just(4), Just(8), Just(255)],
        max_iterations in 1..30_u16,
        expansion in prop_oneof![Just(0), Just(1), Just(2), Just(4)],
    ) {
        let mut ours = filter(u64::from(bucket_size) << log2_buckets, bucket_size, max_iterations, expansion);
        let mut naive = Naive::new(1 << log2_buckets, bucket_size.into(), max_iterations.into(), expansion.into());
        for call in calls {
            match call {
                Call::Add(item) | Call::AddAbsent(item) if naive.tables.len() > 9 => {
                    prop_assert_eq!(ours.contains(&item.to_le_bytes()), naive.exists(Key::of(&item.to_le_bytes())));
                }
                Call::Add(item) => {
                    let item = item.to_le_bytes();
                    let inserted = add(&mut ours, &item) == Outcome::Inserted;
                    prop_assert_eq!(inserted, naive.insert(Key::of(&item)));
                }
                Call::AddAbsent(item) => {
                    let item = item.to_le_bytes();
                    let present = naive.exists(Key::of(&item));
                    let expected = match present || naive.insert(Key::of(&item)) {
                        _ if present => Outcome::Present,
                        true => Outcome::Inserted,
                        false => Outcome::Full,
                    };
                    prop_assert_eq!(ours.insert(&item, Insertion::Absent, ANY), expected);
                }
                Call::Delete(item) => {
                    let item = item.to_le_bytes();
                    prop_assert_eq!(ours.delete(&item), naive.delete(Key::of(&item)));
                }
                Call::Compact => {
                    ours.compact();
                    naive.compact(false);
                }
            }
            prop_assert_eq!((ours.items(), ours.deletes()), (naive.items, naive.deletes));
            prop_assert_eq!(ours.tables.len(), naive.tables.len());
        }
        for (ours, naive) in ours.tables().zip(&naive.tables) {
            prop_assert_eq!(hex(ours), hex(naive));
        }
    }

    #[test]
    fn batches_do_what_single_items_do(
        items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3), 0..200),
        bucket_size in prop_oneof![Just(1), Just(2), Just(4), Just(5)],
        which in prop_oneof![Just(Insertion::Every), Just(Insertion::Absent)],
    ) {
        let limits = Limits { sub_filters: 6, ..ANY };
        let (mut single, mut batch) = (filter(16, bucket_size, 20, 1), filter(16, bucket_size, 20, 1));
        let items: Vec<_> = items.iter().map(Vec::as_slice).collect();
        let expected: Vec<_> = items.iter().map(|item| single.insert(item, which, limits)).collect();
        let mut outcomes = vec![Outcome::Full; items.len()];
        batch.insert_batch(&items, which, limits, &mut outcomes);
        prop_assert_eq!(outcomes, expected);
        prop_assert_eq!(&batch, &single);
        let mut found = vec![false; items.len()];
        batch.contains_batch(&items, &mut found);
        let expected: Vec<_> = items.iter().map(|item| single.contains(item)).collect();
        prop_assert_eq!(found, expected);
    }
}

/// A deterministic random sequence (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Random additions and deletions of members, in waves that let the filter grow and
/// shrink; every member must be found at all times, as often as it is in.
fn members_are_never_lost(calls: u32, params: Params) {
    let mut filter = Filter::new(params, Quota::UNLIMITED).unwrap();
    let mut members: Vec<u64> = Vec::new();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut state = calls.into();
    for call in 0..calls {
        let growing = call / 5000 % 2 == 0;
        if random(&mut state) % 4 < if growing { 3 } else { 1 } || members.is_empty() {
            let item = random(&mut state) % 5000;
            let limits = Limits { sub_filters: 20, ..ANY };
            if filter.insert(&item.to_le_bytes(), Insertion::Every, limits) == Outcome::Inserted {
                members.push(item);
                *counts.entry(item).or_default() += 1;
            }
        } else {
            let item = members.swap_remove(random(&mut state) as usize % members.len());
            assert!(filter.delete(&item.to_le_bytes()), "{params:?}, call {call}");
            *counts.get_mut(&item).unwrap() -= 1;
        }
        if call % 10_000 == 9_999 {
            filter.compact();
        }
        if call % 2_500 == 0 {
            for (item, &count) in &counts {
                let found = filter.count(&item.to_le_bytes());
                assert!(found >= count, "{params:?}, call {call}: {found} of {count}");
            }
        }
    }
    assert_eq!(filter.items(), members.len() as u64);
    let used: usize = filter.tables().map(|table| table.iter().filter(|&&s| s != 0).count()).sum();
    assert_eq!(used, members.len());
}

#[test]
fn members_are_never_lost_by_deletion_growth_or_compaction() {
    // FERROBLOOM_CUCKOO_CALLS: more calls than are quick in a debug build.
    let calls = std::env::var("FERROBLOOM_CUCKOO_CALLS").ok().and_then(|calls| calls.parse().ok());
    for expansion in [1, 2, 4] {
        for bucket_size in [1, 2, 4] {
            let capacity = if expansion == 1 { 512 } else { 64 };
            let params = Params { capacity, bucket_size, max_iterations: 20, expansion };
            members_are_never_lost(calls.unwrap_or(20_000), params);
        }
    }
}

#[test]
fn copies_of_one_item_grow_a_small_filter_to_a_bound_and_no_further() {
    let mut filter = filter(1024, 2, 20, 2);
    let outcomes: Vec<_> = (0..64).map(|_| add(&mut filter, b"same")).collect();
    assert_eq!(outcomes[..32], [Outcome::Inserted; 32]);
    assert_eq!(outcomes[32..], [Outcome::TooManyCopies; 32]);
    assert!(filter.slots() <= FREE_COPIES_SIZE);
    assert_eq!(filter.count(b"same"), 32);
    assert_eq!(add(&mut filter, b"another"), Outcome::Inserted);
}

#[test]
fn copies_of_one_item_add_at_most_three_times_what_was_reserved() {
    let mut filter = filter(1 << 20, 2, 20, 1);
    let inserted = (0..100).filter(|_| add(&mut filter, b"same") == Outcome::Inserted).count();
    assert_eq!((inserted, filter.tables().len(), filter.slots()), (16, 4, 4 << 20));
}

#[test]
fn a_steep_expansion_cannot_run_away_with_copies() {
    let mut filter = filter(2, 1, 20, 32768);
    let inserted = (0..10).filter(|_| add(&mut filter, b"same") == Outcome::Inserted).count();
    assert!(inserted >= 3, "{inserted}");
    assert!(filter.slots() <= FREE_COPIES_SIZE);
}

#[test]
fn copies_grow_a_filter_in_use_like_other_items() {
    let mut filter = filter(1 << 19, 2, 20, 1);
    for _ in 0..4 {
        // Each sub-filter takes four copies.
        for _ in 0..4 {
            assert_eq!(add(&mut filter, b"same"), Outcome::Inserted);
        }
    }
    assert_eq!(add(&mut filter, b"same"), Outcome::TooManyCopies);
    add_all(&mut filter, "other", 4 * (1 << 19) / 16);
    assert_eq!(add(&mut filter, b"same"), Outcome::Inserted);
}

#[test]
fn growth_respects_the_limit_inside_of_one_call() {
    let mut filter = filter(4, 2, 20, 1);
    let items = vec![&b"same"[..]; 1000];
    let mut outcomes = vec![Outcome::NoMemory; 1000];
    let limits = Limits { sub_filters: 3, ..ANY };
    filter.insert_batch(&items, Insertion::Every, limits, &mut outcomes);
    assert_eq!(filter.tables().len(), 3);
    assert_eq!(filter.items(), outcomes.iter().filter(|&&o| o == Outcome::Inserted).count() as u64);
    assert_eq!(outcomes[999], Outcome::Full);
}

#[test]
fn a_refusing_quota_refuses_items_and_leaves_the_filter_as_it_was() {
    let quota = |growth: crate::structures::quota::Growth| growth.total <= 100;
    let limits = Limits { sub_filters: 32, quota: Quota::new(&quota), ..ANY };
    let mut filter = filter(32, 2, 20, 2);
    let mut refused = 0;
    for item in 0..64_u32 {
        let before = filter.try_clone().unwrap();
        match filter.insert(&item.to_le_bytes(), Insertion::Every, limits) {
            Outcome::Inserted => {}
            outcome => {
                assert_eq!(outcome, Outcome::NoMemory);
                assert_eq!(filter, before);
                refused += 1;
            }
        }
    }
    assert!(refused >= 32);
    assert_eq!(filter.tables().len(), 1);
    let params = Params { capacity: 1024, bucket_size: 2, max_iterations: 20, expansion: 1 };
    assert_eq!(Filter::new(params, Quota::new(&quota)), Err(CreateError::OutOfMemory));
}

#[test]
fn a_size_that_no_memory_has_is_refused() {
    let huge = Params { capacity: 1 << 55, bucket_size: 1, max_iterations: 1, expansion: 2 };
    assert_eq!(Filter::new(huge, Quota::UNLIMITED), Err(CreateError::OutOfMemory));
    let huge = Params { capacity: 255 << 55, bucket_size: 255, ..huge };
    assert_eq!(Filter::new(huge, Quota::UNLIMITED), Err(CreateError::OutOfMemory));
    let shape = Shape::new(4, 2, 20, 1).unwrap();
    for sub_filters in [0, MAX_SUB_FILTERS + 1, usize::MAX] {
        let filter = Filter::zeroed(shape, sub_filters, Quota::UNLIMITED);
        assert_eq!(filter, Err(CreateError::Impossible), "{sub_filters}");
    }
}

#[test]
fn an_item_counts_as_often_as_it_was_added_also_where_its_buckets_are_one() {
    let mut filter = filter(2, 2, 20, 1);
    add(&mut filter, b"x");
    assert_eq!(filter.count(b"x"), 1);
    add(&mut filter, b"x");
    add(&mut filter, b"x");
    assert_eq!(filter.count(b"x"), 3);
    assert_eq!(filter.count(b"absent"), 0);
}

#[test]
fn deletions_do_not_take_the_counters_below_zero() {
    let mut filter = filter(8, 2, 20, 1);
    add(&mut filter, b"x");
    let mut filter = filter.with_counters(0, u64::MAX);
    assert!(filter.delete(b"x"));
    assert_eq!((filter.items(), filter.deletes()), (0, u64::MAX));
}

#[test]
fn deletions_compact_small_filters_and_leave_large_ones_to_an_explicit_call() {
    for (capacity, compacted) in [(1 << 20, true), (1 << 22, false)] {
        let params = Params { capacity, bucket_size: 2, max_iterations: 20, expansion: 1 };
        let mut filter = Filter::new(params, Quota::UNLIMITED).unwrap();
        for _ in 0..5 {
            add(&mut filter, b"same");
        }
        assert_eq!(filter.tables().len(), 2);
        assert!(filter.delete(b"same"));
        assert_eq!(filter.deletes(), 0, "{capacity}");
        assert_eq!(filter.tables().len() == 1, compacted, "{capacity}");
        filter.compact();
        assert_eq!(filter.tables().len(), 1, "{capacity}");
        assert_eq!(filter.count(b"same"), 4);
    }
}

#[test]
fn a_loaded_copy_behaves_as_the_original() {
    let mut original = filter(32, 2, 20, 2);
    add_all(&mut original, "item", 500);
    let mut loaded = original.try_clone().unwrap();
    for item in 0..400 {
        let item = format!("item{item}");
        assert!(original.delete(item.as_bytes()) && loaded.delete(item.as_bytes()));
        assert_eq!(loaded, original);
    }
}

#[test]
fn a_filter_takes_no_more_memory_than_that_of_redisbloom() {
    let filter = filter(1024, 2, 20, 1);
    // Its size formula: 40 bytes, and 16 for each sub-filter beside its slots.
    assert!(size_of::<Filter>() as u64 + filter.heap_bytes() <= 40 + 16 + 1024);
}

/// All sub-filters hold a fingerprint that has but one bucket, so that it cannot move,
/// but has to try every older sub-filter. The second holds one more, tried last, that
/// the first has room for.
#[test]
fn an_explicit_compaction_ends_in_time_whatever_the_slots_are() {
    let shape = Shape::new(2, 1, 20, 1).unwrap();
    for (count, moved) in [(64, true), (4000, false)] {
        let slots = |number| if number == 1 { [2, 3] } else { [2, 0] };
        let tables = (0..count).map(|number| Buffer::copy_of(&slots(number)).unwrap()).collect();
        let mut filter = Filter::of_tables(shape, tables).unwrap();
        assert_eq!(filter.compact(), moved, "{count}");
        assert_eq!(filter.tables().len(), count);
        let first: &[u8] = if moved { &[2, 3] } else { &[2, 0] };
        assert_eq!(filter.tables().next(), Some(first), "{count}");
    }
}

#[test]
fn a_compaction_frees_any_number_of_empty_sub_filters_and_says_whether_it_did_anything() {
    let shape = Shape::new(1, 1, 20, 1).unwrap();
    let mut filter = Filter::zeroed(shape, MAX_SUB_FILTERS, Quota::UNLIMITED).unwrap();
    assert!(filter.compact());
    assert_eq!(filter.tables().len(), 1);
    assert!(!filter.compact());
    add(&mut filter, b"a");
    assert!(filter.delete(b"a"));
    assert!(filter.compact());
    assert_eq!(filter.deletes(), 0);
}

#[test]
fn lifted_limits_hold_back_neither_growth_nor_copies() {
    let lifted = Limits { sub_filters: 1, lifted: &|| true, ..ANY };
    let mut filter = filter(1024, 2, 20, 1024);
    for number in 0..5 {
        assert_eq!(filter.insert(b"same", Insertion::Every, lifted), Outcome::Inserted, "{number}");
    }
    assert_eq!(filter.tables().len(), 2);
    filter = super::tests::filter(4, 2, 20, 0);
    let outcomes = [(); 9].map(|()| filter.insert(b"same", Insertion::Every, lifted));
    assert_eq!(outcomes[8], Outcome::Full, "a filter that does not grow stays as it is");
}
