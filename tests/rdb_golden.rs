//! RDB files that RedisBloom wrote: every key answers as it did there, right after
//! loading and again after the module has written and read it itself.

mod common;

use std::fs;

use serde_json::Value;

use common::golden::{self, golden_command, shorten};
use common::sha256::sha256_hex;
use common::{Protocol, Reply, RespConnection, Server, own_server, skip};

#[test]
fn filters_of_redisbloom_2_8_load_from_redis_7_0() {
    check("bfcf-2.8.2-redis7.0", 10);
}

#[test]
fn filters_of_the_newest_redisbloom_load_from_valkey_8_1() {
    check("bfcf-head-valkey8.1", 11);
}

#[test]
fn filters_of_the_newest_redisbloom_load_from_redis_8_2() {
    check("bfcf-head-redis8.2", 12);
}

#[test]
fn sketches_of_redisbloom_2_8_load_from_redis_7_0() {
    check("cms_topk_tdigest-2.8.2-redis7.0", 10);
}

#[test]
fn sketches_of_the_newest_redisbloom_load_from_valkey_8_1() {
    check("cms_topk_tdigest-head-valkey8.1", 11);
}

#[test]
fn sketches_of_the_newest_redisbloom_load_from_redis_8_2() {
    check("cms_topk_tdigest-head-redis8.2", 12);
}

#[test]
fn pieces_are_named_by_the_standard_sha_256() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let long = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
    assert_eq!(sha256_hex(b""), empty);
    assert_eq!(sha256_hex(b"abc"), abc);
    assert_eq!(sha256_hex(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), long);
}

/// A key and the numbers of those of its items whose two buckets are one: RedisBloom
/// counts the slot of each twice.
const COUNTED_TWICE: (&str, [usize; 4]) = ("cf:bs4exp2", [3, 118, 179, 183]);

/// What was compared so far.
#[derive(Default)]
struct Tally {
    checks: usize,
    differences: Vec<String>,
    /// Servers up to 7.0 print doubles with other digits.
    loose_numbers: bool,
}

impl Tally {
    fn replies(&mut self, what: &str, want: &Reply, got: &Reply) {
        self.holds(what, want.same(got, self.loose_numbers), &want.to_string(), &got.to_string());
    }

    fn texts(&mut self, what: &str, want: &str, got: &str) {
        self.holds(what, want == got, want, got);
    }

    fn holds(&mut self, what: &str, holds: bool, want: &str, got: &str) {
        self.checks += 1;
        if !holds {
            let (want, got) = (shorten(want, 300), shorten(got, 300));
            self.differences.push(format!("{what}\n    want {want}\n    got  {got}"));
        }
    }

    fn verdict(&self) {
        assert!(self.checks > 0, "nothing was checked");
        assert!(
            self.differences.is_empty(),
            "{} of {} checks fail, the first being\n{}",
            self.differences.len(),
            self.checks,
            self.differences[..self.differences.len().min(20)].join("\n")
        );
    }
}

/// Loads the file, directly and with a reload after it, and runs all checks of its manifest.
fn check(name: &str, rdb_version: u32) {
    if !own_server() {
        return;
    }
    let manifest = fs::read(golden::path(&format!("rdb/{name}.json"))).expect("a manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("a manifest in JSON");
    let keys = manifest["keys"].as_array().expect("the manifest lists keys");
    for reload in [false, true] {
        let server = Server::builder();
        let kind = server.kind();
        if kind.rdb_version() < rdb_version {
            return skip(&format!("the server does not read RDB version {rdb_version}"));
        }
        let server = server.start_on(&golden::path(&format!("rdb/{name}.rdb")));
        if reload {
            server.debug_reload();
        }
        let mut tally = Tally { loose_numbers: kind.prints_long_doubles(), ..Tally::default() };
        if keys[0].get("queries").is_some() {
            check_sketches(&server, keys, &mut tally);
        } else {
            check_filters(&server, keys, &items(&manifest["absent"]), &mut tally);
        }
        tally.verdict();
    }
}

/// The manifests of the sketches are lists of commands with their replies.
fn check_sketches(server: &Server, keys: &[Value], tally: &mut Tally) {
    let mut connections = vec![(Protocol::Resp2, "resp2", server.resp2())];
    if server.kind().has_resp3_forms() {
        connections.push((Protocol::Resp3, "resp3", server.resp3()));
    }
    for part in ["info", "queries", "mutations"] {
        for key in keys {
            let entries = match &key[part] {
                Value::Array(entries) => entries.as_slice(),
                Value::Null => &[],
                entry => std::slice::from_ref(entry),
            };
            // Changes are made once; their replies are checked in RESP2.
            let used = if part == "mutations" { 1 } else { connections.len() };
            for (_, _, connection) in &mut connections {
                connection.call(&["SELECT", &key["db"].to_string()]);
            }
            for entry in entries {
                for (protocol, column, connection) in &mut connections[..used] {
                    let got = connection.call(&golden_command(&entry["cmd"]));
                    let what = format!("{} {} {protocol:?}", key["key"], entry["cmd"]);
                    let want = better(&key["key"], &entry["cmd"], &entry[*column]);
                    let both = [want, got].map(golden::without_compression_state);
                    tally.replies(&what, &both[0], &both[1]);
                }
            }
        }
    }
}

/// The reply to give for a recorded one, which is the same but where the manifest's
/// `known_flaw` tells of a better.
fn better(key: &Value, command: &Value, recorded: &Value) -> Reply {
    let reply = Reply::from_golden(recorded);
    match (key.as_str(), command[0].as_str()) {
        // RedisBloom stores the empty item like an unused place, and lists it as null.
        (Some("topk:emptyitem"), Some("TOPK.LIST")) => {
            reply.map_elements(|e| if e == Reply::Null { Reply::Bulk(Vec::new()) } else { e })
        }
        // An item that was added 0 times is not among the top.
        (Some("topk:zero"), Some("TOPK.QUERY")) => match reply {
            Reply::Array(mut present) => {
                let is_resp3 = present[0] == Reply::Bool(true);
                present[0] = if is_resp3 { Reply::Bool(false) } else { Reply::Int(0) };
                Reply::Array(present)
            }
            other => other,
        },
        // RedisBloom 2.8 saved the only value as minimum and maximum, and not as a centroid.
        (Some("td:single"), Some("TDIGEST.QUANTILE" | "TDIGEST.TRIMMED_MEAN")) => {
            let value = |reply| match reply {
                Reply::Bulk(text) if text == b"0" => Reply::Bulk(b"42.5".to_vec()),
                Reply::Double(text) if text == "0" => Reply::Double("42.5".into()),
                other => other,
            };
            value(reply.map_elements(value))
        }
        _ => reply,
    }
}

/// The manifests of the filters give rules for the items and the replies to expect.
fn check_filters(server: &Server, keys: &[Value], absent: &[Vec<u8>], tally: &mut Tally) {
    let mut connection = server.resp2();
    for key in keys {
        let name = key["key"].as_str().expect("a key's name");
        let family = if key["type"] == "MBbloom--" { "BF" } else { "CF" };
        let inserted = items(&key["inserted"]);
        let kind = connection.call(&["TYPE", name]);
        tally.texts(&format!("TYPE {name}"), key["type"].as_str().expect("a type"), &text(&kind));
        let info = connection.call(&[&format!("{family}.INFO"), name]);
        tally.replies(&format!("INFO {name}"), &golden_info(&key["info"]), &info);
        let debug = connection.call(&[&format!("{family}.DEBUG"), name]);
        tally.replies(&format!("DEBUG {name}"), &Reply::from_golden(&key["debug"]), &debug);
        for (items, field) in [(inserted.as_slice(), "exists_inserted"), (absent, "exists_absent")]
        {
            if let Some(want) = key[field].as_str() {
                let got = exists(&mut connection, family, name, items);
                tally.texts(&format!("{field} {name}"), want, &got);
            }
        }
        if let Some(counts) = key["count_inserted"].as_array() {
            let count = |item: &Vec<u8>| {
                connection.call(&[b"CF.COUNT".as_slice(), name.as_bytes(), item.as_slice()])
            };
            let got = inserted[..counts.len()].iter().map(count).collect();
            let mut want = counts.clone();
            for item in COUNTED_TWICE.1.into_iter().filter(|_| name == COUNTED_TWICE.0) {
                assert_eq!(want[item], 2);
                want[item] = 1.into();
            }
            let want = Reply::from_golden(&Value::Array(want));
            tally.replies(&format!("CF.COUNT {name}"), &want, &Reply::Array(got));
        }
        let got = scan_dump(&mut connection, family, name);
        tally.texts(&format!("SCANDUMP {name}"), &golden_pieces(&key["scandump"]), &got);
    }
}

/// The items that a rule of a manifest stands for.
fn items(rule: &Value) -> Vec<Vec<u8>> {
    let number = |field: &str| rule[field].as_u64().expect("a number in the rule");
    let word = |field: &str| rule[field].as_str().expect("a text in the rule");
    match rule["kind"].as_str() {
        None => Vec::new(),
        Some("prefix") => (number("from")..=number("to"))
            .map(|i| format!("{}{i}", word("prefix")).into_bytes())
            .collect(),
        Some("u32le") => (number("from")..=number("to"))
            .map(|i| (i.wrapping_mul(2_654_435_761) as u32).to_le_bytes().to_vec())
            .collect(),
        Some("repeat") => vec![word("item").as_bytes().to_vec(); number("times") as usize],
        Some(other) => panic!("unknown rule in a manifest: {other}"),
    }
}

/// One character per item, as the manifests spell it.
fn exists(connection: &mut RespConnection, family: &str, key: &str, items: &[Vec<u8>]) -> String {
    let command = format!("{family}.MEXISTS");
    let mut answers = String::new();
    for batch in items.chunks(1000) {
        let mut words = vec![command.as_bytes(), key.as_bytes()];
        words.extend(batch.iter().map(Vec::as_slice));
        let reply = connection.call(&words);
        let elements = reply.array().unwrap_or_else(|| panic!("{command} {key}: {reply}"));
        answers.extend(elements.iter().map(ToString::to_string));
    }
    answers
}

fn golden_info(info: &Value) -> Reply {
    let fields = info.as_object().expect("INFO is an object").iter();
    let pair =
        |(name, value): (&String, &Value)| [Reply::Simple(name.clone()), Reply::from_golden(value)];
    Reply::Array(fields.flat_map(pair).collect())
}

fn golden_pieces(pieces: &Value) -> String {
    let pieces = pieces.as_array().expect("a list of pieces").iter();
    let pieces = pieces.filter(|piece| piece["iter"] != 0).map(|piece| {
        format!("{} {} {}", piece["iter"], piece["len"], piece["sha256"].as_str().unwrap_or(""))
    });
    pieces.collect::<Vec<_>>().join("\n")
}

/// Iterator, length and digest of every piece that SCANDUMP gives.
fn scan_dump(connection: &mut RespConnection, family: &str, key: &str) -> String {
    let (mut pieces, mut iterator) = (Vec::new(), 0);
    loop {
        let reply =
            connection.call(&[&format!("{family}.SCANDUMP"), key, &i64::to_string(&iterator)]);
        let (next, data) = match reply.array() {
            Some([Reply::Int(0), _]) => break,
            Some([Reply::Int(next), Reply::Bulk(data)]) => (next, data),
            _ => {
                pieces.push(reply.to_string());
                break;
            }
        };
        iterator = *next;
        pieces.push(format!("{iterator} {} {}", data.len(), sha256_hex(data)));
    }
    pieces.join("\n")
}

fn text(reply: &Reply) -> String {
    reply.text().map_or_else(|| reply.to_string(), str::to_owned)
}
