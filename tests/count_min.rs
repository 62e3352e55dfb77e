//! Count-min sketches on a server: all of a call or nothing, merging under the rules
//! of ACL and cluster, and copies that stay equal.

mod common;

use common::{Builder, Reply, RespConnection, Server, own_server, wait_until};

const MIB: u64 = 1 << 20;

#[test]
fn a_call_with_a_bad_increment_adds_nothing() {
    let server = Server::start();
    let mut connection = server.resp2();
    accepted(&mut connection, "CMS.INITBYDIM s 100 3");
    for (pairs, want) in [
        ("a 1 b bad c 3", "CMS: Cannot parse number"),
        ("a 1 b -1 c bad", "CMS: Number cannot be negative"),
        ("a 1 b 1.5", "CMS: Cannot parse number"),
        ("a 1 b 9223372036854775808", "CMS: Cannot parse number"),
    ] {
        assert_eq!(connection.line(&format!("CMS.INCRBY s {pairs}")), error(want), "{pairs}");
    }
    // In each of several batches.
    for bad in [0, 1, 31, 32, 33, 64, 127, 128, 299] {
        let pair = |i| if i == bad { "a x ".into() } else { format!("a {i} ") };
        let pairs: String = (0..300).map(pair).collect();
        let reply = connection.line(&format!("CMS.INCRBY s {pairs}"));
        assert_eq!(reply, error("CMS: Cannot parse number"), "{bad}");
    }
    assert_eq!(connection.line("CMS.QUERY s a b c"), integers(&[0, 0, 0]));
    assert_eq!(count(&mut connection, "s"), 0);
}

#[test]
fn many_pairs_at_once_are_as_one_after_another() {
    let server = Server::start();
    let mut connection = server.resp2();
    for pairs in [1, 2, 31, 32, 33, 65, 127, 128, 129, 500] {
        for key in ["once", "single"] {
            connection.line(&format!("DEL {key}"));
            accepted(&mut connection, &format!("CMS.INITBYDIM {key} 50 9"));
        }
        let pair = |i| format!("item-{} {}", i % 70, i * 7);
        let all: Vec<_> = (0..pairs).map(pair).collect();
        let once = connection.line(&format!("CMS.INCRBY once {}", all.join(" ")));
        let mut single = Vec::new();
        for pair in &all {
            let reply = connection.line(&format!("CMS.INCRBY single {pair}"));
            single.extend(reply.array().expect("an array").to_vec());
        }
        assert_eq!(once, Reply::Array(single), "{pairs}");
        let dumps = ["once", "single"].map(|key| connection.line(&format!("DUMP {key}")));
        assert_eq!(dumps[0], dumps[1], "{pairs}");
    }
}

#[test]
fn cells_saturate_and_the_total_stays_positive() {
    let server = Server::start();
    let mut connection = server.resp2();
    accepted(&mut connection, "CMS.INITBYDIM s 100 3");
    assert_eq!(connection.line("CMS.INCRBY s a 4294967290"), integers(&[4_294_967_290]));
    let overflow = Reply::Error("CMS: INCRBY overflow".into());
    let reply = connection.line("CMS.INCRBY s b 1 a 10 d 5");
    assert_eq!(reply, Reply::Array(vec![Reply::Int(1), overflow, Reply::Int(5)]));
    assert_eq!(connection.line("CMS.QUERY s a b d"), integers(&[4_294_967_295, 1, 5]));
    for _ in 0..3 {
        connection.line("CMS.INCRBY s y 9223372036854775807");
        assert_eq!(count(&mut connection, "s"), i64::MAX);
    }
}

#[test]
fn a_refused_merge_leaves_the_destination_as_it_was() {
    let server = Server::start();
    let mut connection = server.resp2();
    for key in ["a", "b", "d", "wide"] {
        let width = if key == "wide" { 11 } else { 10 };
        accepted(&mut connection, &format!("CMS.INITBYDIM {key} {width} 3"));
    }
    accepted(&mut connection, "SET string 1");
    connection.line("CMS.INCRBY a x 4294967000 y 1");
    connection.line("CMS.INCRBY b x 4294967000 y 2");
    connection.line("CMS.INCRBY d z 7");
    let before = connection.line("DUMP d");
    for (merge, want) in [
        ("1 a b WEIGHTS 4 3", "CMS: wrong number of keys/weights"),
        ("2 b a WEIGHTS 4", "CMS: wrong number of keys/weights"),
        ("1 a WEIGHTS", "CMS: wrong number of keys/weights"),
        ("1 WEIGHTS", "CMS: wrong number of keys/weights"),
        ("1 a b", "CMS: wrong number of keys"),
        ("2 a", "CMS: wrong number of keys"),
        ("2147483648 a", "CMS: wrong number of keys"),
        ("9223372036854775807 a", "CMS: wrong number of keys"),
        ("0 a", "CMS: Number of keys must be positive"),
        ("-1 a", "CMS: Number of keys must be positive"),
        ("x a", "CMS: invalid numkeys"),
        ("2 a b WEIGHTS 1 1.5", "CMS: invalid weight value"),
        ("2 a none", "CMS: key does not exist"),
        ("2 a string", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("2 a wide", "CMS: width/depth is not equal"),
        ("2 a b", "CMS: MERGE overflow"),
        ("2 a b WEIGHTS -1 1", "OK"),
        ("2 a b WEIGHTS -2 1", "CMS: MERGE overflow"),
        ("1 a WEIGHTS 9223372036854775807", "CMS: MERGE overflow"),
    ] {
        let want = if want == "OK" { Reply::ok() } else { error(want) };
        assert_eq!(connection.line(&format!("CMS.MERGE d {merge}")), want, "{merge}");
        if want == Reply::ok() {
            assert_eq!(connection.line("CMS.QUERY d x y z"), integers(&[0, 1, 0]));
            connection.line("DEL d");
            accepted(&mut connection, "CMS.INITBYDIM d 10 3");
            connection.line("CMS.INCRBY d z 7");
        }
        assert_eq!(connection.line("DUMP d"), before, "{merge}");
    }
}

#[test]
fn the_destination_can_be_among_the_sources() {
    let server = Server::start();
    let mut connection = server.resp2();
    for key in ["d", "s", "weights"] {
        accepted(&mut connection, &format!("CMS.INITBYDIM {key} 1000 5"));
    }
    connection.line("CMS.INCRBY d a 1 b 10");
    connection.line("CMS.INCRBY s a 100");
    for (merge, a, b) in [
        ("3 d s d WEIGHTS 2 1 -1", 101, 10),
        ("2 d d", 202, 20),
        ("1 d WEIGHTS 3", 606, 60),
        ("1 s", 100, 0),
        ("1 weights", 0, 0),
        ("2 weights s WEIGHTS 5 2", 200, 0),
    ] {
        accepted(&mut connection, &format!("CMS.MERGE d {merge}"));
        assert_eq!(connection.line("CMS.QUERY d a b"), integers(&[a, b]), "{merge}");
    }
    assert_eq!(connection.line("CMS.QUERY s a b"), integers(&[100, 0]));
}

#[test]
fn a_watcher_and_the_replication_see_changes_alone() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let (mut watcher, mut writer) = (server.resp2(), server.resp2());
    for key in ["k", "other"] {
        accepted(&mut writer, &format!("CMS.INITBYDIM {key} 10 2"));
    }
    for (command, changes) in [
        ("CMS.INCRBY k a 1", true),
        ("CMS.INCRBY k a 0 b 1", true),
        ("CMS.INCRBY k a 0 b 0", false),
        ("CMS.INCRBY k a 1 b x", false),
        ("CMS.QUERY k a", false),
        ("CMS.INFO k", false),
        ("CMS.INITBYDIM k 1 1", false),
        ("CMS.INITBYPROB k 0.1 0.1", false),
        ("CMS.MERGE k 1 none", false),
        ("CMS.MERGE k 2 k k WEIGHTS 9223372036854775807 1", false),
        ("CMS.MERGE k 1 other", true),
    ] {
        let dirty = || server.info_number("persistence", "rdb_changes_since_last_save");
        let before = dirty();
        accepted(&mut watcher, "WATCH k");
        writer.line(command);
        assert_eq!(dirty() > before, changes, "{command}");
        accepted(&mut watcher, "MULTI");
        watcher.line("PING");
        assert_eq!(watcher.line("EXEC") == Reply::Null, changes, "{command}");
    }
    accepted(&mut watcher, "WATCH other");
    accepted(&mut writer, "CMS.MERGE k 1 other");
    accepted(&mut watcher, "MULTI");
    assert_eq!(watcher.line("EXEC"), Reply::Array(Vec::new()), "a source does not change");
}

#[test]
fn changes_are_keyspace_events() {
    if !own_server() {
        return;
    }
    let server = Server::builder().config("notify-keyspace-events Ed").start();
    let (mut subscriber, mut writer) = (server.resp2(), server.resp2());
    subscriber.line("PSUBSCRIBE __keyevent@0__:*");
    for command in [
        "CMS.INITBYDIM k 10 2",
        "CMS.INCRBY k a 0",
        "CMS.INCRBY k a 1",
        "CMS.MERGE k 1 k",
        "TOPK.RESERVE t 1",
        "TOPK.ADD t a",
        "TOPK.INCRBY t a 2",
    ] {
        writer.line(command);
    }
    for event in
        ["cms.initbydim", "cms.incrby", "cms.merge", "topk.reserve", "topk.add", "topk.incrby"]
    {
        let message = subscriber.read().expect("an event");
        let channel = message.array().and_then(|message| message[2].text());
        assert_eq!(channel, Some(format!("__keyevent@0__:{event}").as_str()));
    }
}

#[test]
fn a_merge_needs_the_right_to_read_its_sources() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut admin = server.resp2();
    for key in ["secret", "d", "d2"] {
        accepted(&mut admin, &format!("CMS.INITBYDIM {key} 10 2"));
    }
    admin.line("CMS.INCRBY secret pw 42");
    accepted(&mut admin, "ACL SETUSER guest reset on nopass ~d* +@all");
    let mut guest = server.resp2();
    accepted(&mut guest, "AUTH guest any");
    for command in [
        "CMS.QUERY secret pw",
        "CMS.MERGE d 1 secret",
        "CMS.MERGE d 2 d secret",
        "CMS.MERGE d 2 d secret WEIGHTS 1 1",
        "CMS.MERGE secret 1 d",
        // Not a call that works, but one that would tell whether the key exists.
        "CMS.MERGE secret x d",
        "CMS.MERGE d 3 d secret",
    ] {
        let reply = guest.line(command);
        assert!(is_denied(&reply), "{command}: {reply}");
    }
    assert_eq!(guest.line("CMS.QUERY d pw"), integers(&[0]));
    accepted(&mut guest, "CMS.MERGE d 2 d d2 WEIGHTS 1 2");
}

#[test]
fn rights_to_read_and_to_write_are_told_apart() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    if server.kind().is_redis_6() {
        return common::skip("the server has no permissions to read or to write a key");
    }
    let mut connection = server.resp2();
    for key in ["r", "w", "rw"] {
        accepted(&mut connection, &format!("CMS.INITBYDIM {key} 10 2"));
        accepted(&mut connection, &format!("TOPK.RESERVE t{key} 2"));
    }
    let rules = "%R~r %W~w ~rw %R~tr %W~tw ~trw %W~new* +@all";
    accepted(&mut connection, &format!("ACL SETUSER someone reset on nopass {rules}"));
    accepted(&mut connection, "AUTH someone any");
    for (command, may) in [
        ("CMS.INITBYDIM r 1 1", false),
        ("CMS.INITBYDIM new 1 1", true),
        ("CMS.INITBYPROB new2 0.1 0.1", true),
        ("CMS.QUERY r a", true),
        ("CMS.QUERY w a", false),
        ("CMS.INFO w", false),
        ("CMS.INCRBY r a 1", false),
        // The reply would tell the count.
        ("CMS.INCRBY w a 0", false),
        ("CMS.INCRBY rw a 1", true),
        ("CMS.MERGE w 1 r", true),
        ("CMS.MERGE r 1 rw", false),
        ("CMS.MERGE rw 1 w", false),
        ("TOPK.RESERVE tr 1", false),
        ("TOPK.RESERVE newt 1", true),
        ("TOPK.QUERY tr a", true),
        ("TOPK.QUERY tw a", false),
        ("TOPK.COUNT tw a", false),
        ("TOPK.LIST tw", false),
        ("TOPK.INFO tw", false),
        ("TOPK.ADD tr a", false),
        ("TOPK.ADD tw a", false),
        ("TOPK.INCRBY tw a 1", false),
        ("TOPK.ADD trw a", true),
    ] {
        let reply = connection.line(command);
        let done = reply.error().is_none();
        assert!(if may { done } else { is_denied(&reply) }, "{command}: {reply}");
    }
}

#[test]
fn the_server_knows_every_key_of_a_merge() {
    let server = Server::start();
    let mut connection = server.resp2();
    for (arguments, want) in [
        ("d 2 a b", &["d", "a", "b"][..]),
        ("d 1 d", &["d", "d"]),
        ("d 2 a b WEIGHTS 1 2", &["d", "a", "b"]),
        ("d 1 weights WEIGHTS 2", &["d", "weights"]),
        ("d x a", &["d"]),
        ("d -1 a", &["d"]),
        ("d 9 a b", &["d", "a", "b"]),
        ("d 9223372036854775807 a", &["d", "a"]),
    ] {
        let reply = connection.line(&format!("COMMAND GETKEYS CMS.MERGE {arguments}"));
        let want = want.iter().map(|key| Reply::Bulk(key.as_bytes().to_vec())).collect();
        assert_eq!(reply, Reply::Array(want), "{arguments}");
    }
}

#[test]
fn a_merge_across_slots_is_refused_by_a_cluster() {
    if !own_server() {
        return;
    }
    let server = Server::builder().config("cluster-enabled yes").start();
    let mut connection = server.resp2();
    let slots: Vec<_> = (0..16_384).map(|slot: u32| slot.to_string()).collect();
    let command = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
    assert_eq!(connection.call(&[&command[..], &slots].concat()), Reply::ok());
    wait_until("the cluster is up", || {
        let info = connection.line("CLUSTER INFO");
        info.text().is_some_and(|info| info.contains("cluster_state:ok"))
    });
    for key in ["a", "b", "{a}2"] {
        accepted(&mut connection, &format!("CMS.INITBYDIM {key} 10 2"));
    }
    for merge in ["a 1 b", "a 2 a b", "a 2 {a}2 b WEIGHTS 1 1"] {
        let reply = connection.line(&format!("CMS.MERGE {merge}"));
        assert!(reply.error().is_some_and(|text| text.starts_with("CROSSSLOT")), "{reply}");
    }
    accepted(&mut connection, "CMS.MERGE a 2 a {a}2 WEIGHTS 1 1");
}

#[test]
fn a_sketch_beyond_the_limits_is_refused_and_nothing_evicted() {
    if !own_server() {
        return;
    }
    let builder =
        Server::builder().config("maxmemory 200mb").config("maxmemory-policy allkeys-lru");
    let server = builder.start();
    let mut connection = server.resp2();
    for i in 0..200 {
        accepted(&mut connection, &format!("SET k{i} {i}"));
    }
    let before = server.used_memory();
    for command in [
        "CMS.INITBYDIM z 1000000000 10",
        "CMS.INITBYDIM z 60000000 1",
        "CMS.INITBYPROB z 0.0000000001 0.0000001",
        "CMS.INITBYDIM z 4611686018427387903 2",
    ] {
        let reply = connection.line(command);
        assert_eq!(reply, error("CMS: Insufficient memory to create the key"), "{command}");
    }
    for command in ["TOPK.RESERVE z 10 2000000 20 0.9", "TOPK.RESERVE z 4294967295"] {
        let reply = connection.line(command);
        let want = error("ERR Insufficient memory to create topk data structure");
        assert_eq!(reply, want, "{command}");
    }
    assert!(server.used_memory() < before + MIB);
    assert_eq!(connection.line("DBSIZE"), Reply::Int(200));
    accepted(&mut connection, "CMS.INITBYDIM z 10000000 1");
    // Without such a limit, the one per key holds.
    accepted(&mut connection, "CONFIG SET maxmemory 0");
    let reply = connection.line("CMS.INITBYDIM y 1000000000 10");
    assert_eq!(reply, error("CMS: Insufficient memory to create the key"));
}

#[test]
fn a_sketch_is_copied_measured_and_freed_as_a_whole() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("CMS.QUERY none a");
    let before = server.used_memory();
    accepted(&mut connection, "CMS.INITBYDIM s 500000 4");
    connection.line("CMS.INCRBY s a 5 b 6");
    let taken = server.used_memory() - before;
    let usage = connection.line("MEMORY USAGE s").int().expect("a number") as u64;
    assert!(usage >= 8_000_000 && usage.abs_diff(taken) < 400_000, "{usage}, {taken} taken");
    assert_eq!(connection.line("COPY s copy"), Reply::Int(1));
    let digest = |connection: &mut RespConnection| {
        let reply = connection.line("DEBUG DIGEST-VALUE s copy");
        let digests = reply.array().expect("two digests").to_vec();
        digests[0] == digests[1]
    };
    assert!(digest(&mut connection));
    assert_eq!(connection.line("CMS.INCRBY copy a 1"), integers(&[6]));
    assert!(!digest(&mut connection));
    assert_eq!(connection.line("CMS.QUERY s a"), integers(&[5]));
    assert_eq!(connection.line("UNLINK s copy"), Reply::Int(2));
    wait_until("the memory is given back", || server.used_memory() < before + MIB);
}

#[test]
fn every_copy_equals_the_primary() {
    if !own_server() {
        return;
    }
    let aof = |builder: Builder| {
        builder.config("appendonly yes").config("appendfsync always").config("save \"\"")
    };
    let mut primary = aof(Server::builder()).config("aof-use-rdb-preamble no").start();
    let replica = Server::start();
    let mut connection = primary.resp2();
    let databases = if primary.kind().is_redis_6() { 0..1 } else { 0..2 };
    for database in databases {
        accepted(&mut connection, &format!("SELECT {database}"));
        accepted(&mut connection, "CMS.INITBYPROB s 0.01 0.01");
        accepted(&mut connection, "CMS.INITBYDIM d 200 7");
        accepted(&mut connection, &format!("CMS.INITBYDIM only-{database} 3 2"));
    }
    replica.replica_of(&primary);
    for round in 0..40_u64 {
        let pairs: String = (0..50).map(|i| format!("i{} {} ", i * i % 97, i * round)).collect();
        for command in ["CMS.INCRBY s", "CMS.INCRBY d"] {
            let reply = connection.line(&format!("{command} {pairs}"));
            assert!(reply.error().is_none(), "{reply}");
        }
        accepted(&mut connection, "CMS.MERGE d 2 d s WEIGHTS 1 0");
        connection.line("CMS.INCRBY s a 1 b x");
        if round == 20 {
            replica.debug_reload();
            primary.debug_reload();
        }
    }
    replica.wait_for_sync(&primary);
    let want = everything(&primary);
    assert_eq!(everything(&replica), want);
    primary.rewrite_aof();
    connection = primary.resp2();
    connection.line("CMS.INCRBY s after 7");
    let want = everything(&primary);
    primary.restart();
    assert_eq!(everything(&primary), want, "after a restart on the AOF");
}

/// Every key of the first two databases with its DUMP payload.
fn everything(server: &Server) -> Vec<Reply> {
    let mut connection = server.resp2();
    let mut all = Vec::new();
    for database in 0..2 {
        accepted(&mut connection, &format!("SELECT {database}"));
        for key in ["s", "d", "only-0", "only-1"] {
            all.push(connection.line(&format!("DUMP {key}")));
        }
    }
    assert!(all.iter().filter(|dump| **dump != Reply::Null).count() >= 3);
    all
}

fn count(connection: &mut RespConnection, key: &str) -> i64 {
    let info = connection.line(&format!("CMS.INFO {key}"));
    info.array().and_then(|fields| fields[5].int()).expect("a count")
}

fn accepted(connection: &mut RespConnection, command: &str) {
    assert_eq!(connection.line(command), Reply::ok(), "{command}");
}

fn is_denied(reply: &Reply) -> bool {
    reply.error().is_some_and(|text| text.starts_with("NOPERM"))
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

fn integers(values: &[i64]) -> Reply {
    Reply::Array(values.iter().map(|&value| Reply::Int(value)).collect())
}
