//! Top-K sketches on a server: whole replies, whole items, bounded work, and copies
//! that go the way of the original.

mod common;

use std::time::{Duration, Instant};

use common::{Reply, RespConnection, Server, own_server, wait_until};

/// RedisBloom's text, blanks included.
const BAD_INCREMENT: &str = concat!(
    "TopK: increment must be an integer greater or equal to 0",
    "                            and smaller or equal to 100,000"
);

#[test]
fn a_bad_increment_before_the_last_pair_adds_nothing() {
    let server = Server::start();
    let mut connection = server.resp2();
    accepted(&mut connection, "TOPK.RESERVE t 3");
    for bad in ["bad", "-1", "100001", "1.5", "9223372036854775808"] {
        let command = format!("TOPK.INCRBY t a 1 b {bad} c 3");
        assert_eq!(connection.line(&command), error(BAD_INCREMENT), "{bad}");
        assert_eq!(connection.line("PING"), Reply::Simple("PONG".into()), "nothing is left over");
    }
    for at in [0, 31, 32, 98] {
        let pair = |i| if i == at { "a x ".into() } else { format!("a {i} ") };
        let pairs: String = (0..100).map(pair).collect();
        assert_eq!(connection.line(&format!("TOPK.INCRBY t {pairs}")), error(BAD_INCREMENT));
    }
    assert_eq!(connection.line("TOPK.LIST t"), Reply::Array(Vec::new()));
}

#[test]
fn a_bad_increment_in_the_last_pair_has_its_error_in_its_place() {
    let server = Server::start();
    let mut connection = server.resp2();
    accepted(&mut connection, "TOPK.RESERVE t 3");
    let reply = connection.line("TOPK.INCRBY t a 5 b 2 c bad");
    assert_eq!(reply, Reply::Array(vec![Reply::Null, Reply::Null, error(BAD_INCREMENT)]));
    assert_eq!(connection.line("TOPK.INCRBY t a bad"), Reply::Array(vec![error(BAD_INCREMENT)]));
    assert_eq!(list(&mut connection, "t"), [(b"a".to_vec(), 5), (b"b".to_vec(), 2)]);
}

#[test]
fn large_increments_take_bounded_time() {
    let server = Server::start();
    let mut connection = server.resp2();
    accepted(&mut connection, "TOPK.RESERVE t 10 8 7 0.9");
    let pairs: String = (0..50).map(|i| format!("item-{i} 100000 ")).collect();
    let begin = Instant::now();
    let reply = connection.line(&format!("TOPK.INCRBY t {pairs}"));
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    assert_eq!(reply.array().map(<[Reply]>::len), Some(50));
}

#[test]
fn items_of_any_bytes_are_whole_before_and_after_a_reload() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    accepted(&mut connection, "TOPK.RESERVE t 5 50 4 0.9");
    let items: [&[u8]; 5] = [b"a\0b", b"c\r\nd", b"", b"\xff\xfe", b"a"];
    for (i, item) in items.iter().enumerate() {
        let units = (10 - i).to_string();
        let reply = connection.call(&[b"TOPK.INCRBY", b"t".as_slice(), item, units.as_bytes()]);
        assert_eq!(reply, Reply::Array(vec![Reply::Null]));
    }
    connection.line("TOPK.INCRBY t zero 0");
    let want: Vec<_> = items.iter().zip((6..=10).rev()).map(|(i, n)| (i.to_vec(), n)).collect();
    let query = [&[&b"TOPK.QUERY"[..], b"t"], &items[..], &[&b"zero"[..], b"a\0c"]].concat();
    for time in ["before", "after"] {
        assert_eq!(list(&mut connection, "t"), want, "{time}");
        let reply = connection.call(&query);
        assert_eq!(reply, integers(&[1, 1, 1, 1, 1, 0, 0]), "{time}");
        server.debug_reload();
    }
    // Expelled whole, too.
    let reply = connection.line("TOPK.INCRBY t x 7");
    assert_eq!(reply, Reply::Array(vec![Reply::Bulk(b"a".to_vec())]));
    let reply = connection.line("TOPK.INCRBY t y 100 z 101 v 102 w 103 u 104");
    let expelled = reply.array().expect("an array").to_vec();
    for item in &items[..4] {
        assert!(expelled.contains(&Reply::Bulk(item.to_vec())), "{reply}");
    }
}

#[test]
fn lists_and_counts_have_the_forms_of_their_protocol() {
    let server = Server::start();
    let (mut resp2, mut resp3) = (server.resp2(), server.resp3());
    accepted(&mut resp2, "TOPK.RESERVE t 2 50 4 0.9");
    resp2.line("TOPK.INCRBY t a 5 b 3 c 1");
    let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    let counted = Reply::Array(vec![bulk("a"), Reply::Int(5), bulk("b"), Reply::Int(3)]);
    for connection in [&mut resp2, &mut resp3] {
        assert_eq!(connection.line("TOPK.LIST t"), Reply::Array(vec![bulk("a"), bulk("b")]));
        assert_eq!(connection.line("TOPK.LIST t withCOUNT"), counted);
        assert_eq!(connection.line("TOPK.COUNT t a b none"), integers(&[5, 3, 0]));
        for word in ["WITH", "WITHCOUNTS", "x"] {
            let reply = connection.line(&format!("TOPK.LIST t {word}"));
            assert_eq!(reply, error("WITHCOUNT keyword expected"), "{word}");
        }
    }
    assert_eq!(resp2.line("TOPK.QUERY t a none"), integers(&[1, 0]));
    if server.kind().has_resp3_forms() {
        let reply = resp3.line("TOPK.QUERY t a none");
        assert_eq!(reply, Reply::Array(vec![Reply::Bool(true), Reply::Bool(false)]));
        let Reply::Map(info) = resp3.line("TOPK.INFO t") else { panic!("INFO is no map") };
        assert_eq!(info.len(), 4);
        assert!(matches!(&info[3].1, Reply::Double(_)), "{}", info[3].1);
    }
}

#[test]
fn many_items_at_once_are_as_one_after_another() {
    let server = Server::start();
    let mut connection = server.resp2();
    for items in [1, 31, 32, 33, 65, 400] {
        for key in ["once", "single"] {
            connection.line(&format!("DEL {key}"));
            accepted(&mut connection, &format!("TOPK.RESERVE {key} 5 8 7 0.9"));
        }
        let all: Vec<_> = (0..items).map(|i| format!("item-{}", i * i % 41)).collect();
        let once = connection.line(&format!("TOPK.ADD once {}", all.join(" ")));
        let mut single = Vec::new();
        for item in &all {
            let reply = connection.line(&format!("TOPK.INCRBY single {item} 1"));
            single.extend(reply.array().expect("an array").to_vec());
        }
        assert_eq!(once, Reply::Array(single), "{items}");
        let dumps = ["once", "single"].map(|key| connection.line(&format!("DUMP {key}")));
        assert_eq!(dumps[0], dumps[1], "{items}");
    }
}

#[test]
fn every_copy_goes_the_way_of_the_primary() {
    if !own_server() {
        return;
    }
    let builder = Server::builder().config("appendonly yes").config("aof-use-rdb-preamble no");
    let mut primary = builder.start();
    let replica = Server::start();
    let mut connection = primary.resp2();
    accepted(&mut connection, "TOPK.RESERVE t 10 8 7 0.9");
    accepted(&mut connection, "TOPK.RESERVE slow 20 30 3 0.999");
    replica.replica_of(&primary);
    let mut state = 1_u64;
    let mut item = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Skewed: small numbers come often.
        let uniform = (state >> 33) % 1_000_000;
        format!("item-{}", 1_000_000 / (uniform + 1) % 300)
    };
    for round in 0..120_u32 {
        let items: Vec<_> = (0..50).map(|_| item()).collect();
        connection.line(&format!("TOPK.ADD t {}", items.join(" ")));
        let pairs: Vec<_> = items.iter().map(|item| format!("{item} {}", round * 13)).collect();
        connection.line(&format!("TOPK.INCRBY slow {}", pairs.join(" ")));
        connection.line("TOPK.INCRBY t a 1 b bad c 1");
        connection.line(&format!("TOPK.INCRBY t item-{round} 3 b bad"));
        if round == 40 {
            replica.debug_reload();
        }
        if round == 80 {
            primary.debug_reload();
        }
    }
    replica.wait_for_sync(&primary);
    let want = dumps(&primary);
    assert_eq!(dumps(&replica), want);
    assert_eq!(list(&mut replica.resp2(), "t"), list(&mut connection, "t"));
    primary.rewrite_aof();
    primary.restart();
    assert_eq!(dumps(&primary), want, "after a restart on the AOF");
    // And they go on alike.
    assert_eq!(replica.resp2().line("REPLICAOF NO ONE"), Reply::ok());
    let items: Vec<_> = (0..500).map(|_| item()).collect();
    for server in [&primary, &replica] {
        server.resp2().line(&format!("TOPK.ADD t {}", items.join(" ")));
    }
    assert_eq!(dumps(&primary), dumps(&replica));
}

#[test]
fn increments_of_0_that_reorder_the_list_reach_the_replica() {
    if !own_server() {
        return;
    }
    let (primary, replica) = (Server::start(), Server::start());
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    let mut random = 5_u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % limit
    };
    for key in 0..40 {
        accepted(&mut connection, &format!("TOPK.RESERVE t{key} 5 3 3 0.5"));
        for _ in 0..60 {
            let (item, units) = (below(8), below(4) * below(2));
            connection.line(&format!("TOPK.INCRBY t{key} {item} {units}"));
        }
    }
    replica.wait_for_sync(&primary);
    assert_eq!(dumps(&replica), dumps(&primary));
}

#[test]
fn an_item_beyond_the_limit_is_refused_alone_on_primary_and_replica() {
    if !own_server() {
        return;
    }
    let limited = || Server::builder().module_args(&["bf-max-memory-per-key", "1000000"]);
    let primary = limited().start();
    let replica = Server::start();
    let mut connection = primary.resp2();
    accepted(&mut connection, "TOPK.RESERVE t 5 50 4 0.9");
    replica.replica_of(&primary);
    let long = vec![b'x'; 1_100_000];
    let refused = error("ERR Insufficient memory to add the item");
    let reply = connection.call(&[b"TOPK.ADD", b"t".as_slice(), b"a", &long, b"b"]);
    assert_eq!(reply, Reply::Array(vec![Reply::Null, refused.clone(), Reply::Null]));
    let command = [b"TOPK.INCRBY", b"t".as_slice(), &long, b"5", b"c", b"3"];
    assert_eq!(connection.call(&command), Reply::Array(vec![refused.clone(), Reply::Null]));
    let dirty = || primary.info_number("persistence", "rdb_changes_since_last_save");
    let before = dirty();
    let reply = connection.call(&[b"TOPK.ADD", b"t".as_slice(), &long]);
    assert_eq!(reply, Reply::Array(vec![refused]));
    assert_eq!(dirty(), before, "nothing was added, nothing is replicated");
    replica.wait_for_sync(&primary);
    let want = [(b"c".to_vec(), 3), (b"a".to_vec(), 1), (b"b".to_vec(), 1)];
    assert_eq!(list(&mut connection, "t"), want);
    assert_eq!(dumps(&replica), dumps(&primary));
    let number = |field| primary.info("everything", field);
    assert_eq!(number("bf_topk_adds").as_deref(), Some("3"));
    assert_eq!(number("bf_topk_refusals").as_deref(), Some("3"));
}

#[test]
fn a_watcher_is_disturbed_by_changes_alone() {
    let server = Server::start();
    let (mut watcher, mut writer) = (server.resp2(), server.resp2());
    accepted(&mut writer, "TOPK.RESERVE t 2");
    for (command, changes) in [
        ("TOPK.ADD t a", true),
        ("TOPK.INCRBY t a 1", true),
        ("TOPK.INCRBY t a 1 b x", true),
        ("TOPK.INCRBY t b x", false),
        ("TOPK.INCRBY t a 0", false),
        ("TOPK.INCRBY t a 0 new 0", false),
        ("TOPK.INCRBY t a 0 new 1", true),
        ("TOPK.INCRBY t a x b 1", false),
        ("TOPK.RESERVE t 3", false),
        ("TOPK.QUERY t a", false),
        ("TOPK.COUNT t a", false),
        ("TOPK.LIST t", false),
        ("TOPK.INFO t", false),
    ] {
        accepted(&mut watcher, "WATCH t");
        writer.line(command);
        accepted(&mut watcher, "MULTI");
        watcher.line("PING");
        assert_eq!(watcher.line("EXEC") == Reply::Null, changes, "{command}");
    }
}

#[test]
fn a_sketch_is_copied_measured_and_freed_with_its_items() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("TOPK.QUERY none a");
    let before = server.used_memory();
    accepted(&mut connection, "TOPK.RESERVE t 1000 5000 4 0.9");
    let empty = usage(&mut connection);
    for i in 0..1000 {
        let item = format!("{i:01000}");
        let units = (i + 1).to_string();
        connection.call(&["TOPK.INCRBY", "t", &item, &units]);
    }
    let usage = usage(&mut connection);
    assert!(usage > empty + 900_000, "{usage}, empty {empty}");
    let taken = server.used_memory() - before;
    assert!(usage.abs_diff(taken) < usage / 10, "{usage}, {taken} taken");
    let items = list(&mut connection, "t");
    assert_eq!(connection.line("COPY t copy"), Reply::Int(1));
    assert_eq!(list(&mut connection, "copy"), items);
    let digest = connection.line("DEBUG DIGEST-VALUE t copy");
    let digests = digest.array().expect("two digests");
    assert_eq!(digests[0], digests[1]);
    connection.line("TOPK.INCRBY copy a 100000");
    assert_eq!(list(&mut connection, "t"), items);
    assert_eq!(connection.line("UNLINK t copy"), Reply::Int(2));
    wait_until("the memory is given back", || server.used_memory() < before + 200_000);
}

fn usage(connection: &mut RespConnection) -> u64 {
    connection.line("MEMORY USAGE t SAMPLES 0").int().expect("a number") as u64
}

fn list(connection: &mut RespConnection, key: &str) -> Vec<(Vec<u8>, i64)> {
    let reply = connection.line(&format!("TOPK.LIST {key} WITHCOUNT"));
    let pairs = reply.array().expect("a list").chunks(2);
    let pair = |pair: &[Reply]| Some((pair[0].bytes()?.to_vec(), pair[1].int()?));
    pairs.map(|two| pair(two).expect("an item and its count")).collect()
}

/// The payloads of all keys; there is one at least.
fn dumps(server: &Server) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = server.dump_all();
    assert!(!all.is_empty());
    all
}

fn accepted(connection: &mut RespConnection, command: &str) {
    assert_eq!(connection.line(command), Reply::ok(), "{command}");
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

fn integers(values: &[i64]) -> Reply {
    Reply::Array(values.iter().map(|&value| Reply::Int(value)).collect())
}
