//! `CMS.*`: count-min sketches.

use std::ffi::CStr;

use super::error::{Error, cms as text};
use super::limits;
use super::lookup::look_up;
use super::parse::cms::{self as parse, amount};
use super::table::cms as table;
use crate::host::spec::Spec;
use crate::host::{self, Args, Beside, Call, Command, ErrorText, Keys, Output, StringRef};
use crate::metrics;
use crate::structures::BATCH;
use crate::structures::cms::{self, Dimensions, MergeError, Operand, SATURATED};
use crate::structures::quota::{Growth, Quota};
use crate::types::cms::Sketch;

/// `CMS.INITBYDIM key width depth`
pub(super) struct InitByDim;

impl Command for InitByDim {
    type Error = Error;
    const SPEC: Spec = table::INITBYDIM;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let args = call.args;
        create(call, c"cms.initbydim", || parse::init_by_dim(args))
    }
}

/// `CMS.INITBYPROB key error probability`
pub(super) struct InitByProb;

impl Command for InitByProb {
    type Error = Error;
    const SPEC: Spec = table::INITBYPROB;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let args = call.args;
        create(call, c"cms.initbyprob", || parse::init_by_prob(args))
    }
}

/// Creates a sketch whose size is read once it is known that the key is free.
fn create(
    call: Call<'_>,
    event: &CStr,
    dimensions: impl FnOnce() -> Result<Dimensions, Error>,
) -> Result<(), Error> {
    let Call { args, mut keys, mut out } = call;
    let key = args.string(1);
    if keys.exists(key) {
        return Err(text::KEY_EXISTS);
    }
    let dimensions = dimensions()?;
    let allows = |growth: Growth| limits::allows(&out, growth);
    let sketch = cms::Sketch::new(dimensions, Quota::new(&allows)).map_err(|_| text::NO_MEMORY)?;
    // Behind the memory, as RedisBloom says so of sizes that are beyond both.
    if !limits::allows_rows(&out, dimensions.depth()) {
        return Err(text::BAD_DEPTH);
    }
    keys.set(key, Sketch::new(sketch), event);
    out.replicate();
    out.ok();
    Ok(())
}

/// `CMS.INCRBY key item increment [item increment ...]`
pub(super) struct IncrBy;

impl Command for IncrBy {
    type Error = Error;
    const SPEC: Spec = table::INCRBY;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let pairs = args.from(2);
        if !pairs.len().is_multiple_of(2) {
            out.arity_error();
            return Ok(());
        }
        let mut sketch = keys.write::<Sketch>(args.string(1))?.ok_or(text::NO_KEY)?;
        let added = if pairs.len() <= 2 * BATCH {
            increment::<BATCH>(&mut sketch, pairs, &mut out)?
        } else {
            increment::<{ 4 * BATCH }>(&mut sketch, pairs, &mut out)?
        };
        if added {
            sketch.changed(c"cms.incrby");
            out.replicate();
        }
        Ok(())
    }
}

/// Adds the amount of each pair to its item, `N` pairs at a time, and replies with
/// the estimates; whether any amount was more than 0.
fn increment<const N: usize>(
    sketch: &mut Sketch,
    pairs: Args<'_>,
    out: &mut Output<'_>,
) -> Result<bool, Error> {
    // Every amount is read before any is added: where all pairs are one portion,
    // that is so anyway.
    if pairs.len() > 2 * N {
        pairs.iter().skip(1).step_by(2).try_for_each(|argument| amount(argument).map(drop))?;
    }
    let (mut begun, mut added) = (false, false);
    pairs.pairs::<N, _, _>(amount, |portion| {
        if !begun {
            out.array(pairs.len() / 2);
            begun = true;
        }
        added |= portion.iter().any(|&(_, amount)| amount != 0);
        sketch.increment(portion, |estimate| match estimate {
            // Of a replica, which added as much as its primary did, an error would
            // be an alarm.
            SATURATED if !host::must_follow(out) => out.error(&text::SATURATED.text()),
            estimate => out.integer(estimate.into()),
        });
    })?;
    metrics::CMS.added(pairs.len() as u64 / 2);
    Ok(added)
}

/// `CMS.QUERY key item [item ...]`
pub(super) struct Query;

impl Command for Query {
    type Error = Error;
    const SPEC: Spec = table::QUERY;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let sketch = keys.read::<Sketch>(args.string(1))?.ok_or(text::NO_KEY)?;
        look_up(&mut out, args.from(2), &metrics::CMS, |batch, out| {
            let mut hits = 0;
            sketch.query(batch, |estimate| {
                hits += u64::from(estimate > 0);
                out.integer(estimate.into());
            });
            hits
        });
        Ok(())
    }
}

/// `CMS.MERGE destination numKeys source [source ...] [WEIGHTS weight [weight ...]]`
pub(super) struct Merge;

impl Command for Merge {
    type Error = Error;
    const SPEC: Spec = table::MERGE;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        merge(args, &mut keys)?;
        out.replicate();
        out.ok();
        Ok(())
    }
}

fn merge(args: Args<'_>, keys: &mut Keys<'_>) -> Result<(), Error> {
    let found = keys.write_beside::<Sketch>(args.string(1))?;
    let (mut destination, others) = found.ok_or(text::NO_KEY)?;
    let (names, weights) = parse::sources(args)?;
    let mut sources = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        let weight = match weights.get(i) {
            Some(weight) => parse::weight(weight)?,
            None => 1,
        };
        let source = others.read(name)?.ok_or_else(|| missing(name))?;
        if let Beside::Other(source) = &source
            && source.dimensions() != destination.dimensions()
        {
            return Err(text::OTHER_DIMENSIONS);
        }
        sources.push((source, weight));
    }
    let operands: Vec<_> = sources.iter().map(|(s, weight)| (operand(s), *weight)).collect();
    destination.merge(&operands).map_err(|error| match error {
        MergeError::Dimensions => text::OTHER_DIMENSIONS,
        MergeError::Overflow => text::MERGE_OVERFLOW,
    })?;
    destination.changed(c"cms.merge");
    Ok(())
}

fn operand<'a>(source: &'a Beside<'_, Sketch>) -> Operand<'a> {
    match source {
        Beside::Written => Operand::Destination,
        Beside::Other(sketch) => Operand::Other(sketch),
    }
}

/// The error for a source that does not exist. A sketch can be called `weights`; but
/// where there is none, the word was not meant as a source.
fn missing(source: StringRef<'_>) -> Error {
    if parse::is_weights(source) { text::WRONG_WEIGHTS } else { text::NO_KEY }
}

/// `CMS.INFO key`
pub(super) struct Info;

impl Command for Info {
    type Error = Error;
    const SPEC: Spec = table::INFO;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let sketch = keys.read::<Sketch>(args.string(1))?.ok_or(text::NO_KEY)?;
        let dimensions = sketch.dimensions();
        out.map(3);
        field(&mut out, c"width", dimensions.width());
        field(&mut out, c"depth", dimensions.depth());
        field(&mut out, c"count", sketch.count());
        Ok(())
    }
}

fn field(out: &mut Output<'_>, name: &CStr, value: u64) {
    out.simple(name);
    out.integer(value.cast_signed());
}
