//! Filters among the server's other keys: copied, watched, scripted, expired, freed
//! in the background, counted and limited like them.

mod common;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use common::{Reply, RespConnection, Server, own_arguments, own_server, skip, wait_until};

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const CANNOT_GROW: &str = "ERR problem inserting into filter";

const MIB: u64 = 1 << 20;

#[test]
fn a_copy_is_equal_and_lives_on_its_own() {
    let server = Server::start();
    let mut connection = server.resp2();
    fill(&mut connection, "from", 0..1000);
    assert_eq!(connection.line("COPY from to"), Reply::Int(1));
    assert_eq!(connection.line("DUMP to"), connection.line("DUMP from"));
    assert_eq!(connection.line("BF.INFO to"), connection.line("BF.INFO from"));
    let before = connection.line("DUMP from");
    fill(&mut connection, "to", 1000..2000);
    assert_eq!(connection.line("DUMP from"), before);
    assert_eq!(connection.line("DEL from"), Reply::Int(1));
    for i in 0..2000 {
        assert_eq!(connection.line(&format!("BF.EXISTS to item-{i}")), Reply::Int(1));
    }
    assert_eq!(connection.line("COPY to other DB 1"), Reply::Int(1));
    assert_eq!(connection.line("SELECT 1"), Reply::ok());
    assert_eq!(connection.line("BF.EXISTS other item-1"), Reply::Int(1));
}

#[test]
fn equal_filters_have_equal_digests_and_different_ones_do_not() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    // Filters made apart may hash in different ways, so the second begins as a copy.
    assert_eq!(connection.line("BF.RESERVE a 0.01 100"), Reply::ok());
    assert_eq!(connection.line("COPY a b"), Reply::Int(1));
    for key in ["a", "b"] {
        fill(&mut connection, key, 0..500);
    }
    fill(&mut connection, "more", 0..501);
    fill(&mut connection, "others", 1..501);
    for reserve in ["empty:a 0.01 10", "empty:b 0.01 11", "empty:c 0.02 10"] {
        assert_eq!(connection.line(&format!("BF.RESERVE {reserve}")), Reply::ok());
    }
    assert_eq!(connection.line("BF.RESERVE empty:d 0.01 10 NONSCALING"), Reply::ok());
    assert_eq!(connection.line("COPY a copy"), Reply::Int(1));
    let mut digest = |key: &str| {
        let reply = connection.call(&["DEBUG", "DIGEST-VALUE", key]);
        let digest = reply.array().and_then(|digests| digests.first()?.text());
        digest.unwrap_or_else(|| panic!("no digest: {reply}")).to_owned()
    };
    let a = digest("a");
    assert_eq!(digest("b"), a);
    assert_eq!(digest("copy"), a);
    let mut all = vec![a, digest("more"), digest("others")];
    all.extend(["empty:a", "empty:b", "empty:c", "empty:d"].map(&mut digest));
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "two different filters have the same digest");
    server.debug_reload();
    let mut connection = server.resp2();
    let after = connection.line("DEBUG DIGEST-VALUE a b");
    let after = after.array().expect("two digests");
    assert_eq!(after[0], after[1]);
    assert!(all.iter().any(|before| after[0].text() == Some(before)), "a reload changes it");
}

#[test]
fn memory_usage_is_what_the_filter_takes() {
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("BF.EXISTS k a");
    for (key, command) in [
        ("large", "BF.RESERVE large 0.001 5000000"),
        ("fixed", "BF.RESERVE fixed 0.01 1000000 NONSCALING"),
    ] {
        let before = server.used_memory();
        assert_eq!(connection.line(command), Reply::ok());
        let taken = server.used_memory().saturating_sub(before);
        let usage = usage(&mut connection, key);
        let size = size(&mut connection, key);
        assert!(size > MIB && usage >= size, "{key}: usage {usage} below the size {size}");
        let difference = usage.abs_diff(taken);
        assert!(difference < usage / 20, "{key}: usage {usage}, but {taken} taken");
    }
    // A filter of many layers.
    let before = server.used_memory();
    assert_eq!(connection.line("BF.RESERVE grown 0.001 100"), Reply::ok());
    fill(&mut connection, "grown", 0..200_000);
    let taken = server.used_memory().saturating_sub(before);
    let (usage, size) = (usage(&mut connection, "grown"), size(&mut connection, "grown"));
    assert!(usage >= size, "usage {usage} below the size {size}");
    assert!(usage.abs_diff(taken) < usage / 5, "usage {usage}, but {taken} taken");
}

#[test]
fn deleting_a_filter_gives_all_its_memory_back() {
    let server = Server::start();
    let mut connection = server.resp2();
    let cycle = |connection: &mut RespConnection| {
        for i in 0..50 {
            fill(connection, &format!("k{i}"), 0..2000);
            connection.line(&format!("COPY k{i} copy{i}"));
        }
        let dump = connection.line("DUMP k0");
        let payload = dump.bytes().expect("a payload").to_vec();
        for i in 0..50 {
            let key = format!("restored{i}");
            connection.call(&[b"RESTORE".as_slice(), key.as_bytes(), b"0", &payload]);
        }
        assert_eq!(connection.line("FLUSHALL SYNC"), Reply::ok());
    };
    cycle(&mut connection);
    let before = server.used_memory();
    for _ in 0..4 {
        cycle(&mut connection);
    }
    let after = server.used_memory();
    assert!(after < before + 256 * 1024, "used memory rose from {before} to {after}");
}

#[test]
fn a_large_filter_is_unlinked_at_once_and_freed_in_the_background() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.RESERVE large 0.001 160000000"), Reply::ok());
    // Pages that are really there, all over the filter.
    fill(&mut connection, "large", 0..20_000);
    assert!(size(&mut connection, "large") >= 256 * MIB);
    let before = server.used_memory();
    assert_eq!(connection.line("CONFIG RESETSTAT"), Reply::ok());
    let freed = server.info_number("memory", "lazyfreed_objects");
    // Not the time that passes: other processes may take the processor meanwhile.
    let spent = main_thread_time(&server);
    assert_eq!(connection.line("UNLINK large"), Reply::Int(1));
    let spent = main_thread_time(&server) - spent;
    assert!(spent < Duration::from_millis(5), "UNLINK took {spent:?}");
    wait_until("the filter is freed in the background", || {
        server.info_number("memory", "lazyfreed_objects") > freed
    });
    assert!(server.used_memory() + 256 * MIB <= before, "its memory is given back");
}

#[test]
fn a_small_filter_is_freed_where_it_stands() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.ADD small a"), Reply::Int(1));
    let freed = server.info_number("memory", "lazyfreed_objects");
    assert_eq!(connection.line("UNLINK small"), Reply::Int(1));
    assert_eq!(server.info_number("memory", "lazyfreed_objects"), freed);
}

#[test]
fn flushall_async_gives_the_memory_back() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    let before = server.used_memory();
    for i in 0..200 {
        assert_eq!(connection.line(&format!("BF.RESERVE k{i} 0.01 400000")), Reply::ok());
    }
    assert!(server.used_memory() > before + 80 * MIB);
    assert_eq!(connection.line("FLUSHALL ASYNC"), Reply::ok());
    assert_eq!(connection.line("DBSIZE"), Reply::Int(0));
    wait_until("the memory is given back", || server.used_memory() < before + 4 * MIB);
    assert_eq!(connection.line("BF.ADD k0 a"), Reply::Int(1));
}

#[test]
fn a_watcher_is_disturbed_by_changes_and_by_nothing_else() {
    let server = Server::start();
    let (mut watcher, mut writer) = (server.resp2(), server.resp2());
    let mut is_disturbed = |key: &str, command: &str| {
        assert_eq!(watcher.call(&["WATCH", key]), Reply::ok());
        writer.line(command);
        assert_eq!(watcher.line("MULTI"), Reply::ok());
        assert_eq!(watcher.line("PING"), Reply::Simple("QUEUED".into()));
        watcher.line("EXEC") == Reply::Null
    };
    for (key, command) in [
        ("k", "BF.ADD k a"),
        ("k", "BF.ADD k b"),
        ("k", "BF.MADD k a b c"),
        ("k", "BF.INSERT k ITEMS a d"),
        ("k", "BF.INSERT k NOCREATE ITEMS e"),
        ("r", "BF.RESERVE r 0.01 2 NONSCALING"),
        ("r", "BF.MADD r a b c"),
        ("i", "BF.INSERT i ITEMS a"),
        ("m", "BF.MADD m a"),
        ("m", "DEL m"),
    ] {
        assert!(is_disturbed(key, command), "{command} changes {key}");
    }
    for (key, command) in [
        ("k", "BF.ADD k a"),
        ("k", "BF.MADD k a b c"),
        ("k", "BF.INSERT k ITEMS a"),
        ("k", "BF.RESERVE k 0.01 10"),
        ("k", "BF.LOADCHUNK k 1 junk"),
        ("k", "BF.EXISTS k a"),
        ("k", "BF.MEXISTS k a z"),
        ("k", "BF.INFO k"),
        ("k", "BF.CARD k"),
        ("k", "BF.SCANDUMP k 0"),
        ("r", "BF.ADD r c"),
        ("r", "BF.MADD r a d"),
        ("none", "BF.INSERT none NOCREATE ITEMS a"),
        ("none", "BF.LOADCHUNK none 1 junk"),
        ("none", "BF.LOADCHUNK none 2 junk"),
        ("none", "BF.RESERVE none 0.01 0"),
        ("none", "BF.ADD none"),
        ("none", "BF.EXISTS none a"),
        ("none", "BF.ADD other a"),
    ] {
        assert!(!is_disturbed(key, command), "{command} changes nothing of {key}");
    }
}

#[test]
fn a_loaded_chunk_disturbs_a_watcher() {
    let server = Server::start();
    let (mut watcher, mut writer) = (server.resp2(), server.resp2());
    fill(&mut writer, "from", 0..10);
    for iterator in ["0", "1"] {
        let reply = writer.call(&["BF.SCANDUMP", "from", iterator]);
        let Some([Reply::Int(next), Reply::Bulk(data)]) = reply.array() else { panic!("{reply}") };
        assert_eq!(watcher.line("WATCH to"), Reply::ok());
        let next = next.to_string();
        let loaded = writer.call(&[b"BF.LOADCHUNK", b"to".as_slice(), next.as_bytes(), data]);
        assert_eq!(loaded, Reply::ok());
        assert_eq!(watcher.line("MULTI"), Reply::ok());
        assert_eq!(watcher.line("EXEC"), Reply::Null, "iterator {iterator}");
    }
}

#[test]
fn a_client_that_caches_is_told_of_changes() {
    let server = Server::start();
    let (mut reader, mut writer) = (server.resp3(), server.resp2());
    assert_eq!(writer.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(reader.line("CLIENT TRACKING ON"), Reply::ok());
    for (item, new) in [("a", 0), ("b", 1), ("b", 0), ("c", 1)] {
        reader.line("BF.EXISTS k a");
        assert_eq!(writer.call(&["BF.ADD", "k", item]), Reply::Int(new));
        let pong = Reply::Simple("PONG".into());
        let first = reader.line("PING");
        if new == 0 {
            assert_eq!(first, pong, "adding {item} again changes nothing");
            continue;
        }
        let keys = Reply::Array(vec![Reply::Bulk(b"k".to_vec())]);
        let told = Reply::Array(vec![Reply::Bulk(b"invalidate".to_vec()), keys]);
        assert_eq!(first, told, "adding {item}");
        assert_eq!(reader.read().expect("a reply"), pong);
    }
}

#[test]
fn transactions_and_scripts_run_the_commands_in_order() {
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("MULTI"), Reply::ok());
    for command in [
        "BF.RESERVE k 0.01 2 NONSCALING",
        "BF.ADD k a",
        "BF.RESERVE k 0.01 2",
        "BF.MADD k a b c d",
        "BF.EXISTS k b",
        "BF.CARD k",
    ] {
        assert_eq!(connection.line(command), Reply::Simple("QUEUED".into()));
    }
    let full = Reply::Error("ERR non scaling filter is full".into());
    let replies = vec![
        Reply::ok(),
        Reply::Int(1),
        Reply::Error("ERR item exists".into()),
        Reply::Array(vec![Reply::Int(0), Reply::Int(1), full]),
        Reply::Int(1),
        Reply::Int(2),
    ];
    assert_eq!(connection.line("EXEC"), Reply::Array(replies));
    assert_eq!(connection.line("MULTI"), Reply::ok());
    connection.line("BF.ADD never a");
    assert_eq!(connection.line("DISCARD"), Reply::ok());
    assert_eq!(connection.line("EXISTS never"), Reply::Int(0));

    let script = "local new = redis.call('BF.ADD', KEYS[1], ARGV[1]) \
                  local error = redis.pcall('BF.RESERVE', KEYS[1], 0.01, 10) \
                  local both = redis.call('BF.MEXISTS', KEYS[1], ARGV[1], 'absent') \
                  return {new, error['err'], both}";
    let reply = connection.call(&["EVAL", script, "1", "scripted", "a"]);
    let Some([new, Reply::Bulk(error), both]) = reply.array() else { panic!("{reply}") };
    assert_eq!(*new, Reply::Int(1));
    assert!(String::from_utf8_lossy(error).contains("item exists"), "{reply}");
    assert_eq!(*both, Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
}

#[test]
fn keys_expire_and_are_renamed_and_moved() {
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(connection.line("PEXPIRE k 100000"), Reply::Int(1));
    // An addition keeps the time to live.
    assert_eq!(connection.line("BF.ADD k b"), Reply::Int(1));
    assert!(connection.line("PTTL k").int().is_some_and(|left| left > 0));
    assert_eq!(connection.line("RENAME k l"), Reply::ok());
    assert_eq!(connection.line("BF.EXISTS l b"), Reply::Int(1));
    assert_eq!(connection.line("BF.EXISTS k b"), Reply::Int(0));
    assert!(connection.line("PTTL l").int().is_some_and(|left| left > 0));
    assert_eq!(connection.line("MOVE l 1"), Reply::Int(1));
    assert_eq!(connection.line("BF.EXISTS l b"), Reply::Int(0));
    assert_eq!(connection.line("SELECT 1"), Reply::ok());
    assert_eq!(connection.line("BF.EXISTS l b"), Reply::Int(1));
    assert_eq!(connection.line("TYPE l"), Reply::Simple("MBbloom--".into()));

    assert_eq!(connection.line("PEXPIRE l 20"), Reply::Int(1));
    thread::sleep(Duration::from_millis(60));
    assert_eq!(connection.line("BF.EXISTS l b"), Reply::Int(0));
    assert_eq!(connection.line("BF.INSERT l NOCREATE ITEMS a").error(), Some("ERR not found"));
    assert_eq!(connection.line("BF.ADD l b"), Reply::Int(1));
    assert_eq!(connection.line("PTTL l"), Reply::Int(-1));
    assert_eq!(connection.line("SET l 1"), Reply::ok());
    assert_eq!(connection.line("GET l"), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn a_filter_that_would_pass_maxmemory_is_refused_and_nothing_evicted() {
    if !own_server() {
        return;
    }
    for policy in ["noeviction", "allkeys-lru"] {
        let server = Server::builder().config(&format!("maxmemory-policy {policy}")).start();
        let mut connection = server.resp2();
        for i in 0..2000 {
            assert_eq!(connection.line(&format!("SET key-{i} value")), Reply::ok());
        }
        assert_eq!(connection.line("CONFIG SET maxmemory 200mb"), Reply::ok());
        let before = server.used_memory();
        // Some 300 MB and 36 GB; the header below asks for 1 GB.
        for (command, error) in [
            ("BF.RESERVE z 0.000001 80000000", NO_MEMORY),
            ("BF.RESERVE z 0.0000000000000000000000001 1073741824 NONSCALING", NO_MEMORY),
            ("BF.INSERT z CAPACITY 1000000000 ITEMS a", NO_MEMORY),
        ] {
            assert_eq!(connection.line(command), Reply::Error(error.into()), "{policy} {command}");
            assert_eq!(connection.line("EXISTS z"), Reply::Int(0));
        }
        let other = Server::start();
        let mut larger = other.resp2();
        assert_eq!(larger.line("BF.RESERVE z 0.001 500000000"), Reply::ok());
        let header = larger.line("BF.SCANDUMP z 0");
        let header = header.array().and_then(|parts| parts[1].bytes()).expect("a header").to_vec();
        let reply = connection.call(&[b"BF.LOADCHUNK".as_slice(), b"z", b"1", &header]);
        assert_eq!(reply, Reply::Error(NO_MEMORY.into()), "{policy}");

        assert_eq!(connection.line("SET x 1"), Reply::ok(), "{policy}");
        assert_eq!(connection.line("DBSIZE"), Reply::Int(2001), "{policy}");
        assert!(server.used_memory() < before + MIB, "{policy}: memory was taken");
        // What fits is made.
        assert_eq!(connection.line("BF.RESERVE fits 0.001 1000000"), Reply::ok());
        assert_eq!(connection.line("BF.ADD fits a"), Reply::Int(1));
    }
}

#[test]
fn many_small_layers_count_together_against_maxmemory() {
    if !own_server() {
        return;
    }
    let server = Server::builder().module_args(&["bf-layout", "redisbloom"]).start();
    let mut connection = server.resp2();
    // A header whose one layer takes 60 KB, then the same layer a thousand times.
    assert_eq!(connection.line("BF.RESERVE one 0.001 30000"), Reply::ok());
    let reply = connection.line("BF.SCANDUMP one 0");
    let header = reply.array().and_then(|parts| parts[1].bytes()).expect("a header").to_vec();
    let (chain, layer) = header.split_at(20);
    let layers: u32 = 1000;
    let mut header = [&chain[..8], &layers.to_le_bytes(), &chain[12..]].concat();
    header.extend(layer.repeat(layers as usize));
    let limit = server.used_memory() + 10 * MIB;
    assert_eq!(connection.line(&format!("CONFIG SET maxmemory {limit}")), Reply::ok());
    let load = [b"BF.LOADCHUNK".as_slice(), b"many", b"1", &header];
    assert_eq!(connection.call(&load), Reply::Error(NO_MEMORY.into()));
    assert!(server.used_memory() < limit);
    assert_eq!(connection.line("CONFIG SET maxmemory 0"), Reply::ok());
    assert_eq!(connection.call(&load), Reply::ok());
}

#[test]
fn growth_that_would_pass_maxmemory_is_refused_item_by_item() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.RESERVE k 0.01 1000 EXPANSION 32768"), Reply::ok());
    fill(&mut connection, "k", 0..900);
    // The next layer takes some 40 MB.
    let limit = server.used_memory() + 10 * MIB;
    assert_eq!(connection.line(&format!("CONFIG SET maxmemory {limit}")), Reply::ok());
    let mut refused = 0;
    for i in 0..2000 {
        match connection.line(&format!("BF.ADD k item-{i}")) {
            Reply::Int(0) => {}
            Reply::Int(1) => assert_eq!(refused, 0, "item {i} after a refusal"),
            reply => {
                assert_eq!(reply, Reply::Error(CANNOT_GROW.into()), "item {i}");
                refused += 1;
            }
        }
    }
    assert!(refused > 800, "{refused}");
    let reply = connection.line("BF.MADD k item-0 item-5000 item-1 item-5001");
    let error = Reply::Error(CANNOT_GROW.into());
    assert_eq!(reply, Reply::Array(vec![Reply::Int(0), error.clone(), Reply::Int(0), error]));
    assert_eq!(connection.line("BF.EXISTS k item-899"), Reply::Int(1));
    assert_eq!(connection.line("CONFIG SET maxmemory 0"), Reply::ok());
    assert_eq!(connection.line("BF.ADD k item-5000"), Reply::Int(1));
}

#[test]
fn a_server_beyond_maxmemory_takes_reads_and_deletions_but_no_additions() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.MADD k a b"), Reply::Array(vec![Reply::Int(1); 2]));
    assert_eq!(connection.line("CONFIG SET maxmemory 1"), Reply::ok());
    for write in ["BF.ADD k c", "BF.MADD k c", "BF.INSERT k ITEMS c", "BF.RESERVE l 0.1 1"] {
        let reply = connection.line(write);
        assert!(reply.error().is_some_and(|text| text.starts_with("OOM ")), "{write}: {reply}");
    }
    assert_eq!(connection.line("BF.EXISTS k a"), Reply::Int(1));
    assert_eq!(connection.line("BF.EXISTS k c"), Reply::Int(0));
    assert_eq!(connection.line("BF.CARD k"), Reply::Int(2));
    assert_eq!(connection.line("DEL k"), Reply::Int(1));
}

#[test]
fn active_defragmentation_moves_filters_and_leaves_them_as_they_were() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    let on = connection.line("CONFIG SET activedefrag yes");
    if on.error().is_some() {
        return skip("the server cannot defragment memory");
    }
    assert_eq!(connection.line("CONFIG SET activedefrag no"), Reply::ok());
    for setting in [
        "active-defrag-ignore-bytes 1",
        "active-defrag-threshold-lower 1",
        "active-defrag-cycle-min 40",
        "active-defrag-cycle-max 60",
    ] {
        assert_eq!(connection.line(&format!("CONFIG SET {setting}")), Reply::ok(), "{setting}");
    }
    // Holes between blocks of the same size class. The largest filters have lines.
    for i in 0..30_000 {
        let key = format!("k{i}");
        let shape = ["100", "300", "3500 NONSCALING"][i % 3];
        assert_eq!(connection.line(&format!("BF.RESERVE {key} 0.01 {shape}")), Reply::ok());
        connection.call(&["BF.MADD", &key, "a", &format!("item-{i}")]);
    }
    fill(&mut connection, "grown", 0..5000);
    for i in 0..30_000 {
        if i % 4 != 0 {
            connection.line(&format!("DEL k{i}"));
        }
    }
    let before = server.dump_all();
    assert_eq!(connection.line("CONFIG RESETSTAT"), Reply::ok());
    assert_eq!(connection.line("CONFIG SET activedefrag yes"), Reply::ok());
    wait_until("the server defragments", || {
        server.info_number("stats", "active_defrag_hits") > 10_000
    });
    // Writes to filters while they move.
    for i in (0..30_000).step_by(4) {
        assert_eq!(connection.line(&format!("BF.ADD k{i} a")), Reply::Int(0));
    }
    assert!(server.dump_all() == before, "a filter changed");
    for i in (0..30_000).step_by(40) {
        assert_eq!(connection.line(&format!("BF.EXISTS k{i} item-{i}")), Reply::Int(1));
        assert_eq!(connection.line(&format!("DEL k{i}")), Reply::Int(1));
    }
    fill(&mut connection, "grown", 5000..8000);
    server.debug_reload();
    assert_eq!(connection.line("BF.EXISTS grown item-7999"), Reply::Int(1));
}

#[test]
fn large_tables_ask_for_huge_pages_within_the_limit_and_give_them_back() {
    if !own_arguments() {
        return;
    }
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        skip("the kernel has no transparent huge pages");
        return;
    }
    let tables = [
        "BF.RESERVE bloom 0.01 10000000",
        "CF.RESERVE cuckoo 10000000",
        "CMS.INITBYDIM sketch 1000000 5",
        "COPY bloom copy",
    ];
    let mut server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(megabytes_for_huge_pages(&server), 0);
    assert_eq!(connection.line("BF.RESERVE small 0.01 1000000"), Reply::ok());
    assert_eq!(megabytes_for_huge_pages(&server), 0);
    for command in tables {
        let before = megabytes_for_huge_pages(&server);
        assert!(connection.line(command).error().is_none(), "{command}");
        assert!(megabytes_for_huge_pages(&server) >= before + 8, "{command}");
    }
    fill(&mut connection, "bloom", 0..1000);
    server.restart();
    let mut connection = server.resp2();
    assert!(megabytes_for_huge_pages(&server) >= 4 * 8);
    fill(&mut connection, "copy", 0..1000);
    for key in ["bloom", "cuckoo", "sketch", "copy"] {
        assert_eq!(connection.line(&format!("DEL {key}")), Reply::Int(1));
    }
    // Some servers free in the background.
    wait_until("no huge pages", || megabytes_for_huge_pages(&server) == 0);
    for limit in ["0", "8000000"] {
        let server = Server::builder().module_args(&["bf-huge-pages-limit", limit]).start();
        assert_eq!(server.resp2().line(tables[0]), Reply::ok());
        assert_eq!(megabytes_for_huge_pages(&server), 0, "limit {limit}");
    }
}

/// Megabytes of the server's memory that are marked for huge pages.
fn megabytes_for_huge_pages(server: &Server) -> u64 {
    let path = format!("/proc/{}/smaps", server.pid());
    let maps = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (mut size, mut marked) = (0, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Size:") => size = words.next().and_then(|kb| kb.parse().ok()).expect("a size"),
            Some("VmFlags:") if words.any(|flag| flag == "hg") => marked += size,
            _ => {}
        }
    }
    marked / 1024
}

/// Processor time that the server's main thread has used.
fn main_thread_time(server: &Server) -> Duration {
    let pid = server.pid();
    let path = format!("/proc/{pid}/task/{pid}/schedstat");
    let times = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let nanoseconds = times.split(' ').next().and_then(|time| time.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number of nanoseconds"))
}

/// Adds the items of these numbers, a hundred at a time.
fn fill(connection: &mut RespConnection, key: &str, numbers: std::ops::Range<u32>) {
    let items: Vec<_> = numbers.map(|number| format!("item-{number}")).collect();
    for items in items.chunks(100) {
        let command = [&["BF.MADD".to_owned(), key.to_owned()], items].concat();
        let reply = connection.call(&command);
        let elements = reply.array().unwrap_or_else(|| panic!("BF.MADD {key}: {reply}"));
        assert!(elements.iter().all(|element| element.int().is_some()), "BF.MADD {key}: {reply}");
    }
}

fn usage(connection: &mut RespConnection, key: &str) -> u64 {
    let usage = connection.call(&["MEMORY", "USAGE", key]);
    usage.int().and_then(|usage| usage.try_into().ok()).expect("a number of bytes")
}

/// The filter's size as BF.INFO gives it.
fn size(connection: &mut RespConnection, key: &str) -> u64 {
    let reply = connection.call(&["BF.INFO", key, "SIZE"]);
    let size = reply.array().and_then(|values| values.first()?.int());
    size.and_then(|size| size.try_into().ok()).unwrap_or_else(|| panic!("no size: {reply}"))
}
