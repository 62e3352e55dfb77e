//! Drops events that come twice, with one filter for each stretch of time.
//!
//!     cargo run --example dedup_events -- 200000
//!
//! A Bloom filter cannot forget, so a single one fills up. Here every minute has a
//! filter of its own that expires as a whole. An event is new if neither this
//! minute's nor the last minute's filter knows it: a repetition within a minute is
//! always dropped, one after two minutes never. Both questions go out at once, as
//! a pipeline of `BF.MEXISTS` on the old filter and `BF.INSERT` into the new one.
//!
//! The argument is the number of events. They come 1000 a second by their own
//! timestamps; one in five is delivered again within the minute, as by a queue
//! that promises "at least once".

mod support;

use std::collections::HashSet;
use std::fmt;

use redis::Commands;
use support::{Failure, Progress, commas};

/// Length of a bucket in seconds.
const BUCKET: u64 = 60;
/// When the first event happens, in seconds since 1970.
const START: u64 = 1_800_000_000;
const PER_SECOND: u64 = 1000;
const ERROR_RATE: f64 = 0.001;

fn main() -> Result<(), Failure> {
    let events = support::number(1, 200_000)?;
    let server = support::Server::find()?;
    println!("{}", run(server.client(), events)?);
    Ok(())
}

/// What became of the events.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Different events.
    pub(crate) events: u64,
    pub(crate) deliveries: u64,
    /// Deliveries let through.
    pub(crate) passed: u64,
    /// Repetitions let through; there must be none.
    pub(crate) repeated: u64,
    /// First deliveries taken for repetitions: the filters' false positives.
    pub(crate) lost: u64,
    /// Filters made.
    pub(crate) filters: u64,
}

/// Delivers the events, a second at a time.
pub(crate) fn run(client: &redis::Client, events: u64) -> Result<Report, Failure> {
    let mut connection = client.get_connection()?;
    let mut report = Report { events, ..Report::default() };
    let mut seen = HashSet::new();
    let mut buckets = HashSet::new();
    let mut progress = Progress::new("events", events);
    for second in 0..events.div_ceil(PER_SECOND) {
        let batch = deliveries(second, events);
        let bucket = (START + second) / BUCKET;
        let fresh = fresh(&mut connection, bucket, &batch)?;
        buckets.insert(bucket);
        for (event, fresh) in batch.iter().zip(fresh) {
            let first = seen.insert(*event);
            report.deliveries += 1;
            report.passed += u64::from(fresh);
            report.repeated += u64::from(fresh && !first);
            report.lost += u64::from(!fresh && first);
        }
        progress.at(events.min((second + 1) * PER_SECOND));
    }
    report.filters = buckets.len() as u64;
    let keys: Vec<String> = buckets.into_iter().map(key).collect();
    if !keys.is_empty() {
        connection.del::<_, ()>(keys)?;
    }
    Ok(report)
}

/// Which of the events are new, in one round trip.
fn fresh(
    connection: &mut redis::Connection,
    bucket: u64,
    events: &[u64],
) -> Result<Vec<bool>, Failure> {
    let this = key(bucket);
    let mut pipeline = redis::pipe();
    // A filter that does not exist knows nothing.
    pipeline.cmd("BF.MEXISTS").arg(key(bucket - 1)).arg(events);
    // The capacity is that of a whole bucket; should more come, the filter grows.
    pipeline.cmd("BF.INSERT").arg(&this).arg("CAPACITY").arg(BUCKET * PER_SECOND * 6 / 5);
    pipeline.arg("ERROR").arg(ERROR_RATE).arg("ITEMS").arg(events);
    // Needed while it is this bucket and the next.
    pipeline.expire(&this, 2 * BUCKET as i64).ignore();
    let (before, added): (Vec<bool>, Vec<bool>) = pipeline.query(connection)?;
    Ok(before.into_iter().zip(added).map(|(before, added)| added && !before).collect())
}

fn key(bucket: u64) -> String {
    format!("dedup:{bucket}")
}

/// The events of a second: the new ones, and each fifth of up to 50 seconds ago again.
fn deliveries(second: u64, events: u64) -> Vec<u64> {
    let start = second * PER_SECOND;
    let mut batch: Vec<u64> = (start..events.min(start + PER_SECOND)).collect();
    let delay = second % 51;
    let earlier = (second - delay) * PER_SECOND;
    batch.extend((earlier..events.min(earlier + PER_SECOND)).step_by(5));
    batch
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, count) in [
            ("different events", self.events),
            ("deliveries", self.deliveries),
            ("let through", self.passed),
            ("repetitions let through", self.repeated),
            ("new events dropped by mistake", self.lost),
        ] {
            writeln!(f, "{label:<32} {:>12}", commas(count))?;
        }
        write!(f, "{:<32} {:>12}", "filters made", commas(self.filters))
    }
}
