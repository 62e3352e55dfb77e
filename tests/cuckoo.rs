//! What the cuckoo commands promise beyond single replies: replicas that equal their
//! primary, nothing left behind by refusals, bounded work, and no crash.

mod common;

use std::time::{Duration, Instant};

use common::{Builder, Reply, RespConnection, Server, own_server, peer, skip};

/// A primary with a replica, and these lines in the replica's configuration.
fn pair(replica: Builder) -> (Server, Server) {
    let primary = Server::start();
    let replica = replica.start();
    replica.replica_of(&primary);
    (primary, replica)
}

fn assert_equal(primary: &Server, replica: &Server) {
    replica.wait_for_sync(primary);
    let keys = primary.dump_all();
    assert!(!keys.is_empty());
    assert_eq!(keys, replica.dump_all());
}

fn ok(connection: &mut RespConnection, command: &str) {
    assert_eq!(connection.line(command), Reply::ok(), "{command}");
}

fn error(reply: &Reply) -> &str {
    reply.error().unwrap_or_else(|| panic!("no error: {reply}"))
}

/// `INSERT key ITEMS prefix0 prefix1 ...`
fn insert(connection: &mut RespConnection, key: &str, prefix: &str, items: usize) -> Vec<i64> {
    let mut words = vec!["CF.INSERT".to_owned(), key.to_owned(), "ITEMS".to_owned()];
    words.extend((0..items).map(|i| format!("{prefix}{i}")));
    let reply = connection.call(&words);
    reply.array().expect("an array").iter().map(|reply| reply.int().expect("a number")).collect()
}

fn filters(connection: &mut RespConnection, key: &str) -> i64 {
    let info = connection.call(&["CF.INFO", key]);
    info.array().expect("fields")[5].int().expect("a number")
}

fn header(buckets: u64, sub_filters: u64, bucket_size: u16, expansion: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [1, buckets, 0, sub_filters] {
        bytes.extend(number.to_le_bytes());
    }
    for number in [bucket_size, 20, expansion] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

#[test]
fn chunks_that_a_primary_loads_reach_its_replica() {
    if !own_server() {
        return;
    }
    let (primary, replica) = pair(Server::builder());
    let mut connection = primary.resp2();
    ok(&mut connection, "CF.RESERVE from 64 EXPANSION 2");
    insert(&mut connection, "from", "item", 200);
    let mut iterator = 0;
    loop {
        let reply = connection.call(&["CF.SCANDUMP", "from", &i64::to_string(&iterator)]);
        let Some([Reply::Int(next), Reply::Bulk(data)]) = reply.array() else { break };
        iterator = *next;
        let position = iterator.to_string();
        let loaded =
            connection.call(&[b"CF.LOADCHUNK".as_slice(), b"to", position.as_bytes(), data]);
        assert_eq!(loaded, Reply::ok());
    }
    assert_eq!(filters(&mut connection, "to"), 3);
    assert_equal(&primary, &replica);
    let mut replica = replica.resp2();
    for i in 0..200 {
        assert_eq!(replica.line(&format!("CF.EXISTS to item{i}")), Reply::Int(1), "{i}");
    }
}

#[test]
fn an_add_that_is_refused_leaves_no_key_on_either_side() {
    if !own_server() {
        return;
    }
    let (primary, replica) = pair(Server::builder());
    let kind = primary.kind();
    if !kind.has_module_settings() {
        return skip("the server has no module settings");
    }
    let mut connection = primary.resp2();
    ok(&mut connection, &format!("CONFIG SET {} 1", kind.setting("cf-max-expansions")));
    for command in ["CF.ADD k a", "CF.ADDNX k a", "CF.INSERT k ITEMS a", "CF.INSERTNX k ITEMS a"] {
        assert_eq!(error(&connection.line(command)), "Maximum expansions reached");
        assert_eq!(connection.line("EXISTS k"), Reply::Int(0), "{command}");
    }
    ok(&mut connection, &format!("CONFIG SET {} 1", kind.setting("bf-max-memory-per-key")));
    ok(&mut connection, &format!("CONFIG SET {} 32", kind.setting("cf-max-expansions")));
    let refused = connection.line("CF.INSERT k CAPACITY 1000000 ITEMS a");
    assert_eq!(error(&refused), "ERR Insufficient memory to create filter");
    assert_eq!(connection.line("EXISTS k"), Reply::Int(0));
    ok(&mut connection, "SET marker x");
    assert_equal(&primary, &replica);
}

#[test]
fn a_replica_with_other_settings_equals_its_primary() {
    if !own_server() {
        return;
    }
    let other = [
        "cf-max-expansions",
        "2",
        "cf-initial-size",
        "10",
        "cf-bucket-size",
        "5",
        "cf-expansion-factor",
        "4",
        "cf-max-iterations",
        "3",
        "bf-max-memory-per-key",
        "1",
    ];
    let (primary, replica) = pair(Server::builder().module_args(&other));
    let mut connection = primary.resp2();
    ok(&mut connection, "CF.RESERVE reserved 64 BUCKETSIZE 8");
    ok(&mut connection, "CF.RESERVE large 1000000 EXPANSION 0");
    for i in 0..300 {
        for key in ["reserved", "added"] {
            connection.line(&format!("CF.ADD {key} item{i}"));
        }
    }
    connection.line("CF.INSERT small CAPACITY 4 ITEMS a b c");
    // Ends at the primary's limit: what is refused there is refused on the replica.
    let outcomes = insert(&mut connection, "small", "item", 500);
    assert!(outcomes.contains(&-1) && outcomes.contains(&1));
    assert_eq!(filters(&mut connection, "small"), 32);
    for i in 0..200 {
        connection.line(&format!("CF.DEL reserved item{i}"));
    }
    ok(&mut connection, "CF.COMPACT reserved");
    assert_equal(&primary, &replica);
}

#[test]
fn an_item_refused_for_memory_is_not_added_on_the_replica() {
    if !own_server() {
        return;
    }
    let primary = Server::builder().module_args(&["bf-max-memory-per-key", "400000"]).start();
    let replica = Server::start();
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    ok(&mut connection, "CF.RESERVE k 131072 BUCKETSIZE 1 MAXITERATIONS 1 EXPANSION 2");
    let outcomes = insert(&mut connection, "k", "item", 100_000);
    assert!(outcomes.contains(&1));
    let refused = outcomes.iter().position(|outcome| *outcome == -1).expect("one is refused");
    let again = connection.line(&format!("CF.ADD k item{refused}"));
    assert_eq!(error(&again), "ERR Insufficient memory");
    assert_equal(&primary, &replica);
}

#[test]
fn commands_that_change_nothing_are_not_replicated_and_abort_no_transaction() {
    if !own_server() {
        return;
    }
    let (primary, replica) = pair(Server::builder());
    let mut connection = primary.resp2();
    ok(&mut connection, "CF.RESERVE full 4 EXPANSION 0");
    insert(&mut connection, "full", "item", 20);
    replica.wait_for_sync(&primary);
    let changes =
        |server: &Server| server.info_number("persistence", "rdb_changes_since_last_save");
    let before = (changes(&primary), changes(&replica));
    let mut watcher = primary.resp2();
    ok(&mut watcher, "WATCH full absent");
    for command in [
        "CF.INSERT full ITEMS q r s",
        "CF.INSERT full NOCREATE ITEMS q",
        "CF.INSERTNX full ITEMS q r s",
        "CF.ADD full q",
        "CF.ADDNX full item0",
        "CF.DEL full neverthere",
        "CF.DEL absent x",
        "CF.COMPACT full",
        "CF.COMPACT absent",
        "CF.INSERT absent NOCREATE ITEMS q",
    ] {
        connection.line(command);
    }
    ok(&mut watcher, "MULTI");
    watcher.line("PING");
    assert!(watcher.line("EXEC").array().is_some(), "the transaction was aborted");
    replica.wait_for_sync(&primary);
    assert_eq!(before, (changes(&primary), changes(&replica)));
    assert_equal(&primary, &replica);
}

#[test]
fn a_replica_and_a_reader_may_not_compact() {
    if !own_server() {
        return;
    }
    let (primary, replica) = pair(Server::builder());
    let mut connection = primary.resp2();
    ok(&mut connection, "CF.RESERVE k 16");
    insert(&mut connection, "k", "item", 100);
    replica.wait_for_sync(&primary);
    assert!(error(&replica.resp2().line("CF.COMPACT k")).starts_with("READONLY"));
    ok(&mut connection, "ACL SETUSER reader on >x ~* +@read");
    let mut reader = primary.resp2();
    ok(&mut reader, "AUTH reader x");
    assert!(error(&reader.line("CF.COMPACT k")).starts_with("NOPERM"));
    assert_equal(&primary, &replica);
}

#[test]
fn a_full_filter_says_so_for_each_item() {
    let server = Server::start();
    let mut connection = server.resp2();
    ok(&mut connection, "CF.RESERVE k 4 EXPANSION 0");
    for i in 1..=4 {
        assert_eq!(connection.line(&format!("CF.ADD k {i}")), Reply::Int(1));
    }
    for i in 5..=9 {
        assert_eq!(error(&connection.line(&format!("CF.ADD k {i}"))), "Filter is full");
    }
    let full = Reply::Int(-1);
    let reply = connection.line("CF.INSERTNX k ITEMS 1 x");
    assert_eq!(reply, Reply::Array(vec![Reply::Int(0), full.clone()]));
    assert_eq!(connection.line("CF.INSERT k ITEMS x"), Reply::Array(vec![full.clone()]));
    if server.kind().has_resp3_forms() {
        let reply = server.resp3().line("CF.INSERTNX k ITEMS 1 x");
        assert_eq!(reply, Reply::Array(vec![Reply::Int(0), full]));
    }
}

#[test]
fn an_option_word_without_its_value_is_refused() {
    let server = Server::start();
    let mut connection = server.resp2();
    let reply = connection.line("CF.RESERVE k 1000 X BUCKETSIZE");
    assert_eq!(error(&reply), "Unknown argument received");
    let reply = connection.line("CF.RESERVE k 1000 BUCKETSIZE 2 EXPANSION");
    assert!(error(&reply).starts_with("ERR wrong number of arguments"));
    assert_eq!(connection.line("EXISTS k"), Reply::Int(0));
}

#[test]
fn one_item_added_again_and_again_takes_bounded_memory() {
    let server = Server::start();
    let mut connection = server.resp2();
    ok(&mut connection, "CF.RESERVE k 1024 EXPANSION 2");
    for _ in 0..1000 {
        connection.line("CF.ADD k same");
    }
    assert_eq!(error(&connection.line("CF.ADD k same")), "Filter is full");
    let reply = connection.line("MEMORY USAGE k");
    let memory = reply.int().expect("a number");
    assert!(memory < 1024 * 1024, "{memory}");
    // Other items are still taken.
    assert_eq!(connection.line("CF.ADD k other"), Reply::Int(1));
}

#[test]
fn no_kept_item_is_lost_by_deletions_and_compaction() {
    let server = Server::start();
    let mut connection = server.resp2();
    for expansion in [1, 2, 4] {
        let key = format!("k{expansion}");
        ok(&mut connection, &format!("CF.RESERVE {key} 64 EXPANSION {expansion}"));
        let mut added = Vec::new();
        for i in 0..2000 {
            if connection.line(&format!("CF.ADD {key} item{i}")) == Reply::Int(1) {
                added.push(i);
            }
        }
        assert!(added.len() > 1900);
        for i in added.iter().step_by(2) {
            let deleted = connection.line(&format!("CF.DEL {key} item{i}"));
            assert_eq!(deleted, Reply::Int(1), "{key} {i}");
        }
        for compact in [false, true] {
            if compact {
                ok(&mut connection, &format!("CF.COMPACT {key}"));
            }
            for i in added.iter().skip(1).step_by(2) {
                let found = connection.line(&format!("CF.EXISTS {key} item{i}"));
                assert_eq!(found, Reply::Int(1), "{key} {i}");
            }
        }
    }
}

#[test]
fn sums_and_counters_of_the_family_are_in_info() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    let number = |field: &str| server.info_number("bf_cuckoo", &format!("bf_{field}"));
    ok(&mut connection, "CF.RESERVE k 4");
    insert(&mut connection, "k", "item", 200);
    connection.line("CF.MEXISTS k item0 item1 never");
    connection.line("CF.ADD k x");
    let reply = connection.call(&["CF.INFO", "k"]);
    let items = reply.array().expect("fields")[7].int().expect("a number") as u64;
    assert_eq!((number("cuckoo_keys"), number("cuckoo_items")), (1, items));
    assert_eq!((number("cuckoo_adds"), number("cuckoo_refusals")), (items, 201 - items));
    assert_eq!((number("cuckoo_lookups"), number("cuckoo_hits")), (3, 2));
    assert_eq!(number("cuckoo_layers_grown"), 31);
    for i in 0..200 {
        connection.line(&format!("CF.DEL k item{i}"));
    }
    ok(&mut connection, "CF.COMPACT k");
    assert_eq!(number("cuckoo_items"), 0);
    assert_eq!(connection.line("DEL k"), Reply::Int(1));
    assert_eq!((number("cuckoo_keys"), number("cuckoo_memory_bytes")), (0, 0));
}

#[test]
fn a_chunk_behind_the_last_slot_is_refused() {
    let server = Server::start();
    let mut connection = server.resp2();
    let header = header(4, 1, 2, 1);
    let loaded = connection.call(&[b"CF.LOADCHUNK".as_slice(), b"k", b"1", &header]);
    assert_eq!(loaded, Reply::ok());
    let data = [7; 8];
    for position in ["17", "10", "8", "-1", "9223372036854775807"] {
        let reply =
            connection.call(&[b"CF.LOADCHUNK".as_slice(), b"k", position.as_bytes(), &data]);
        assert_eq!(error(&reply), "Couldn't load chunk!", "{position}");
    }
    let slots = Reply::Array(vec![Reply::Int(9), Reply::Bulk(vec![0; 8])]);
    assert_eq!(connection.line("CF.SCANDUMP k 1"), slots);
}

#[test]
fn a_header_of_terabytes_is_refused_and_one_of_many_sub_filters_is_quick() {
    let server = Server::start();
    let mut connection = server.resp2();
    let mut load = |key: &str, header: &[u8]| {
        connection.call(&[b"CF.LOADCHUNK".as_slice(), key.as_bytes(), b"1", header])
    };
    for huge in [header(1 << 55, 1, 255, 1), header(1 << 40, 60_000, 255, 1)] {
        assert_eq!(error(&load("huge", &huge)), "Couldn't create filter!");
    }
    assert_eq!(load("many", &header(1, 65_535, 1, 1)), Reply::ok());
    let start = Instant::now();
    assert_eq!(connection.line("CF.EXISTS many x"), Reply::Int(0));
    ok(&mut connection, "CF.COMPACT many");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(filters(&mut connection, "many"), 1);
}

#[test]
fn an_append_only_file_loads_under_any_settings() {
    if !own_server() {
        return;
    }
    for rewritten in [false, true] {
        let builder = Server::builder().config("appendonly yes");
        let mut server = builder.config("aof-use-rdb-preamble no").start();
        let mut connection = server.resp2();
        ok(&mut connection, "CF.RESERVE buckets 64 BUCKETSIZE 8 EXPANSION 2");
        ok(&mut connection, "CF.RESERVE empty 100");
        connection.line("CF.INSERT small CAPACITY 4 ITEMS a b c");
        insert(&mut connection, "buckets", "item", 500);
        insert(&mut connection, "auto", "item", 5000);
        if rewritten {
            server.rewrite_aof();
        }
        let before = server.dump_all();
        assert_eq!(before.len(), 4);
        let other = ["cf-initial-size", "10", "cf-bucket-size", "5", "cf-max-expansions", "1"];
        server.restart_with(|builder| builder.module_args(&other));
        assert_eq!(server.dump_all(), before, "rewritten: {rewritten}");
    }
}

#[test]
fn a_replica_of_redisbloom_takes_what_its_own_limits_would_refuse() {
    let Some(peer) = peer() else { return };
    let primary = Server::builder().with_module(&peer, &[]).start();
    let limits = ["cf-max-expansions", "1", "cf-initial-size", "10", "cf-bucket-size", "5"];
    let replica = Server::builder().module_args(&limits).start();
    replica.replica_of(&primary);
    let mut connection = primary.resp2();
    ok(&mut connection, "CF.RESERVE buckets 1000 BUCKETSIZE 200");
    connection.line("CF.INSERT buckets CAPACITY 4 ITEMS a b c");
    // A primary of ours refuses copies of one item that take this much.
    for server in [&primary, &Server::start()] {
        let mut connection = server.resp2();
        ok(&mut connection, "CF.RESERVE copies 1024 BUCKETSIZE 2 EXPANSION 1024");
        let added: Vec<_> = (0..6).map(|_| connection.line("CF.ADD copies same")).collect();
        let all = added.iter().all(|reply| *reply == Reply::Int(1));
        assert_eq!(all, server.port() == primary.port());
    }
    assert_equal(&primary, &replica);
}
