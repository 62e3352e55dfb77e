//! The pure cores: filters and sketches without a server, a stored format or a
//! reply text. Plain values in, plain values out; no globals, no clock, no random
//! source that is not handed in. They run under `cargo test`, proptest and fuzzers
//! alone, and other Rust programs can build filters with them.

pub mod bloom;
pub mod buffer;
pub mod cms;
pub mod cuckoo;
pub mod hash;
pub mod prefetch;
pub mod quota;
mod rows;
pub mod tdigest;
pub mod thin;
pub mod topk;

/// Items that many-item operations work on at a time.
///
/// A batch is hashed, all its memory is prefetched, then it is tested or set: the
/// loads of a whole batch overlap in place of waiting one for another. 32 keeps
/// the positions of a batch in the first-level cache.
pub const BATCH: usize = 32;
