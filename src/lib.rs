//! `ferrobloom`: Bloom and cuckoo filters, count-min sketch, Top-K and t-digest as
//! one module for Redis and Valkey, a drop-in for RedisBloom.

pub mod codec;
pub mod structures;
