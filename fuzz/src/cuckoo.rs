//! Cuckoo filters: stored forms, dumps, and operations against a multiset.

use std::collections::HashMap;

use ferrobloom::codec::{Fields, cuckoo as codec};
use ferrobloom::structures::cuckoo::{Filter, Insertion, Limits, Outcome, Params};

use super::input::Input;
use super::{MOST_OPERATIONS, QUOTA, SMALL};

const LIMITS: Limits<'static> = Limits { sub_filters: 32, quota: QUOTA, lifted: &|| false };

/// Version, the fields of a filter, operations.
pub fn rdb_cuckoo(data: &[u8]) {
    let mut input = Input(data);
    let version = input.byte().cast_signed();
    let Ok(mut filter) = codec::load(&mut input, version.into()) else { return };
    reload(&filter);
    operate(&mut filter, &mut input);
    reload(&filter);
    dump(&filter);
}

/// A header, then iterators and chunks, then operations.
pub fn loadchunk_cf(data: &[u8]) {
    let header = &data[..data.len().min(codec::HEADER_LEN)];
    let Ok(mut filter) = codec::from_header(header, QUOTA) else { return };
    let mut input = Input(&data[codec::HEADER_LEN..]);
    for _ in 0..input.byte() {
        let iterator = input.size();
        let chunk = input.item();
        let before = (filter.heap_bytes() < SMALL).then(|| filter.try_clone().unwrap());
        if codec::load_chunk(&mut filter, iterator.cast_signed(), chunk).is_err() {
            assert!(
                before.is_none_or(|before| before == filter),
                "a refused chunk changes nothing"
            );
        }
        codec::chunk(&filter, input.size());
    }
    reload(&filter);
    operate(&mut filter, &mut input);
    reload(&filter);
}

/// Parameters, then operations.
pub fn ops_cuckoo(data: &[u8]) {
    let mut input = Input(data);
    let params = Params {
        capacity: input.size(),
        bucket_size: input.byte(),
        max_iterations: input.size() as u16,
        expansion: input.size() as u16,
    };
    let Ok(mut filter) = Filter::new(params, QUOTA) else { return };
    operate(&mut filter, &mut input);
    reload(&filter);
    dump(&filter);
}

/// Some items, the first `most` of them.
fn at_most<'a>(most: usize, input: &mut Input<'a>) -> Vec<&'a [u8]> {
    let mut items = input.items();
    items.truncate(most);
    items
}

fn operate(filter: &mut Filter, input: &mut Input<'_>) {
    let mut held = HashMap::<Vec<u8>, u64>::new();
    // A look-up tries every sub-filter, and a header may announce 65,535: then there are
    // few operations, with few items each.
    let most = MOST_OPERATIONS / filter.tables().len().min(MOST_OPERATIONS);
    for _ in 0..most {
        if input.is_empty() {
            break;
        }
        match input.byte() % 6 {
            0 => {
                let item = input.item();
                if filter.insert(item, Insertion::Every, LIMITS) == Outcome::Inserted {
                    *held.entry(item.to_vec()).or_default() += 1;
                }
            }
            1 => {
                let items = at_most(most, input);
                let which = if input.flag() { Insertion::Every } else { Insertion::Absent };
                let mut outcomes = vec![Outcome::Full; items.len()];
                filter.insert_batch(&items, which, LIMITS, &mut outcomes);
                for (item, outcome) in items.iter().zip(&outcomes) {
                    if *outcome == Outcome::Inserted {
                        *held.entry(item.to_vec()).or_default() += 1;
                    }
                }
            }
            2 => {
                // Only what was added may be deleted: the rest would take others away.
                let item = input.item();
                if let Some(count) = held.get_mut(item).filter(|count| **count > 0) {
                    assert!(filter.delete(item), "what was added can be deleted");
                    *count -= 1;
                }
            }
            3 => {
                let items = at_most(most, input);
                let mut found = vec![false; items.len()];
                filter.contains_batch(&items, &mut found);
                for (item, found) in items.iter().zip(found) {
                    assert_eq!(filter.contains(item), found, "one and many agree");
                    assert_eq!(filter.count(item) > 0, found, "count and contains agree");
                }
            }
            4 => {
                filter.compact();
            }
            _ => {
                let copy = filter.try_clone().unwrap();
                assert_eq!(copy, *filter);
                std::hint::black_box((filter.items(), filter.deletes(), filter.heap_bytes()));
            }
        }
    }
    for (item, count) in &held {
        assert!(filter.count(item) >= *count, "no item is lost");
    }
    // What was never added may take others' places, but nothing else.
    for _ in 0..most {
        if input.is_empty() {
            break;
        }
        filter.delete(input.item());
    }
}

/// What is saved loads as an equal filter.
fn reload(filter: &Filter) {
    let mut fields = Fields::default();
    codec::save(filter, &mut fields);
    let loaded = codec::load(&mut fields, codec::VERSION);
    assert_eq!(loaded.as_ref(), Ok(filter));
}

/// A dump gives an equal filter, unless it is too large.
fn dump(filter: &Filter) {
    let Ok(mut copy) = codec::from_header(&codec::header(filter), QUOTA) else { return };
    let mut iterator = 1;
    while let Some((next, chunk)) = codec::chunk(filter, iterator) {
        assert!(next > iterator);
        codec::load_chunk(&mut copy, next.cast_signed(), chunk).unwrap();
        iterator = next;
    }
    assert_eq!(copy, *filter);
}
