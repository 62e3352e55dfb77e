//! Count-min sketches: stored form, and operations against true counts.

use std::collections::HashMap;

use ferrobloom::codec::{Fields, cms as codec};
use ferrobloom::structures::cms::{Dimensions, Operand, SATURATED, Sketch};

use super::input::Input;
use super::{MOST_OPERATIONS, QUOTA};

/// Version, the fields of a sketch, operations.
pub fn rdb_cms(data: &[u8]) {
    let mut input = Input(data);
    let version = input.byte().cast_signed();
    let Ok(mut sketch) = codec::load(&mut input, version.into()) else { return };
    reload(&sketch);
    operate(&mut sketch, &mut input);
    reload(&sketch);
}

/// Dimensions or probabilities, then operations.
pub fn ops_cms(data: &[u8]) {
    let mut input = Input(data);
    let dimensions = if input.byte() % 2 == 0 {
        Dimensions::new(input.size(), input.size())
    } else {
        let (error, probability) = (input.number(), input.number());
        Dimensions::by_probability(f64::from_bits(error), f64::from_bits(probability))
    };
    let Some(Ok(mut sketch)) = dimensions.map(|dimensions| Sketch::new(dimensions, QUOTA)) else {
        return;
    };
    operate(&mut sketch, &mut input);
    reload(&sketch);
}

fn operate(sketch: &mut Sketch, input: &mut Input<'_>) {
    let mut counts = HashMap::<Vec<u8>, u64>::new();
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        match input.byte() % 4 {
            0 => {
                let items = input.items();
                let pairs: Vec<_> = items.iter().map(|item| (*item, input.size())).collect();
                let mut estimates = Vec::new();
                sketch.increment(&pairs, |estimate| estimates.push(estimate));
                assert_eq!(estimates.len(), pairs.len());
                for ((item, amount), estimate) in pairs.iter().zip(estimates) {
                    let count = counts.entry(item.to_vec()).or_default();
                    *count = count.saturating_add(*amount);
                    assert!(covers(estimate, *count), "an increment's reply covers it");
                }
            }
            1 => {
                let items = input.items();
                let mut answers = 0;
                sketch.query(&items, |_| answers += 1);
                assert_eq!(answers, items.len());
            }
            2 => {
                let other = sketch.try_clone().unwrap();
                assert_eq!(other, *sketch);
                let weights = [input.size().cast_signed(), input.size().cast_signed()];
                let sources =
                    [(Operand::Destination, weights[0]), (Operand::Other(&other), weights[1])];
                if sketch.merge(&sources).is_err() {
                    assert_eq!(*sketch, other, "a refused merge changes nothing");
                } else {
                    // Weights below 1 take away.
                    counts.clear();
                }
            }
            _ => {
                std::hint::black_box((sketch.count(), sketch.heap_bytes()));
            }
        }
    }
    for (item, count) in &counts {
        sketch.query(&[item], |estimate| assert!(covers(estimate, *count), "never below"));
    }
}

fn covers(estimate: u32, count: u64) -> bool {
    estimate == SATURATED || u64::from(estimate) >= count
}

/// What is saved loads as an equal sketch.
fn reload(sketch: &Sketch) {
    let mut fields = Fields::default();
    codec::save(sketch, &mut fields);
    let loaded = codec::load(&mut fields, codec::VERSION);
    assert_eq!(loaded.as_ref(), Ok(sketch));
}
