//! What `INFO bf` tells an operator is what there is and what was asked.

mod common;

use std::collections::BTreeMap;

use common::{Reply, RespConnection, Server, own_server, wait_until};

#[test]
fn keys_items_and_memory_are_counted_however_filters_come_and_go() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(stock(&mut connection), [0, 0, 0]);
    let steps: &[(&str, u64)] = &[
        ("BF.ADD a 1", 1),
        ("BF.MADD a 1 2 3", 1),
        ("BF.RESERVE b 0.01 1000", 2),
        ("BF.INSERT c CAPACITY 2 ITEMS 1 2 3 4 5 6 7", 3),
        ("COPY a d", 4),
        ("COPY a d", 4),
        ("COPY a d REPLACE", 4),
        ("COPY a e DB 1", 5),
        ("RENAME d f", 5),
        ("RENAME f c", 4),
        ("SET b string", 3),
        ("BF.ADD b 1", 3),
        ("BF.RESERVE a 0.1 1", 3),
        ("MOVE c 2", 3),
        ("SWAPDB 0 1", 3),
        ("SELECT 1", 3),
        ("DEBUG RELOAD", 3),
        ("PEXPIRE a 1", 3),
        ("BF.EXISTS a 1", 2),
    ];
    for (command, keys) in steps {
        if command.starts_with("BF.EXISTS") {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        connection.line(command);
        // Some servers free what a command drops in the background.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let mut held = stock(&mut connection);
        while held[0] > *keys && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(10));
            held = stock(&mut connection);
        }
        let [counted, items, bytes] = held;
        assert_eq!(counted, *keys, "after {command}");
        assert!(bytes > 100 * keys && items >= 1, "after {command}: {items} items, {bytes} bytes");
    }
    let dump = connection.line("SELECT 2");
    assert_eq!(dump, Reply::ok());
    let dump = connection.line("DUMP c");
    let payload = dump.bytes().expect("a payload").to_vec();
    let mut broken = payload.clone();
    broken[20] ^= 1;
    for (value, keys) in [(&payload, 3), (&broken, 3), (&payload, 3)] {
        connection.call(&[b"RESTORE".as_slice(), b"r", b"0", value, b"REPLACE"]);
        assert_eq!(stock(&mut connection)[0], keys);
    }
    // What is refused in the loader, with a checksum that is right.
    let value = &payload[..payload.len() - common::golden::FOOTER];
    for at in 10..value.len() {
        let mut value = value.to_vec();
        value[at] ^= 0x11;
        let payload = common::golden::with_footer(&value);
        connection.call(&[b"RESTORE".as_slice(), b"broken", b"0", &payload]);
        connection.line("DEL broken");
    }
    assert_eq!(stock(&mut connection)[0], 3);
    assert_eq!(connection.line("BF.RESERVE large 0.001 1000000"), Reply::ok());
    assert!(stock(&mut connection)[2] > 1_500_000);
    assert_eq!(connection.line("FLUSHALL ASYNC"), Reply::ok());
    wait_until("the filters are freed", || stock(&mut connection) == [0, 0, 0]);
}

#[test]
fn memory_is_the_sum_over_the_keys() {
    let server = Server::start();
    let mut connection = server.resp2();
    let mut usage = 0;
    for i in 0..50 {
        let items: Vec<_> = (0..i * 40).map(|item| item.to_string()).collect();
        let words = [&["BF.MADD".to_owned(), format!("k{i}"), "x".to_owned()], &items[..]].concat();
        assert!(connection.call(&words).array().is_some());
    }
    assert_eq!(connection.line("BF.RESERVE large 0.001 1000000"), Reply::ok());
    for key in (0..50).map(|i| format!("k{i}")).chain(["large".to_owned()]) {
        usage += connection.call(&["MEMORY", "USAGE", &key]).int().expect("a number");
    }
    let [keys, _, bytes] = stock(&mut connection);
    assert_eq!(keys, 51);
    let usage = u64::try_from(usage).expect("a size");
    // MEMORY USAGE counts what the allocator rounds up, by a quarter at most, the key's
    // name and the server's entry for it too.
    let least = usage / 5 * 4 - 51 * 200;
    assert!((least..=usage).contains(&bytes), "usage {usage}, counted {bytes}");
}

#[test]
fn lookups_hits_additions_and_refusals_are_counted_by_the_item() {
    let server = Server::start();
    let mut connection = server.resp2();
    let before = counters(&mut connection);
    for command in [
        "BF.RESERVE fixed 0.000001 2 NONSCALING",
        "BF.MADD fixed a b a",
        "BF.ADD fixed c",
        "BF.EXISTS fixed a",
        "BF.EXISTS fixed z",
        "BF.MEXISTS fixed a b y z",
        "BF.INSERT scaling ERROR 0.000001 CAPACITY 1 ITEMS a b c a",
    ] {
        assert!(!matches!(connection.line(command), Reply::Null));
    }
    let after = counters(&mut connection);
    let more = |name: &str| after[name] - before[name];
    assert_eq!(more("bf_bloom_adds"), 5);
    assert_eq!(more("bf_bloom_refusals"), 1);
    assert_eq!(more("bf_bloom_lookups"), 6);
    assert_eq!(more("bf_bloom_hits"), 3);
    assert_eq!(more("bf_bloom_layers_grown"), 1);
}

#[test]
fn a_replica_counts_what_it_holds_after_each_resync() {
    if !own_server() {
        return;
    }
    let primary = Server::builder().config("repl-diskless-sync yes").start();
    let replica = Server::builder().config("repl-diskless-load swapdb").start();
    let mut connection = primary.resp2();
    for i in 0..20 {
        connection.line(&format!("BF.MADD k{i} a b c"));
    }
    let mut on_replica = replica.resp2();
    for _ in 0..2 {
        assert_eq!(on_replica.line("REPLICAOF NO ONE"), Reply::ok());
        assert_eq!(on_replica.line("BF.ADD own a"), Reply::Int(1));
        replica.replica_of(&primary);
        let want = stock(&mut connection);
        assert_eq!(want[0], 20);
        wait_until("the old filters are freed", || stock(&mut on_replica) == want);
        assert_eq!(on_replica.line("BF.EXISTS own a"), Reply::Int(0));
    }
}

/// Keys, items and bytes of the Bloom filters.
fn stock(connection: &mut RespConnection) -> [u64; 3] {
    let all = counters(connection);
    ["bf_bloom_keys", "bf_bloom_items", "bf_bloom_memory_bytes"].map(|name| all[name])
}

/// The numbers of `INFO bf`.
fn counters(connection: &mut RespConnection) -> BTreeMap<String, u64> {
    let info = connection.line("INFO bf");
    let lines = info.text().expect("INFO is text").lines();
    let pairs = lines.filter_map(|line| line.trim_end().split_once(':'));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}
