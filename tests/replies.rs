//! Every reply of the golden transcripts, in RESP2 and RESP3: what RedisBloom's
//! clients see must be what they see from RedisBloom, exactly.

mod common;

use std::collections::BTreeSet;

use common::golden::{self, FOOTER, Step, shorten};
use common::{Kind, Protocol, Reply, Server, skip};

/// Differences from RedisBloom that are meant, with the reason.
struct Accepted {
    section: &'static str,
    /// The commands as text, or their start with `*` for the rest. Each must stand for a
    /// reply that does differ.
    commands: &'static [&'static str],
    /// Why a reply other than RedisBloom's is right.
    reason: &'static str,
}

const FULL_OPTIONS: &str = "options are read in full and unknown words are refused: BF.INSERT ... \
                            EX 10 must not set the expansion, nor a misspelt word vanish";
const KEY_IS_NO_OPTION: &str = "a key that is named like an option is a key";
const MERGE_KEYS: &str = "CMS.MERGE declares its source keys, so ACL rules and clusters see them";

const ACCEPTED: &[Accepted] = &[
    Accepted {
        section: "bf_reserve_quirks",
        commands: &[
            "BF.RESERVE k 0.01 100 FOO",
            "BF.RESERVE k1 0.01 100 FOO BAR",
            "BF.RESERVE k2 0.01 100 FOO BAR BAZ",
            "BF.RESERVE k3 0.01 100 FOO EXPANSION 5",
            "BF.RESERVE k4 0.01 100 FOO EXPANSION 5",
            "BF.RESERVE k5 0.01 100 EXPANSION 5 FOO",
            "BF.RESERVE k6 0.01 100 EXPANSION 5 3",
            "BF.RESERVE k7 0.01 100 EXPANSION 3 EXPANSION",
            "BF.INFO k*",
        ],
        reason: FULL_OPTIONS,
    },
    Accepted {
        section: "bf_reserve_quirks",
        commands: &[
            "BF.INFO NONSCALING",
            "BF.RESERVE nonscaling*",
            "BF.RESERVE EXPANSION*",
            "BF.RESERVE expansion*",
        ],
        reason: KEY_IS_NO_OPTION,
    },
    Accepted {
        section: "bf_insert_prefix_quirks",
        commands: &["BF.INSERT*", "BF.DEBUG*", "BF.INFO*"],
        reason: FULL_OPTIONS,
    },
    Accepted {
        section: "cf_reserve_quirks",
        commands: &[
            "CF.RESERVE k 100 FOO 5",
            "CF.RESERVE k1 100 FOO BAR*",
            "CF.RESERVE k3 100 BUCKETSIZE 4 FOO 5*",
            "CF.DEBUG k*",
        ],
        reason: FULL_OPTIONS,
    },
    Accepted {
        section: "cf_reserve_quirks",
        commands: &[
            "CF.RESERVE BUCKETSIZE 100",
            "CF.RESERVE bucketsize*",
            "CF.RESERVE expansion*",
            "CF.DEBUG MAXITERATIONS",
            "CF.DEBUG EXPANSION",
            "CF.DEBUG maxiterations",
            "CF.DEBUG bucketsize",
        ],
        reason: KEY_IS_NO_OPTION,
    },
    Accepted {
        section: "cf_insert_prefix_quirks",
        commands: &["CF.INSERT *", "CF.INSERTNX *", "CF.DEBUG*"],
        reason: FULL_OPTIONS,
    },
    Accepted {
        section: "cf_max_expansions_lenient",
        commands: &["CF.INSERT m *", "CF.DEBUG m"],
        reason: "cf-max-expansions holds inside a command too: one CF.INSERT must not block for long",
    },
    Accepted {
        section: "cf_loadchunk_lenient",
        commands: &["CF.LOADCHUNK h0 *", "CF.LOADCHUNK h1 *", "CF.INFO h*", "CF.SCANDUMP h*"],
        reason: "headers that contradict themselves are refused",
    },
    Accepted {
        section: "flaw-cms-count-wraps-negative",
        commands: &["CMS.INFO k"],
        reason: "the count of a full sketch stays at its limit instead of starting over below zero",
    },
    Accepted {
        section: "flaw-cms-key-named-weights",
        commands: &["CMS.MERGE d 1 weights*", "CMS.MERGE d 2 q weights", "CMS.MERGE d 2 weights q"],
        reason: KEY_IS_NO_OPTION,
    },
    Accepted {
        section: "flaw-cms-merge-getkeys",
        commands: &["COMMAND GETKEYS CMS.MERGE*"],
        reason: MERGE_KEYS,
    },
    Accepted {
        section: "command-info-redis8.2",
        commands: &["COMMAND INFO cms.merge"],
        reason: MERGE_KEYS,
    },
    Accepted {
        section: "quirk-topk-withcount-prefix",
        commands: &[
            "TOPK.LIST k w",
            "TOPK.LIST k With",
            "TOPK.LIST k WITHCOUN",
            "TOPK.LIST k ",
            "TOPK.LIST k WITHCOUNT\\x00z",
            "TOPK.LIST nokey w",
        ],
        reason: FULL_OPTIONS,
    },
    Accepted {
        section: "flaw-topk-nul-bytes",
        commands: &["TOPK.LIST k WITHCOUNT", "TOPK.ADD k x y", "TOPK.ADD k y y x x"],
        reason: "items are bytes, and what follows a NUL belongs to them",
    },
    Accepted {
        section: "flaw-topk-zero-increment",
        commands: &["TOPK.QUERY k ghost", "TOPK.ADD k a b"],
        reason: "an increment of 0 does not put an item on the list",
    },
    Accepted {
        section: "flaw-tdigest-nan-on-nonempty",
        commands: &["TDIGEST.BYRANK k 37*", "TDIGEST.QUANTILE k 0.95*"],
        reason: "a digest with values in it has a value at every rank",
    },
    Accepted {
        section: "flaw-tdigest-merge-drops-ttl",
        commands: &["PERSIST d"],
        reason: "a merge changes the destination's value and not its time to live",
    },
    Accepted {
        section: "flaw-copy-unsupported",
        commands: &["COPY c c2", "COPY t t2", "COPY d d2"],
        reason: "keys of the module can be copied",
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
fn every_accepted_difference_names_a_step_of_the_transcripts() {
    let steps = golden::transcripts();
    let named: BTreeSet<_> = steps.iter().flat_map(accepted_for).collect();
    let all = ACCEPTED.iter().flat_map(|entry| {
        entry.commands.iter().map(|command| (entry.section, *command, entry.reason))
    });
    assert_eq!(all.filter(|entry| !named.contains(entry)).collect::<Vec<_>>(), []);
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
    let (mut met, mut used) = (BTreeSet::new(), BTreeSet::new());
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
        let excuses = accepted_for(step);
        met.extend(&excuses);
        let want = normal(step, step.reply(protocol).clone(), kind);
        let got = normal(step, got, kind);
        if want.same(&got, kind.prints_long_doubles()) {
            continue;
        }
        if excuses.is_empty() {
            let (want, got) = (shorten(&want.to_string(), 400), shorten(&got.to_string(), 400));
            differences
                .push(format!("{section}: {}\n    want {want}\n    got  {got}", step.text()));
        }
        used.extend(excuses);
    }
    assert!(compared > 0, "no reply was compared");
    assert!(
        differences.is_empty(),
        "{} of {compared} replies differ from RedisBloom's, the first being\n{}",
        differences.len(),
        differences[..differences.len().min(SHOWN)].join("\n")
    );
    let unused: Vec<_> = met.difference(&used).collect();
    assert!(unused.is_empty(), "accepted differences that are none: {unused:?}");
}

/// Section, command and reason of every accepted difference that this step falls under.
fn accepted_for(step: &Step) -> Vec<(&'static str, &'static str, &'static str)> {
    let text = step.text();
    let falls_under = |command: &str| match command.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == command,
    };
    let entries = ACCEPTED.iter().filter(|entry| entry.section == step.section);
    let all = entries.flat_map(|e| e.commands.iter().map(|c| (e.section, *c, e.reason)));
    all.filter(|(_, command, _)| falls_under(command)).collect()
}

/// Whether the recorded reply holds for this server.
fn is_comparable(step: &Step, kind: Kind) -> bool {
    // Only DUMP's footer, which is not compared, makes these depend on the server.
    let is_dump = step.section.contains("-dump-");
    if step.section.ends_with("-redis8.2") && !is_dump {
        return kind.redis_at_least(8, 0);
    }
    match step.section.as_str() {
        // Redis 6.2 does not know a module command's arity and queues what later servers refuse.
        "scripts_and_transactions" => !kind.is_redis_6(),
        _ => true,
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
/// names, and the spelling of the command's name in Redis 6.2's error about arity; and
/// without what the module tells otherwise on purpose.
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
        ("COMMAND", reply) => without_finer_key_flags(reply),
        ("TDIGEST.INFO" | "EXEC", reply) => golden::without_compression_state(reply),
        (_, reply) => reply,
    }
}

fn without_prefix(reply: Reply) -> Reply {
    let bare = |text: &str| text.replace("bf.bf-", "bf-").replace("bf.cf-", "cf-");
    match reply {
        Reply::Error(text) => Reply::Error(bare(&text)),
        Reply::Bulk(bytes) => Reply::Bulk(bare(&String::from_utf8_lossy(&bytes)).into_bytes()),
        other => other.map_elements(without_prefix),
    }
}

/// COMMAND INFO without the key flags that RedisBloom leaves out: without them a server
/// asks a user for neither read nor write permission on the key.
fn without_finer_key_flags(reply: Reply) -> Reply {
    let is_finer =
        |flag: &Reply| matches!(flag.text(), Some("access" | "update" | "insert" | "delete"));
    let reply = match reply {
        Reply::Array(elements) => {
            Reply::Array(elements.into_iter().filter(|e| !is_finer(e)).collect())
        }
        Reply::Set(elements) => Reply::Set(elements.into_iter().filter(|e| !is_finer(e)).collect()),
        other => other,
    };
    reply.map_elements(without_finer_key_flags)
}
