//! Top-K sketches: stored form, and operations with what they must keep.

use std::collections::HashMap;

use ferrobloom::codec::{Fields, topk as codec};
use ferrobloom::structures::topk::{Params, TopK};

use super::input::Input;
use super::{MOST_OPERATIONS, QUOTA};

/// Version, the fields of a sketch, operations.
pub fn rdb_topk(data: &[u8]) {
    let mut input = Input(data);
    let version = input.byte().cast_signed();
    let Ok(mut topk) = codec::load(&mut input, version.into()) else { return };
    reload(&topk);
    operate(&mut topk, &mut input);
    reload(&topk);
}

/// Parameters, then operations.
pub fn ops_topk(data: &[u8]) {
    let mut input = Input(data);
    let (k, width, depth) = (input.size() as u32, input.size() as u32, input.size() as u32);
    let decay = f64::from_bits(input.number());
    let Some(params) = Params::new(k, width, depth, decay) else { return };
    let Ok(mut topk) = TopK::new(params, QUOTA) else { return };
    let counts = operate(&mut topk, &mut input);
    for listed in topk.list().unwrap() {
        // Two items with one fingerprint share their cells.
        let sum: u64 = counts.values().sum();
        assert!(u64::from(listed.count) <= sum, "no count above all additions");
        assert!(counts.contains_key(listed.item), "only what was added is listed");
        topk.query(&[listed.item], |found| assert!(found, "what is listed is found"));
    }
    reload(&topk);
}

/// Carries operations out; how often each item was added.
fn operate(topk: &mut TopK, input: &mut Input<'_>) -> HashMap<Vec<u8>, u64> {
    let mut counts = HashMap::<Vec<u8>, u64>::new();
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        match input.byte() % 4 {
            0 => {
                let items = input.items();
                let pairs: Vec<_> =
                    items.iter().map(|item| (*item, input.size() as u32 % 100_000)).collect();
                let mut answers = 0;
                topk.add(&pairs, QUOTA, |_| answers += 1);
                assert_eq!(answers, pairs.len());
                for (item, units) in pairs {
                    *counts.entry(item.to_vec()).or_default() += u64::from(units);
                }
            }
            1 => {
                let items = input.items();
                let (mut queried, mut counted) = (0, 0);
                topk.query(&items, |_| queried += 1);
                topk.count(&items, |_| counted += 1);
                assert_eq!((queried, counted), (items.len(), items.len()));
            }
            2 => {
                let copy = topk.try_clone().unwrap();
                assert_eq!(copy, *topk);
                std::hint::black_box((topk.draws(), topk.heap_bytes()));
            }
            _ => {
                let listed: Vec<_> = topk.list().unwrap().collect();
                assert!(listed.len() <= topk.params().k() as usize);
                assert!(listed.is_sorted_by(|a, b| a.count >= b.count), "by falling count");
                assert!(listed.iter().all(|listed| listed.count > 0));
            }
        }
    }
    counts
}

/// What is saved loads as an equal sketch.
fn reload(topk: &TopK) {
    let forms: [fn(&TopK, &mut Fields); 2] = [codec::save, codec::save_plain];
    for save in forms {
        let mut fields = Fields::default();
        save(topk, &mut fields);
        let loaded = codec::load(&mut fields, codec::VERSION);
        assert_eq!(loaded.as_ref(), Ok(topk));
    }
}
