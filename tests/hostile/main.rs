//! Nothing brings the server down: changed payloads, dump chunks, files and arguments,
//! thousands of them, and after each every command of the family, saving, copying and
//! deleting.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FERROBLOOM_HOSTILE_CASES` | cases per family | 600 |
//! | `FERROBLOOM_HOSTILE_SEED` | which cases | 1 |
//! | `FERROBLOOM_HOSTILE_SECONDS` | processor time that one case may take; a tenth of what counts as a hang | 1 |
//! | `FERROBLOOM_HOSTILE_PEER` | `1`: attacks RedisBloom as well, for its figures | none |

#[path = "../common/mod.rs"]
mod common;

mod campaign;
mod family;
mod files;
mod memory;
mod mutate;
mod random;

use std::env;
use std::io::Write;

use common::own_server;

/// Cases per family in an ordinary run.
const CASES: u64 = 600;

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn attack(name: &str) {
    if !own_server() {
        return;
    }
    let (seed, cases) =
        (number("FERROBLOOM_HOSTILE_SEED", 1), number("FERROBLOOM_HOSTILE_CASES", CASES));
    let family = campaign::family(name);
    let Some(outcome) = campaign::run(&campaign::builder(), family, seed, cases) else {
        common::skip("the module has no such family");
        return;
    };
    report(&outcome.to_string());
    assert!(outcome.is_clean(), "\n{outcome}");
}

/// Prints past the test runner's capture.
fn report(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[test]
fn bloom_filters_survive_hostile_data_and_arguments() {
    attack("BF");
}

#[test]
fn cuckoo_filters_survive_hostile_data_and_arguments() {
    attack("CF");
}

#[test]
fn count_min_sketches_survive_hostile_data_and_arguments() {
    attack("CMS");
}

#[test]
fn topk_sketches_survive_hostile_data_and_arguments() {
    attack("TOPK");
}

#[test]
fn t_digests_survive_hostile_data_and_arguments() {
    attack("TDIGEST");
}

/// The figures of the comparison in SECURITY.md. Nothing is asserted.
#[test]
fn figures_of_redisbloom() {
    if env::var("FERROBLOOM_HOSTILE_PEER").as_deref() != Ok("1") {
        common::skip("set FERROBLOOM_HOSTILE_PEER=1 for RedisBloom's figures");
        return;
    }
    let Some(peer) = common::peer() else { return };
    let (seed, cases) =
        (number("FERROBLOOM_HOSTILE_SEED", 1), number("FERROBLOOM_HOSTILE_CASES", CASES));
    for family in &family::FAMILIES {
        let builder = campaign::builder().with_module(&peer, &[]);
        let outcome =
            campaign::run(&builder, family, seed, cases).expect("RedisBloom has all families");
        report(&format!("RedisBloom: {outcome}"));
    }
}
