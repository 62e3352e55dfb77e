//! Replays what was recorded from RedisBloom, the sections about count-min sketch
//! and Top-K, against the cores and codecs: everything but the reading of arguments
//! and the wording of errors.

use std::collections::HashMap;
use std::fs;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ferrobloom::codec::{self, Field, Fields, LoadError};
use ferrobloom::structures::cms::{Dimensions, MergeError, Operand, SATURATED, Sketch};
use ferrobloom::structures::quota::Quota;
use ferrobloom::structures::topk::{Params, TopK};
use serde_json::{Value, json};

/// What stands for an error reply, whatever its text.
fn an_error() -> Value {
    json!("an error")
}

#[derive(Default)]
struct Keys {
    sketches: HashMap<Vec<u8>, Sketch>,
    topks: HashMap<Vec<u8>, TopK>,
}

impl Keys {
    /// The reply; `None` where it is not the core that makes it.
    fn run(&mut self, command: &[Vec<u8>]) -> Option<Value> {
        let key = command.get(1)?;
        let args = &command[2..];
        match &*command[0].to_ascii_uppercase() {
            b"CMS.INITBYDIM" => {
                let dimensions = Dimensions::new(number(&args[0])?, number(&args[1])?);
                Some(self.init(key, dimensions))
            }
            b"CMS.INITBYPROB" => {
                let dimensions = Dimensions::by_probability(real(&args[0])?, real(&args[1])?);
                Some(self.init(key, dimensions))
            }
            b"CMS.INCRBY" => {
                let mut replies = Vec::new();
                let sketch = self.sketches.get_mut(key)?;
                let pairs = pairs(args)?;
                if pairs.iter().any(|pair| i64::try_from(pair.1).is_err()) {
                    return None;
                }
                sketch.increment(&pairs, |estimate| {
                    replies.push(if estimate == SATURATED { an_error() } else { estimate.into() });
                });
                Some(replies.into())
            }
            b"CMS.QUERY" => {
                let mut replies = Vec::<Value>::new();
                self.sketches.get(key)?.query(&items(args), |reply| replies.push(reply.into()));
                Some(replies.into())
            }
            b"CMS.INFO" => {
                let sketch = self.sketches.get(key)?;
                let (width, depth) = (sketch.dimensions().width(), sketch.dimensions().depth());
                Some(json!(["width", width, "depth", depth, "count", sketch.count() as i64]))
            }
            b"CMS.MERGE" => self.merge(key, args),
            b"TOPK.RESERVE" => {
                let numbers: Vec<_> = ["8", "7", "0.9"].map(|s| s.as_bytes().to_vec()).into();
                let rest = if args.len() == 1 { &numbers } else { &args[1..] };
                let [k, width, depth] =
                    [&args[0], &rest[0], &rest[1]].map(|arg| number::<u32>(arg));
                let params = Params::new(k?, width?, depth?, real(&rest[2])?)?;
                let Ok(topk) = TopK::new(params, Quota::UNLIMITED) else {
                    return Some(an_error());
                };
                self.topks.insert(key.clone(), topk);
                Some(json!("OK"))
            }
            b"TOPK.ADD" => {
                let pairs: Vec<_> = args.iter().map(|item| (&item[..], 1)).collect();
                Some(add(self.topks.get_mut(key)?, &pairs).into())
            }
            b"TOPK.INCRBY" => {
                // The pairs before one that cannot be applied.
                let legal = |pair: &(&[u8], u32)| pair.1 <= 100_000;
                let pairs: Vec<_> =
                    args.chunks(2).map_while(|pair| pairs(pair)?.pop().filter(legal)).collect();
                let mut replies = add(self.topks.get_mut(key)?, &pairs);
                replies.extend((2 * pairs.len() < args.len()).then(an_error));
                Some(replies.into())
            }
            b"TOPK.QUERY" => {
                let mut replies = Vec::<Value>::new();
                let topk = self.topks.get(key)?;
                topk.query(&items(args), |listed| replies.push(u8::from(listed).into()));
                Some(replies.into())
            }
            b"TOPK.COUNT" => {
                let mut replies = Vec::<Value>::new();
                self.topks.get(key)?.count(&items(args), |count| replies.push(count.into()));
                Some(replies.into())
            }
            b"TOPK.LIST" if args.iter().all(|word| word.eq_ignore_ascii_case(b"WITHCOUNT")) => {
                let mut replies = Vec::new();
                for listed in self.topks.get(key)?.list().unwrap() {
                    replies.push(text(listed.item));
                    replies.extend((!args.is_empty()).then(|| json!(listed.count)));
                }
                Some(replies.into())
            }
            b"TOPK.INFO" => {
                let params = self.topks.get(key)?.params();
                let (k, width, depth) = (params.k(), params.width(), params.depth());
                let decay = real(params.decay().to_string().as_bytes())?;
                Some(json!(["k", k, "width", width, "depth", depth, "decay", decay]))
            }
            b"DEL" => {
                let deleted =
                    self.sketches.remove(key).is_some() | self.topks.remove(key).is_some();
                Some(json!(u8::from(deleted)))
            }
            b"RESTORE" => {
                if self.sketches.contains_key(key) && args.len() == 2 {
                    return Some(an_error());
                }
                let loaded = self.restore(key, &args[1]);
                Some(if loaded.is_ok() { json!("OK") } else { an_error() })
            }
            _ => None,
        }
    }

    fn init(&mut self, key: &[u8], dimensions: Option<Dimensions>) -> Value {
        if self.sketches.contains_key(key) {
            return an_error();
        }
        let sketch = dimensions.and_then(|size| Sketch::new(size, Quota::UNLIMITED).ok());
        let Some(sketch) = sketch else { return an_error() };
        self.sketches.insert(key.to_vec(), sketch);
        json!("OK")
    }

    fn merge(&mut self, key: &[u8], args: &[Vec<u8>]) -> Option<Value> {
        let count: usize = number(&args[0])?;
        let well_formed = match args.get(count.checked_add(1)?) {
            Some(word) => word.eq_ignore_ascii_case(b"WEIGHTS") && args.len() == 2 * count + 2,
            None => count > 0,
        };
        let names = args.get(1..=count).filter(|_| well_formed)?;
        let weights = match args.get(count + 2..) {
            Some(weights) => weights.iter().map(|w| number(w)).collect::<Option<Vec<i64>>>()?,
            None => vec![1; count],
        };
        let mut destination = self.sketches.remove(key)?;
        let sources = names.iter().zip(weights).map(|(name, weight)| {
            let source = if name == key {
                Operand::Destination
            } else {
                Operand::Other(self.sketches.get(name)?)
            };
            Some((source, weight))
        });
        let sources: Option<Vec<_>> = sources.collect();
        let reply = sources.map(|sources| match destination.merge(&sources) {
            Ok(()) => json!("OK"),
            Err(MergeError::Dimensions | MergeError::Overflow) => an_error(),
        });
        self.sketches.insert(key.to_vec(), destination);
        reply
    }

    /// Loads a value, and saves and loads it once more.
    fn restore(&mut self, key: &[u8], payload: &[u8]) -> Result<(), LoadError> {
        let (module_type, version, mut fields) = module_value(payload);
        match module_type {
            "CMSk-TYPE" => {
                let sketch = codec::cms::load(&mut fields, version)?;
                let mut saved = Fields::default();
                codec::cms::save(&sketch, &mut saved);
                assert_eq!(codec::cms::load(&mut saved, version).as_ref(), Ok(&sketch));
                self.sketches.insert(key.to_vec(), sketch);
            }
            "TopK-TYPE" => {
                let topk = codec::topk::load(&mut fields, version)?;
                let mut saved = Fields::default();
                codec::topk::save(&topk, &mut saved);
                assert_eq!(codec::topk::load(&mut saved, version).as_ref(), Ok(&topk));
                self.topks.insert(key.to_vec(), topk);
            }
            _ => return Err(LoadError::Inconsistent("type")),
        }
        // The server refuses what a loader leaves over.
        if fields.0.is_empty() { Ok(()) } else { Err(LoadError::ShortRead) }
    }
}

fn add(topk: &mut TopK, pairs: &[(&[u8], u32)]) -> Vec<Value> {
    let mut replies = Vec::new();
    topk.add(pairs, Quota::UNLIMITED, |expelled| {
        replies.push(expelled.unwrap().map_or(Value::Null, |item| text(&item)));
    });
    replies
}

fn items(args: &[Vec<u8>]) -> Vec<&[u8]> {
    args.iter().map(|item| &item[..]).collect()
}

fn pairs<N: FromStr + ToString>(args: &[Vec<u8>]) -> Option<Vec<(&[u8], N)>> {
    args.chunks(2).map(|pair| Some((&pair[0][..], number(pair.get(1)?)?))).collect()
}

/// A number as the server takes it: written the one shortest way.
fn number<N: FromStr + ToString>(arg: &[u8]) -> Option<N> {
    let text = std::str::from_utf8(arg).ok()?;
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

fn real(arg: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(arg).ok()?.parse().ok()?;
    (number > 0.0 && number <= 1.0).then_some(number)
}

/// Bytes as the transcript has them.
fn text(bytes: &[u8]) -> Value {
    let printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    match std::str::from_utf8(bytes) {
        Ok(text) if printable => text.into(),
        _ => json!({ "b64": BASE64_STANDARD.encode(bytes) }),
    }
}

/// A recorded reply with what this test does not look at taken away: the texts of
/// errors, and the kind of strings.
fn plain(reply: &Value) -> Value {
    match reply {
        Value::Array(elements) => elements.iter().map(plain).collect(),
        Value::Object(fields) if fields.contains_key("error") => an_error(),
        Value::Object(fields) => fields.get("ok").unwrap_or(reply).clone(),
        _ => reply.clone(),
    }
}

fn argument(arg: &Value) -> Vec<u8> {
    match arg.as_str() {
        Some(text) => text.into(),
        None => BASE64_STANDARD.decode(arg["b64"].as_str().unwrap()).unwrap(),
    }
}

/// Type name, encoding version and fields of a module value in a DUMP payload.
fn module_value(payload: &[u8]) -> (&'static str, i32, Fields) {
    const MODULE_2: u8 = 7;
    const FOOTER: usize = 10;
    let mut bytes = &payload[..payload.len() - FOOTER];
    assert_eq!(take(&mut bytes, 1), [MODULE_2]);
    let id = length(&mut bytes);
    let module_type = match id >> 10 {
        name if name == 0x08c4_a4f9_360f_1000 >> 10 => "CMSk-TYPE",
        name if name == 0x4e8a_4af9_360f_1000 >> 10 => "TopK-TYPE",
        name => panic!("unknown type {name:x}"),
    };
    let mut fields = Fields::default();
    loop {
        fields.0.push_back(match length(&mut bytes) {
            0 => break,
            2 => Field::Unsigned(length(&mut bytes)),
            4 => Field::Double(f64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            5 => {
                let len = length(&mut bytes) as usize;
                Field::String(take(&mut bytes, len).to_vec())
            }
            opcode => panic!("unknown opcode {opcode}"),
        });
    }
    (module_type, (id & 1023) as i32, fields)
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

/// A length of the RDB format.
fn length(bytes: &mut &[u8]) -> u64 {
    let first = take(bytes, 1)[0];
    let rest = match first {
        0x00..=0x3f => return first.into(),
        0x40..=0x7f => return u64::from(first & 0x3f) << 8 | u64::from(take(bytes, 1)[0]),
        0x80 => take(bytes, 4),
        0x81 => take(bytes, 8),
        _ => panic!("compressed strings do not occur in these sections"),
    };
    rest.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Runs the sections that `wanted` names, each on no keys, and compares the replies.
/// Returns how many were compared.
fn replay(file: &str, wanted: impl Fn(&str) -> bool) -> usize {
    let transcript = fs::read_to_string(file).unwrap();
    let mut keys = Keys::default();
    let (mut section, mut compared) = (String::new(), 0);
    for line in transcript.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["section"].as_str().unwrap();
        if !wanted(name) {
            continue;
        }
        if section != name {
            (section, keys) = (name.into(), Keys::default());
        }
        let command: Vec<_> = line["cmd"].as_array().unwrap().iter().map(argument).collect();
        let Some(reply) = keys.run(&command) else { continue };
        assert_eq!(normal(reply), normal(plain(&line["resp2"])), "{section}: {}", line["cmd"]);
        compared += 1;
    }
    compared
}

#[test]
fn cores_answer_as_redisbloom_did() {
    let about_the_server = ["script", "wrongtype", "arity", "dump"];
    let compared = replay("tests/golden/cms_topk_tdigest_transcript.jsonl", |name| {
        let core = name.starts_with("cms-") || name.starts_with("topk-");
        core && !about_the_server.iter().any(|what| name.contains(what))
    });
    assert!(compared > 400, "only {compared} replies were compared");
}

/// Values that RedisBloom 2.8.2 wrote on Redis 7.0: DUMP payloads made with
/// `rdbcompression no`, and replies after loading them.
#[test]
fn values_of_redisbloom_2_8_2_answer_as_they_did_there() {
    let compared =
        replay("tests/golden/cms_topk_2.8.2_payloads.jsonl", |name| !name.starts_with("flaw-"));
    assert!(compared > 80, "only {compared} replies were compared");
}

/// As recorded, but for two replies: the empty item is there, and an item that is
/// not listed is not in the list either.
#[test]
fn damaged_values_of_redisbloom_2_8_2_load() {
    let mut keys = Keys::default();
    let lines = fs::read_to_string("tests/golden/cms_topk_2.8.2_payloads.jsonl").unwrap();
    for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if line["section"] == "flaw-restored-2.8.2" && line["cmd"][0] == "RESTORE" {
            let command: Vec<_> = line["cmd"].as_array().unwrap().iter().map(argument).collect();
            assert_eq!(keys.run(&command), Some(json!("OK")), "{}", line["cmd"][1]);
        }
    }
    let mut ask = |command: &str| {
        let words: Vec<_> = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        keys.run(&words).unwrap()
    };
    assert_eq!(ask("TOPK.LIST topk:emptyitem WITHCOUNT"), json!(["", 2, "a", 1]));
    assert_eq!(ask("TOPK.LIST topk:nul WITHCOUNT"), json!(["a", 1, "plain", 1, "a", 1]));
    assert_eq!(ask("TOPK.QUERY topk:nul plain a"), json!([1, 0]));
    assert_eq!(ask("TOPK.LIST topk:zero WITHCOUNT"), json!(["real", 5]));
    assert_eq!(ask("TOPK.QUERY topk:zero ghost real"), json!([0, 1]));
}

/// Reals are bulk strings in the transcript.
fn normal(reply: Value) -> Value {
    match reply {
        Value::Array(elements) => elements.into_iter().map(normal).collect(),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap().to_string().into(),
        other => other,
    }
}
