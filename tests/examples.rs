//! The examples do what they say, on a small scale.

#![allow(clippy::duplicate_mod, reason = "every example has the same support module")]

mod common;

#[allow(dead_code, unreachable_pub, reason = "an example has a `main` too")]
#[path = "../examples/cache_penetration_guard.rs"]
mod cache_penetration_guard;
#[allow(dead_code, unreachable_pub, reason = "an example has a `main` too")]
#[path = "../examples/dedup_events.rs"]
mod dedup_events;
#[allow(dead_code, unreachable_pub, reason = "an example has a `main` too")]
#[path = "../examples/offline_build.rs"]
mod offline_build;
#[allow(dead_code, unreachable_pub, reason = "an example has a `main` too")]
#[path = "../examples/rebuild_and_swap.rs"]
mod rebuild_and_swap;

use common::Server;

fn client(server: &Server) -> redis::Client {
    redis::Client::open(format!("redis://{}", server.address())).expect("a URL")
}

#[test]
fn the_guard_keeps_nearly_all_invented_ids_from_the_database() {
    let server = Server::start();
    let report =
        cache_penetration_guard::run(&client(&server), 5000).expect("the example runs through");
    let (without, with) = (&report.without, &report.with);
    assert_eq!((without.requests, with.requests), (5500, 5500));
    // Nine in ten invented IDs are new, and every real user comes once.
    assert_eq!((without.in_vain, without.queries), (4500, 5000));
    assert_eq!((without.nulls, without.blocked), (4500, 0));
    assert_eq!((without.missed, with.missed), (0, 0));
    // A rate of 0.01 lets about 45 of 4500 through.
    assert!((1..150).contains(&with.in_vain), "{with:?}");
    assert_eq!(with.queries, with.in_vain + 500);
    assert_eq!(with.nulls, with.in_vain);
    assert_eq!(with.blocked + with.cached + with.queries, with.requests);
}

#[test]
fn no_event_passes_twice_and_hardly_any_is_lost() {
    let server = Server::start();
    let report = dedup_events::run(&client(&server), 130_000).expect("the example runs through");
    assert_eq!(report.repeated, 0);
    assert!(report.deliveries > report.events, "{report:?}");
    assert_eq!(report.passed, report.events - report.lost);
    assert!(report.lost < 1300, "{report:?}");
    assert!(report.filters >= 3, "{report:?}");
}

#[test]
fn a_swap_under_load_loses_nobody_and_forgets_the_deleted() {
    let server = Server::start();
    let report = rebuild_and_swap::run(&client(&server), 20_000).expect("the example runs through");
    assert_eq!((report.false_negatives, report.lost), (0, 0));
    assert!(report.checks > 0 && report.added > 0, "{report:?}");
    assert_eq!((report.stale_before, report.deleted), (10_000, 10_000));
    assert!(report.stale_after < 500, "{report:?}");
}

#[test]
fn a_filter_built_offline_serves_every_item() {
    let server = Server::start();
    let report = offline_build::run(&client(&server), 50_000).expect("the example runs through");
    assert_eq!((report.missing, report.chunks), (0, 2));
    // A rate of 0.001 makes about 50.
    assert!((1..200).contains(&report.false_positives), "{report:?}");
}
