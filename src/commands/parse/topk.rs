//! The arguments of `TOPK.*`.

#![forbid(unsafe_code)]

use super::super::error::{Error, topk as text};
use super::{Argument, Arguments, Word};
use crate::structures::topk::Params;

/// The greatest increment.
pub const MAX_INCREMENT: u32 = 100_000;

/// Whether `TOPK.RESERVE` has a right number of arguments.
pub fn reserve_accepts<'a>(args: impl Arguments<'a>) -> bool {
    matches!(args.count(), 3 | 6)
}

/// `TOPK.RESERVE key k [width depth decay]`: what the sketch is made for.
///
/// # Errors
///
/// The reply.
pub fn reserve<'a>(args: impl Arguments<'a>) -> Result<Params, Error> {
    let size = |index| {
        let size = args.get(index).and_then(Argument::integer);
        size.and_then(|size| u32::try_from(size).ok()).filter(|&size| size > 0)
    };
    let k = size(2).ok_or(text::BAD_K)?;
    let (mut width, mut depth, mut decay) = (8, 7, 0.9);
    if args.count() > 3 {
        width = size(3).ok_or(text::BAD_WIDTH)?;
        depth = size(4).ok_or(text::BAD_DEPTH)?;
        decay = args.get(5).and_then(Argument::double).ok_or(text::BAD_DECAY)?;
    }
    Params::new(k, width, depth, decay).ok_or(text::BAD_DECAY)
}

/// What `TOPK.INCRBY` is to count an item by: at most [`MAX_INCREMENT`].
///
/// # Errors
///
/// The reply.
#[inline]
pub fn increment<'a>(arg: impl Argument<'a>) -> Result<u32, Error> {
    let increment = arg.integer().and_then(|increment| u32::try_from(increment).ok());
    increment.filter(|&increment| increment <= MAX_INCREMENT).ok_or(text::BAD_INCREMENT)
}

/// `TOPK.LIST key [WITHCOUNT]`: whether with counts.
///
/// # Errors
///
/// The reply.
pub fn list<'a>(args: impl Arguments<'a>) -> Result<Option<bool>, Error> {
    if args.count() > 3 {
        return Ok(None);
    }
    match args.get(2).map(|word| Word(word.bytes())) {
        Some(word) if !word.is("WITHCOUNT") => Err(text::NOT_WITHCOUNT),
        word => Ok(Some(word.is_some())),
    }
}
