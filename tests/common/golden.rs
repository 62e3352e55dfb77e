//! The golden files of `tests/golden`: transcripts, and the footers of DUMP payloads.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::resp::{Protocol, Reply, golden_argument};

/// The bytes behind a DUMP payload's value: two of RDB version, eight of CRC64.
pub(crate) const FOOTER: usize = 10;

/// The RDB version that every supported server can restore.
const OLDEST_RDB: u16 = 9;

/// The newest RDB version that the golden files were recorded with.
const NEWEST_RDB: u16 = 12;

/// The fields of TDIGEST.INFO that tell when the digest was last compressed.
const COMPRESSION_STATE: &[&str] =
    &["Merged nodes", "Unmerged nodes", "Merged weight", "Unmerged weight", "Total compressions"];

/// One command of a transcript with the replies that RedisBloom gave.
pub(crate) struct Step {
    /// The section it belongs to; each starts on an empty keyspace.
    pub(crate) section: String,
    /// The command's words.
    pub(crate) command: Vec<Vec<u8>>,
    resp2: Reply,
    resp3: Reply,
}

impl Step {
    /// The reply recorded on a connection of this protocol.
    pub(crate) fn reply(&self, protocol: Protocol) -> &Reply {
        match protocol {
            Protocol::Resp2 => &self.resp2,
            Protocol::Resp3 => &self.resp3,
        }
    }

    /// The command's name in upper case.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.command[0]).to_uppercase()
    }

    /// The command as text, shortened for a message.
    pub(crate) fn text(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|w| w.escape_ascii().to_string()).collect();
        shorten(&words.join(" "), 200)
    }
}

/// The path of a golden file.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// All steps of both transcripts, in order.
///
/// # Panics
/// When a file is missing or broken.
pub(crate) fn transcripts() -> Vec<Step> {
    let files = ["bf_cf_transcript.jsonl", "cms_topk_tdigest_transcript.jsonl"];
    files.iter().flat_map(|file| transcript(file)).collect()
}

fn transcript(file: &str) -> Vec<Step> {
    let text = fs::read_to_string(path(file)).expect("a golden transcript");
    text.lines().map(|line| step(&serde_json::from_str(line).expect("a line of JSON"))).collect()
}

fn step(line: &Value) -> Step {
    Step {
        section: line["section"].as_str().expect("a section").to_owned(),
        command: golden_command(&line["cmd"]),
        resp2: Reply::from_golden(&line["resp2"]),
        resp3: Reply::from_golden(&line["resp3"]),
    }
}

/// The words of a command as the golden files spell it.
///
/// # Panics
/// When it is not a list.
pub(crate) fn golden_command(value: &Value) -> Vec<Vec<u8>> {
    value.as_array().expect("a command").iter().map(golden_argument).collect()
}

/// The text, cut after `limit` bytes.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let cut = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}... ({} bytes)", &text[..cut], text.len())
}

/// The payload with a footer that every supported server accepts. Payloads that
/// are broken on purpose (wrong checksum, version of the future) stay as they are.
pub(crate) fn portable_payload(payload: &[u8]) -> Vec<u8> {
    let Some(split) = payload.len().checked_sub(FOOTER) else {
        return payload.to_vec();
    };
    let (value, footer) = payload.split_at(split);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let checked = &payload[..split + 2];
    if crc64(checked).to_le_bytes() != footer[2..] || !(OLDEST_RDB..=NEWEST_RDB).contains(&version)
    {
        return payload.to_vec();
    }
    with_footer(value)
}

/// The value's bytes with the footer that makes them a payload for RESTORE.
pub(crate) fn with_footer(value: &[u8]) -> Vec<u8> {
    let mut payload = value.to_vec();
    payload.extend_from_slice(&OLDEST_RDB.to_le_bytes());
    let checksum = crc64(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// A reply to TDIGEST.INFO, or with one in it, without the values that depend on when the
/// digest was last compressed: RedisBloom compresses on reads, the module only on writes,
/// so that a replica stays like its primary.
pub(crate) fn without_compression_state(reply: Reply) -> Reply {
    let is_state = |name: &Reply| name.text().is_some_and(|name| COMPRESSION_STATE.contains(&name));
    let reply = match reply {
        Reply::Array(mut elements) => {
            for index in 1..elements.len() {
                if is_state(&elements[index - 1]) {
                    elements[index] = Reply::Null;
                }
            }
            Reply::Array(elements)
        }
        Reply::Map(pairs) => {
            let blank = |(k, v)| if is_state(&k) { (k, Reply::Null) } else { (k, v) };
            Reply::Map(pairs.into_iter().map(blank).collect())
        }
        other => other,
    };
    reply.map_elements(without_compression_state)
}

/// The CRC-64 of Jones as the servers use it: reflected polynomial
/// 0xad93d23594c935a9, initial value and final mask 0.
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    const REFLECTED: u64 = 0x95AC_9329_AC4B_C9B5;
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc: u64, _| {
            if crc & 1 == 1 { (crc >> 1) ^ REFLECTED } else { crc >> 1 }
        })
    })
}
