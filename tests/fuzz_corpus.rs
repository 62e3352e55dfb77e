//! Replays the saved corpus of the fuzz targets, without a fuzzer: an input that once
//! failed, or that reached much, keeps being tried on every change.
//!
//! The first inputs are made of the golden files:
//! `cargo test --test fuzz_corpus -- --ignored make_seeds`.

mod common;
#[allow(unreachable_pub, reason = "it is a library of its own in the fuzzer's crate")]
#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::golden::{self, FOOTER};
use common::payload::{Part, Payload};
use ferrobloom::codec::{self, Sink};
use ferrobloom::structures::quota::Quota;
use ferrobloom::structures::{bloom, cuckoo};
use serde_json::Value;
use targets::input::{Input, Output};
use targets::{TARGETS, Target};

#[test]
fn stored_bloom_filters_are_refused_or_sound() {
    replay("rdb_bloom");
}

#[test]
fn stored_cuckoo_filters_are_refused_or_sound() {
    replay("rdb_cuckoo");
}

#[test]
fn stored_count_min_sketches_are_refused_or_sound() {
    replay("rdb_cms");
}

#[test]
fn stored_topk_sketches_are_refused_or_sound() {
    replay("rdb_topk");
}

#[test]
fn stored_t_digests_are_refused_or_sound() {
    replay("rdb_tdigest");
}

#[test]
fn dumps_of_bloom_filters_are_refused_or_sound() {
    replay("loadchunk_bf");
}

#[test]
fn dumps_of_cuckoo_filters_are_refused_or_sound() {
    replay("loadchunk_cf");
}

#[test]
fn bloom_filters_agree_with_a_set() {
    replay("ops_bloom");
}

#[test]
fn cuckoo_filters_agree_with_a_multiset() {
    replay("ops_cuckoo");
}

#[test]
fn count_min_sketches_are_never_below_the_count() {
    replay("ops_cms");
}

#[test]
fn topk_sketches_list_what_was_added() {
    replay("ops_topk");
}

#[test]
fn t_digests_keep_their_invariants() {
    replay("ops_tdigest");
}

#[test]
fn what_parsers_take_is_in_range() {
    replay("commands");
}

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn replay(name: &str) {
    let (name, body): Target = *TARGETS.iter().find(|target| target.0 == name).expect("a target");
    let files = fs::read_dir(folder(name)).expect("a folder of the corpus");
    let mut count = 0;
    for file in files {
        let path = file.expect("a file of the corpus").path();
        // Shown by the test runner when the body panics.
        println!("{}", path.display());
        body(&fs::read(path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "the corpus of {name} is empty");
}

/// Writes the first inputs of every target.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn make_seeds() {
    for (index, payload) in payloads().iter().enumerate() {
        let target = match payload.type_name().as_str() {
            "MBbloom--" => "rdb_bloom",
            "MBbloomCF" => "rdb_cuckoo",
            "CMSk-TYPE" => "rdb_cms",
            "TopK-TYPE" => "rdb_topk",
            "TDIS-TYPE" => "rdb_tdigest",
            other => panic!("unknown type {other}"),
        };
        let mut output = Output(vec![payload.version() as u8]);
        for part in &payload.parts {
            match part {
                Part::Unsigned(number) => output.unsigned(*number),
                Part::Double(number) => output.double(*number),
                Part::String(string) => output.string(string),
            }
        }
        output.0.extend(OPERATIONS);
        write(target, &format!("golden-{index}"), &output.0);
        if let Some(mut plain) = plain_form(target, &output.0[1..]) {
            plain.0.extend(OPERATIONS);
            write(target, &format!("plain-{index}"), &plain.0);
        }
    }
    for (index, filter) in bloom_filters().iter().enumerate() {
        let mut output = Output(vec![codec::bloom::VERSION as u8]);
        codec::bloom::save(filter, &mut output);
        output.0.extend(OPERATIONS);
        write("rdb_bloom", &format!("filter-{index}"), &output.0);
        let header = codec::bloom::header(filter);
        let mut input = (header.len() as u16).to_le_bytes().to_vec();
        input.extend(header);
        input.extend([2, 1, 9, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        input.extend(OPERATIONS);
        write("loadchunk_bf", &format!("header-{index}"), &input);
    }
    for (index, header) in cuckoo_headers().into_iter().enumerate() {
        let mut input = header;
        input.extend([2, 1, 9, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        input.extend(OPERATIONS);
        write("loadchunk_cf", &format!("header-{index}"), &input);
    }
    for (index, call) in calls().iter().enumerate() {
        write("commands", &format!("call-{index:03}"), &call.join(&b'\n'));
    }
    for (target, start) in starts() {
        for (index, mut input) in start.into_iter().enumerate() {
            input.extend(OPERATIONS);
            write(target, &format!("start-{index}"), &input);
        }
    }
}

/// Operations of any target: bytes that choose many of them.
const OPERATIONS: [u8; 64] = [
    0, 3, b'a', b'b', b'c', 1, 5, 1, b'a', 1, b'b', 1, b'c', 1, b'd', 1, b'e', 2, 3, 1, b'a', 1,
    b'b', 1, b'z', 3, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 7, 4, 5, 0, 1, b'x', 1, 2,
    1, b'x', 1, b'y', 2, 2, 1, b'x', 1, b'y', 4, 3, 1, 1, 2,
];

/// A number as `Input::size` reads it.
fn size(number: u8) -> [u8; 2] {
    [1, number]
}

/// Parameters of new structures.
fn starts() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let bloom = |capacity, rate: f64, expansion, scaling, layout| {
        [&size(capacity)[..], &rate.to_le_bytes(), &size(expansion), &[scaling, layout]].concat()
    };
    let cuckoo = |capacity, bucket_size, iterations, expansion| {
        [&size(capacity)[..], &[bucket_size], &size(iterations), &size(expansion)].concat()
    };
    let topk = |k, width, depth, decay: f64| {
        [size(k).as_slice(), &size(width), &size(depth), &decay.to_le_bytes()].concat()
    };
    let cms = |width, depth| [&[0][..], &size(width), &size(depth)].concat();
    vec![
        (
            "ops_bloom",
            vec![
                bloom(3, 0.01, 2, 0, 0),
                bloom(40, 0.2, 1, 1, 0),
                bloom(3, 0.01, 2, 0, 1),
                bloom(40, 0.2, 1, 1, 1),
            ],
        ),
        ("ops_cuckoo", vec![cuckoo(8, 2, 20, 1), cuckoo(4, 1, 5, 2), cuckoo(16, 7, 1, 0)]),
        ("ops_topk", vec![topk(3, 8, 7, 0.9), topk(1, 1, 1, 1.0)]),
        ("ops_cms", vec![cms(5, 3), cms(1, 1)]),
        ("ops_tdigest", vec![size(100).to_vec(), size(1).to_vec()]),
    ]
}

/// Filters in both layouts, of one layer and of several.
fn bloom_filters() -> Vec<bloom::Filter> {
    let mut filters = Vec::new();
    for (capacity, scaling, items) in [(10, false, 5_u32), (2, true, 10)] {
        let params = bloom::Params { capacity, error_rate: 0.01, expansion: 2, scaling };
        filters.push(bloom::Filter::redisbloom(params, Quota::UNLIMITED).unwrap());
        filters.push(bloom::Filter::blocked(params, 7, Quota::UNLIMITED).unwrap());
        for filter in filters.iter_mut().rev().take(2) {
            for item in 0..items {
                filter.insert(&item.to_le_bytes(), Quota::UNLIMITED).unwrap();
            }
        }
    }
    filters
}

/// The plain form of a stored value of one of the two types that have it.
fn plain_form(target: &str, stored: &[u8]) -> Option<Output> {
    let mut output = Output(vec![0]);
    match target {
        "rdb_topk" => {
            let topk = codec::topk::load(&mut Input(stored), codec::topk::VERSION).ok()?;
            codec::topk::save_plain(&topk, &mut output);
        }
        "rdb_tdigest" => {
            let digest = codec::tdigest::load(&mut Input(stored), codec::tdigest::VERSION).ok()?;
            codec::tdigest::save_plain(&digest, &mut output);
        }
        _ => return None,
    }
    Some(output)
}

fn cuckoo_headers() -> Vec<Vec<u8>> {
    let header = |capacity, bucket_size, expansion| {
        let params = cuckoo::Params { capacity, bucket_size, max_iterations: 20, expansion };
        let filter = cuckoo::Filter::new(params, Quota::UNLIMITED).unwrap();
        codec::cuckoo::header(&filter).to_vec()
    };
    vec![header(8, 2, 1), header(64, 4, 2)]
}

/// Calls of the golden transcripts that fit a line per argument: the shortest of each
/// error, and of each command and number of options.
fn calls() -> Vec<Vec<Vec<u8>>> {
    let mut found = BTreeMap::<String, Vec<Vec<u8>>>::new();
    for file in ["bf_cf_transcript.jsonl", "cms_topk_tdigest_transcript.jsonl"] {
        for line in fs::read_to_string(golden::path(file)).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let words = golden::golden_command(&line["cmd"]);
            let name = words[0].to_ascii_uppercase();
            if !name.contains(&b'.') || words.iter().any(|word| word.contains(&b'\n')) {
                continue;
            }
            let is_option = |word: &&Vec<u8>| word.len() > 4 && word[0].is_ascii_uppercase();
            let options = words[1..].iter().filter(is_option).count();
            let kind = match line["resp2"]["error"].as_str() {
                None => format!("{} {options}", name.escape_ascii()),
                Some(error) => error.to_owned(),
            };
            let length = |call: &Vec<Vec<u8>>| call.iter().map(Vec::len).sum::<usize>();
            if length(&words) > 200 {
                continue;
            }
            let shortest = found.entry(kind).or_insert_with(|| words.clone());
            if length(&words) < length(shortest) {
                *shortest = words;
            }
        }
    }
    found.into_values().collect()
}

/// The values of the golden payloads: those short enough for a fuzzer, a few of each
/// type and number of fields.
fn payloads() -> Vec<Payload> {
    let mut found: Vec<Payload> = Vec::new();
    for file in [
        "bf_cf_transcript.jsonl",
        "cms_topk_tdigest_transcript.jsonl",
        "cms_topk_2.8.2_payloads.jsonl",
    ] {
        for line in fs::read_to_string(golden::path(file)).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let mut words = golden::golden_command(&line["cmd"]);
            if line["resp2"]["b64"].is_string() {
                words.push(common::resp::golden_argument(&line["resp2"]));
            }
            for word in words.iter().filter(|word| word.len() > FOOTER && word.len() < 4096) {
                let Some(payload) = Payload::parse(&word[..word.len() - FOOTER]) else { continue };
                let alike = |other: &&Payload| {
                    other.type_id == payload.type_id && other.parts.len() == payload.parts.len()
                };
                if found.iter().filter(alike).count() < 2 {
                    found.push(payload);
                }
            }
        }
    }
    found
}

fn write(target: &str, name: &str, input: &[u8]) {
    fs::create_dir_all(folder(target)).unwrap();
    fs::write(folder(target).join(name), input).unwrap();
}
