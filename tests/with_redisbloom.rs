//! Beside the real RedisBloom: data moves over and back again, and the same commands
//! leave the same bytes. Skipped, with a message, where RedisBloom is not at hand.

mod common;

use common::golden::with_footer;
use common::payload::{Part, Payload};
use common::{Builder, Reply, Server, peer};
use ferrobloom::codec::{self, Field, Fields};

/// Makes a key or two of each family; replies are not random.
const FILL: &[&str] = &[
    "BF.RESERVE bf:scaling 0.001 50 EXPANSION 2",
    "BF.RESERVE bf:fixed 0.01 500 NONSCALING",
    "BF.ADD bf:default one",
    "CF.RESERVE cf:growing 64 BUCKETSIZE 2 EXPANSION 2",
    "CF.ADD cf:default one",
    "CMS.INITBYDIM cms 200 5",
    "CMS.INCRBY cms a 3 b 70000 c 4294967290",
    "TOPK.RESERVE topk 3 50 4 0.9",
    "TOPK.ADD topk a b c",
    "TDIGEST.CREATE tdigest COMPRESSION 50",
    "TDIGEST.CREATE tdigest:empty",
];

/// What a client may ask of those keys. The t-digest is asked last: RedisBloom
/// compresses it on reads.
const ASK: &[&str] = &[
    "BF.INFO bf:scaling",
    "BF.INFO bf:fixed",
    "BF.INFO bf:default",
    "BF.CARD bf:scaling",
    "CF.INFO cf:growing",
    "CF.INFO cf:default",
    "CF.COUNT cf:growing item-7",
    "CMS.INFO cms",
    "CMS.QUERY cms a b c absent",
    "TOPK.INFO topk",
    "TOPK.LIST topk WITHCOUNT",
    "TOPK.QUERY topk a b c absent",
    "TDIGEST.QUANTILE tdigest 0 0.01 0.5 0.9 1",
    "TDIGEST.CDF tdigest -1 0 17 1000",
    "TDIGEST.MIN tdigest:empty",
];

/// Items added to the filters: enough for the scaling ones to grow several times.
const ITEMS: i32 = 1000;

#[test]
fn rdb_files_move_over_from_redisbloom_and_back() {
    let Some(peer) = peer() else { return };
    let mut server = Server::builder().with_module(&peer, &[]).start();
    fill(&server);
    let want = ask(&server);
    server.restart_with(ours);
    assert_same(&ask(&server), &want, "after loading RedisBloom's file");
    server.restart_with(|builder| builder.with_module(&peer, &[]));
    assert_same(&ask(&server), &want, "after RedisBloom loaded it back");
}

#[test]
fn append_only_files_move_over_from_redisbloom() {
    let Some(peer) = peer() else { return };
    for rewritten in [false, true] {
        let builder = Server::builder().with_module(&peer, &[]);
        let builder = builder.config("appendonly yes").config("aof-use-rdb-preamble no");
        let mut server = builder.start();
        fill(&server);
        if rewritten {
            server.rewrite_aof();
        }
        let want = ask(&server);
        server.restart_with(ours_by_default);
        assert_same(&ask(&server), &want, &format!("after the commands ran, {rewritten}"));
    }
}

#[test]
fn a_replica_of_redisbloom_takes_over() {
    let Some(peer) = peer() else { return };
    let primary = Server::builder().with_module(&peer, &[]).start();
    fill(&primary);
    let replica = ours_by_default(Server::builder()).start();
    replica.replica_of(&primary);
    // Not to `tdigest`: RedisBloom compresses a digest when it writes it, in a child
    // process, so a replica's answers drift from its primary's with later additions.
    let more = [
        "BF.MADD bf:scaling x y z",
        "BF.ADD bf:live one",
        "BF.RESERVE bf:strict 0.0001 7",
        "CF.ADD cf:growing x",
        "CMS.INCRBY cms x 5",
    ];
    for command in more.into_iter().chain(["TDIGEST.ADD tdigest:empty 5"]) {
        primary.resp2().line(command);
    }
    replica.wait_for_sync(&primary);
    let took_over = replica.resp2().line("REPLICAOF NO ONE");
    assert_eq!(took_over, Reply::ok());
    assert_same(&ask(&replica), &ask(&primary), "on the replica");
    // Filters that came with the stream have the bits that every follower repeats.
    for key in ["bf:live", "bf:strict"] {
        let chunk = format!("BF.SCANDUMP {key} 1");
        assert_eq!(replica.resp2().line(&chunk), primary.resp2().line(&chunk), "{key}");
    }
}

#[test]
fn the_same_commands_leave_the_bytes_of_redisbloom() {
    let Some(peer) = peer() else { return };
    let theirs = Server::builder().with_module(&peer, &[]).start();
    let ours = ours(Server::builder()).start();
    fill(&theirs);
    fill(&ours);
    let (theirs, ours) = (theirs.dump_all(), ours.dump_all());
    assert_eq!(theirs.len(), ours.len());
    for ((key, want), (_, got)) in theirs.iter().zip(&ours) {
        // RedisBloom writes addresses of its process into a Top-K.
        if !key.starts_with(b"topk") {
            assert_eq!(want, got, "{}", key.escape_ascii());
        }
    }
}

#[test]
fn redisbloom_restores_the_payload_of_every_key() {
    let Some(peer) = peer() else { return };
    let ours = ours(Server::builder()).start();
    let theirs = Server::builder().with_module(&peer, &[]).start();
    fill(&ours);
    let mut connection = theirs.resp2();
    for (key, value) in ours.dump_all() {
        let payload = with_footer(&value);
        let reply = connection.call(&[b"RESTORE".as_slice(), &key, b"0", &payload]);
        assert_eq!(reply, Reply::ok(), "{}", key.escape_ascii());
    }
    assert_same(&ask(&theirs), &ask(&ours), "after RESTORE");
}

#[test]
fn redisbloom_refuses_blocked_filters_and_stays_up() {
    let Some(peer) = peer() else { return };
    let ours = ours_by_default(Server::builder()).start();
    let mut theirs = Server::builder().with_module(&peer, &[]).start();
    ours.resp2().line("BF.RESERVE filter 0.01 100");
    ours.resp2().line("BF.MADD filter a b c");
    let [(_, value)] = &ours.dump_all()[..] else { panic!("one key") };
    let header = ours.resp2().line("BF.SCANDUMP filter 0");
    let Some([_, Reply::Bulk(header)]) = header.array() else { panic!("{header}") };

    let mut connection = theirs.resp2();
    let payload = with_footer(value);
    let restored = connection.call(&[b"RESTORE".as_slice(), b"restored", b"0", &payload]);
    assert_eq!(restored.error(), Some("ERR Bad data format"));
    let loaded = connection.call(&[b"BF.LOADCHUNK".as_slice(), b"loaded", b"1", header]);
    assert_eq!(loaded.error(), Some("ERR received bad data"));
    assert_eq!(connection.line("DBSIZE"), Reply::Int(0));
    assert!(theirs.is_alive());
}

/// The forms that are written where there is no memory for RedisBloom's.
#[test]
fn redisbloom_refuses_plain_forms_and_stays_up() {
    let Some(peer) = peer() else { return };
    let ours = ours(Server::builder()).start();
    let mut theirs = Server::builder().with_module(&peer, &[]).start();
    fill(&ours);
    let mut connection = theirs.resp2();
    for (key, value) in ours.dump_all() {
        let Some(plain) = Payload::parse(&value).as_ref().and_then(plain_form) else { continue };
        let payload = with_footer(&plain.bytes());
        let name = key.escape_ascii();
        let restored = connection.call(&[b"RESTORE".as_slice(), b"restored", b"0", &payload]);
        assert_eq!(restored.error(), Some("ERR Bad data format"), "{name}");
        // They are good data here.
        let call = [b"RESTORE".as_slice(), &key, b"0", &payload, b"REPLACE"];
        assert_eq!(ours.resp2().call(&call), Reply::ok(), "{name}");
        let again = ours.dump_all().into_iter().find(|(other, _)| *other == key);
        assert_eq!(again, Some((key, value)));
    }
    assert_eq!(connection.line("DBSIZE"), Reply::Int(0));
    assert!(theirs.is_alive());
}

/// The plain form of a Top-K or a t-digest.
fn plain_form(payload: &Payload) -> Option<Payload> {
    let fields = payload.parts.iter().cloned().map(|part| match part {
        Part::Unsigned(number) => Field::Unsigned(number),
        Part::Double(number) => Field::Double(number),
        Part::String(string) => Field::String(string),
    });
    let mut stored = Fields(fields.collect());
    let mut plain = Fields::default();
    match payload.type_name().as_str() {
        "TopK-TYPE" => codec::topk::save_plain(
            &codec::topk::load(&mut stored, codec::topk::VERSION).ok()?,
            &mut plain,
        ),
        "TDIS-TYPE" => codec::tdigest::save_plain(
            &codec::tdigest::load(&mut stored, codec::tdigest::VERSION).ok()?,
            &mut plain,
        ),
        _ => return None,
    }
    let parts = plain.0.into_iter().map(|field| match field {
        Field::Unsigned(number) => Part::Unsigned(number),
        Field::Double(number) => Part::Double(number),
        Field::String(string) => Part::String(string),
    });
    Some(Payload { type_id: payload.type_id, parts: parts.collect() })
}

#[test]
fn redisbloom_does_not_start_on_a_file_with_blocked_filters() {
    let Some(peer) = peer() else { return };
    let mut server = ours_by_default(Server::builder()).start();
    server.resp2().line("BF.ADD filter a");
    server.save();
    server.stop();
    server.change(|builder| builder.with_module(&peer, &[]));
    let log = server.try_start_again().expect_err("RedisBloom cannot read the file");
    // The server reads on behind a refused value, and stops at what it finds there.
    assert!(log.contains("Internal error in RDB reading"), "{log}");
    assert!(!log.contains("crashed by signal"), "{log}");
    // The file is still good.
    server.change(ours_by_default);
    server.start_again();
    assert_eq!(server.resp2().line("BF.EXISTS filter a"), Reply::Int(1));
}

/// The module under test, making filters in RedisBloom's layout.
fn ours(builder: Builder) -> Builder {
    builder.module_args(&["bf-layout", "redisbloom"])
}

/// The module under test as it comes: new filters of clients are blocked.
fn ours_by_default(builder: Builder) -> Builder {
    builder.module_args(&[])
}

fn fill(server: &Server) {
    let mut connection = server.resp2();
    for command in FILL {
        let reply = connection.line(command);
        assert!(reply.error().is_none(), "{command}: {reply}");
    }
    for i in 0..ITEMS {
        for add in ["BF.ADD bf:scaling", "CF.ADD cf:growing"] {
            let reply = connection.line(&format!("{add} item-{i}"));
            assert!(reply.error().is_none(), "{add}: {reply}");
        }
        connection.line(&format!("TDIGEST.ADD tdigest {}", (i * 37) % 501));
    }
}

/// Every question with its reply.
fn ask(server: &Server) -> Vec<String> {
    let mut connection = server.resp2();
    let mut lines = Vec::new();
    for i in 0..2 * ITEMS {
        for question in ["BF.EXISTS bf:scaling", "CF.EXISTS cf:growing"] {
            let command = format!("{question} item-{i}");
            lines.push(format!("{command} {}", connection.line(&command)));
        }
    }
    for command in ASK {
        lines.push(format!("{command} {}", connection.line(command)));
    }
    lines
}

fn assert_same(got: &[String], want: &[String], when: &str) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got, want, "{when}");
    }
}
