//! The bodies of the fuzz targets: what is done with a fuzzer's bytes, and what must
//! hold. `tests/fuzz_corpus.rs` includes this file as well and replays the saved
//! corpus without a fuzzer.
//!
//! An input is a stream of numbers and strings (see [`input`]): first what makes a
//! structure, then operations on it. That of [`commands()`] is lines of text.
#![forbid(unsafe_code)]

pub mod input;

mod bloom;
mod cms;
mod commands;
mod cuckoo;
mod tdigest;
mod topk;

use ferrobloom::structures::quota::{Growth, Quota};

pub use bloom::{loadchunk_bf, ops_bloom, rdb_bloom};
pub use cms::{ops_cms, rdb_cms};
pub use commands::commands;
pub use cuckoo::{loadchunk_cf, ops_cuckoo, rdb_cuckoo};
pub use tdigest::{ops_tdigest, rdb_tdigest};
pub use topk::{ops_topk, rdb_topk};

/// A target: its name, which is that of its folder in the corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 13] = [
    ("rdb_bloom", rdb_bloom),
    ("rdb_cuckoo", rdb_cuckoo),
    ("rdb_cms", rdb_cms),
    ("rdb_topk", rdb_topk),
    ("rdb_tdigest", rdb_tdigest),
    ("loadchunk_bf", loadchunk_bf),
    ("loadchunk_cf", loadchunk_cf),
    ("ops_bloom", ops_bloom),
    ("ops_cuckoo", ops_cuckoo),
    ("ops_cms", ops_cms),
    ("ops_topk", ops_topk),
    ("ops_tdigest", ops_tdigest),
    ("commands", commands),
];

/// Most bytes that a structure may have after growth.
const ROOM: u64 = 1 << 20;

/// Bytes of a structure up to which it is compared after every step.
const SMALL: u64 = 1 << 14;

/// Most operations carried out for one input.
const MOST_OPERATIONS: usize = 200;

/// A quota of [`ROOM`] bytes.
const QUOTA: Quota<'static> = Quota::new(&|growth: Growth| growth.total <= ROOM);
