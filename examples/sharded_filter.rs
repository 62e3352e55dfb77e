//! A Bloom filter too large for one node of a cluster: shards by the hash of the item.
//!
//! `cargo run --example sharded_filter` prints the command for each shard. A client
//! library for clusters sends them to the nodes of their keys.

use std::collections::BTreeMap;

/// Shards of the filter, fixed for good.
const SHARDS: u32 = 32;

fn main() {
    let items = ["alice", "bob", "carol", "dave", "erin", "frank"];
    for (key, items) in by_shard("seen", &items) {
        println!("BF.MADD {key} {}", items.join(" "));
    }
}

/// The items of one call to each shard. The braces make the number alone decide the
/// slot, so that the shards lie on different nodes.
fn by_shard<'a>(name: &str, items: &[&'a str]) -> BTreeMap<String, Vec<&'a str>> {
    let mut shards: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for &item in items {
        let shard = crc32(item.as_bytes()) % SHARDS;
        shards.entry(format!("{name}{{{shard}}}")).or_default().push(item);
    }
    shards
}

/// CRC-32 as in zlib, which every language has: all clients must agree on it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}
