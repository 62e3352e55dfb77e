//! Bloom filters: stored forms, dumps, and operations against a set.

use std::collections::HashSet;

use ferrobloom::codec::{Fields, bloom as codec};
use ferrobloom::structures::bloom::{Filter, Params, Refusal};

use super::input::Input;
use super::{MOST_OPERATIONS, QUOTA, SMALL};

/// Version, the fields of a filter, operations.
pub fn rdb_bloom(data: &[u8]) {
    let mut input = Input(data);
    let version = input.byte().cast_signed();
    let Ok(mut filter) = codec::load(&mut input, version.into()) else { return };
    reload(&filter);
    operate(&mut filter, &mut input);
    reload(&filter);
    dump(&filter);
}

/// A string that is a header, then iterators and chunks, then operations.
pub fn loadchunk_bf(data: &[u8]) {
    let mut input = Input(data);
    let Some([low, high]) = input.bytes() else { return };
    let length = usize::from(u16::from_le_bytes([low, high])).min(input.0.len());
    let (header, rest) = input.0.split_at(length);
    let Ok(mut filter) = codec::from_header(header, QUOTA) else { return };
    input = Input(rest);
    for _ in 0..input.byte() {
        let iterator = input.size().cast_signed();
        let chunk = input.item();
        let before = (filter.heap_bytes() < SMALL).then(|| filter.try_clone().unwrap());
        if codec::load_chunk(&mut filter, iterator, chunk).is_err() {
            assert!(
                before.is_none_or(|before| before == filter),
                "a refused chunk changes nothing"
            );
        }
        codec::chunk(&filter, input.size().cast_signed());
    }
    reload(&filter);
    operate(&mut filter, &mut input);
    dump(&filter);
}

/// Parameters and layout, then operations.
pub fn ops_bloom(data: &[u8]) {
    let mut input = Input(data);
    let params = Params {
        capacity: input.size().max(1),
        error_rate: f64::from_bits(input.number()).abs().clamp(f64::MIN_POSITIVE, 0.25),
        expansion: input.size() as u32,
        scaling: input.flag(),
    };
    // NaN passes `clamp`.
    if params.error_rate.is_nan() {
        return;
    }
    let filter = match input.byte() % 2 {
        0 => Filter::redisbloom(params, QUOTA),
        _ => Filter::blocked(params, input.number(), QUOTA),
    };
    let Ok(mut filter) = filter else { return };
    operate(&mut filter, &mut input);
    reload(&filter);
    dump(&filter);
}

fn operate(filter: &mut Filter, input: &mut Input<'_>) {
    let mut held = HashSet::new();
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        match input.byte() % 4 {
            0 => {
                let item = input.item();
                let present = filter.contains(item);
                let outcome = filter.insert(item, QUOTA);
                assert_eq!(outcome == Ok(false), present, "insert and contains agree");
                if outcome.is_ok() {
                    held.insert(item.to_vec());
                }
            }
            1 => {
                let items = input.items();
                let mut outcomes = vec![Err(Refusal::CannotGrow); items.len()];
                let done = filter.insert_batch(&items, QUOTA, &mut outcomes);
                assert!(done <= items.len());
                for (item, outcome) in items.iter().zip(&outcomes[..done]) {
                    if outcome.is_ok() {
                        held.insert(item.to_vec());
                    }
                }
            }
            2 => {
                let items = input.items();
                let mut found = vec![false; items.len()];
                filter.contains_batch(&items, &mut found);
                for (item, found) in items.iter().zip(found) {
                    assert_eq!(filter.contains(item), found, "one and many agree");
                }
            }
            _ => {
                let copy = filter.try_clone().unwrap();
                assert_eq!(copy, *filter);
                filter.parts(&mut |part| {
                    part.block();
                });
                let layers = filter.layer_infos();
                // Fewer where many equal layers share one, see `Chain::next_capacity`.
                assert!(layers.len() as u64 <= filter.layers());
                std::hint::black_box((filter.items(), filter.capacity(), filter.expansion()));
                std::hint::black_box((filter.reported_bytes(), filter.heap_bytes()));
            }
        }
    }
    for item in &held {
        assert!(filter.contains(item), "no false negative");
    }
}

/// What is saved loads as an equal filter.
fn reload(filter: &Filter) {
    let mut fields = Fields::default();
    codec::save(filter, &mut fields);
    let loaded = codec::load(&mut fields, codec::VERSION);
    assert_eq!(loaded.as_ref(), Ok(filter));
}

/// A dump's header is refused or gives, with its chunks, an equal filter.
fn dump(filter: &Filter) {
    let Ok(mut copy) = codec::from_header(&codec::header(filter), QUOTA) else { return };
    let mut iterator = 1;
    while let Some((next, chunk)) = codec::chunk(filter, iterator) {
        assert!(next > iterator);
        codec::load_chunk(&mut copy, next, chunk).unwrap();
        iterator = next;
    }
    assert_eq!(copy, *filter);
}
