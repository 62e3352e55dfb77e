//! What holds for the keys of all five families among the server's other keys.

mod common;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{Reply, RespConnection, Server, own_arguments, own_server, skip, wait_until};

const MIB: u64 = 1 << 20;

/// What the tests need to know of a family.
struct Family {
    /// Makes a small key `k`.
    small: &'static str,
    /// Makes a key `k` of some megabytes.
    large: &'static str,
    /// Makes a key `k` of some 300 MB.
    huge: &'static str,
    /// Begins a command that changes the key `k` by the items or values behind.
    add: &'static str,
    /// Asks the key `k`.
    ask: &'static str,
}

const FAMILIES: [Family; 5] = [
    Family {
        small: "BF.RESERVE k 0.01 100",
        large: "BF.RESERVE k 0.001 2000000",
        huge: "BF.RESERVE k 0.000001 80000000",
        add: "BF.MADD k",
        ask: "BF.MEXISTS k 1 2 3",
    },
    Family {
        small: "CF.RESERVE k 100",
        large: "CF.RESERVE k 4000000",
        huge: "CF.RESERVE k 300000000",
        add: "CF.INSERT k ITEMS",
        ask: "CF.MEXISTS k 1 2 3",
    },
    Family {
        small: "CMS.INITBYDIM k 50 4",
        large: "CMS.INITBYDIM k 500000 4",
        huge: "CMS.INITBYDIM k 20000000 4",
        add: "CMS.INCRBY k a 3 b",
        ask: "CMS.QUERY k a b",
    },
    Family {
        small: "TOPK.RESERVE k 10 8 7 0.9",
        large: "TOPK.RESERVE k 1000 100000 7 0.9",
        huge: "TOPK.RESERVE k 10 8000000 5 0.9",
        add: "TOPK.ADD k",
        ask: "TOPK.LIST k WITHCOUNT",
    },
    Family {
        small: "TDIGEST.CREATE k COMPRESSION 20",
        large: "TDIGEST.CREATE k COMPRESSION 30000",
        huge: "TDIGEST.CREATE k COMPRESSION 3000000",
        add: "TDIGEST.ADD k",
        ask: "TDIGEST.QUANTILE k 0 0.5 1",
    },
];

#[test]
fn a_copy_has_the_digest_of_its_original_until_it_changes() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    for family in &FAMILIES {
        accepted(&mut connection, "FLUSHALL");
        accepted(&mut connection, family.small);
        accepted(&mut connection, &format!("{} 7 5 9", family.add));
        accepted(&mut connection, "COPY k copy");
        assert_eq!(connection.line("DUMP copy"), connection.line("DUMP k"), "{}", family.small);
        let equal = |connection: &mut RespConnection| {
            let reply = connection.line("DEBUG DIGEST-VALUE k copy");
            let digests = reply.array().expect("two digests");
            digests[0] == digests[1]
        };
        assert!(equal(&mut connection), "{}", family.small);
        let before = connection.line("DUMP copy");
        accepted(&mut connection, &format!("{} 11", family.add));
        assert!(!equal(&mut connection), "{}", family.small);
        assert_eq!(connection.line("DUMP copy"), before, "{}", family.small);
    }
}

#[test]
fn memory_usage_is_what_the_allocator_gave() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    for family in &FAMILIES {
        connection.line(family.ask);
        let before = server.used_memory();
        accepted(&mut connection, family.large);
        // A digest takes its memory as observations come.
        if family.add.starts_with("TDIGEST") {
            fill(&mut connection, family.add, 150_000);
        }
        let taken = server.used_memory().saturating_sub(before);
        let usage = connection.line("MEMORY USAGE k").int().expect("a number") as u64;
        assert!(usage > MIB, "{}: {usage}", family.large);
        // Buffers of connections come and go meanwhile.
        let difference = usage.abs_diff(taken);
        assert!(difference < 150_000, "{}: usage {usage}, {taken} taken", family.large);
        accepted(&mut connection, "DEL k");
        // Valkey frees in the background.
        wait_until("all of it is given back", || server.used_memory() < before + 150_000);
    }
}

#[test]
fn what_would_pass_maxmemory_is_refused_and_nothing_evicted() {
    if !own_server() {
        return;
    }
    for policy in ["noeviction", "allkeys-lru"] {
        let builder = Server::builder().config("maxmemory 200mb");
        let server = builder.config(&format!("maxmemory-policy {policy}")).start();
        let mut connection = server.resp2();
        for i in 0..2000 {
            accepted(&mut connection, &format!("SET key-{i} value"));
        }
        let before = server.used_memory();
        for family in &FAMILIES {
            // A digest takes no memory before its observations come.
            if family.add.starts_with("TDIGEST") {
                continue;
            }
            let reply = connection.line(family.huge);
            let refused = reply.error().is_some_and(|text| text.contains("nsufficient memory"));
            assert!(refused, "{policy}: {}: {reply}", family.huge);
            assert_eq!(connection.line("EXISTS k"), Reply::Int(0));
            accepted(&mut connection, family.large);
            fill(&mut connection, family.add, 100);
            accepted(&mut connection, "DEL k");
        }
        wait_until("all is given back", || server.used_memory() < before + 2 * MIB);
        assert_eq!(connection.line("DBSIZE"), Reply::Int(2000), "{policy}");
    }
}

/// Where nobody set a limit. The server's allocator may promise such blocks.
#[test]
fn what_is_larger_than_the_machines_memory_is_refused() {
    if !own_arguments() {
        return;
    }
    let overcommit = fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if overcommit.is_ok_and(|text| text.trim() == "1") {
        return skip("the system promises any amount of memory");
    }
    let info = fs::read_to_string("/proc/meminfo").expect("Linux");
    let kib = |name: &str| -> u64 {
        let line = info.lines().find(|line| line.starts_with(name)).expect("a line of it");
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    };
    let bytes = (kib("MemTotal:") + kib("SwapTotal:")) * 1024 * 5 / 4;
    let server = Server::builder().module_args(&["bf-max-memory-per-key", "0"]).start();
    let mut connection = server.resp2();
    for command in [format!("CMS.INITBYDIM k {} 1", bytes / 4), format!("CF.RESERVE k {bytes}")] {
        let reply = connection.line(&command);
        assert!(reply.error().is_some(), "{command}: {reply}");
        assert_eq!(connection.line("EXISTS k"), Reply::Int(0));
    }
}

#[test]
fn a_digest_that_would_pass_maxmemory_refuses_observations_and_nothing_is_evicted() {
    if !own_server() {
        return;
    }
    let server = Server::builder().config("maxmemory-policy allkeys-lru").start();
    let mut connection = server.resp2();
    for i in 0..2000 {
        accepted(&mut connection, &format!("SET key-{i} value"));
    }
    accepted(&mut connection, "TDIGEST.CREATE k COMPRESSION 3000000");
    fill(&mut connection, "TDIGEST.ADD k", 100_000);
    let limit = server.used_memory() + MIB;
    accepted(&mut connection, &format!("CONFIG SET maxmemory {limit}"));
    let mut refused = 0;
    for i in 0..200 {
        let values: Vec<_> = (0..500).map(|j| (500 * i + j).to_string()).collect();
        let reply = connection.line(&format!("TDIGEST.ADD k {}", values.join(" ")));
        refused += u32::from(reply.error() == Some("ERR T-Digest: allocation failed"));
    }
    assert!(refused > 0, "the digest grew without end");
    assert_eq!(connection.line("DBSIZE"), Reply::Int(2001));
}

#[test]
fn the_server_knows_the_keys_of_every_command() {
    let server = Server::start();
    let mut connection = server.resp2();
    let names = connection.line("COMMAND");
    let ours = |name: &str| {
        let family = name.split_once('.').map_or("", |(family, _)| family);
        ["bf", "cf", "cms", "topk", "tdigest"].contains(&family)
    };
    let commands = names.array().expect("a list").iter().filter_map(Reply::array);
    let mut count = 0;
    for command in commands {
        let (name, arity) = (command[0].text().expect("a name"), command[1].int().expect("arity"));
        if !ours(name) {
            continue;
        }
        count += 1;
        let merge = name.ends_with(".merge");
        // The key, then as many arguments as the command takes, the fewest of a merge aside.
        let mut words = vec!["COMMAND", "GETKEYS", name, "k"];
        let fewest = arity.unsigned_abs() as usize;
        words.extend(if merge { vec!["2", "a", "b"] } else { vec!["1"; fewest.max(2) - 2] });
        let keys: &[&str] = if merge { &["k", "a", "b"] } else { &["k"] };
        let want = keys.iter().map(|key| Reply::Bulk(key.as_bytes().to_vec())).collect();
        assert_eq!(connection.call(&words), Reply::Array(want), "{name}");
    }
    assert!(count > 45, "{count} commands");
}

#[test]
fn every_change_is_one_keyspace_event_where_asked_for() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let (mut subscriber, mut writer) = (server.resp2(), server.resp2());
    subscriber.line("PSUBSCRIBE __keyevent@0__:*");
    // Off unless asked for.
    accepted(&mut writer, "BF.ADD early a");
    accepted(&mut writer, "CONFIG SET notify-keyspace-events Ed");
    let header = scan(&mut writer, "BF", "early");
    accepted(&mut writer, "CF.ADD cf:early a");
    let cf_header = scan(&mut writer, "CF", "cf:early");
    let mut expected = vec!["cf.add"];
    for (command, event) in [
        ("BF.RESERVE b 0.1 10", Some("bf.reserve")),
        ("BF.ADD b x", Some("bf.add")),
        ("BF.ADD b x", None),
        ("BF.MADD b x y z", Some("bf.add")),
        ("BF.INSERT b ITEMS v w", Some("bf.add")),
        ("BF.EXISTS b x", None),
        ("CF.RESERVE c 100", Some("cf.reserve")),
        ("CF.ADD c x", Some("cf.add")),
        ("CF.ADDNX c x", None),
        ("CF.INSERT c ITEMS x y", Some("cf.add")),
        ("CF.INSERTNX c ITEMS x", None),
        ("CF.DEL c x", Some("cf.del")),
        ("CF.DEL c none", None),
        ("CMS.INITBYDIM m 10 2", Some("cms.initbydim")),
        ("CMS.INITBYPROB p 0.1 0.1", Some("cms.initbyprob")),
        ("CMS.INCRBY m x 1", Some("cms.incrby")),
        ("CMS.INCRBY m x 0", None),
        ("CMS.MERGE m 1 m", Some("cms.merge")),
        ("TOPK.RESERVE t 2", Some("topk.reserve")),
        ("TOPK.ADD t x y", Some("topk.add")),
        ("TOPK.INCRBY t x 2", Some("topk.incrby")),
        ("TOPK.INCRBY t x 0", None),
        ("TDIGEST.CREATE d", Some("tdigest.create")),
        ("TDIGEST.ADD d 1 2", Some("tdigest.add")),
        ("TDIGEST.MERGE e 1 d", Some("tdigest.merge")),
        ("TDIGEST.QUANTILE d 0.5", None),
        ("TDIGEST.RESET d", Some("tdigest.reset")),
        ("TDIGEST.RESET d", None),
    ] {
        writer.line(command);
        expected.extend(event);
    }
    writer.call(&[b"BF.LOADCHUNK".as_slice(), b"loaded", b"1", &header]);
    writer.call(&[b"CF.LOADCHUNK".as_slice(), b"cf:loaded", b"1", &cf_header]);
    expected.extend(["bf.loadchunk", "cf.loadchunk"]);
    for event in expected {
        let message = subscriber.read().expect("an event");
        let channel = message.array().and_then(|message| message[2].text());
        assert_eq!(channel, Some(format!("__keyevent@0__:{event}").as_str()));
    }
}

#[test]
fn a_key_of_a_gigabyte_is_unlinked_at_once_and_freed_in_the_background() {
    if !own_server() {
        return;
    }
    for (reserve, add) in [
        ("BF.RESERVE k 0.001 600000000", "BF.MADD k"),
        ("CF.RESERVE k 1000000000", "CF.INSERT k ITEMS"),
        ("CMS.INITBYDIM k 50000000 5", "CMS.INCRBY k x"),
        ("TOPK.RESERVE k 100 26000000 5 0.9", "TOPK.ADD k"),
    ] {
        let server = Server::start();
        let mut connection = server.resp2();
        accepted(&mut connection, reserve);
        if !add.starts_with("CMS") {
            // Pages that are really there.
            fill(&mut connection, add, 20_000);
        }
        let before = server.used_memory();
        assert!(before > 900 * MIB, "{reserve}: {before}");
        let freed = server.info_number("memory", "lazyfreed_objects");
        // Not the time that passes: other processes may take the processor meanwhile.
        let spent = main_thread_time(&server);
        assert_eq!(connection.line("UNLINK k"), Reply::Int(1));
        let spent = main_thread_time(&server) - spent;
        assert!(spent < Duration::from_millis(5), "{reserve}: UNLINK took {spent:?}");
        wait_until("the key is freed in the background", || {
            server.info_number("memory", "lazyfreed_objects") > freed
        });
        assert!(server.used_memory() < 100 * MIB, "{reserve}: its memory is given back");
    }
}

#[test]
fn saving_a_large_filter_needs_no_second_copy_of_it() {
    if !own_arguments() {
        return;
    }
    let server = Server::builder().config("rdbcompression yes").start();
    let mut connection = server.resp2();
    accepted(&mut connection, "BF.RESERVE k 0.001 160000000");
    fill(&mut connection, "BF.MADD k", 50_000);
    assert!(server.used_memory() > 256 * MIB);
    server.bgsave();
    // What the child changed or took for itself, at its peak.
    let own = server.info_number("persistence", "rdb_last_cow_size");
    assert!(own < 64 * MIB, "the child took {own} bytes");
}

#[test]
fn a_call_that_a_full_filter_cuts_short_raises_no_alarm_on_a_replica() {
    if !own_server() {
        return;
    }
    let primary = Server::builder().config("appendonly yes").start();
    let replica = Server::start();
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    accepted(&mut connection, "BF.RESERVE full 0.01 3 NONSCALING");
    let reply = connection.line("BF.MADD full a b c d e");
    assert!(reply.array().expect("an array").iter().any(|reply| reply.error().is_some()));
    connection.line("BF.INSERT new CAPACITY 2 NONSCALING ITEMS a b c d");
    connection.line("BF.INSERT full ITEMS a f g");
    accepted(&mut connection, "CF.RESERVE cf:full 4 EXPANSION 0 BUCKETSIZE 1");
    connection.line("CF.INSERT cf:full ITEMS a b c d e f g h");
    connection.line("CF.INSERTNX cf:full ITEMS a b c d e f g h");
    accepted(&mut connection, "CMS.INITBYDIM m 10 2");
    for _ in 0..3 {
        connection.line("CMS.INCRBY m a 4000000000 b 1");
    }
    accepted(&mut connection, "TOPK.RESERVE t 2");
    connection.line("TOPK.INCRBY t a 1 b x");
    replica.wait_for_sync(&primary);
    assert_eq!(replica.dump_all(), primary.dump_all());
    assert_eq!(primary.dump_all().len(), 5);
    let log = replica.log();
    let alarm = log.lines().find(|line| line.contains("CRITICAL") || line.contains("error to its"));
    assert_eq!(alarm, None);
}

#[test]
fn no_acknowledged_write_of_any_family_is_lost_when_the_server_is_killed() {
    if !own_server() {
        return;
    }
    for preamble in ["yes", "no"] {
        let mut server = Server::builder()
            .config("appendonly yes")
            .config("appendfsync always")
            .config(&format!("aof-use-rdb-preamble {preamble}"))
            .start();
        let mut connection = server.resp2();
        for command in [
            "CMS.INITBYDIM cms 1000 5",
            "TOPK.RESERVE topk 5000 20000 5 1",
            "TDIGEST.CREATE td",
            "CF.RESERVE cf 100",
        ] {
            accepted(&mut connection, command);
        }
        let acknowledged = AtomicUsize::new(0);
        let mut writer = server.resp2();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for i in 0.. {
                    for command in [
                        format!("BF.ADD bf {i}"),
                        format!("CF.ADD cf {i}"),
                        format!("CMS.INCRBY cms one 1 {i} 1"),
                        format!("TOPK.ADD topk {i}"),
                        format!("TDIGEST.ADD td {i}"),
                    ] {
                        let words: Vec<_> = command.split(' ').collect();
                        let Ok(reply) = writer.command(&words) else { return };
                        assert_eq!(reply.error(), None, "{command}");
                    }
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            });
            wait_until("items are added", || acknowledged.load(Ordering::SeqCst) > 50);
            server.rewrite_aof();
            let so_far = acknowledged.load(Ordering::SeqCst);
            wait_until("more are added", || acknowledged.load(Ordering::SeqCst) > so_far + 50);
            server.kill9();
            writer.join().expect("no error in a reply");
        });
        server.start_again();
        let count = acknowledged.load(Ordering::SeqCst);
        let mut connection = server.resp2();
        for i in 0..count {
            for ask in ["BF.EXISTS bf", "CF.EXISTS cf"] {
                assert_eq!(connection.line(&format!("{ask} {i}")), Reply::Int(1), "{ask} {i}");
            }
            let listed = connection.line(&format!("TOPK.QUERY topk {i}"));
            assert_eq!(listed, Reply::Array(vec![Reply::Int(1)]), "TOPK.QUERY {i}");
        }
        let times = connection.line("CMS.QUERY cms one");
        let times = times.array().and_then(|counts| counts[0].int()).expect("a count");
        assert!(times as usize >= count, "{times} of {count} counted");
        let max = connection.line("TDIGEST.MAX td");
        let max: f64 = max.text().and_then(|max| max.parse().ok()).expect("a number");
        assert!(max as usize + 1 >= count, "{max} of {count}");
    }
}

#[test]
fn active_defragmentation_leaves_keys_of_all_families_as_they_were() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    if connection.line("CONFIG SET activedefrag yes").error().is_some() {
        return skip("the server cannot defragment memory");
    }
    accepted(&mut connection, "CONFIG SET activedefrag no");
    for setting in [
        "active-defrag-ignore-bytes 1",
        "active-defrag-threshold-lower 1",
        "active-defrag-cycle-min 40",
        "active-defrag-cycle-max 60",
    ] {
        accepted(&mut connection, &format!("CONFIG SET {setting}"));
    }
    // Large buffers among small keys, and holes between blocks of the same size class.
    let rename = |connection: &mut RespConnection, name: String| {
        assert_eq!(connection.call(&["RENAME", "k", &name]), Reply::ok());
    };
    for (number, family) in FAMILIES.iter().enumerate() {
        accepted(&mut connection, family.large);
        fill(&mut connection, family.add, 20_000);
        rename(&mut connection, format!("large:{number}"));
    }
    for i in 0..15_000 {
        let family = &FAMILIES[i % 5];
        accepted(&mut connection, family.small);
        accepted(&mut connection, &format!("{} {i}", family.add));
        rename(&mut connection, format!("k{i}"));
    }
    for i in (0..15_000).filter(|i| i % 7 != 0) {
        accepted(&mut connection, &format!("DEL k{i}"));
    }
    let before = server.dump_all();
    accepted(&mut connection, "CONFIG RESETSTAT");
    accepted(&mut connection, "CONFIG SET activedefrag yes");
    wait_until("the server defragments", || {
        server.info_number("stats", "active_defrag_hits") > 1500
    });
    for _ in 0..20 {
        assert!(server.dump_all() == before, "a value changed");
    }
    // The moved buffers are whole: they take writes, and are freed.
    for (number, family) in FAMILIES.iter().enumerate() {
        assert_eq!(connection.call(&["RENAME", &format!("large:{number}"), "k"]), Reply::ok());
        fill(&mut connection, family.add, 30_000);
        accepted(&mut connection, family.ask);
        accepted(&mut connection, "DEL k");
    }
    server.debug_reload();
    accepted(&mut connection, "FLUSHALL");
}

#[test]
fn the_example_script_for_prometheus_gives_names_and_values() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    accepted(&mut connection, "BF.MADD k a b");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/prometheus/ferrobloom.lua");
    let script = fs::read_to_string(path).expect("the script can be read");
    let reply = connection.call(&["EVAL", &script, "0"]);
    let texts: Vec<_> = reply.array().expect("a list").iter().filter_map(Reply::text).collect();
    assert_eq!(texts.len(), 5 * 8 * 2, "{texts:?}");
    let value = |name| texts.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    assert_eq!(value("bf_bloom_keys"), Some("1"));
    assert_eq!(value("bf_bloom_adds"), Some("2"));
    assert_eq!(value("bf_tdigest_refusals"), Some("0"));
}

fn accepted(connection: &mut RespConnection, command: &str) {
    let reply = connection.line(command);
    assert!(reply.error().is_none(), "{command}: {reply}");
}

/// Adds the numbers below the limit, two hundred at a time.
fn fill(connection: &mut RespConnection, add: &str, limit: u32) {
    let numbers: Vec<_> = (0..limit).map(|number| number.to_string()).collect();
    for numbers in numbers.chunks(200) {
        let words = if add.starts_with("CMS") { numbers[0].clone() } else { numbers.join(" ") };
        accepted(connection, &format!("{add} {words}"));
    }
}

/// The header of a filter's dump.
fn scan(connection: &mut RespConnection, family: &str, key: &str) -> Vec<u8> {
    let reply = connection.line(&format!("{family}.SCANDUMP {key} 0"));
    reply.array().and_then(|parts| parts[1].bytes()).expect("a header").to_vec()
}

/// Processor time that the server's main thread has used.
fn main_thread_time(server: &Server) -> Duration {
    let pid = server.pid();
    let path = format!("/proc/{pid}/task/{pid}/schedstat");
    let times = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let nanoseconds = times.split(' ').next().and_then(|time| time.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number of nanoseconds"))
}
