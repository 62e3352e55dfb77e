//! t-digests by promise: one observation is an answer, an error changes nothing,
//! reading changes nothing, replicas and restarts go on exactly where the primary
//! stood, merges touch only the keys that they declare, and answers are as accurate
//! as RedisBloom's.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Protocol, Reply, RespConnection, Server, own_server, peer};

/// Compressions of the digests `t0`, `t1`, ... of a random load.
const COMPRESSIONS: [u32; 5] = [10, 100, 25, 300, 1];

/// A small generator: loads are the same in every run.
struct Random(u64);

impl Random {
    /// The next number of xorshift64*.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Uniform in (0, 1).
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

#[test]
fn a_lone_observation_is_the_answer() {
    let server = Server::start();
    let mut connection = server.resp2();
    for command in ["TDIGEST.CREATE t", "TDIGEST.ADD t 123"] {
        assert_eq!(connection.line(command), Reply::ok());
    }
    let value = || Reply::Bulk(b"123".to_vec());
    assert_eq!(connection.line("TDIGEST.QUANTILE t 0 0.9"), Reply::Array(vec![value(), value()]));
    assert_eq!(connection.line("TDIGEST.TRIMMED_MEAN t 0 1"), value());
    let half = Reply::Array(vec![Reply::Bulk(b"0.5".to_vec())]);
    assert_eq!(connection.line("TDIGEST.CDF t 123"), half);
    assert_eq!(connection.line("TDIGEST.RANK t 123"), Reply::Array(vec![Reply::Int(0)]));
    assert_eq!(connection.line("TDIGEST.REVRANK t 123"), Reply::Array(vec![Reply::Int(0)]));
}

#[test]
fn equal_values_take_no_longer_than_others() {
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("TDIGEST.CREATE t COMPRESSION 10000");
    let mut command = vec!["TDIGEST.ADD", "t"];
    command.extend(vec!["0"; 300_000]);
    let start = Instant::now();
    assert_eq!(connection.call(&command), Reply::ok());
    // 20 s where the sort is quadratic, 0.03 s here; the rest is for slow machines.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_compression_beyond_the_limit_makes_no_key() {
    let server = Server::start();
    let mut connection = server.resp2();
    for compression in [i64::MAX, 357_913_940] {
        let reply = connection.line(&format!("TDIGEST.CREATE t COMPRESSION {compression}"));
        assert_eq!(reply.error(), Some("ERR T-Digest: allocation failed"));
        connection.line("TDIGEST.CREATE source");
        let merge = format!("TDIGEST.MERGE t 1 source COMPRESSION {compression}");
        let failed = "ERR T-Digest: allocation of destination digest failed";
        assert_eq!(connection.line(&merge).error(), Some(failed));
    }
    assert_eq!(connection.line("EXISTS t"), Reply::Int(0));
}

#[test]
fn an_empty_digest_takes_little_memory_whatever_its_compression() {
    let server = Server::start();
    let mut connection = server.resp2();
    let before = server.used_memory();
    for key in 0..100 {
        let create = format!("TDIGEST.CREATE t{key} COMPRESSION 100000");
        assert_eq!(connection.line(&create), Reply::ok());
    }
    let taken = server.used_memory().saturating_sub(before);
    // RedisBloom takes 960 MB.
    assert!(taken < 1_000_000, "{taken} bytes");
}

#[test]
fn a_bad_value_leaves_nothing_of_its_command() {
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("TDIGEST.CREATE t");
    let parsing = "ERR T-Digest: error parsing val parameter";
    let finite = "ERR T-Digest: val parameter needs to be a finite number";
    for (values, error) in [("1 2 x 4", parsing), ("1 nan", parsing), ("1 inf", finite)] {
        let reply = connection.line(&format!("TDIGEST.ADD t {values}"));
        assert_eq!(reply.error(), Some(error), "{values}");
    }
    // More values than fit a batch on the stack.
    let mut many = vec!["TDIGEST.ADD", "t"];
    many.extend(vec!["1"; 1000]);
    many.push("x");
    assert_eq!(connection.call(&many).error(), Some(parsing));
    assert_eq!(info(&mut connection, "t", "Observations"), 0);
    assert_eq!(connection.line("TDIGEST.ADD t 1e308 1e308 1e308"), Reply::ok());
    assert_eq!(info(&mut connection, "t", "Observations"), 3);
}

#[test]
fn numbers_mean_what_they_mean_to_the_server() {
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("TDIGEST.CREATE t");
    let numbers = [
        "1",
        "-2.50",
        "1e3",
        "+7",
        ".5",
        "5.",
        "0x10",
        "4.9e-324",
        "123456789012345678901234567890",
    ];
    for number in numbers {
        let server_says = connection.call(&["ZADD", "scores", number, "member"]);
        let reply = connection.call(&["TDIGEST.ADD", "t", number]);
        assert_eq!(reply.error().is_none(), server_says.error().is_none(), "{number}: {reply}");
    }
    for (number, text) in [("-2.50", "-2.5"), ("1e3", "1000"), ("-0", "-0"), ("0.1", "0.1")] {
        connection.line("TDIGEST.RESET t");
        assert_eq!(connection.call(&["TDIGEST.ADD", "t", number]), Reply::ok());
        let min = connection.line("TDIGEST.MIN t");
        assert!(min.same(&Reply::Bulk(text.into()), true), "{number}: {min}");
    }
}

#[test]
fn a_merge_keeps_destination_compression_and_time_to_live() {
    let server = Server::start();
    let mut connection = server.resp2();
    for command in [
        "TDIGEST.CREATE source COMPRESSION 200",
        "TDIGEST.ADD source 1",
        "TDIGEST.CREATE d COMPRESSION 100",
        "TDIGEST.ADD d 2",
    ] {
        assert_eq!(connection.line(command), Reply::ok());
    }
    connection.line("PEXPIRE d 1000000");
    assert_eq!(connection.line("TDIGEST.MERGE d 1 source"), Reply::ok());
    assert_eq!(info(&mut connection, "d", "Observations"), 2);
    assert_eq!(info(&mut connection, "d", "Compression"), 100);
    assert!(connection.line("PTTL d").int().is_some_and(|left| left > 0));
    assert_eq!(connection.line("TDIGEST.MERGE d 1 source OVERRIDE"), Reply::ok());
    assert_eq!(info(&mut connection, "d", "Observations"), 1);
    assert_eq!(info(&mut connection, "d", "Compression"), 200);
}

#[test]
fn a_merge_needs_permission_for_its_sources() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut admin = server.resp2();
    admin.line("TDIGEST.CREATE secret");
    admin.line("TDIGEST.ADD secret 42");
    assert_eq!(admin.line("ACL SETUSER confined on nopass ~d* +@all"), Reply::ok());
    let mut confined = server.resp2();
    assert_eq!(confined.line("AUTH confined any"), Reply::ok());
    let reply = confined.line("TDIGEST.MERGE d 1 secret");
    assert!(reply.error().is_some_and(|error| error.starts_with("NOPERM")), "{reply}");
    assert_eq!(admin.line("EXISTS d"), Reply::Int(0));
    admin.line("TDIGEST.CREATE d1");
    assert_eq!(confined.line("TDIGEST.MERGE d 1 d1"), Reply::ok());
}

#[test]
fn a_merge_across_slots_is_refused_by_a_cluster() {
    if !own_server() {
        return;
    }
    let server = Server::builder().config("cluster-enabled yes").start();
    let mut connection = server.resp2();
    let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
    let mut command = vec!["CLUSTER", "ADDSLOTS"];
    command.extend(slots.iter().map(String::as_str));
    assert_eq!(connection.call(&command), Reply::ok());
    common::wait_until("the cluster works", || connection.line("GET a") == Reply::Null);
    let reply = connection.line("TDIGEST.MERGE a 1 b");
    assert!(reply.error().is_some_and(|error| error.starts_with("CROSSSLOT")), "{reply}");
    connection.line("TDIGEST.CREATE {x}b");
    assert_eq!(connection.line("TDIGEST.MERGE {x}a 1 {x}b"), Reply::ok());
}

#[test]
fn reading_changes_nothing_that_is_stored() {
    let server = Server::start();
    let mut connection = server.resp2();
    create(&mut connection);
    let mut random = Random(5);
    for _ in 0..20 {
        load(&mut connection, &mut random, 10);
        let before = state(&server);
        for key in 0..COMPRESSIONS.len() {
            for question in [
                "QUANTILE k 0.1 0.9",
                "CDF k 1 2",
                "RANK k 3",
                "BYREVRANK k 2",
                "TRIMMED_MEAN k 0.1 0.9",
            ] {
                let command = format!("TDIGEST.{}", question.replace('k', &format!("t{key}")));
                assert!(connection.line(&command).error().is_none(), "{command}");
            }
            connection.line(&format!("MEMORY USAGE t{key}"));
        }
        connection.line("TDIGEST.MERGE scratch 2 t0 t1");
        connection.line("DEL scratch");
        assert_eq!(state(&server), before);
    }
}

#[test]
fn what_changes_nothing_aborts_no_transaction() {
    let server = Server::start();
    let (mut connection, mut other) = (server.resp2(), server.resp2());
    connection.line("TDIGEST.CREATE t");
    connection.line("TDIGEST.ADD t 1");
    connection.line("TDIGEST.CREATE empty");
    let quiet = [
        "TDIGEST.QUANTILE t 0.5",
        "TDIGEST.ADD t x",
        "TDIGEST.CREATE t",
        "TDIGEST.MERGE d 1 t",
        "TDIGEST.RESET empty",
        "TDIGEST.MERGE empty 1 empty OVERRIDE",
    ];
    let loud = ["TDIGEST.ADD t 2", "TDIGEST.MERGE empty 1 t", "TDIGEST.RESET t"];
    for (commands, aborts) in [(&quiet[..], false), (&loud[..], true)] {
        for command in commands {
            connection.line("WATCH t empty");
            other.line(command);
            connection.line("MULTI");
            connection.line("PING");
            assert_eq!(connection.line("EXEC") == Reply::Null, aborts, "{command}");
        }
    }
}

#[test]
fn a_replica_equals_its_primary_after_any_load() {
    if !own_server() {
        return;
    }
    for diskless in ["yes", "no"] {
        let line = format!("repl-diskless-sync {diskless}");
        let primary = Server::builder().config(&line).start();
        let replica = Server::builder().start();
        let mut connection = primary.resp2();
        let mut random = Random(11);
        create(&mut connection);
        load(&mut connection, &mut random, 200);
        replica.replica_of(&primary);
        assert_eq!(state(&replica), state(&primary), "after a full resync");
        let reader = &mut replica.resp2();
        for round in 0..4 {
            load(&mut connection, &mut random, 50);
            replica.wait_for_sync(&primary);
            for key in 0..COMPRESSIONS.len() {
                reader.line(&format!("TDIGEST.QUANTILE t{key} 0.5"));
            }
            let reloaded = if round % 2 == 0 { &replica } else { &primary };
            reloaded.debug_reload();
            load(&mut connection, &mut random, 50);
            replica.wait_for_sync(&primary);
            assert_eq!(state(&replica), state(&primary), "round {round}");
        }
    }
}

#[test]
fn digests_go_on_after_a_restart_as_if_there_was_none() {
    if !own_server() {
        return;
    }
    let aof = |preamble: &str| {
        Server::builder()
            .config("appendonly yes")
            .config(&format!("aof-use-rdb-preamble {preamble}"))
    };
    let undisturbed = Server::start();
    create(&mut undisturbed.resp2());
    load(&mut undisturbed.resp2(), &mut Random(3), 300);
    for (what, builder) in [
        ("RDB", Server::builder()),
        ("AOF with preamble", aof("yes")),
        ("AOF of commands", aof("no")),
    ] {
        let rewrites = what != "RDB";
        let mut server = builder.start();
        let mut random = Random(3);
        create(&mut server.resp2());
        load(&mut server.resp2(), &mut random, 150);
        if rewrites {
            server.rewrite_aof();
        } else {
            server.bgsave();
        }
        server.restart();
        load(&mut server.resp2(), &mut random, 150);
        assert_eq!(state(&server), state(&undisturbed), "{what}");
    }
}

#[test]
fn an_append_only_file_keeps_the_keys_of_every_database() {
    if !own_server() {
        return;
    }
    let builder = Server::builder().config("appendonly yes").config("aof-use-rdb-preamble no");
    let mut server = builder.start();
    let mut connection = server.resp2();
    for database in [0, 3] {
        connection.line(&format!("SELECT {database}"));
        connection.line("TDIGEST.CREATE t");
        connection.line(&format!("TDIGEST.ADD t {database}"));
    }
    server.rewrite_aof();
    server.restart();
    let mut connection = server.resp2();
    for database in ["0", "3"] {
        connection.call(&["SELECT", database]);
        assert_eq!(connection.line("TDIGEST.MIN t"), Reply::Bulk(database.into()));
    }
}

/// Some operators rename DUMP away, and a rewritten file is made of its payloads.
#[test]
fn a_key_that_cannot_be_rewritten_fails_the_rewrite_and_stays_in_the_old_file() {
    if !own_server() {
        return;
    }
    let builder = Server::builder().config("appendonly yes").config("aof-use-rdb-preamble no");
    let mut server = builder.config("rename-command DUMP \"\"").start();
    let mut connection = server.resp2();
    connection.line("TDIGEST.CREATE t");
    connection.line("TDIGEST.ADD t 1 2 3");
    connection.line("BGREWRITEAOF");
    common::wait_until("the rewrite fails", || {
        server.info("persistence", "aof_last_bgrewrite_status").as_deref() == Some("err")
    });
    server.restart();
    assert_eq!(server.resp2().line("TDIGEST.MAX t"), Reply::Bulk(b"3".into()));
}

#[test]
fn payloads_of_dump_have_the_buffer_merged() {
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("TDIGEST.CREATE t");
    connection.line("TDIGEST.ADD t 1 2 3");
    // A snapshot in the foreground before must not change what DUMP writes.
    if server.kind().redis_at_least(7, 0) && common::external_address().is_none() {
        server.save();
    }
    let payload = connection.line("DUMP t");
    let payload = payload.bytes().expect("a payload");
    let restored = connection.call(&[b"RESTORE".as_slice(), b"copy", b"0", payload]);
    assert_eq!(restored, Reply::ok());
    assert_eq!(info(&mut connection, "copy", "Unmerged nodes"), 0);
    assert_eq!(info(&mut connection, "copy", "Merged nodes"), 3);
    assert_eq!(info(&mut connection, "t", "Unmerged nodes"), 3);
}

#[test]
fn redisbloom_reads_snapshots_with_buffered_observations() {
    let Some(peer) = peer() else { return };
    let mut server = Server::start();
    let mut connection = server.resp2();
    let mut random = Random(17);
    let mut values: Vec<f64> = (0..3000).map(|_| random.normal()).collect();
    connection.line("TDIGEST.CREATE t");
    add(&mut connection, "t", &values);
    assert!(info(&mut connection, "t", "Unmerged nodes") > 0);
    let bounds = |connection: &mut RespConnection| {
        ["MIN", "MAX"].map(|end| connection.line(&format!("TDIGEST.{end} t")).to_string())
    };
    let want = bounds(&mut connection);
    server.restart_with(|builder| builder.with_module(&peer, &[]));
    let mut connection = server.resp2();
    assert_eq!(bounds(&mut connection), want);
    assert_eq!(info(&mut connection, "t", "Observations"), 3000);
    // From the next addition on it is as accurate as a digest of its own.
    connection.line("TDIGEST.ADD t 0");
    values.sort_by(f64::total_cmp);
    for percentile in [1.0, 25.0, 50.0, 75.0, 99.0] {
        let error = rank_error(&mut connection, "t", &values, percentile);
        assert!(error < 0.01, "{percentile}: {error}");
    }
}

#[test]
fn answers_are_as_accurate_as_redisblooms() {
    const VALUES: usize = 1_000_000;
    let Some(peer) = peer() else { return };
    let servers = [Server::start(), Server::builder().with_module(&peer, &[]).start()];
    let mut connections = servers.each_ref().map(Server::resp2);
    let mut random = Random(29);
    for name in ["uniform", "normal", "lognormal", "zipf"] {
        let mut value = || match name {
            "uniform" => random.share(),
            "normal" => random.normal(),
            "lognormal" => random.normal().exp(),
            // The inverse of a power law with exponent 1.1, in whole numbers.
            _ => random.share().powf(-1.0 / 1.1).min(1e9).floor(),
        };
        let mut values: Vec<f64> = (0..VALUES).map(|_| value()).collect();
        thread::scope(|scope| {
            for connection in &mut connections {
                scope.spawn(|| {
                    assert_eq!(connection.line(&format!("TDIGEST.CREATE {name}")), Reply::ok());
                    add(connection, name, &values);
                });
            }
        });
        values.sort_by(f64::total_cmp);
        for percentile in [1.0, 50.0, 99.0, 99.9] {
            let [ours, theirs] = connections
                .each_mut()
                .map(|connection| rank_error(connection, name, &values, percentile));
            // RedisBloom before its new sort merges equal values in another order.
            let slack = if name == "zipf" { 0.001 } else { 1e-6 };
            assert!(ours <= theirs + slack, "{name} {percentile}: {ours} against {theirs}");
            // Between few different values there is nothing to be accurate about.
            assert!(name == "zipf" || ours < 0.01, "{name} {percentile}: {ours}");
        }
    }
}

#[test]
fn numbers_have_the_forms_of_both_protocols() {
    let server = Server::start();
    server.resp2().line("TDIGEST.CREATE t");
    server.resp2().line("TDIGEST.ADD t 1 2");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let resp3 = protocol == Protocol::Resp3 && server.kind().has_resp3_forms();
        let mut connection = server.connect(protocol);
        let double = |text: &str| match protocol {
            Protocol::Resp2 => Reply::Bulk(text.into()),
            Protocol::Resp3 => Reply::Double(text.into()),
        };
        assert_eq!(connection.line("TDIGEST.MAX t"), double("2"));
        assert_eq!(
            connection.line("TDIGEST.BYRANK t 0 2"),
            Reply::Array(vec![double("1"), double("inf")])
        );
        assert_eq!(connection.line("TDIGEST.RANK t 0"), Reply::Array(vec![Reply::Int(-1)]));
        let info = connection.line("TDIGEST.INFO t");
        assert_eq!(matches!(info, Reply::Map(ref pairs) if pairs.len() == 9), resp3, "{info}");
    }
}

/// A field of TDIGEST.INFO.
fn info(connection: &mut RespConnection, key: &str, field: &str) -> i64 {
    let reply = connection.call(&["TDIGEST.INFO", key]);
    let fields = reply.array().unwrap_or_else(|| panic!("{key}: {reply}"));
    let at = fields.iter().position(|name| name.text() == Some(field)).expect("a field");
    fields[at + 1].int().expect("a number")
}

fn create(connection: &mut RespConnection) {
    for (key, compression) in COMPRESSIONS.iter().enumerate() {
        let create = format!("TDIGEST.CREATE t{key} COMPRESSION {compression}");
        assert_eq!(connection.line(&create), Reply::ok());
    }
}

/// Random additions, merges, resets and questions.
fn load(connection: &mut RespConnection, random: &mut Random, commands: u32) {
    let keys = COMPRESSIONS.len() as u64;
    for _ in 0..commands {
        let (key, source) = (random.below(keys), random.below(keys));
        let command = match random.below(20) {
            0 => format!("TDIGEST.RESET t{key}"),
            1 => format!("TDIGEST.MERGE t{key} 2 t{source} t0"),
            2 => format!("TDIGEST.MERGE t{key} 1 t{source} COMPRESSION 60 OVERRIDE"),
            3..6 => format!("TDIGEST.QUANTILE t{key} 0.1 0.5"),
            6..9 => format!("TDIGEST.ADD t{key} {0} {0} 1 2", random.below(5)),
            _ => {
                let count = 1 + random.below(60);
                let values: Vec<_> = (0..count).map(|_| random.normal().to_string()).collect();
                format!("TDIGEST.ADD t{key} {}", values.join(" "))
            }
        };
        let reply = connection.line(&command);
        assert!(reply.error().is_none(), "{command}: {reply}");
    }
}

/// All that can be seen of the digests: payloads and every field of INFO.
fn state(server: &Server) -> Vec<(Vec<u8>, Vec<u8>, String)> {
    let mut connection = server.resp2();
    let with_info = |(key, payload): (Vec<u8>, Vec<u8>)| {
        let info = connection.call(&[b"TDIGEST.INFO".as_slice(), &key]).to_string();
        (key, payload, info)
    };
    server.dump_all().into_iter().map(with_info).collect()
}

/// Adds values in commands of 1000, all sent before the replies are read.
fn add(connection: &mut RespConnection, key: &str, values: &[f64]) {
    // Few enough replies at a time for the buffers in between.
    for part in values.chunks(100_000) {
        let commands = part.chunks(1000);
        let count = commands.len();
        for values in commands {
            let mut command = vec!["TDIGEST.ADD".to_owned(), key.to_owned()];
            command.extend(values.iter().map(f64::to_string));
            connection.send(&command).expect("the server reads");
        }
        for _ in 0..count {
            assert_eq!(connection.read().expect("a reply"), Reply::ok());
        }
    }
}

/// How far the rank of a percentile's answer is off, as a share of all values, which
/// are `sorted`. Of equal values the nearest rank counts.
fn rank_error(connection: &mut RespConnection, key: &str, sorted: &[f64], percentile: f64) -> f64 {
    let quantile = percentile / 100.0;
    let reply = connection.line(&format!("TDIGEST.QUANTILE {key} {quantile}"));
    let answer = reply.array().and_then(|answers| answers[0].text()?.parse::<f64>().ok());
    let answer = answer.unwrap_or_else(|| panic!("no number: {reply}"));
    let count = sorted.len() as f64;
    let below = sorted.partition_point(|value| *value < answer) as f64 / count;
    let up_to = sorted.partition_point(|value| *value <= answer) as f64 / count;
    (below - quantile).max(quantile - up_to).max(0.0)
}
