//! Every reply of the golden transcripts, in RESP2 and RESP3: what RedisBloom's
//! clients see must be what they see from RedisBloom, exactly.

mod common;

use common::golden::{self, FOOTER, Step, shorten};
use common::{Kind, Protocol, Reply, Server, skip};

/// A difference from RedisBloom that is meant, with the reason.
struct Accepted {
    /// A section's name, with `*` for any text at its start or end.
    section: &'static str,
    /// The start of the command's text; empty for every command of the section.
    command: &'static str,
    /// Why a reply other than RedisBloom's is right.
    reason: &'static str,
}

/// Replayed like all others, to see that the server stays up, but not compared.
const ACCEPTED: &[Accepted] = &[
    Accepted {
        section: "*_quirks",
        command: "",
        reason: "options are read in full and unknown words are refused: BF.INSERT ... EX 10 \
                 must not set the expansion, nor a misspelt word vanish",
    },
    Accepted {
        section: "*_lenient",
        command: "",
        reason: "chunks and payloads that contradict themselves are refused",
    },
    Accepted {
        section: "quirk-*",
        command: "",
        reason: "options are read in full: WITHCOUNT has no abbreviations",
    },
    Accepted {
        section: "flaw-*",
        command: "",
        reason: "flaws of RedisBloom that the module does not copy",
    },
];

/// How many differences a failed test prints.
const SHOWN: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Bloom,
    Cuckoo,
    CountMin,
    TopK,
    TDigest,
    /// Sections across families: persistence, scripts, settings, command tables.
    Server,
}

fn family(section: &str) -> Family {
    let name = section.trim_start_matches("flaw-").trim_start_matches("quirk-");
    let starts = [
        ("bf_", Family::Bloom),
        ("cf_", Family::Cuckoo),
        ("cms-", Family::CountMin),
        ("topk-", Family::TopK),
        ("tdigest-", Family::TDigest),
    ];
    let found = starts.iter().find(|(start, _)| name.starts_with(start));
    found.map_or(Family::Server, |&(_, family)| family)
}

#[test]
fn bloom_replies_are_redisblooms_in_resp2() {
    replay(Family::Bloom, Protocol::Resp2);
}

#[test]
fn bloom_replies_are_redisblooms_in_resp3() {
    replay(Family::Bloom, Protocol::Resp3);
}

#[test]
fn cuckoo_replies_are_redisblooms_in_resp2() {
    replay(Family::Cuckoo, Protocol::Resp2);
}

#[test]
fn cuckoo_replies_are_redisblooms_in_resp3() {
    replay(Family::Cuckoo, Protocol::Resp3);
}

#[test]
fn count_min_replies_are_redisblooms_in_resp2() {
    replay(Family::CountMin, Protocol::Resp2);
}

#[test]
fn count_min_replies_are_redisblooms_in_resp3() {
    replay(Family::CountMin, Protocol::Resp3);
}

#[test]
fn top_k_replies_are_redisblooms_in_resp2() {
    replay(Family::TopK, Protocol::Resp2);
}

#[test]
fn top_k_replies_are_redisblooms_in_resp3() {
    replay(Family::TopK, Protocol::Resp3);
}

#[test]
fn t_digest_replies_are_redisblooms_in_resp2() {
    replay(Family::TDigest, Protocol::Resp2);
}

#[test]
fn t_digest_replies_are_redisblooms_in_resp3() {
    replay(Family::TDigest, Protocol::Resp3);
}

#[test]
fn replies_across_families_are_redisblooms_in_resp2() {
    replay(Family::Server, Protocol::Resp2);
}

#[test]
fn replies_across_families_are_redisblooms_in_resp3() {
    replay(Family::Server, Protocol::Resp3);
}

#[test]
fn every_accepted_difference_has_a_section_in_the_transcripts() {
    let steps = golden::transcripts();
    for entry in ACCEPTED {
        let used = steps.iter().any(|step| entry.covers(step));
        assert!(used, "{} {}: no such step ({})", entry.section, entry.command, entry.reason);
    }
}

#[test]
fn payload_footers_have_the_checksum_of_the_servers() {
    assert_eq!(golden::crc64(b"123456789"), 0xE9C6_D914_C4B8_D9CA);
}

/// Runs the family's sections in order and compares every reply.
fn replay(family_wanted: Family, protocol: Protocol) {
    let server = Server::builder().module_args(&["bf-layout", "redisbloom"]).start();
    let kind = server.kind();
    if protocol == Protocol::Resp3 && !kind.has_resp3_forms() {
        return skip("the server has no RESP3 replies for modules");
    }
    let mut connection = server.connect(protocol);
    let (mut section, mut compared, mut differences) = (String::new(), 0, Vec::new());
    for step in golden::transcripts().iter().filter(|step| family(&step.section) == family_wanted) {
        let is_new = section != step.section;
        if step.section.starts_with("config_") && !kind.has_module_settings() {
            if is_new {
                skip(&format!("section {}: the server has no module settings", step.section));
            }
            section.clone_from(&step.section);
            continue;
        }
        if is_new {
            section.clone_from(&step.section);
            assert_eq!(connection.line("FLUSHALL"), Reply::ok());
        }
        let got = connection
            .command(&command_for(step, kind))
            .unwrap_or_else(|error| panic!("{section}: {}: {error}", step.text()));
        if !is_comparable(step, kind) {
            continue;
        }
        compared += 1;
        let want = normal(step, step.reply(protocol).clone(), kind);
        let got = normal(step, got, kind);
        if !want.same(&got, kind.prints_long_doubles()) {
            let (want, got) = (shorten(&want.to_string(), 400), shorten(&got.to_string(), 400));
            differences
                .push(format!("{section}: {}\n    want {want}\n    got  {got}", step.text()));
        }
    }
    assert!(compared > 0, "no reply was compared");
    assert!(
        differences.is_empty(),
        "{} of {compared} replies differ from RedisBloom's, the first being\n{}",
        differences.len(),
        differences[..differences.len().min(SHOWN)].join("\n")
    );
}

/// Whether the recorded reply holds for this server and is one that the module is to give.
fn is_comparable(step: &Step, kind: Kind) -> bool {
    // Only DUMP's footer, which is not compared, makes these depend on the server.
    let is_dump = step.section.contains("-dump-");
    let of_redis_8 = step.section.ends_with("-redis8.2") && !is_dump;
    // Redis 6.2 does not know a module command's arity and queues what later servers refuse.
    let needs_arity = step.section == "scripts_and_transactions";
    (!of_redis_8 || kind.redis_at_least(8, 0))
        && !(needs_arity && kind.is_redis_6())
        && !ACCEPTED.iter().any(|entry| entry.covers(step))
}

impl Accepted {
    fn covers(&self, step: &Step) -> bool {
        let section = &step.section;
        let in_section = match (self.section.strip_prefix('*'), self.section.strip_suffix('*')) {
            (Some(end), _) => section.ends_with(end),
            (_, Some(start)) => section.starts_with(start),
            _ => section == self.section,
        };
        in_section && step.text().starts_with(self.command)
    }
}

/// The command as this server wants it: payloads with a footer it reads, settings by its names.
fn command_for(step: &Step, kind: Kind) -> Vec<Vec<u8>> {
    let mut words = step.command.clone();
    match step.name().as_str() {
        "RESTORE" => words[3] = golden::portable_payload(&words[3]),
        "CONFIG" => {
            for word in words.iter_mut().skip(2) {
                if word.starts_with(b"bf-") || word.starts_with(b"cf-") {
                    *word = kind.setting(&String::from_utf8_lossy(word)).into_bytes();
                }
            }
        }
        _ => {}
    }
    words
}

/// The reply without what belongs to the server: DUMP's footer, the prefix of settings'
/// names, and the spelling of the command's name in Redis 6.2's error about arity.
fn normal(step: &Step, reply: Reply, kind: Kind) -> Reply {
    match (step.name().as_str(), reply) {
        (_, Reply::Error(text)) if kind.is_redis_6() && text.contains("wrong number of arg") => {
            Reply::Error(text.to_lowercase())
        }
        ("DUMP", Reply::Bulk(mut payload)) => {
            payload.truncate(payload.len().saturating_sub(FOOTER));
            Reply::Bulk(payload)
        }
        ("CONFIG", reply) => without_prefix(reply),
        (_, reply) => reply,
    }
}

fn without_prefix(reply: Reply) -> Reply {
    let bare = |text: &str| text.replace("bf.bf-", "bf-").replace("bf.cf-", "cf-");
    match reply {
        Reply::Error(text) => Reply::Error(bare(&text)),
        Reply::Bulk(bytes) => Reply::Bulk(bare(&String::from_utf8_lossy(&bytes)).into_bytes()),
        Reply::Array(elements) => Reply::Array(elements.into_iter().map(without_prefix).collect()),
        Reply::Map(pairs) => {
            Reply::Map(pairs.into_iter().map(|(k, v)| (without_prefix(k), v)).collect())
        }
        other => other,
    }
}
