//! The arguments of `CMS.*`.

#![forbid(unsafe_code)]

use super::super::error::{Error, cms as text};
use super::{Argument, Arguments, Word, find_word};
use crate::structures::cms::Dimensions;

/// `CMS.INITBYDIM key width depth`
///
/// # Errors
///
/// The reply.
pub fn init_by_dim<'a>(args: impl Arguments<'a>) -> Result<Dimensions, Error> {
    let size = |index| {
        let size = args.get(index).and_then(Argument::integer);
        size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0)
    };
    let width = size(2).ok_or(text::BAD_WIDTH)?;
    let depth = size(3).ok_or(text::BAD_DEPTH)?;
    Dimensions::new(width, depth).ok_or(text::BAD_DIMENSIONS)
}

/// `CMS.INITBYPROB key error probability`
///
/// # Errors
///
/// The reply.
pub fn init_by_prob<'a>(args: impl Arguments<'a>) -> Result<Dimensions, Error> {
    let rate = |index| {
        let rate = args.get(index).and_then(Argument::double);
        rate.filter(|&rate| 0.0 < rate && rate < 1.0)
    };
    let error = rate(2).ok_or(text::BAD_ERROR)?;
    let probability = rate(3).ok_or(text::BAD_PROBABILITY)?;
    Dimensions::by_probability(error, probability).ok_or(text::BAD_DIMENSIONS)
}

/// What `CMS.INCRBY` is to raise an item's count by.
///
/// # Errors
///
/// The reply.
#[inline]
pub fn amount<'a>(arg: impl Argument<'a>) -> Result<u64, Error> {
    let amount = arg.integer().ok_or(text::NOT_A_NUMBER)?;
    u64::try_from(amount).map_err(|_| text::NEGATIVE)
}

/// `CMS.MERGE destination numKeys source [source ...] [WEIGHTS weight [weight ...]]`: the
/// names of the sources, at least one, and their weights if there are any: as many.
///
/// # Errors
///
/// The reply.
pub fn sources<'a, A: Arguments<'a>>(args: A) -> Result<(A, A), Error> {
    let count = args.get(2).and_then(Argument::integer).ok_or(text::BAD_NUMKEYS)?;
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return Err(text::NO_KEYS);
    }
    let rest = args.skip(3);
    let weights = rest.skip(count.saturating_add(1));
    let with_weights = || rest.get(count).is_some_and(is_weights) && weights.count() == count;
    if rest.count() == count || with_weights() {
        return Ok((rest.take(count), weights));
    }
    let any_word = find_word(rest, WEIGHTS).is_some();
    Err(if any_word { text::WRONG_WEIGHTS } else { text::WRONG_KEYS })
}

/// A weight of `CMS.MERGE`.
///
/// # Errors
///
/// The reply.
pub fn weight<'a>(arg: impl Argument<'a>) -> Result<i64, Error> {
    arg.integer().ok_or(text::BAD_WEIGHT)
}

const WEIGHTS: &str = "WEIGHTS";

/// Whether an argument is the word `WEIGHTS`.
pub(in crate::commands) fn is_weights<'a>(arg: impl Argument<'a>) -> bool {
    Word(arg.bytes()).is(WEIGHTS)
}
