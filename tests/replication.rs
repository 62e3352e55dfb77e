//! Replicas, append-only files and restarts hold what the primary holds, byte for
//! byte, whatever the settings of each node.

mod common;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{Builder, Protocol, Reply, RespConnection, Server, own_arguments, own_server};

/// The databases that the mixed load writes to.
const DATABASES: [u32; 3] = [0, 1, 9];

#[test]
fn a_replica_with_other_settings_makes_the_primarys_filters() {
    if !own_arguments() {
        return;
    }
    let primary = quiet(Server::builder()).start();
    let replica = quiet(Server::builder())
        .module_args(&[
            "bf-error-rate",
            "0.2",
            "bf-initial-size",
            "5000",
            "bf-expansion-factor",
            "0",
        ])
        .start();
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    for command in [
        "BF.ADD add x",
        "BF.MADD madd x y z",
        "BF.INSERT insert ITEMS x",
        "BF.INSERT insert:rate ERROR 0.001 ITEMS x",
        "BF.RESERVE reserve 0.01 10",
        "BF.RESERVE reserve:fixed 0.01 10 NONSCALING",
    ] {
        accepted(&mut connection, command);
    }
    // On to further layers, which follow from the first.
    for i in 0..500 {
        accepted(&mut connection, &format!("BF.ADD add item-{i}"));
        accepted(&mut connection, &format!("BF.ADD reserve item-{i}"));
    }
    replica.wait_for_sync(&primary);
    let mut on_replica = replica.resp2();
    for key in ["add", "madd", "insert", "insert:rate", "reserve", "reserve:fixed"] {
        let ask = format!("BF.INFO {key}");
        assert_eq!(on_replica.line(&ask), connection.line(&ask), "{key}");
    }
    assert_eq!(replica.dump_all(), primary.dump_all());
    assert_eq!(primary.dump_all().len(), 6);
}

#[test]
fn an_aof_written_under_other_settings_makes_the_same_filters() {
    if !own_arguments() {
        return;
    }
    let mut server = Server::builder().config("appendonly yes").start();
    let mut connection = server.resp2();
    for i in 0..500 {
        accepted(&mut connection, &format!("BF.ADD add item-{i}"));
    }
    let before = server.dump_all();
    server.restart_with(|builder| {
        builder.module_args(&["bf-initial-size", "5000", "bf-max-memory-per-key", "1"])
    });
    assert_eq!(server.dump_all(), before);
}

#[test]
fn writes_that_change_nothing_are_not_replicated() {
    if !own_server() {
        return;
    }
    let primary = quiet(Server::builder()).start();
    let replica = quiet(Server::builder()).start();
    let mut connection = primary.resp2();
    accepted(&mut connection, "BF.MADD scaling a b c");
    accepted(&mut connection, "BF.RESERVE fixed 0.0001 2 NONSCALING");
    accepted(&mut connection, "BF.MADD fixed a b");
    accepted(&mut connection, "SET string 1");
    replica.replica_of(&primary);
    let offset = || primary.info_number("replication", "master_repl_offset");
    let dirty = || primary.info_number("persistence", "rdb_changes_since_last_save");
    let (offset_before, dirty_before) = (offset(), dirty());
    for command in [
        "BF.ADD scaling a",
        "BF.MADD scaling a b c a",
        "BF.INSERT scaling ITEMS a b",
        "BF.ADD fixed c",
        "BF.MADD fixed a c",
        "BF.INSERT fixed NOCREATE ITEMS c d",
        "BF.RESERVE scaling 0.01 10",
        "BF.RESERVE new 2 10",
        "BF.INSERT new NOCREATE ITEMS a",
        "BF.ADD string a",
        "BF.LOADCHUNK new 1 junk",
        "BF.LOADCHUNK new 2 junk",
        "BF.LOADCHUNK scaling 1 junk",
        "BF.EXISTS scaling a",
        "BF.MEXISTS scaling a z",
        "BF.INFO scaling",
        "BF.CARD scaling",
        "BF.DEBUG scaling",
        "BF.SCANDUMP scaling 0",
    ] {
        connection.line(command);
        assert_eq!(offset(), offset_before, "{command}");
        assert_eq!(dirty(), dirty_before, "{command}");
    }
    accepted(&mut connection, "BF.ADD scaling d");
    assert!(offset() > offset_before && dirty() > dirty_before, "a real change is replicated");
    replica.wait_for_sync(&primary);
    assert_eq!(replica.dump_all(), primary.dump_all());
}

#[test]
fn a_dump_loaded_on_the_primary_reaches_the_replica() {
    if !own_server() {
        return;
    }
    let primary = quiet(Server::builder()).start();
    let replica = quiet(Server::builder()).start();
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    for i in 0..500 {
        accepted(&mut connection, &format!("BF.ADD from item-{i}"));
    }
    let mut iterator = 0;
    loop {
        let reply = connection.call(&["BF.SCANDUMP", "from", &iterator.to_string()]);
        let Some([Reply::Int(next), Reply::Bulk(data)]) = reply.array() else { panic!("{reply}") };
        if *next == 0 {
            break;
        }
        let next_text = next.to_string();
        let load = [b"BF.LOADCHUNK", b"to".as_slice(), next_text.as_bytes(), data];
        assert_eq!(connection.call(&load), Reply::ok());
        iterator = *next;
    }
    replica.wait_for_sync(&primary);
    let mut on_replica = replica.resp2();
    for i in 0..500 {
        assert_eq!(on_replica.line(&format!("BF.EXISTS to item-{i}")), Reply::Int(1));
    }
    let dumps = replica.dump_all();
    assert_eq!(dumps, primary.dump_all());
    assert_eq!(dumps[0].1, dumps[1].1);
}

#[test]
fn every_copy_equals_the_primary_after_a_mixed_load() {
    if !own_arguments() {
        return;
    }
    for preamble in ["yes", "no"] {
        let other = [
            ["bf-initial-size", "17"],
            ["bf-error-rate", "0.1"],
            ["bf-expansion-factor", "4"],
            ["bf-layout", "redisbloom"],
            ["cf-initial-size", "64"],
            ["cf-bucket-size", "4"],
            ["cf-max-expansions", "1"],
        ]
        .concat();
        let mut primary = quiet(Server::builder())
            .config("appendonly yes")
            .config(&format!("aof-use-rdb-preamble {preamble}"))
            .start();
        let replica = quiet(Server::builder()).module_args(&other).start();
        replica.replica_of(&primary);
        // A second replica has the first as its primary.
        let second = quiet(Server::builder()).start();

        let mut load = Load::new(&primary);
        let mut readers = [Load::new(&replica), Load::new(&second)];
        for phase in 0..4 {
            thread::scope(|scope| {
                scope.spawn(|| load.write(phase, 500));
                for reader in &mut readers {
                    scope.spawn(|| reader.read(100));
                }
                match phase {
                    0 => primary.rewrite_aof(),
                    1 => primary.bgsave(),
                    2 => second.replica_of(&replica),
                    _ => {}
                }
            });
        }
        replica.wait_for_sync(&primary);
        second.wait_for_sync(&primary);
        let want = everything(&primary);
        assert!(want.iter().all(|database| database.len() > 15), "keys in every database");
        assert!(everything(&replica) == want, "preamble {preamble}: the replica");
        assert!(everything(&second) == want, "preamble {preamble}: the replica's replica");
        replica.debug_reload();
        assert!(everything(&replica) == want, "preamble {preamble}: the reloaded replica");

        primary.restart_with(|builder| builder.module_args(&other));
        assert!(everything(&primary) == want, "preamble {preamble}: the AOF with commands behind");
        primary.rewrite_aof();
        primary.restart();
        assert!(everything(&primary) == want, "preamble {preamble}: the rewritten AOF");
    }
}

#[test]
fn a_filter_of_many_chunks_comes_back_from_a_rewritten_aof() {
    if !own_server() {
        return;
    }
    let builder = Server::builder().config("appendonly yes").config("aof-use-rdb-preamble no");
    let mut server = builder.start();
    let mut connection = server.resp2();
    // Some 47 MB, three chunks, and a small layer behind.
    accepted(&mut connection, "BF.RESERVE k 0.000001 12000000");
    accepted(&mut connection, "BF.RESERVE l 0.01 10 EXPANSION 1");
    for i in 0..3000 {
        accepted(&mut connection, &format!("BF.ADD k item-{i}"));
    }
    for i in 0..100 {
        accepted(&mut connection, &format!("BF.ADD l item-{i}"));
    }
    let before = server.dump_all();
    assert!(before[0].1.len() > 3000 && before.len() == 2);
    server.rewrite_aof();
    server.restart();
    assert!(server.dump_all() == before);
    assert_eq!(server.resp2().line("BF.EXISTS k item-2999"), Reply::Int(1));
}

#[test]
fn no_acknowledged_item_is_lost_when_the_server_is_killed() {
    if !own_server() {
        return;
    }
    let mut server =
        Server::builder().config("appendonly yes").config("appendfsync always").start();
    for round in 0..3 {
        let acknowledged = AtomicUsize::new(0);
        let mut writer = server.resp2();
        thread::scope(|scope| {
            let writer = scope.spawn(|| -> io::Error {
                for i in 0.. {
                    let item = format!("round-{round}-{i}");
                    match writer.command(&["BF.ADD", "k", &item]) {
                        Ok(reply) => assert!(reply.int().is_some(), "{reply}"),
                        Err(error) => return error,
                    }
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                unreachable!("the server is killed before")
            });
            common::wait_until("items are added", || acknowledged.load(Ordering::SeqCst) > 300);
            server.kill9();
            writer.join().expect("no reply but integers");
        });
        server.start_again();
        let mut connection = server.resp2();
        for i in 0..acknowledged.load(Ordering::SeqCst) {
            let ask = format!("BF.EXISTS k round-{round}-{i}");
            assert_eq!(connection.line(&ask), Reply::Int(1), "{ask}");
        }
    }
}

#[test]
fn a_replica_catches_up_after_a_lost_connection_and_from_nothing() {
    if !own_server() {
        return;
    }
    let primary = quiet(Server::builder()).start();
    let mut load = Load::new(&primary);
    load.write(0, 300);
    let replica = quiet(Server::builder()).start();
    replica.replica_of(&primary);
    assert!(everything(&replica) == everything(&primary), "full resync");

    let full = primary.info_number("stats", "sync_full");
    let partial = primary.info_number("stats", "sync_partial_ok");
    let killed = primary.resp2().line("CLIENT KILL TYPE replica");
    assert_eq!(killed, Reply::Int(1));
    load.write(1, 300);
    replica.wait_for_sync(&primary);
    assert!(everything(&replica) == everything(&primary), "partial resync");
    assert_eq!(primary.info_number("stats", "sync_full"), full);
    assert_eq!(primary.info_number("stats", "sync_partial_ok"), partial + 1);

    // Diskless, which loads from the socket.
    assert_eq!(primary.resp2().line("CONFIG SET repl-diskless-sync yes"), Reply::ok());
    assert_eq!(replica.resp2().line("CONFIG SET repl-diskless-load swapdb"), Reply::ok());
    assert_eq!(replica.resp2().line("REPLICAOF NO ONE"), Reply::ok());
    assert_eq!(replica.resp2().line("BF.ADD only:here a"), Reply::Int(1));
    assert_eq!(replica.resp2().line("FLUSHALL"), Reply::ok());
    replica.replica_of(&primary);
    assert!(everything(&replica) == everything(&primary), "diskless resync");
}

#[test]
fn a_promoted_replica_goes_on_with_the_same_filters() {
    if !own_server() {
        return;
    }
    let old = quiet(Server::builder()).start();
    let new = quiet(Server::builder()).start();
    new.replica_of(&old);
    let mut load = Load::new(&old);
    load.write(0, 300);
    new.wait_for_sync(&old);
    let refused = new.resp2().line("BF.ADD k a");
    let text = refused.error().unwrap_or_default().to_owned();
    assert!(text.starts_with("READONLY"), "a replica takes no writes: {refused}");
    let before = everything(&old);

    assert_eq!(new.resp2().line("REPLICAOF NO ONE"), Reply::ok());
    assert!(everything(&new) == before, "promotion changes nothing");
    let mut load = Load::new(&new);
    load.write(2, 300);
    old.replica_of(&new);
    load.write(3, 100);
    old.wait_for_sync(&new);
    assert!(everything(&old) == everything(&new), "the old primary follows");
    assert!(everything(&old) != before, "the new primary took writes");
}

#[test]
fn growth_that_the_primary_refuses_does_not_happen_on_the_replica() {
    if !own_arguments() {
        return;
    }
    // The limit holds for what takes 64 KiB and more; the replica has none.
    let limit = ["bf-max-memory-per-key", "100000"];
    let mut primary = quiet(Server::builder()).module_args(&limit).config("appendonly yes").start();
    let replica = quiet(Server::builder()).module_args(&["bf-max-memory-per-key", "0"]).start();
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    let too_large = connection.line("BF.RESERVE large 0.001 1000000");
    assert_eq!(too_large, Reply::Error("ERR Insufficient memory to create filter".into()));
    accepted(&mut connection, "BF.RESERVE k 0.001 20000");
    let (mut refused, mut added) = (0, 0);
    for batch in 0..300 {
        let mut command = vec!["BF.MADD".to_owned(), "k".into()];
        command.extend((0..100).map(|i| format!("item-{}", 100 * batch + i)));
        let reply = connection.call(&command);
        for element in reply.array().expect("an array") {
            match element {
                Reply::Int(one) => added += one,
                Reply::Error(text) => {
                    assert_eq!(text, "ERR problem inserting into filter");
                    refused += 1;
                }
                other => panic!("{other}"),
            }
        }
    }
    assert!(added >= 20_000 && refused > 1000, "{added} added, {refused} refused");
    replica.wait_for_sync(&primary);
    assert!(replica.dump_all() == primary.dump_all(), "the replica");
    // One by one, and refused ones among present ones.
    for i in 0..200 {
        connection.line(&format!("BF.ADD k single-{i}"));
        connection.line(&format!("BF.INSERT k ITEMS item-{i} other-{i} item-{}", 2 * i));
    }
    replica.wait_for_sync(&primary);
    let want = primary.dump_all();
    assert!(replica.dump_all() == want, "the replica after single items");
    primary.restart_with(|builder| builder.module_args(&["bf-max-memory-per-key", "0"]));
    assert!(primary.dump_all() == want, "the AOF");
}

#[test]
fn scripts_and_transactions_replicate_what_they_did() {
    if !own_server() {
        return;
    }
    let primary = quiet(Server::builder()).start();
    let replica = quiet(Server::builder()).start();
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    let script = "for i = 1, 300 do redis.call('BF.ADD', KEYS[1], ARGV[1] .. i) end \
                  redis.call('BF.RESERVE', KEYS[2], 0.01, 10) \
                  return redis.call('BF.MADD', KEYS[2], 'a', 'b')";
    let reply = connection.call(&["EVAL", script, "2", "one", "two", "item"]);
    assert_eq!(reply, Reply::Array(vec![Reply::Int(1), Reply::Int(1)]));
    for command in ["MULTI", "BF.ADD three a", "BF.ADD three a", "BF.RESERVE three 0.1 1", "EXEC"] {
        connection.line(command);
    }
    replica.wait_for_sync(&primary);
    assert_eq!(replica.dump_all(), primary.dump_all());
    assert_eq!(primary.dump_all().len(), 3);
}

/// A server whose replication offset moves by commands alone.
fn quiet(builder: Builder) -> Builder {
    builder.config("repl-ping-replica-period 3600")
}

fn accepted(connection: &mut RespConnection, command: &str) {
    let reply = connection.line(command);
    assert!(reply.error().is_none(), "{command}: {reply}");
}

/// The DUMP of every key of every database of the mixed load.
fn everything(server: &Server) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    DATABASES.iter().map(|&number| server.dump_database(number)).collect()
}

/// Random commands on a few keys, the same in each run.
struct Load {
    connection: RespConnection,
    random: u64,
}

impl Load {
    fn new(server: &Server) -> Self {
        Self { connection: server.connect(Protocol::Resp2), random: 0x9E37_79B9_7F4A_7C15 }
    }

    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % limit
    }

    fn select(&mut self) {
        let database = DATABASES[self.below(DATABASES.len() as u64) as usize];
        assert_eq!(self.connection.line(&format!("SELECT {database}")), Reply::ok());
    }

    /// Runs as many writes, with items of their own for each phase.
    fn write(&mut self, phase: u32, count: u32) {
        for _ in 0..count {
            if self.below(20) == 0 {
                self.select();
            }
            let (key, number) = (self.below(12), self.below(5000));
            let item = format!("item-{phase}-{number}");
            let command = match self.below(28) {
                16.. => self.write_other_family(&item, number),
                0 => format!("BF.RESERVE k{key} 0.00{} {}", 1 + number % 9, 1 + number % 300),
                1 => format!("BF.RESERVE k{key} 0.1 {} NONSCALING", 1 + number % 50),
                2 => format!("BF.INSERT k{key} CAPACITY 5 EXPANSION 1 ITEMS {item} a b c"),
                3 => format!("BF.INSERT k{key} NOCREATE ITEMS {item} x{number}"),
                4..=8 => format!("BF.ADD k{key} {item}"),
                9 => format!("DEL k{key}"),
                10 => format!("COPY k{key} k{} REPLACE", (key + 1) % 12),
                11 => format!("RENAMENX k{key} k{}", (key + 5) % 12),
                12 => format!("PEXPIRE k{key} 100000000"),
                _ => {
                    let items: Vec<_> =
                        (0..40).map(|i| format!("many-{phase}-{}", number + i)).collect();
                    format!("BF.MADD k{key} {}", items.join(" "))
                }
            };
            self.connection.line(&command);
        }
    }

    /// A command of another family than the Bloom filters'.
    fn write_other_family(&mut self, item: &str, number: u64) -> String {
        let (key, other) = (self.below(4), self.below(4));
        match self.below(16) {
            0 => format!("CF.RESERVE cf{key} {} BUCKETSIZE 3 EXPANSION 2", 10 + number % 200),
            1 => format!("CF.INSERT cf{key} CAPACITY 20 ITEMS {item} a b"),
            2 => format!("CF.ADD cf{key} {item}"),
            3 => format!("CF.DEL cf{key} a"),
            4 => format!("CF.COMPACT cf{key}"),
            5 => format!("CMS.INITBYPROB cms{key} 0.02 0.01"),
            6 => format!("CMS.INCRBY cms{key} {item} {} a 1", number % 7),
            7 => format!("CMS.MERGE cms{key} 2 cms{key} cms{other} WEIGHTS 1 0"),
            8 => format!("TOPK.RESERVE topk{key} {} 9 4 0.9", 1 + number % 20),
            9..=10 => format!("TOPK.ADD topk{key} {item} a b c"),
            11 => format!("TOPK.INCRBY topk{key} {item} {}", number % 90),
            12 => format!("TDIGEST.CREATE td{key} COMPRESSION {}", 20 + number % 80),
            13..=14 => format!("TDIGEST.ADD td{key} {number} {} 7", number % 13),
            _ => format!("TDIGEST.MERGE sum{key} 1 td{other} COMPRESSION 30"),
        }
    }

    fn read(&mut self, count: u32) {
        for _ in 0..count {
            self.select();
            let (key, number) = (self.below(12), self.below(5000));
            for command in [
                format!("BF.EXISTS k{key} item-0-{number}"),
                format!("BF.MEXISTS k{key} a b many-1-{number}"),
                format!("BF.INFO k{key}"),
                format!("BF.SCANDUMP k{key} 0"),
                format!("MEMORY USAGE k{key}"),
                format!("CF.COUNT cf{} a", key % 4),
                format!("CMS.QUERY cms{} a", key % 4),
                format!("TOPK.LIST topk{}", key % 4),
                format!("TDIGEST.QUANTILE td{} 0.1 0.9", key % 4),
            ] {
                self.connection.line(&command);
            }
        }
    }
}
