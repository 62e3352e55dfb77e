//! Builds a filter without a server and uploads it in chunks.
//!
//!     cargo run --example offline_build -- 1000000
//!
//! A batch job fills a filter of millions of items with this crate's core, on its own
//! machine and at its own pace, and hands the server the finished bits by
//! `BF.LOADCHUNK`: first the header, then the bit arrays in pieces of at most
//! 16 MiB. The server only copies them. The upload goes to a second key that is
//! renamed at the end, so that nobody asks half a filter.
//!
//! The argument is the number of items.

mod support;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use ferrobloom::codec::bloom::{chunk, header};
use ferrobloom::structures::bloom::{Filter, Params};
use ferrobloom::structures::quota::Quota;
use redis::Commands;
use support::{Failure, Progress, commas};

const KEY: &str = "{offline}";
const UPLOAD: &str = "{offline}:upload";
const ERROR_RATE: f64 = 0.001;
/// Items hashed at a time.
const BATCH: u64 = 1024;

fn main() -> Result<(), Failure> {
    let items = support::number(1, 1_000_000)?;
    let server = support::Server::find()?;
    println!("{}", run(server.client(), items)?);
    Ok(())
}

/// What the upload came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) items: u64,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// Items that the server's filter does not know; there must be none.
    pub(crate) missing: u64,
    /// Of as many other items, those that it reports: its false positives.
    pub(crate) false_positives: u64,
    pub(crate) build: Duration,
    pub(crate) upload: Duration,
}

/// Builds a filter of so many items, uploads it and looks every item up.
pub(crate) fn run(client: &redis::Client, items: u64) -> Result<Report, Failure> {
    let mut connection = client.get_connection()?;
    let start = Instant::now();
    let filter = build(items)?;
    let build = start.elapsed();

    let start = Instant::now();
    let (chunks, bytes) = upload(&mut connection, &filter)?;
    let upload = start.elapsed();

    let missing = items - count(&mut connection, "item", items)?;
    let false_positives = count(&mut connection, "other", items)?;
    connection.del::<_, ()>(KEY)?;
    Ok(Report { items, chunks, bytes, missing, false_positives, build, upload })
}

fn build(items: u64) -> Result<Filter, Failure> {
    let params =
        Params { capacity: items.max(1), error_rate: ERROR_RATE, expansion: 2, scaling: true };
    // A secret seed, so that nobody can choose items that are false positives.
    // `Filter::redisbloom` makes a filter that RedisBloom can load too.
    let seed = RandomState::new().build_hasher().finish();
    let filter = Filter::blocked(params, seed, Quota::UNLIMITED);
    let mut filter = filter.map_err(|error| format!("no such filter: {error:?}"))?;
    let mut progress = Progress::new("build", items);
    let mut outcomes = vec![Ok(false); BATCH as usize];
    for first in (0..items).step_by(BATCH as usize) {
        let names: Vec<String> =
            (first..items.min(first + BATCH)).map(|number| name("item", number)).collect();
        let batch: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let outcomes = &mut outcomes[..batch.len()];
        filter.insert_batch(&batch, Quota::UNLIMITED, outcomes);
        if let Some(Err(refusal)) = outcomes.iter().find(|outcome| outcome.is_err()) {
            return Err(format!("an item was refused: {refusal:?}").into());
        }
        progress.at(first + batch.len() as u64);
    }
    Ok(filter)
}

/// Sends the header and all chunks; returns how many there were, and their bytes.
fn upload(connection: &mut redis::Connection, filter: &Filter) -> Result<(u64, u64), Failure> {
    connection.del::<_, ()>(UPLOAD)?;
    let mut send = |iterator: i64, data: &[u8]| {
        redis::cmd("BF.LOADCHUNK").arg(UPLOAD).arg(iterator).arg(data).exec(connection)
    };
    send(1, &header(filter))?;
    let mut progress = Progress::new("upload (bytes)", filter.heap_bytes());
    let (mut chunks, mut bytes) = (1, 0);
    let mut iterator = 1;
    // A chunk goes by the iterator that follows it.
    while let Some((next, data)) = chunk(filter, iterator) {
        send(next, data)?;
        chunks += 1;
        bytes += data.len() as u64;
        progress.at(bytes);
        iterator = next;
    }
    connection.rename::<_, _, ()>(UPLOAD, KEY)?;
    Ok((chunks, bytes))
}

/// How many of so many items the server's filter reports.
fn count(connection: &mut redis::Connection, kind: &str, items: u64) -> Result<u64, Failure> {
    let mut progress = Progress::new("look-ups", items);
    let mut count = 0;
    for first in (0..items).step_by(BATCH as usize) {
        let names: Vec<String> =
            (first..items.min(first + BATCH)).map(|number| name(kind, number)).collect();
        let found: Vec<bool> = redis::cmd("BF.MEXISTS").arg(KEY).arg(&names).query(connection)?;
        count += found.iter().filter(|found| **found).count() as u64;
        progress.at(first + names.len() as u64);
    }
    Ok(count)
}

fn name(kind: &str, number: u64) -> String {
    format!("{kind}:{number}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, chunks, bytes, missing, false_positives, build, upload } = self;
        let rate = *false_positives as f64 / (*items).max(1) as f64;
        writeln!(f, "built {} items in {:.2} s", commas(*items), build.as_secs_f64())?;
        writeln!(
            f,
            "uploaded {} bytes in {chunks} chunks in {:.3} s",
            commas(*bytes),
            upload.as_secs_f64()
        )?;
        writeln!(f, "items that the server's filter does not know: {missing}")?;
        write!(f, "false positives: {} of {} ({rate:.5})", commas(*false_positives), commas(*items))
    }
}
