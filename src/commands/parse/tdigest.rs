//! The arguments of `TDIGEST.*`.

#![forbid(unsafe_code)]

use super::super::error::{Error, tdigest as text};
use super::{Argument, Arguments, find_word};
use crate::structures::tdigest::DEFAULT_COMPRESSION;

/// Whether `TDIGEST.CREATE` has a right number of arguments.
pub fn create_accepts<'a>(args: impl Arguments<'a>) -> bool {
    matches!(args.count(), 2 | 4)
}

/// `TDIGEST.CREATE key [COMPRESSION compression]`: the compression, above 0.
///
/// # Errors
///
/// The reply.
pub fn create<'a>(args: impl Arguments<'a>) -> Result<u64, Error> {
    let Some(value) = args.get(3) else { return Ok(DEFAULT_COMPRESSION) };
    find_word(args.skip(2), "COMPRESSION").ok_or(text::WRONG_KEYWORD)?;
    compression(value)
}

fn compression<'a>(arg: impl Argument<'a>) -> Result<u64, Error> {
    let given = arg.integer().ok_or(text::BAD_COMPRESSION)?;
    u64::try_from(given).ok().filter(|given| *given > 0).ok_or(text::COMPRESSION_RANGE)
}

/// A value for `TDIGEST.ADD`, finite.
///
/// # Errors
///
/// The reply.
#[inline]
pub fn observation<'a>(arg: impl Argument<'a>) -> Result<f64, Error> {
    let value = arg.double().ok_or(text::BAD_OBSERVATION)?;
    if value.is_finite() { Ok(value) } else { Err(text::NOT_FINITE) }
}

/// What `TDIGEST.MERGE` asks for.
#[derive(Debug, Clone, Copy)]
pub struct Merge<A> {
    /// The names of the sources, at least one.
    pub sources: A,
    /// The compression, above 0, if one is given.
    pub compression: Option<u64>,
    /// What the destination holds is not merged in.
    pub replace: bool,
}

/// `TDIGEST.MERGE destination numkeys source [source ...] [COMPRESSION compression] [OVERRIDE]`
///
/// # Errors
///
/// The reply.
pub fn merge<'a, A: Arguments<'a>>(args: A) -> Result<Option<Merge<A>>, Error> {
    let count = args.get(2).and_then(Argument::integer).ok_or(text::BAD_NUMKEYS)?;
    if count <= 0 {
        return Err(text::NUMKEYS_RANGE);
    }
    let rest = args.skip(3);
    let Some(count) = usize::try_from(count).ok().filter(|count| *count <= rest.count()) else {
        return Ok(None);
    };
    let sources = rest.take(count);
    let options = rest.skip(count);
    if options.count() == 0 {
        return Ok(Some(Merge { sources, compression: None, replace: false }));
    }
    // As in RedisBloom, words beside an option are not looked at.
    let replace = find_word(options, "OVERRIDE").is_some();
    let compression = match find_word(options, "COMPRESSION") {
        None if !replace => return Err(text::WRONG_KEYWORD),
        None => None,
        Some(at) => match options.get(at + 1) {
            None => return Ok(None),
            Some(value) => Some(compression(value)?),
        },
    };
    Ok(Some(Merge { sources, compression, replace }))
}

/// A quantile of `TDIGEST.QUANTILE`, from 0 to 1.
///
/// # Errors
///
/// The reply.
#[inline]
pub fn quantile<'a>(arg: impl Argument<'a>) -> Result<f64, Error> {
    let quantile = arg.double().ok_or(text::BAD_QUANTILE)?;
    if (0.0..=1.0).contains(&quantile) { Ok(quantile) } else { Err(text::QUANTILE_RANGE) }
}

/// A value of `TDIGEST.CDF`, never NaN.
///
/// # Errors
///
/// The reply.
#[inline]
pub fn cdf_value<'a>(arg: impl Argument<'a>) -> Result<f64, Error> {
    arg.double().ok_or(text::BAD_CDF)
}

/// A value of `TDIGEST.RANK` and `TDIGEST.REVRANK`, never NaN.
///
/// # Errors
///
/// The reply.
#[inline]
pub fn ranked_value<'a>(arg: impl Argument<'a>) -> Result<f64, Error> {
    arg.double().ok_or(text::BAD_VALUE)
}

/// A rank of `TDIGEST.BYRANK` and `TDIGEST.BYREVRANK`.
///
/// # Errors
///
/// The reply.
#[inline]
pub fn rank<'a>(arg: impl Argument<'a>) -> Result<u64, Error> {
    let rank = arg.integer().ok_or(text::BAD_RANK)?;
    u64::try_from(rank).map_err(|_| text::RANK_RANGE)
}

/// `TDIGEST.TRIMMED_MEAN key low_cut_quantile high_cut_quantile`: the cuts, from 0 to 1,
/// the lower one first.
///
/// # Errors
///
/// The reply.
pub fn cuts<'a>(args: impl Arguments<'a>) -> Result<(f64, f64), Error> {
    let low = args.get(2).and_then(Argument::double).ok_or(text::BAD_LOW_CUT)?;
    let high = args.get(3).and_then(Argument::double).ok_or(text::BAD_HIGH_CUT)?;
    if !(0.0..=1.0).contains(&low) || !(0.0..=1.0).contains(&high) {
        return Err(text::CUT_RANGE);
    }
    if low >= high {
        return Err(text::CUT_ORDER);
    }
    Ok((low, high))
}
