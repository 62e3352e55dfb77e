//! `TDIGEST.*`: t-digests.

use std::ffi::CStr;

use super::error::{Error, tdigest as text};
use super::limits;
use super::parse::tdigest as parse;
use super::table::tdigest as table;
use crate::host::spec::Spec;
use crate::host::{Args, Call, Command, Key, KeyMut, Keys, Output, StringRef};
use crate::metrics;
use crate::structures::buffer::OutOfMemory;
use crate::structures::quota::{Growth, Quota};
use crate::structures::tdigest::{self as core, TDigest, View};
use crate::types::tdigest::Digest;

/// `TDIGEST.CREATE key [COMPRESSION compression]`
pub(super) struct Create;

impl Command for Create {
    type Error = Error;
    const SPEC: Spec = table::CREATE;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        if !parse::create_accepts(args) {
            out.arity_error();
            return Ok(());
        }
        let key = args.string(1);
        if keys.read::<Digest>(key)?.is_some() {
            return Err(text::EXISTS);
        }
        let compression = parse::create(args)?;
        let allows = |growth: Growth| limits::allows(&out, growth);
        let digest = TDigest::new(compression, Quota::new(&allows)).map_err(|_| text::NO_MEMORY)?;
        keys.set::<Digest>(key, Box::new(digest), c"tdigest.create");
        out.ok();
        out.replicate();
        Ok(())
    }
}

/// `TDIGEST.RESET key`
pub(super) struct Reset;

impl Command for Reset {
    type Error = Error;
    const SPEC: Spec = table::RESET;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let mut digest = existing_mut(&mut keys, args.string(1))?;
        if digest.observations() > 0 || digest.compressions() > 0 {
            digest.reset();
            digest.changed(c"tdigest.reset");
            out.replicate();
        }
        out.ok();
        Ok(())
    }
}

/// `TDIGEST.ADD key value [value ...]`
pub(super) struct Add;

impl Command for Add {
    type Error = Error;
    const SPEC: Spec = table::ADD;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let mut digest = existing_mut(&mut keys, args.string(1))?;
        with_all(args.from(2), parse::observation, |values| {
            let allows = |growth: Growth| limits::allows(&out, growth);
            digest.add_all(values, Quota::new(&allows)).map_err(|error| {
                metrics::TDIGEST.refused(values.len() as u64);
                add_error(error)
            })?;
            metrics::TDIGEST.added(values.len() as u64);
            Ok(())
        })?;
        digest.changed(c"tdigest.add");
        out.ok();
        out.replicate();
        Ok(())
    }
}

fn add_error(error: core::Error) -> Error {
    match error {
        core::Error::NotFinite => text::NOT_FINITE,
        core::Error::Overflow => text::OVERFLOW,
        core::Error::Compression | core::Error::OutOfMemory => text::NO_MEMORY,
    }
}

/// `TDIGEST.MERGE destination numkeys source [source ...] [COMPRESSION compression] [OVERRIDE]`
pub(super) struct Merge;

impl Command for Merge {
    type Error = Error;
    const SPEC: Spec = table::MERGE;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let name = args.string(1);
        let destination = keys.read::<Digest>(name)?;
        let Some(request) = parse::merge(args)? else {
            out.arity_error();
            return Ok(());
        };
        let sources = request.sources.iter().map(|source| existing(&keys, source));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let sources: Vec<&TDigest> = sources.iter().map(|source| &***source).collect();
        let first = destination.as_ref().filter(|_| !request.replace);
        let allows = |growth: Growth| limits::allows(&out, growth);
        let quota = Quota::new(&allows);
        let merged =
            TDigest::merge(first.map(|first| &***first), &sources, request.compression, quota)
                .map_err(merge_error)?;
        if destination.is_none_or(|destination| **destination != merged) {
            keys.set::<Digest>(name, Box::new(merged), c"tdigest.merge");
            out.replicate();
        }
        out.ok();
        Ok(())
    }
}

fn merge_error(error: core::Error) -> Error {
    match error {
        core::Error::Overflow => text::OVERFLOW,
        core::Error::NotFinite | core::Error::Compression | core::Error::OutOfMemory => {
            text::NO_MEMORY_FOR_MERGE
        }
    }
}

/// `TDIGEST.MIN key`
pub(super) struct Min;

impl Command for Min {
    type Error = Error;
    const SPEC: Spec = table::MIN;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        out.double(existing(&keys, args.string(1))?.min().unwrap_or(f64::NAN));
        Ok(())
    }
}

/// `TDIGEST.MAX key`
pub(super) struct Max;

impl Command for Max {
    type Error = Error;
    const SPEC: Spec = table::MAX;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        out.double(existing(&keys, args.string(1))?.max().unwrap_or(f64::NAN));
        Ok(())
    }
}

/// `TDIGEST.QUANTILE key quantile [quantile ...]`
pub(super) struct Quantile;

impl Command for Quantile {
    type Error = Error;
    const SPEC: Spec = table::QUANTILE;

    fn run(call: Call<'_>) -> Result<(), Error> {
        answer(call, parse::quantile, |view, quantile, out| out.double(view.quantile(quantile)))
    }
}

/// `TDIGEST.CDF key value [value ...]`
pub(super) struct Cdf;

impl Command for Cdf {
    type Error = Error;
    const SPEC: Spec = table::CDF;

    fn run(call: Call<'_>) -> Result<(), Error> {
        answer(call, parse::cdf_value, |view, value, out| out.double(view.cdf(value)))
    }
}

/// The rank of any value in an empty digest.
const NO_RANK: i64 = -2;

/// `TDIGEST.RANK key value [value ...]`
pub(super) struct Rank;

impl Command for Rank {
    type Error = Error;
    const SPEC: Spec = table::RANK;

    fn run(call: Call<'_>) -> Result<(), Error> {
        answer(call, parse::ranked_value, |view, value, out| {
            out.integer(view.rank(value).unwrap_or(NO_RANK));
        })
    }
}

/// `TDIGEST.REVRANK key value [value ...]`
pub(super) struct RevRank;

impl Command for RevRank {
    type Error = Error;
    const SPEC: Spec = table::REVRANK;

    fn run(call: Call<'_>) -> Result<(), Error> {
        answer(call, parse::ranked_value, |view, value, out| {
            out.integer(view.reverse_rank(value).unwrap_or(NO_RANK));
        })
    }
}

/// `TDIGEST.BYRANK key rank [rank ...]`
pub(super) struct ByRank;

impl Command for ByRank {
    type Error = Error;
    const SPEC: Spec = table::BYRANK;

    fn run(call: Call<'_>) -> Result<(), Error> {
        answer(call, parse::rank, |view, rank, out| out.double(view.by_rank(rank)))
    }
}

/// `TDIGEST.BYREVRANK key rank [rank ...]`
pub(super) struct ByRevRank;

impl Command for ByRevRank {
    type Error = Error;
    const SPEC: Spec = table::BYREVRANK;

    fn run(call: Call<'_>) -> Result<(), Error> {
        answer(call, parse::rank, |view, rank, out| out.double(view.by_reverse_rank(rank)))
    }
}

/// `TDIGEST.TRIMMED_MEAN key low_cut_quantile high_cut_quantile`
pub(super) struct TrimmedMean;

impl Command for TrimmedMean {
    type Error = Error;
    const SPEC: Spec = table::TRIMMED_MEAN;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let digest = existing(&keys, args.string(1))?;
        let (low, high) = parse::cuts(args)?;
        out.double(digest.view().map_err(no_memory)?.trimmed_mean(low, high));
        Ok(())
    }
}

/// `TDIGEST.INFO key`
pub(super) struct Info;

/// A field: its name in the reply, its value.
type Field = (&'static CStr, fn(&TDigest) -> u64);

/// The fields of `TDIGEST.INFO` in order.
const FIELDS: [Field; 9] = [
    (c"Compression", |digest| digest.compression() as u64),
    (c"Capacity", |digest| digest.capacity() as u64),
    (c"Merged nodes", |digest| digest.merged().len() as u64),
    (c"Unmerged nodes", |digest| digest.unmerged().len() as u64),
    (c"Merged weight", TDigest::merged_weight),
    (c"Unmerged weight", TDigest::unmerged_weight),
    (c"Observations", TDigest::observations),
    (c"Total compressions", TDigest::compressions),
    (c"Memory usage", TDigest::nominal_bytes),
];

impl Command for Info {
    type Error = Error;
    const SPEC: Spec = table::INFO;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let digest = existing(&keys, args.string(1))?;
        out.map(FIELDS.len());
        for (name, value) in FIELDS {
            out.simple(name);
            out.integer(value(&digest).cast_signed());
        }
        Ok(())
    }
}

fn existing<'k>(keys: &'k Keys<'_>, name: StringRef<'_>) -> Result<Key<'k, Digest>, Error> {
    keys.read(name)?.ok_or(text::MISSING)
}

fn existing_mut<'k>(
    keys: &'k mut Keys<'_>,
    name: StringRef<'k>,
) -> Result<KeyMut<'k, Digest>, Error> {
    keys.write(name)?.ok_or(text::MISSING)
}

fn no_memory(_: OutOfMemory) -> Error {
    text::NO_MEMORY
}

/// Replies with an array of one answer per argument behind the key. All arguments
/// are read first: one that is wrong is the whole reply.
fn answer<'a, T: Copy + Default>(
    call: Call<'a>,
    parse: impl Fn(StringRef<'a>) -> Result<T, Error>,
    each: impl Fn(&View<'_>, T, &mut Output<'_>),
) -> Result<(), Error> {
    let Call { args, keys, mut out } = call;
    let digest = existing(&keys, args.string(1))?;
    with_all(args.from(2), parse, |questions| {
        let view = digest.view().map_err(no_memory)?;
        let count = questions.len() as u64;
        metrics::TDIGEST.looked_up(count, if view.is_empty() { 0 } else { count });
        out.array(questions.len());
        questions.iter().for_each(|question| each(&view, *question, &mut out));
        Ok(())
    })
}

/// Reads all arguments, then lends what they say to `then`. The usual number of
/// them needs no allocation.
fn with_all<'a, T: Copy + Default>(
    args: Args<'a>,
    parse: impl Fn(StringRef<'a>) -> Result<T, Error>,
    then: impl FnOnce(&[T]) -> Result<(), Error>,
) -> Result<(), Error> {
    const USUAL: usize = 128;
    let count = args.len();
    if count <= USUAL {
        let mut values = [T::default(); USUAL];
        for (value, arg) in values.iter_mut().zip(args.iter()) {
            *value = parse(arg)?;
        }
        return then(&values[..count]);
    }
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| text::NO_MEMORY)?;
    for arg in args.iter() {
        values.push(parse(arg)?);
    }
    then(&values)
}
