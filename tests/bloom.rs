//! Bloom filters at their limits: what a client sends by mistake or malice gets a
//! clear answer, changes nothing, and never stops the server.

mod common;

use std::time::{Duration, Instant};

use common::golden::with_footer;
use common::{Protocol, Reply, RespConnection, Server, own_arguments, own_server};

const FULL: &str = "ERR non scaling filter is full";
const CANNOT_GROW: &str = "ERR problem inserting into filter";
const BAD_DATA: &str = "ERR received bad data";
const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const UNKNOWN: &str = "Unknown argument received";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// More than any command here may take, with room for a busy machine.
const LONG: Duration = Duration::from_secs(5);

#[test]
fn expansion_0_makes_a_filter_that_does_not_scale() {
    let server = Server::start();
    let mut connection = server.resp2();
    for _ in 0..3 {
        refused(&mut connection, "BF.RESERVE b 0.99 1 EXPANSION 0 NOSCALING", UNKNOWN);
        assert_eq!(connection.line("EXISTS b"), Reply::Int(0));
        assert_eq!(connection.line("BF.RESERVE b 0.99 1 EXPANSION 0"), Reply::ok());
        let reply = connection.line("BF.INSERT b ITEMS 1 2 3 4 5 6 7 8 9 10 11 12");
        let elements = reply.array().expect("an array");
        // The seed is random: some of the items may be taken for the first one.
        let (last, others) = elements.split_last().expect("elements");
        assert_eq!(*last, Reply::Error(FULL.into()));
        let (first, present) = others.split_first().expect("two elements");
        assert_eq!(*first, Reply::Int(1));
        assert!(present.iter().all(|reply| *reply == Reply::Int(0)), "{others:?}");
        let expansion = connection.line("BF.INFO b EXPANSION");
        assert_eq!(expansion, Reply::Array(vec![Reply::Null]));
        assert_eq!(connection.line("FLUSHALL"), Reply::ok());
    }
}

#[test]
fn an_array_that_a_full_filter_cuts_short_is_complete() {
    let server = Server::start();
    let mut protocols = vec![(Protocol::Resp2, Reply::Int(1))];
    if server.kind().has_resp3_forms() {
        protocols.push((Protocol::Resp3, Reply::Bool(true)));
    }
    for (protocol, added) in protocols {
        let mut connection = server.connect(protocol);
        // The capacities lie within, at and behind the batches that items come in.
        for capacity in [1, 2, 31, 32, 33, 64, 100] {
            connection.line("DEL nf");
            let reserve = format!("BF.RESERVE nf 0.000001 {capacity} NONSCALING");
            assert_eq!(connection.line(&reserve), Reply::ok());
            let mut command = strings(&["BF.INSERT", "nf", "ITEMS"]);
            command.extend((0..200).map(|i| format!("item-{i}")));
            let reply = connection.call(&command);
            let elements = reply.array().expect("an array");
            let (last, before) = elements.split_last().expect("elements");
            assert_eq!(*last, Reply::Error(FULL.into()), "capacity {capacity}");
            let news = before.iter().filter(|reply| **reply == added).count();
            assert_eq!(news, capacity);
            assert_eq!(connection.line("PING"), Reply::Simple("PONG".into()));
            assert_eq!(connection.line("BF.CARD nf"), Reply::Int(capacity as i64));
        }
    }
}

#[test]
fn a_filter_with_only_its_header_loaded_is_a_filter_without_items() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.MADD whole a b c").array().map(<[_]>::len), Some(3));
    let (_, header) = scan(&mut connection, "whole", 0);
    let load = |c: &mut RespConnection| c.call(&[b"BF.LOADCHUNK".as_slice(), b"n", b"1", &header]);
    assert_eq!(load(&mut connection), Reply::ok());
    for item in ["a", "b", "c", "d"] {
        assert_eq!(connection.call(&["BF.EXISTS", "n", item]), Reply::Int(0));
    }
    server.save();
    server.debug_reload();
    assert_eq!(connection.line("BF.EXISTS n a"), Reply::Int(0));
    assert_eq!(connection.line("COPY n n2"), Reply::Int(1));
    assert_eq!(connection.line("BF.EXISTS n2 a"), Reply::Int(0));
    let dump = connection.line("DUMP n");
    assert_eq!(connection.line("DUMP n2"), dump);
    let payload = dump.bytes().expect("a payload").to_vec();
    let restored = connection.call(&[b"RESTORE".as_slice(), b"n3", b"0", &payload]);
    assert_eq!(restored, Reply::ok());
    assert_eq!(connection.line("BF.ADD n a"), Reply::Int(1));
    assert_eq!(connection.line("BF.EXISTS n a"), Reply::Int(1));
}

#[test]
fn absurd_capacities_and_rates_are_refused_without_a_key_or_memory() {
    let server = Server::start();
    let mut connection = server.resp2();
    connection.line("BF.EXISTS x a");
    let before = server.used_memory();
    let range = "ERR capacity must be in the range [1, 1073741824]";
    for capacity in [
        "1000000000000000000",
        "9223372036854775807",
        "1073741825",
        "0",
        "-1",
        "-9223372036854775808",
    ] {
        refused(&mut connection, &format!("BF.RESERVE x 0.01 {capacity}"), range);
        let insert = format!("BF.INSERT x CAPACITY {capacity} ITEMS a");
        refused(&mut connection, &insert, "Bad capacity");
    }
    refused(&mut connection, "BF.RESERVE x 0.01 9223372036854775808", "ERR bad capacity");
    refused(&mut connection, "BF.RESERVE x 0.01 1e3", "ERR bad capacity");
    refused(&mut connection, "BF.RESERVE x nan 10", "ERR bad error rate");
    let range = "ERR error rate must be in the range (0.000000, 1.000000)";
    for rate in ["0", "1", "-0.1", "inf", "-inf", "1e300"] {
        refused(&mut connection, &format!("BF.RESERVE x {rate} 10"), range);
        let insert = format!("BF.INSERT x ERROR {rate} ITEMS a");
        refused(&mut connection, &insert, "Bad error rate");
    }
    assert_eq!(connection.line("EXISTS x"), Reply::Int(0));
    assert!(server.used_memory() < before + (1 << 20), "memory was taken");
}

#[test]
fn a_filter_larger_than_the_limit_per_key_is_refused() {
    let server = Server::builder().module_args(&["bf-layout", "redisbloom"]).start();
    let mut connection = server.resp2();
    // 1e-300 at 2^30 items takes some 180 GiB, above the default limit of 32 GiB.
    let started = Instant::now();
    refused(&mut connection, "BF.RESERVE x 1e-300 1073741824", NO_MEMORY);
    let insert = "BF.INSERT x ERROR 1e-300 CAPACITY 1073741824 ITEMS a";
    refused(&mut connection, insert, NO_MEMORY);
    assert!(started.elapsed() < LONG);
    assert_eq!(connection.line("EXISTS x"), Reply::Int(0));
}

#[test]
fn a_filter_that_the_machine_has_no_room_for_is_refused() {
    if !own_arguments() {
        return;
    }
    let mut server = Server::builder().module_args(&["bf-max-memory-per-key", "0"]).start();
    let mut connection = server.resp2();
    // More than any address space has: 2^61 bytes.
    let mut header = Header::default();
    (header.links[0].bits, header.links[0].bytes) = (u64::MAX - 63, (u64::MAX - 63) / 8);
    assert_eq!(load(&mut connection, "x", 1, &header.bytes()), Reply::Error(NO_MEMORY.into()));
    assert_eq!(connection.line("EXISTS x"), Reply::Int(0));
    // 32 TiB and 180 GiB, which a system that promises more than it has may give.
    (header.links[0].bits, header.links[0].bytes) = (1 << 48, 1 << 45);
    let loaded = load(&mut connection, "x", 1, &header.bytes());
    let reserved = connection.line("BF.RESERVE y 1e-300 1073741824");
    for reply in [loaded, reserved] {
        assert!(reply == Reply::ok() || reply == Reply::Error(NO_MEMORY.into()), "{reply}");
    }
    connection.line("DEL x y");
    assert!(server.is_alive());
}

#[test]
fn growth_by_1_goes_on_or_ends_in_a_clear_error_and_the_filter_stays_loadable() {
    for layout in ["redisbloom", "blocked"] {
        let server = Server::builder().module_args(&["bf-layout", layout]).start();
        let mut connection = server.resp2();
        assert_eq!(connection.line("BF.RESERVE e 0.1 1 EXPANSION 1"), Reply::ok());
        let (mut added, mut refusals) = (Vec::new(), 0);
        for i in 0..3000 {
            let item = format!("item-{i}");
            match connection.call(&["BF.ADD", "e", &item]) {
                Reply::Int(_) => added.push(item),
                reply => {
                    assert_eq!(reply, Reply::Error(CANNOT_GROW.into()));
                    refusals += 1;
                }
            }
        }
        assert!(added.len() >= 1000, "{layout}: {} added, {refusals} refused", added.len());
        for item in &added {
            assert_eq!(connection.call(&["BF.EXISTS", "e", item]), Reply::Int(1), "{item}");
        }
        let dump = connection.line("DUMP e");
        let payload = dump.bytes().expect("a payload").to_vec();
        let restored = connection.call(&[b"RESTORE".as_slice(), b"f", b"0", &payload]);
        assert_eq!(restored, Reply::ok());
        assert_eq!(connection.line("DUMP f"), dump);
    }
}

#[test]
fn the_largest_expansion_works_and_a_larger_one_is_refused() {
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.RESERVE k 0.001 1 EXPANSION 32768"), Reply::ok());
    let items: Vec<_> = (0..100).map(|i| format!("item-{i}")).collect();
    let command = [strings(&["BF.MADD", "k"]), items.clone()].concat();
    assert_eq!(connection.call(&command).array().map(<[_]>::len), Some(100));
    let capacity = field(&mut connection, "k", "CAPACITY").int().expect("a number");
    assert!(capacity > 32_768, "{capacity}");
    for item in &items {
        assert_eq!(connection.call(&["BF.EXISTS", "k", item]), Reply::Int(1));
    }
    let range = "ERR expansion must be in the range [0, 32768]";
    for expansion in ["32769", "-1", "9223372036854775807", "-9223372036854775808"] {
        refused(&mut connection, &format!("BF.RESERVE x 0.01 10 EXPANSION {expansion}"), range);
        let insert = format!("BF.INSERT x EXPANSION {expansion} ITEMS a");
        refused(&mut connection, &insert, "Bad expansion");
    }
    refused(&mut connection, "BF.RESERVE x 0.01 10 EXPANSION 1.5", "ERR bad expansion");
    assert_eq!(connection.line("EXISTS x"), Reply::Int(0));
}

#[test]
fn a_missing_key_and_a_key_of_another_type_hold_no_item() {
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("SET s 1"), Reply::ok());
    for key in ["nokey", "s"] {
        assert_eq!(connection.call(&["BF.EXISTS", key, "a"]), Reply::Int(0));
        let both = Reply::Array(vec![Reply::Int(0), Reply::Int(0)]);
        assert_eq!(connection.call(&["BF.MEXISTS", key, "a", "b"]), both);
    }
    assert_eq!(connection.line("EXISTS nokey"), Reply::Int(0));
    assert_eq!(connection.line("GET s"), Reply::Bulk(b"1".to_vec()));
    for write in ["BF.ADD s a", "BF.MADD s a b", "BF.INSERT s ITEMS a", "BF.RESERVE s 0.01 10"] {
        refused(&mut connection, write, WRONG_TYPE);
    }
}

#[test]
fn options_are_read_in_full_and_unknown_words_refused() {
    let server = Server::start();
    let mut connection = server.resp2();
    for command in [
        "BF.INSERT q EX 10 ITEMS a",
        "BF.INSERT q NOPE ITEMS a",
        "BF.INSERT q N ITEMS a",
        "BF.INSERT q NONSCALINGS ITEMS a",
        "BF.INSERT q ER 0.1 ITEMS a",
        "BF.INSERT q ERRORS 0.1 ITEMS a",
        "BF.INSERT q C 10 ITEMS a",
        "BF.INSERT q I a",
        "BF.INSERT q ITEMSS a",
        "BF.RESERVE q 0.01 10 bogus trailing",
        "BF.RESERVE q 0.01 10 EXP 2",
        "BF.RESERVE q 0.01 10 NONSCALING trailing",
        "BF.RESERVE q 0.01 10 EXPANSION 2 trailing",
    ] {
        refused(&mut connection, command, UNKNOWN);
        assert_eq!(connection.line("EXISTS q"), Reply::Int(0), "{command}");
    }
    // The empty word and one that only begins like an option.
    for word in [b"".as_slice(), b"ITEMS\0", b"\xff"] {
        let reply = connection.call(&[b"BF.INSERT".as_slice(), b"q", word, b"a", b"b"]);
        assert_eq!(reply, Reply::Error(UNKNOWN.into()), "{}", word.escape_ascii());
    }
    // Names of options are fine where a key or an item stands.
    assert_eq!(connection.line("BF.RESERVE NONSCALING 0.01 10"), Reply::ok());
    assert_eq!(field(&mut connection, "NONSCALING", "EXPANSION"), Reply::Int(2));
    assert_eq!(connection.line("BF.RESERVE EXPANSION 0.01 10"), Reply::ok());
    let reply = connection.line("BF.INSERT q expansion 3 Capacity 7 ITEMS ITEMS NOCREATE ITEMS");
    assert_eq!(reply, Reply::Array(vec![Reply::Int(1), Reply::Int(1), Reply::Int(0)]));
    assert_eq!(field(&mut connection, "q", "EXPANSION"), Reply::Int(3));
    assert_eq!(field(&mut connection, "q", "CAPACITY"), Reply::Int(7));
}

#[test]
fn the_first_error_of_several_is_redisblooms() {
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("SET s 1"), Reply::ok());
    assert_eq!(connection.line("BF.ADD b a"), Reply::Int(1));
    for (command, error) in [
        ("BF.RESERVE s x y", "ERR bad error rate"),
        ("BF.RESERVE s 2 y", "ERR error rate must be in the range (0.000000, 1.000000)"),
        ("BF.RESERVE s 0.1 y EXPANSION", "ERR bad capacity"),
        ("BF.RESERVE s 0.1 0 EXPANSION", "ERR capacity must be in the range [1, 1073741824]"),
        ("BF.RESERVE s 0.1 1 EXPANSION", "ERR no expansion"),
        ("BF.RESERVE s 0.1 1 NONSCALING EXPANSION", "ERR no expansion"),
        ("BF.RESERVE s 0.1 1 NONSCALING EXPANSION x", "ERR bad expansion"),
        ("BF.RESERVE s 0.1 1 NONSCALING EXPANSION 32769", "Nonscaling filters cannot expand"),
        ("BF.RESERVE s 0.1 1 EXPANSION 32769", "ERR expansion must be in the range [0, 32768]"),
        ("BF.RESERVE s 0.1 1 bogus", UNKNOWN),
        ("BF.RESERVE s 0.1 1", WRONG_TYPE),
        ("BF.RESERVE b 0.1 1", "ERR item exists"),
        ("BF.INSERT s ERROR x ERROR y ITEMS a", "Bad error rate"),
        ("BF.INSERT s CAPACITY x ERROR y ITEMS a", "Bad capacity"),
        ("BF.INSERT s EXPANSION -1 bogus", "Bad expansion"),
        ("BF.INSERT s NOCREATE ITEMS a", WRONG_TYPE),
        ("BF.INSERT none NOCREATE ITEMS a", "ERR not found"),
        ("BF.INSERT none NOCREATE ERROR 2 ITEMS a", "Bad error rate"),
        ("BF.INSERT b ERROR 2 ITEMS a", "Bad error rate"),
        ("BF.INFO s bogus", WRONG_TYPE),
        ("BF.INFO none bogus", "ERR not found"),
        ("BF.INFO b bogus", "Invalid information value"),
        ("BF.CARD s", WRONG_TYPE),
        ("BF.DEBUG s", WRONG_TYPE),
        ("BF.DEBUG none", "ERR not found"),
        ("BF.SCANDUMP s x", WRONG_TYPE),
        ("BF.SCANDUMP none x", "ERR not found"),
        ("BF.SCANDUMP b x", "Second argument must be numeric"),
        ("BF.LOADCHUNK s x data", "ERR Second argument must be numeric"),
        ("BF.LOADCHUNK s 1 data", WRONG_TYPE),
        ("BF.LOADCHUNK none 2 data", "ERR not found"),
        ("BF.LOADCHUNK none -1 data", "ERR not found"),
        ("BF.LOADCHUNK none 1 data", BAD_DATA),
    ] {
        refused(&mut connection, command, error);
    }
    assert_eq!(connection.line("BF.CARD none"), Reply::Int(0));
    assert_eq!(connection.line("EXISTS none"), Reply::Int(0));
    assert_eq!(connection.line("BF.CARD b"), Reply::Int(1));
}

#[test]
fn a_wrong_number_of_arguments_is_refused() {
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.ADD b a"), Reply::Int(1));
    for command in [
        "bf.reserve",
        "bf.reserve x 0.01",
        "bf.reserve x 0.01 10 EXPANSION 2 NONSCALING more",
        "bf.add b",
        "bf.add b x y",
        "bf.madd b",
        "bf.insert b ITEMS",
        "bf.insert b NOCREATE ITEMS",
        "bf.insert b NOCREATE NONSCALING",
        "bf.insert b NOCREATE ERROR",
        "bf.insert b NOCREATE CAPACITY",
        "bf.insert b NOCREATE EXPANSION",
        "bf.exists b",
        "bf.exists b x y",
        "bf.mexists b",
        "bf.info",
        "bf.info b SIZE ITEMS",
        "bf.card",
        "bf.card b x",
        "bf.debug b x",
        "bf.scandump b",
        "bf.scandump b 0 1",
        "bf.loadchunk b 1",
        "bf.loadchunk b 1 data more",
    ] {
        let name = command.split(' ').next().expect("a name");
        let error = format!("ERR wrong number of arguments for '{name}' command");
        refused(&mut connection, command, &error);
    }
    assert_eq!(connection.line("BF.CARD b"), Reply::Int(1));
    assert_eq!(connection.line("EXISTS x"), Reply::Int(0));
}

#[test]
fn items_may_have_any_bytes_and_any_length() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.RESERVE k 0.000000001 1000"), Reply::ok());
    let megabyte: Vec<u8> = (0..1u32 << 20).map(|i| (i % 251) as u8).collect();
    let almost = [&megabyte[..megabyte.len() - 1], b"!"].concat();
    let items: &[&[u8]] = &[
        b"",
        b"\0",
        b"\0\0",
        b"a",
        b"a\0",
        b"a\0b",
        b"a\0c",
        b"\r\n",
        b"c\r\nd",
        b"\xff\xfe",
        b"\xc3\x28",
        b"\xf0\x9f\x98\x80",
        b" ",
        b"ITEMS",
        &megabyte,
        &almost,
    ];
    for item in items {
        assert_eq!(connection.call(&[b"BF.EXISTS".as_slice(), b"k", item]), Reply::Int(0));
        assert_eq!(connection.call(&[b"BF.ADD".as_slice(), b"k", item]), Reply::Int(1));
        assert_eq!(connection.call(&[b"BF.ADD".as_slice(), b"k", item]), Reply::Int(0));
    }
    assert_eq!(connection.line("BF.CARD k"), Reply::Int(items.len() as i64));
    server.debug_reload();
    let command = [&[b"BF.MEXISTS".as_slice(), b"k"], items].concat();
    assert_eq!(connection.call(&command), Reply::Array(vec![Reply::Int(1); items.len()]));
    for absent in [b"b".as_slice(), b"a\0d", b"\xff", &megabyte[1..]] {
        assert_eq!(connection.call(&[b"BF.EXISTS".as_slice(), b"k", absent]), Reply::Int(0));
    }
    // Keys too.
    assert_eq!(connection.call(&[b"BF.ADD".as_slice(), b"k\0\xff\r\n", b"a"]), Reply::Int(1));
    assert_eq!(connection.call(&[b"BF.EXISTS".as_slice(), b"", b"a"]), Reply::Int(0));
    assert_eq!(connection.call(&[b"BF.ADD".as_slice(), b"", b"a"]), Reply::Int(1));
    server.debug_reload();
    for key in [b"k\0\xff\r\n".as_slice(), b""] {
        assert_eq!(connection.call(&[b"BF.EXISTS".as_slice(), key, b"a"]), Reply::Int(1));
    }
}

#[test]
fn chunks_load_in_any_order_and_twice_but_only_where_they_fit() {
    let server = Server::builder().module_args(&["bf-layout", "redisbloom"]).start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.RESERVE from 0.01 100"), Reply::ok());
    for i in 0..1000 {
        connection.call(&["BF.ADD", "from", &format!("item-{i}")]);
    }
    let (_, header) = scan(&mut connection, "from", 0);
    let mut chunks = Vec::new();
    let mut iterator = 1;
    loop {
        let (next, data) = scan(&mut connection, "from", iterator);
        if next == 0 {
            assert!(data.is_empty());
            break;
        }
        assert_eq!(next, iterator + data.len() as i64);
        chunks.push((next, data));
        iterator = next;
    }
    assert!(chunks.len() >= 3, "one chunk per layer");
    assert_eq!(load(&mut connection, "to", 1, &header), Reply::ok());
    for (next, data) in chunks.iter().rev().chain(&chunks) {
        assert_eq!(load(&mut connection, "to", *next, data), Reply::ok());
    }
    let want = connection.line("DUMP from");
    assert_eq!(connection.line("DUMP to"), want);

    let (first_end, first) = &chunks[0];
    let no_link = "ERR invalid offset - no link found";
    let too_big = "ERR invalid chunk - Too big for current filter";
    let longer = [first.as_slice(), b"x"].concat();
    for (iterator, data, error) in [
        (1, header.as_slice(), BAD_DATA),
        (0, first, BAD_DATA),
        (-1, first, BAD_DATA),
        (i64::MIN, first, BAD_DATA),
        (first.len() as i64 - 1, first, BAD_DATA),
        (first.len() as i64, first, no_link),
        (first_end + 1, &longer, too_big),
        (first_end + 1, first, too_big),
        (iterator + 1, b"x", no_link),
        (i64::MAX, first, no_link),
        (1, b"x", no_link),
    ] {
        let reply = load(&mut connection, "to", iterator, data);
        assert_eq!(reply, Reply::Error(error.into()), "iterator {iterator}");
    }
    assert_eq!(connection.line("DUMP to"), want);
}

#[test]
fn hostile_headers_are_refused_at_once() {
    let server = Server::start();
    let mut connection = server.resp2();
    let good = Header::default();
    assert_eq!(load(&mut connection, "good", 1, &good.bytes()), Reply::ok());
    assert_eq!(connection.line("BF.ADD good a"), Reply::Int(1));

    let before = server.used_memory();
    let link = good.links[0];
    let with = |change: &dyn Fn(&mut Header)| {
        let mut header = good.clone();
        change(&mut header);
        header
    };
    let with_link = |change: &dyn Fn(&mut Link)| {
        let mut header = good.clone();
        change(&mut header.links[0]);
        header
    };
    let cases: Vec<(&str, Header)> = vec![
        ("no link", with(&|h| h.links.clear())),
        ("unknown option", with(&|h| h.options |= 16)),
        ("another number of links", with(&|h| h.count = Some(2))),
        ("2^32 - 1 links", with(&|h| h.count = Some(u32::MAX))),
        ("items that are not the sum", with(&|h| h.items = 1)),
        ("items that overflow", {
            let full = Link { size: u64::MAX, ..link };
            Header { items: u64::MAX - 1, links: vec![full, full], ..good.clone() }
        }),
        ("rate 0", with_link(&|l| l.error = 0.0)),
        ("rate 1", with_link(&|l| l.error = 1.0)),
        ("rate NaN", with_link(&|l| l.error = f64::NAN)),
        ("negative rate", with_link(&|l| l.error = -0.01)),
        ("2^31 probes", with_link(&|l| (l.bits_per_entry, l.hashes) = (3e9, 2_079_441_542))),
        (
            "NaN bits per entry",
            with_link(&|l| {
                (l.bits_per_entry, l.hashes) = (f64::NAN, 1 << 31);
            }),
        ),
        (
            "NaN bits per entry, probes 0",
            with_link(&|l| {
                (l.bits_per_entry, l.hashes) = (f64::NAN, 0);
            }),
        ),
        ("no probes", with_link(&|l| (l.bits_per_entry, l.hashes) = (0.0, 0))),
        ("negative bits per entry", with_link(&|l| (l.bits_per_entry, l.hashes) = (-1.0, 0))),
        ("other probes than bits per entry ask for", with_link(&|l| l.hashes += 1)),
        ("no bits", with_link(&|l| (l.bits, l.bytes) = (0, 0))),
        ("fewer bits than bytes", with_link(&|l| l.bits -= 8)),
        ("exponent 64", with_link(&|l| l.n2 = 64)),
        ("exponent 255", with_link(&|l| l.n2 = 255)),
        ("an exponent above the bits", with_link(&|l| l.n2 = 7)),
    ];
    let started = Instant::now();
    for (what, header) in &cases {
        let reply = load(&mut connection, "bad", 1, &header.bytes());
        assert_eq!(reply, Reply::Error(BAD_DATA.into()), "{what}");
        assert_eq!(connection.line("EXISTS bad"), Reply::Int(0), "{what}");
    }
    for bits in [1 << 48, u64::MAX - 63] {
        let huge = with_link(&|l| (l.bits, l.bytes) = (bits, bits / 8));
        assert_eq!(load(&mut connection, "bad", 1, &huge.bytes()), Reply::Error(NO_MEMORY.into()));
    }
    let bytes = good.bytes();
    for length in 0..bytes.len() {
        let reply = load(&mut connection, "bad", 1, &bytes[..length]);
        assert_eq!(reply, Reply::Error(BAD_DATA.into()), "cut to {length} bytes");
    }
    assert_eq!(connection.line("EXISTS bad"), Reply::Int(0));
    assert!(started.elapsed() < LONG);
    assert!(server.used_memory() < before + (1 << 20), "memory was taken");
}

#[test]
fn filters_that_can_never_grow_say_so() {
    let server = Server::start();
    let mut connection = server.resp2();
    let link = Header::default().links[0];
    let huge = Link { entries: 1 << 61, size: 1 << 61, ..link };
    for (what, header) in [
        (
            "growth 0",
            Header {
                growth: 0,
                items: 4,
                links: vec![Link { size: 4, ..link }],
                ..Header::default()
            },
        ),
        ("entries 0", Header { links: vec![Link { entries: 0, ..link }], ..Header::default() }),
        (
            "2^61 entries",
            Header { growth: 3, items: 1 << 61, links: vec![huge], ..Header::default() },
        ),
        (
            "2^32 - 1 growth",
            Header { growth: u32::MAX, items: 1 << 61, links: vec![huge], ..Header::default() },
        ),
    ] {
        connection.line("DEL k");
        assert_eq!(load(&mut connection, "k", 1, &header.bytes()), Reply::ok(), "{what}");
        for _ in 0..3 {
            let reply = connection.line("BF.ADD k a");
            assert_eq!(reply, Reply::Error(CANNOT_GROW.into()), "{what}");
        }
        assert_eq!(field(&mut connection, "k", "FILTERS"), Reply::Int(1), "{what}");
    }
}

#[test]
fn a_payload_that_claims_billions_of_layers_is_refused_at_once() {
    let server = Server::start();
    let mut connection = server.resp2();
    let good = Payload::default();
    assert_eq!(restore(&mut connection, "good", &good.bytes()), Reply::ok());
    assert_eq!(connection.line("BF.ADD good a"), Reply::Int(1));
    let started = Instant::now();
    for payload in [
        Payload { links: 0, ..good.clone() },
        Payload { links: 2, ..good.clone() },
        Payload { links: 1 << 36, ..good.clone() },
        Payload { links: 1 << 40, ..good.clone() },
        Payload { links: u64::MAX, ..good.clone() },
        Payload { options: 1 << 32, ..good.clone() },
        Payload { growth: 1 << 32, ..good.clone() },
        Payload { hashes: 1 << 32 | 5, ..good.clone() },
        Payload { hashes: 2_079_441_542, bits_per_entry: 3e9, ..good.clone() },
        Payload { hashes: 0, bits_per_entry: -1.0, ..good.clone() },
        Payload { hashes: 1 << 31, bits_per_entry: f64::NAN, ..good.clone() },
        Payload { error: f64::NAN, ..good.clone() },
        Payload { bits: 0, ..good.clone() },
        Payload { bits: 72, ..good.clone() },
        Payload { bits: u64::MAX, ..good.clone() },
        Payload { n2: 7, ..good.clone() },
        Payload { n2: 256, ..good.clone() },
        Payload { array: vec![], ..good.clone() },
        Payload { array: vec![0; 7], ..good.clone() },
        Payload { version: 5, ..good.clone() },
        Payload { version: 1023, ..good.clone() },
    ] {
        let reply = restore(&mut connection, "bad", &payload.bytes());
        assert_eq!(reply, Reply::Error("ERR Bad data format".into()), "{payload:?}");
        assert_eq!(connection.line("EXISTS bad"), Reply::Int(0));
    }
    assert!(started.elapsed() < LONG);
}

#[test]
fn changed_payloads_are_refused_or_work_but_never_stop_the_server() {
    const VARIANTS: u64 = 400;
    /// The bytes of the type and its name stay; the last one before is the version.
    const NAME: usize = 9;
    if !own_server() {
        return;
    }
    for layout in ["redisbloom", "blocked"] {
        let mut server = Server::builder().module_args(&["bf-layout", layout]).start();
        let mut connection = server.resp2();
        for reserve in [
            "BF.RESERVE scaling 0.01 10",
            "BF.RESERVE fixed 0.001 40 NONSCALING",
            "BF.RESERVE steep 0.1 2 EXPANSION 40",
        ] {
            assert_eq!(connection.line(reserve), Reply::ok());
        }
        for i in 0..40 {
            for key in ["scaling", "fixed", "steep"] {
                connection.call(&["BF.ADD", key, &format!("item-{i}")]);
            }
        }
        let values = server.dump_all();
        let (mut refused, mut loaded) = (0, 0);
        let started = Instant::now();
        for variant in 0..VARIANTS {
            let mut random = Random(variant + 1);
            let (_, mut value) = values[random.below(values.len())].clone();
            for _ in 0..1 + random.below(3) {
                let at = NAME + random.below(value.len() - NAME);
                value[at] = random.next() as u8;
            }
            let reply = restore(&mut connection, "k", &value);
            if reply == Reply::Error("ERR Bad data format".into()) {
                refused += 1;
                continue;
            }
            assert_eq!(reply, Reply::ok(), "variant {variant}");
            loaded += 1;
            for command in [
                "BF.EXISTS k item-1",
                "BF.MADD k new-1 new-2 new-3",
                "BF.MEXISTS k item-1 item-2 absent",
                "BF.INFO k",
                "BF.DEBUG k",
                "BF.CARD k",
                "BF.SCANDUMP k 0",
                "BF.SCANDUMP k 1",
                "BF.SCANDUMP k 9223372036854775807",
                "MEMORY USAGE k",
                "COPY k k2",
                "DUMP k2",
                "DEL k k2",
            ] {
                connection.line(command);
            }
        }
        assert!(refused > 20 && loaded > 20, "{layout}: {refused} refused, {loaded} loaded");
        assert!(started.elapsed() < 12 * LONG, "{layout}: {:?}", started.elapsed());
        assert!(server.is_alive());
    }
}

#[test]
fn random_commands_get_one_reply_each() {
    const COMMANDS: u64 = 15_000;
    let names = [
        "RESERVE",
        "ADD",
        "MADD",
        "INSERT",
        "EXISTS",
        "MEXISTS",
        "INFO",
        "CARD",
        "DEBUG",
        "SCANDUMP",
        "LOADCHUNK",
    ];
    let words: &[&[u8]] = &[
        b"k",
        b"l",
        b"string",
        b"a",
        b"b",
        b"",
        b"\0",
        b"\xff\r\n",
        b"0",
        b"1",
        b"2",
        b"3",
        b"-1",
        b"9",
        b"17",
        b"100",
        b"0.01",
        b"0.5",
        b"1e-6",
        b"nan",
        b"inf",
        b"EXPANSION",
        b"NONSCALING",
        b"NOCREATE",
        b"CAPACITY",
        b"ERROR",
        b"ITEMS",
        b"SIZE",
        b"FILTERS",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"4294967296",
        b"1073741824",
    ];
    if !own_server() {
        return;
    }
    let mut server = Server::start();
    let mut connection = server.resp2();
    let mut random = Random(7);
    let header = Header::default().bytes();
    let (mut errors, mut others) = (0, 0);
    for number in 0..COMMANDS {
        if number % 100 == 0 {
            assert_eq!(connection.line("FLUSHALL"), Reply::ok());
            assert_eq!(connection.line("SET string 1"), Reply::ok());
        }
        let mut command = vec![format!("BF.{}", names[random.below(names.len())]).into_bytes()];
        // A key first in most cases: without one nothing is reached.
        command.extend((random.below(8) > 0).then(|| words[random.below(3)].to_vec()));
        for _ in 0..random.below(7) {
            command.push(match random.below(12) {
                0 => header.clone(),
                1 => (0..random.below(80)).map(|_| random.next() as u8).collect(),
                _ => words[random.below(words.len())].to_vec(),
            });
        }
        let reply = connection.command(&command);
        match reply.unwrap_or_else(|error| panic!("{error} after {command:?}")) {
            Reply::Error(text) => {
                assert!(!text.contains("internal error"), "{command:?}: {text}");
                errors += 1;
            }
            _ => others += 1,
        }
    }
    assert_eq!(connection.line("PING"), Reply::Simple("PONG".into()));
    assert!(errors > COMMANDS / 10 && others > COMMANDS / 10, "{errors} errors, {others} others");
    assert!(server.is_alive());
}

/// Asserts that the command is refused with this error.
fn refused(connection: &mut RespConnection, command: &str, error: &str) {
    assert_eq!(connection.line(command), Reply::Error(error.into()), "{command}");
}

/// A field of BF.INFO in RESP2.
fn field(connection: &mut RespConnection, key: &str, name: &str) -> Reply {
    let reply = connection.call(&["BF.INFO", key, name]);
    let value = reply.array().and_then(|values| values.first());
    value.unwrap_or_else(|| panic!("BF.INFO {key} {name}: {reply}")).clone()
}

fn scan(connection: &mut RespConnection, key: &str, iterator: i64) -> (i64, Vec<u8>) {
    let reply = connection.call(&["BF.SCANDUMP", key, &iterator.to_string()]);
    let Some([Reply::Int(next), Reply::Bulk(data)]) = reply.array() else {
        panic!("BF.SCANDUMP {key} {iterator}: {reply}");
    };
    (*next, data.clone())
}

fn load(connection: &mut RespConnection, key: &str, iterator: i64, data: &[u8]) -> Reply {
    let iterator = iterator.to_string();
    connection.call(&[b"BF.LOADCHUNK", key.as_bytes(), iterator.as_bytes(), data])
}

/// Restores a value given without its payload's footer.
fn restore(connection: &mut RespConnection, key: &str, value: &[u8]) -> Reply {
    connection.call(&[b"RESTORE", key.as_bytes(), b"0", &with_footer(value)])
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Pseudo-random numbers that are the same in each run (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

/// The header chunk of a filter in RedisBloom's layout, with any numbers.
#[derive(Clone)]
struct Header {
    items: u64,
    /// The number of links claimed, where it is not that of `links`.
    count: Option<u32>,
    options: u32,
    growth: u32,
    links: Vec<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    bytes: u64,
    bits: u64,
    size: u64,
    error: f64,
    bits_per_entry: f64,
    hashes: u32,
    entries: u64,
    n2: u8,
}

impl Default for Header {
    /// What `BF.RESERVE k 0.1 4` makes.
    fn default() -> Self {
        let link = Link {
            bytes: 8,
            bits: 64,
            size: 0,
            error: 0.05,
            bits_per_entry: 6.2352242295726885,
            hashes: 5,
            entries: 4,
            n2: 0,
        };
        Self { items: 0, count: None, options: 5, growth: 2, links: vec![link] }
    }
}

impl Header {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.items.to_le_bytes().to_vec();
        bytes.extend(self.count.unwrap_or(self.links.len() as u32).to_le_bytes());
        bytes.extend(self.options.to_le_bytes());
        bytes.extend(self.growth.to_le_bytes());
        for link in &self.links {
            for number in [link.bytes, link.bits, link.size] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(link.error.to_le_bytes());
            bytes.extend(link.bits_per_entry.to_le_bytes());
            bytes.extend(link.hashes.to_le_bytes());
            bytes.extend(link.entries.to_le_bytes());
            bytes.push(link.n2);
        }
        bytes
    }
}

/// The value of a DUMP payload of a filter in RedisBloom's layout with one link and
/// any numbers.
#[derive(Clone, Debug)]
struct Payload {
    version: u64,
    links: u64,
    options: u64,
    growth: u64,
    error: f64,
    hashes: u64,
    bits_per_entry: f64,
    bits: u64,
    n2: u64,
    array: Vec<u8>,
}

impl Default for Payload {
    /// What `BF.RESERVE k 0.1 4` makes.
    fn default() -> Self {
        Self {
            version: 4,
            links: 1,
            options: 5,
            growth: 2,
            error: 0.05,
            hashes: 5,
            bits_per_entry: 6.2352242295726885,
            bits: 64,
            n2: 0,
            array: vec![0; 8],
        }
    }
}

impl Payload {
    fn bytes(&self) -> Vec<u8> {
        const CHARACTERS: &[u8] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let place = |c: &u8| CHARACTERS.iter().position(|other| other == c).expect("known");
        let name = b"MBbloom--".iter().fold(0, |id, c| id << 6 | place(c) as u64);
        let mut bytes = vec![7];
        length(&mut bytes, name << 10 | self.version);
        for number in [0, self.links, self.options, self.growth, 4] {
            unsigned(&mut bytes, number);
        }
        double(&mut bytes, self.error);
        unsigned(&mut bytes, self.hashes);
        double(&mut bytes, self.bits_per_entry);
        unsigned(&mut bytes, self.bits);
        unsigned(&mut bytes, self.n2);
        bytes.push(5);
        length(&mut bytes, self.array.len() as u64);
        bytes.extend(&self.array);
        unsigned(&mut bytes, 0);
        bytes.push(0);
        bytes
    }
}

/// A length as RDB files have it, in the form that holds 64 bits.
fn length(bytes: &mut Vec<u8>, number: u64) {
    bytes.push(0x81);
    bytes.extend(number.to_be_bytes());
}

fn unsigned(bytes: &mut Vec<u8>, number: u64) {
    bytes.push(2);
    length(bytes, number);
}

fn double(bytes: &mut Vec<u8>, number: f64) {
    bytes.push(4);
    bytes.extend(number.to_le_bytes());
}
