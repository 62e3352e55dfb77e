//! Who knows what a filter holds cannot find items that it wrongly reports, unless the
//! filter has RedisBloom's layout, whose hash functions have no secret.

mod common;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use common::{Reply, Server, own_arguments};
use ferrobloom::structures::bloom::{Filter, Params};
use ferrobloom::structures::quota::Quota;

const PARAMS: Params = Params { capacity: 5_000, error_rate: 0.01, expansion: 2, scaling: true };
/// What the filter of the victim holds: numbers from 0 on, as IDs are.
const IDS: u64 = 5_000;
/// Items that the attacker brings.
const CHOSEN: usize = 2_000;
/// The most of those that may pass: a hundredth, and five standard deviations.
const AT_MOST: usize = 20 + 23;

/// The first items not among the IDs that `filter`, once it holds them, reports.
fn false_positives(mut filter: Filter) -> Vec<String> {
    for id in 0..IDS {
        filter.insert(id.to_string().as_bytes(), Quota::UNLIMITED).expect("room");
    }
    let others = (IDS..).map(|id| id.to_string());
    others.filter(|id| filter.contains(id.as_bytes())).take(CHOSEN).collect()
}

/// Of a copy of the victim's filter, as anyone can make it who knows the IDs.
fn chosen_with_the_public_hash() -> Vec<String> {
    false_positives(Filter::redisbloom(PARAMS, Quota::UNLIMITED).expect("memory"))
}

/// Of a filter in our own layout, with a seed that is not the victim's.
fn chosen_with_another_seed() -> Vec<String> {
    let seed = RandomState::new().hash_one(0);
    false_positives(Filter::blocked(PARAMS, seed, Quota::UNLIMITED).expect("memory"))
}

/// How many of `items` a new filter on the server reports, once it holds the IDs.
fn passed(server: &Server, items: &[String]) -> usize {
    let mut connection = server.resp2();
    let (rate, capacity) = (PARAMS.error_rate.to_string(), PARAMS.capacity.to_string());
    connection.line("DEL seen");
    let reply = connection.call(&["BF.RESERVE", "seen", &rate, &capacity]);
    assert_eq!(reply, Reply::ok());
    let ids: Vec<String> = (0..IDS).map(|id| id.to_string()).collect();
    connection.call(&[&["BF.MADD".to_owned(), "seen".to_owned()], &ids[..]].concat());
    let query = [&["BF.MEXISTS".to_owned(), "seen".to_owned()], items].concat();
    let reply = connection.call(&query);
    let found = reply.array().expect("an array");
    assert_eq!(found.len(), items.len());
    found.iter().filter(|found| **found == Reply::Int(1)).count()
}

#[test]
fn items_chosen_with_the_public_hash_always_pass_a_filter_of_redisblooms_layout() {
    if !own_arguments() {
        return;
    }
    let server = Server::builder().module_args(&["bf-layout", "redisbloom"]).start();
    let items = chosen_with_the_public_hash();
    assert_eq!(passed(&server, &items), CHOSEN);
}

#[test]
fn chosen_items_pass_a_filter_with_a_secret_seed_no_more_often_than_others() {
    if !own_arguments() {
        return;
    }
    let server = Server::builder().module_args(&["bf-layout", "blocked"]).start();
    for items in [chosen_with_the_public_hash(), chosen_with_another_seed()] {
        // Each time the filter has a new seed.
        for _ in 0..5 {
            let passed = passed(&server, &items);
            assert!(passed <= AT_MOST, "{passed} of {CHOSEN}");
        }
    }
}

/// The items that pass one filter do not pass the next: each key has a seed of its own.
#[test]
fn every_key_has_a_seed_of_its_own() {
    if !own_arguments() {
        return;
    }
    let server = Server::builder().module_args(&["bf-layout", "blocked"]).start();
    let mut connection = server.resp2();
    let keys: Vec<String> = (0..100).map(|i| format!("k{i}")).collect();
    let mut dumps: Vec<Vec<u8>> = Vec::new();
    for key in &keys {
        connection.call(&["BF.MADD", key, "a", "b", "c"]);
        dumps.push(connection.call(&["DUMP", key]).bytes().expect("a payload").to_vec());
    }
    dumps.sort_unstable();
    dumps.dedup();
    assert_eq!(dumps.len(), keys.len());
}
