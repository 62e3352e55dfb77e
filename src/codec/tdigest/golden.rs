//! Replays the t-digest sections of the transcript of RedisBloom against the core
//! and the codec.

use std::collections::HashMap;

use base64::prelude::*;
use serde_json::Value;

use super::super::{Field, Fields};
use super::{Form, VERSION, load, save};
use crate::structures::quota::Quota;
use crate::structures::tdigest::{DEFAULT_COMPRESSION, TDigest};

/// The type byte and module id with encoding version 0, `TDIS-TYPE`.
const HEAD: [u8; 10] = [0x07, 0x81, 0x4c, 0x32, 0x12, 0xf9, 0x36, 0x0f, 0x10, 0x00];
/// RDB version and checksum.
const FOOTER: usize = 10;

/// When RedisBloom merges the buffer because of a reading command.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// As there: it changes the digest. All fields must agree then.
    Compress,
    /// Never, which is what the commands do.
    LeaveAlone,
}

struct Replay {
    reads: Reads,
    keys: HashMap<String, TDigest>,
    checked: usize,
}

fn transcript() -> Vec<Value> {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/cms_topk_tdigest_transcript.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.into_iter().filter(|line| line["section"].as_str().unwrap().contains("tdigest")).collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        other => BASE64_STANDARD.decode(other["b64"].as_str().unwrap()).unwrap(),
    }
}

fn length(bytes: &mut &[u8]) -> u64 {
    let first = bytes[0];
    let (len, value) = match first >> 6 {
        0 => (1, u64::from(first)),
        1 => (2, u64::from(u16::from_be_bytes([first & 0x3f, bytes[1]]))),
        _ if first == 0x80 => (5, u64::from(u32::from_be_bytes(bytes[1..5].try_into().unwrap()))),
        _ => (9, u64::from_be_bytes(bytes[1..9].try_into().unwrap())),
    };
    *bytes = &bytes[len..];
    value
}

fn fields(payload: &[u8]) -> Fields {
    let mut bytes = &payload[HEAD.len()..payload.len() - FOOTER];
    assert_eq!(payload[..HEAD.len()], HEAD);
    let mut fields = Fields::default();
    loop {
        match length(&mut bytes) {
            0 => return fields,
            2 => fields.0.push_back(Field::Unsigned(length(&mut bytes))),
            4 => {
                fields
                    .0
                    .push_back(Field::Double(f64::from_le_bytes(bytes[..8].try_into().unwrap())));
                bytes = &bytes[8..];
            }
            other => panic!("opcode {other}"),
        }
    }
}

/// A reply with all doubles as bits.
fn normal(reply: &Value) -> Value {
    match reply {
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::String(text) => match text.parse::<f64>() {
            Ok(number) => double(number),
            Err(_) => reply.clone(),
        },
        _ => reply.clone(),
    }
}

fn double(number: f64) -> Value {
    let bits = if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() };
    Value::String(format!("{bits:016x}"))
}

fn info(digest: &TDigest, reads: Reads) -> Vec<Option<u64>> {
    let state = |value: u64| (reads == Reads::Compress).then_some(value);
    vec![
        Some(digest.compression() as u64),
        Some(digest.capacity() as u64),
        state(digest.merged().len() as u64),
        state(digest.unmerged().len() as u64),
        state(digest.merged_weight()),
        state(digest.unmerged_weight()),
        Some(digest.observations()),
        state(digest.compressions()),
        Some(digest.nominal_bytes()),
    ]
}

impl Replay {
    /// The reply to a command; `None` where it was checked here, or is not for the
    /// core.
    fn answer(&mut self, cmd: &[Vec<u8>], want: &Value) -> Option<Value> {
        let text: Vec<&str> = cmd.iter().map(|a| std::str::from_utf8(a).unwrap_or("")).collect();
        let failed = want.get("error").and_then(Value::as_str);
        let ok = || Some(serde_json::json!({"ok": "OK"}));
        match (text[0], failed) {
            ("TDIGEST.CREATE", Some("ERR T-Digest: allocation failed")) => {
                assert!(TDigest::new(text[3].parse().unwrap(), Quota::UNLIMITED).is_err());
                return None;
            }
            ("RESTORE", Some("ERR Bad data format")) => {
                let mut fields = fields(&cmd[3]);
                assert!(load(&mut fields, VERSION).is_err() || !fields.0.is_empty());
                return None;
            }
            (_, Some(_)) => return None,
            ("DEL", _) => {
                text[1..].iter().for_each(|key| drop(self.keys.remove(*key)));
                return None;
            }
            ("TDIGEST.CREATE", _) => {
                let compression = text.get(3).map_or(DEFAULT_COMPRESSION, |c| c.parse().unwrap());
                self.keys
                    .insert(text[1].into(), TDigest::new(compression, Quota::UNLIMITED).unwrap());
                return ok();
            }
            ("TDIGEST.MERGE", _) => {
                self.merge(&text);
                return ok();
            }
            ("RESTORE", _) => {
                let mut fields = fields(&cmd[3]);
                self.keys.insert(text[1].into(), load(&mut fields, VERSION).unwrap());
                assert!(fields.0.is_empty());
                return ok();
            }
            ("DUMP", _) => {
                self.check_dump(text[1], want);
                return None;
            }
            _ => {}
        }
        let reads = self.reads;
        let digest = self.keys.get_mut(*text.get(1)?)?;
        match text[0] {
            "TDIGEST.RESET" => {
                digest.reset();
                ok()
            }
            "TDIGEST.ADD" => {
                let values: Vec<f64> = text[2..].iter().map(|v| number(v)).collect();
                digest.add_all(&values, Quota::UNLIMITED).unwrap();
                ok()
            }
            "TDIGEST.MIN" => Some(double(digest.min().unwrap_or(f64::NAN))),
            "TDIGEST.MAX" => Some(double(digest.max().unwrap_or(f64::NAN))),
            "TDIGEST.INFO" => {
                let want: Vec<_> = want.as_array().unwrap().iter().skip(1).step_by(2).collect();
                for (field, want) in info(digest, reads).into_iter().zip(want) {
                    assert!(field.is_none_or(|field| *want == field), "{want} in {digest:?}");
                }
                None
            }
            _ => {
                if reads == Reads::Compress && needs_compression(digest, &text) {
                    digest.compress();
                }
                query(digest, &text)
            }
        }
    }

    fn merge(&mut self, text: &[&str]) {
        let sources: usize = text[2].parse().unwrap();
        let (sources, options) = text[3..].split_at(sources);
        let option = |word: &str| options.iter().position(|o| o.eq_ignore_ascii_case(word));
        let compression = option("COMPRESSION").map(|at| options[at + 1].parse().unwrap());
        let kept = option("OVERRIDE").is_none().then(|| self.keys.get(text[1])).flatten();
        let digests: Vec<_> = sources.iter().map(|key| &self.keys[*key]).collect();
        let result = TDigest::merge(kept, &digests, compression, Quota::UNLIMITED).unwrap();
        if self.reads == Reads::Compress {
            sources.iter().for_each(|key| self.keys.get_mut(*key).unwrap().compress());
        }
        self.keys.insert(text[1].into(), result);
    }

    fn check_dump(&mut self, key: &str, want: &Value) {
        let digest = self.keys.get_mut(key).unwrap();
        let mut saved = Fields::default();
        save(digest, Form::Compressed, &mut saved);
        if self.reads == Reads::Compress {
            digest.compress();
        }
        assert_eq!(saved, fields(&bytes(want)));
    }
}

fn number(text: &str) -> f64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap() as f64,
        None => text.parse().unwrap(),
    }
}

/// The commands that compress in RedisBloom, by their arguments.
fn needs_compression(digest: &TDigest, text: &[&str]) -> bool {
    let (Some(min), Some(max)) = (digest.min(), digest.max()) else { return false };
    text[2..].iter().any(|argument| match text[0] {
        "TDIGEST.RANK" | "TDIGEST.REVRANK" => (min..=max).contains(&number(argument)),
        "TDIGEST.BYRANK" | "TDIGEST.BYREVRANK" => {
            (1..digest.observations()).contains(&argument.parse().unwrap())
        }
        _ => true,
    })
}

fn query(digest: &TDigest, text: &[&str]) -> Option<Value> {
    let view = digest.view().unwrap();
    let real = |f: &dyn Fn(f64) -> f64| text[2..].iter().map(|v| double(f(number(v)))).collect();
    let rank = |f: &dyn Fn(f64) -> Option<i64>| {
        text[2..].iter().map(|v| Value::from(f(number(v)).unwrap_or(-2))).collect()
    };
    let by_rank =
        |f: &dyn Fn(u64) -> f64| text[2..].iter().map(|v| double(f(v.parse().unwrap()))).collect();
    Some(match text[0] {
        "TDIGEST.QUANTILE" => real(&|q| view.quantile(q)),
        "TDIGEST.CDF" => real(&|value| view.cdf(value)),
        "TDIGEST.RANK" => rank(&|value| view.rank(value)),
        "TDIGEST.REVRANK" => rank(&|value| view.reverse_rank(value)),
        "TDIGEST.BYRANK" => by_rank(&|rank| view.by_rank(rank)),
        "TDIGEST.BYREVRANK" => by_rank(&|rank| view.by_reverse_rank(rank)),
        "TDIGEST.TRIMMED_MEAN" => double(view.trimmed_mean(number(text[2]), number(text[3]))),
        _ => return None,
    })
}

fn replay(reads: Reads) -> usize {
    let mut replay = Replay { reads, keys: HashMap::new(), checked: 0 };
    let mut section = String::new();
    for line in transcript() {
        let (name, want) = (line["section"].as_str().unwrap(), &line["resp2"]);
        // Several commands answer at once there.
        if name == "tdigest-ttl-and-multi" {
            continue;
        }
        if name != section {
            replay.keys.clear();
            section = name.into();
        }
        let cmd: Vec<_> = line["cmd"].as_array().unwrap().iter().map(bytes).collect();
        let Some(got) = replay.answer(&cmd, want) else { continue };
        replay.checked += 1;
        // NaN there, the maximum here.
        let beaten = name == "flaw-tdigest-nan-on-nonempty";
        let want = if beaten { replace_nan(normal(want)) } else { normal(want) };
        assert_eq!(got, want, "{section}: {}", line["cmd"]);
    }
    replay.checked
}

fn replace_nan(reply: Value) -> Value {
    match reply {
        Value::Array(items) => items.into_iter().map(replace_nan).collect(),
        nan if nan == double(f64::NAN) => double(2.0),
        other => other,
    }
}

#[test]
fn a_digest_that_is_compressed_on_reads_agrees_with_redisbloom_in_every_field() {
    assert!(replay(Reads::Compress) > 300);
}

#[test]
fn replies_agree_with_redisbloom_although_reads_change_nothing() {
    assert!(replay(Reads::LeaveAlone) > 300);
}
