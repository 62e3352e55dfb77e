//! Keeps invented IDs away from a database: filter, then cache, then database.
//!
//!     cargo run --example cache_penetration_guard -- 1000000
//!
//! A cache does not help against requests for IDs that do not exist: each asks the
//! database, in vain. Storing "there is no such user" in the cache (null caching)
//! only helps where the same ID comes again, and fills the cache with rubbish. A
//! Bloom filter of the IDs that exist answers nearly all such requests without
//! either; what its false positives let through, null caching deals with.
//!
//! The same requests are played twice, without and with the filter. The argument is
//! the number of requests for invented IDs; one in ten repeats an earlier ID. One
//! more request in ten is for a real user.

mod support;

use std::fmt;
use std::time::{Duration, Instant};

use redis::Commands;
use rusqlite::OptionalExtension;
use support::{Failure, Progress, commas};

const FILTER: &str = "guard:users";
const USERS: u64 = 10_000;
const ERROR_RATE: f64 = 0.01;
/// How long the cache keeps a user, and the word that there is none, in seconds.
const KEEP: u64 = 3600;
const KEEP_NULL: u64 = 60;

fn main() -> Result<(), Failure> {
    let invented = support::number(1, 100_000)?;
    let server = support::Server::find()?;
    println!("{}", run(server.client(), invented)?);
    Ok(())
}

/// What became of the requests of one round.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    /// Answered by the filter alone: there is no such user.
    pub(crate) blocked: u64,
    /// Answered by the cache: a user, or the word that there is none.
    pub(crate) cached: u64,
    pub(crate) queries: u64,
    /// Queries that found nobody.
    pub(crate) in_vain: u64,
    /// Requests for real users that found nobody; there must be none.
    pub(crate) missed: u64,
    /// Entries in the cache at the end that say "there is none".
    pub(crate) nulls: u64,
    pub(crate) time: Duration,
}

/// Both rounds.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) without: Counts,
    pub(crate) with: Counts,
}

/// Plays the attack without and with the filter.
pub(crate) fn run(client: &redis::Client, invented: u64) -> Result<Report, Failure> {
    let mut site = Site::new(client)?;
    let without = site.play("without the filter", invented, false)?;
    let with = site.play("with the filter", invented, true)?;
    site.cache.del::<_, ()>(FILTER)?;
    Ok(Report { without, with })
}

/// A site that shows users by their ID.
struct Site {
    cache: redis::Connection,
    database: rusqlite::Connection,
    counts: Counts,
}

impl Site {
    /// A site with [`USERS`] users, in the database and in the filter.
    fn new(client: &redis::Client) -> Result<Self, Failure> {
        let mut cache = client.get_connection()?;
        let mut database = rusqlite::Connection::open_in_memory()?;
        database.execute("CREATE TABLE users (id TEXT PRIMARY KEY, name TEXT NOT NULL)", ())?;

        cache.del::<_, ()>(FILTER)?;
        let mut reserve = redis::cmd("BF.RESERVE");
        reserve.arg(FILTER).arg(ERROR_RATE).arg(USERS).exec(&mut cache)?;
        let ids: Vec<String> = (0..USERS).map(real_id).collect();
        let transaction = database.transaction()?;
        for id in &ids {
            let name = format!("name of {id}");
            transaction.execute("INSERT INTO users VALUES (?1, ?2)", (id, &name))?;
        }
        transaction.commit()?;
        for some in ids.chunks(1000) {
            redis::cmd("BF.MADD").arg(FILTER).arg(some).exec(&mut cache)?;
        }
        Ok(Self { cache, database, counts: Counts::default() })
    }

    /// Plays all requests with an empty cache.
    fn play(
        &mut self,
        task: &'static str,
        invented: u64,
        guarded: bool,
    ) -> Result<Counts, Failure> {
        self.counts = Counts::default();
        let mut progress = Progress::new(task, invented);
        let start = Instant::now();
        for number in 0..invented {
            self.user(&invented_id(number), guarded)?;
            if number % 10 == 0 {
                let id = real_id(number.wrapping_mul(7919) % USERS);
                let found = self.user(&id, guarded)?;
                self.counts.missed += u64::from(found.is_none());
            }
            progress.at(number + 1);
        }
        self.counts.time = start.elapsed();
        self.counts.nulls = self.empty_cache()?;
        Ok(self.counts.clone())
    }

    /// The name of a user: filter, then cache, then database.
    fn user(&mut self, id: &str, guarded: bool) -> Result<Option<String>, Failure> {
        self.counts.requests += 1;
        if guarded {
            let maybe: bool = redis::cmd("BF.EXISTS").arg(FILTER).arg(id).query(&mut self.cache)?;
            if !maybe {
                self.counts.blocked += 1;
                return Ok(None);
            }
        }
        let entry = format!("guard:user:{id}");
        let cached: Option<String> = self.cache.get(&entry)?;
        if let Some(name) = cached {
            self.counts.cached += 1;
            return Ok((!name.is_empty()).then_some(name));
        }
        self.counts.queries += 1;
        let query = "SELECT name FROM users WHERE id = ?1";
        let name: Option<String> =
            self.database.query_row(query, [id], |row| row.get(0)).optional()?;
        match &name {
            Some(name) => self.cache.set_ex::<_, _, ()>(&entry, name, KEEP)?,
            None => {
                // The empty name says that there is none, and soon asks again.
                self.counts.in_vain += 1;
                self.cache.set_ex::<_, _, ()>(&entry, "", KEEP_NULL)?;
            }
        }
        Ok(name)
    }

    /// Empties the cache and counts its entries without a name.
    fn empty_cache(&mut self) -> Result<u64, Failure> {
        let mut nulls = 0;
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg("guard:user:*").arg("COUNT").arg(1000);
            let (next, entries): (u64, Vec<String>) = scan.query(&mut self.cache)?;
            if !entries.is_empty() {
                let names: Vec<Option<String>> = self.cache.mget(&entries)?;
                nulls += names.iter().filter(|name| name.as_deref() == Some("")).count() as u64;
                self.cache.del::<_, ()>(&entries)?;
            }
            if next == 0 {
                return Ok(nulls);
            }
            cursor = next;
        }
    }
}

fn real_id(number: u64) -> String {
    format!("user-{number}")
}

/// One in ten is an ID that came a little earlier.
fn invented_id(number: u64) -> String {
    let number = if number % 10 == 9 { number - 5 } else { number };
    format!("nobody-{number}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<38} {:>15} {:>12}", "", "without filter", "with filter")?;
        let (without, with) = (&self.without, &self.with);
        for (label, without, with) in [
            ("requests", without.requests, with.requests),
            ("blocked by the filter", without.blocked, with.blocked),
            ("answered by the cache", without.cached, with.cached),
            ("database queries", without.queries, with.queries),
            ("  in vain", without.in_vain, with.in_vain),
            ("\"no such user\" entries in the cache", without.nulls, with.nulls),
            ("real users not found", without.missed, with.missed),
        ] {
            writeln!(f, "{label:<38} {:>15} {:>12}", commas(without), commas(with))?;
        }
        let (without, with) = (without.time.as_secs_f64(), with.time.as_secs_f64());
        write!(f, "{:<38} {without:>15.1} {with:>12.1}", "seconds")
    }
}
