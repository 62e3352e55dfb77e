//! Rebuilds a filter from the database while it is in use, and swaps it in by RENAME.
//!
//!     cargo run --example rebuild_and_swap -- 100000
//!
//! A Bloom filter cannot forget items and may have been made too small. Both are
//! cured by a new filter built beside the old one:
//!
//! 1. `BF.RESERVE` a second key, sized for today.
//! 2. Read the database into it.
//! 3. `RENAME` it over the first key: every reader sees the old filter or the new
//!    one, whole, and nothing in between.
//!
//! New items come in all the while. A writer stores an item in the database, then in
//! the second key if there is one (`BF.INSERT ... NOCREATE`), then in the first.
//! In this order no item can be lost: if the writer found no second key, then either
//! it was not made yet, and step 2 will read the item from the database; or it has
//! become the first key, to which the writer turns next.
//!
//! Here one thread adds users and two look up users that exist, while the main thread
//! deletes half of the first users and rebuilds three times. The argument is the
//! number of users at the start. In a cluster both keys need the same hash tag, as here.

mod support;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use redis::Commands;
use support::{Failure, Progress, commas};

const LIVE: &str = "{users}";
const NEXT: &str = "{users}:next";
const ERROR_RATE: f64 = 0.01;
const SWAPS: u64 = 3;
/// Items in one command.
const BATCH: usize = 500;

fn main() -> Result<(), Failure> {
    let users = support::number(1, 100_000)?;
    let server = support::Server::find()?;
    println!("{}", run(server.client(), users)?);
    Ok(())
}

/// What happened during the rebuilds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) users: u64,
    pub(crate) deleted: u64,
    /// Users added during the rebuilds.
    pub(crate) added: u64,
    /// Look-ups of users that exist.
    pub(crate) checks: u64,
    /// Look-ups that did not find one; there must be none.
    pub(crate) false_negatives: u64,
    /// Users that exist at the end and that the last filter does not know; none too.
    pub(crate) lost: u64,
    /// Deleted users that the filter still reported before the first rebuild.
    pub(crate) stale_before: u64,
    /// And after the last: its false positives.
    pub(crate) stale_after: u64,
    pub(crate) swaps: u64,
}

/// What the threads share.
#[derive(Default)]
struct Site {
    /// The users that exist, standing for a database.
    database: Mutex<Vec<u64>>,
    added: AtomicU64,
    checks: AtomicU64,
    false_negatives: AtomicU64,
    done: AtomicBool,
}

impl Site {
    fn users(&self) -> MutexGuard<'_, Vec<u64>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rebuilds the filter of so many users under load.
pub(crate) fn run(client: &redis::Client, users: u64) -> Result<Report, Failure> {
    let mut connection = client.get_connection()?;
    connection.del::<_, ()>(&[LIVE, NEXT])?;
    let site = Site::default();
    site.users().extend(0..users);
    build(&mut connection, LIVE, &site.users())?;

    // Delete every other user; the filter does not notice.
    let deleted: Vec<u64> = (0..users).step_by(2).collect();
    site.users().retain(|user| user % 2 == 1);
    let stale_before = count(&mut connection, &deleted)?;

    // Readers ask for these alone: one that is being added may be in the database a
    // moment before it is in the filter.
    let lasting = site.users().clone();
    let rebuilt = thread::scope(|scope| {
        let threads = [
            scope.spawn(|| add_users(client, &site, users)),
            scope.spawn(|| look_up(client, &site, &lasting, 1)),
            scope.spawn(|| look_up(client, &site, &lasting, 2)),
        ];
        let rebuilt = rebuild(&mut connection, &site);
        site.done.store(true, Ordering::Relaxed);
        let mut ends = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        rebuilt.and(ends.try_for_each(|end| end))
    });
    rebuilt?;

    let left = site.users().clone();
    let report = Report {
        users,
        deleted: deleted.len() as u64,
        added: site.added.into_inner(),
        checks: site.checks.into_inner(),
        false_negatives: site.false_negatives.into_inner(),
        lost: left.len() as u64 - count(&mut connection, &left)?,
        stale_before,
        stale_after: count(&mut connection, &deleted)?,
        swaps: SWAPS,
    };
    connection.del::<_, ()>(LIVE)?;
    Ok(report)
}

/// The main thread's part: a new filter beside the old one, then the swap.
fn rebuild(connection: &mut redis::Connection, site: &Site) -> Result<(), Failure> {
    for _ in 0..SWAPS {
        let size = site.users().len();
        reserve(connection, NEXT, size)?;
        // Read only now that writers find the second key.
        let users = site.users().clone();
        let mut progress = Progress::new("rebuild", users.len() as u64);
        for (index, some) in users.chunks(BATCH).enumerate() {
            redis::cmd("BF.MADD").arg(NEXT).arg(some).exec(connection)?;
            progress.at((index * BATCH + some.len()) as u64);
        }
        connection.rename::<_, _, ()>(NEXT, LIVE)?;
    }
    Ok(())
}

fn build(connection: &mut redis::Connection, key: &str, users: &[u64]) -> Result<(), Failure> {
    reserve(connection, key, users.len())?;
    for some in users.chunks(BATCH) {
        redis::cmd("BF.MADD").arg(key).arg(some).exec(connection)?;
    }
    Ok(())
}

/// Makes an empty filter with room for growth.
fn reserve(connection: &mut redis::Connection, key: &str, users: usize) -> Result<(), Failure> {
    let capacity = (users + users / 2).max(1000);
    redis::cmd("BF.RESERVE").arg(key).arg(ERROR_RATE).arg(capacity).exec(connection)?;
    Ok(())
}

/// The writer: database, second key, first key.
fn add_users(client: &redis::Client, site: &Site, first: u64) -> Result<(), Failure> {
    let mut connection = client.get_connection()?;
    let mut user = first;
    while !site.done.load(Ordering::Relaxed) {
        site.users().push(user);
        let mut insert = redis::cmd("BF.INSERT");
        let inserted =
            insert.arg(NEXT).arg("NOCREATE").arg("ITEMS").arg(user).exec(&mut connection);
        match inserted {
            // No rebuild is going on.
            Err(error) if error.to_string().contains("not found") => {}
            other => other?,
        }
        redis::cmd("BF.ADD").arg(LIVE).arg(user).exec(&mut connection)?;
        site.added.store(user + 1 - first, Ordering::Release);
        user += 1;
    }
    Ok(())
}

/// A reader: looks up each `step`th of the users, all around.
fn look_up(client: &redis::Client, site: &Site, users: &[u64], step: usize) -> Result<(), Failure> {
    let mut connection = client.get_connection()?;
    let mut next = 0;
    while !site.done.load(Ordering::Relaxed) && !users.is_empty() {
        let some: Vec<u64> = (0..20).map(|i| users[(next + i * step) % users.len()]).collect();
        next = (next + 20 * step) % users.len();
        let found: Vec<bool> =
            redis::cmd("BF.MEXISTS").arg(LIVE).arg(&some).query(&mut connection)?;
        site.checks.fetch_add(found.len() as u64, Ordering::Relaxed);
        let missed = found.iter().filter(|found| !**found).count() as u64;
        site.false_negatives.fetch_add(missed, Ordering::Relaxed);
    }
    Ok(())
}

/// How many of the users the filter reports.
fn count(connection: &mut redis::Connection, users: &[u64]) -> Result<u64, Failure> {
    let mut count = 0;
    for some in users.chunks(BATCH) {
        let found: Vec<bool> = redis::cmd("BF.MEXISTS").arg(LIVE).arg(some).query(connection)?;
        count += found.iter().filter(|found| **found).count() as u64;
    }
    Ok(count)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, count) in [
            ("users at the start", self.users),
            ("deleted from the database", self.deleted),
            ("  still reported before", self.stale_before),
            ("  still reported after", self.stale_after),
            ("swaps", self.swaps),
            ("users added meanwhile", self.added),
            ("users looked up meanwhile", self.checks),
            ("  not found", self.false_negatives),
        ] {
            writeln!(f, "{label:<32} {:>12}", commas(count))?;
        }
        write!(f, "{:<32} {:>12}", "users lost in the end", commas(self.lost))
    }
}
