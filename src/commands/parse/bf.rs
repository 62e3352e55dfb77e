//! The arguments of `BF.*`.

#![forbid(unsafe_code)]

use super::super::error::{self, Error, bf as text};
use super::{Argument, Arguments, Options, in_range};
use crate::config::{MAX_CAPACITY, MAX_EXPANSION};
use crate::structures::bloom::Params;

/// `BF.RESERVE key error_rate capacity [EXPANSION n] [NONSCALING]`: what the filter is
/// made for. `defaults` gives what is left out.
///
/// The error rate is between 0 and 1, both excluded: filters take no more than
/// [`MAX_ERROR_RATE`](crate::config::MAX_ERROR_RATE).
///
/// # Errors
///
/// The reply.
pub fn reserve<'a>(args: impl Arguments<'a>, defaults: Params) -> Result<Option<Params>, Error> {
    let (Some(rate), Some(capacity)) = (args.get(2), args.get(3)) else { return Ok(None) };
    if args.count() > 7 {
        return Ok(None);
    }
    let rate = rate.double().ok_or(text::BAD_RATE)?;
    let error_rate = rate_in_range(rate).ok_or(text::RATE_RANGE)?;
    let capacity = capacity.integer().ok_or(text::BAD_CAPACITY)?;
    let capacity = in_range(capacity, 1, MAX_CAPACITY).ok_or(text::CAPACITY_RANGE)?;

    let mut expansion = None;
    let mut scaling = defaults.expansion != 0;
    let mut options = Options::new(args, 4);
    while let Some(word) = options.word() {
        if word.is("EXPANSION") {
            let value = options.value().ok_or(text::NO_EXPANSION)?;
            expansion = Some(value.integer().ok_or(text::BAD_EXPANSION)?);
        } else if word.is("NONSCALING") {
            scaling = false;
        } else {
            return Err(error::UNKNOWN_ARGUMENT);
        }
    }
    if !scaling && expansion.is_some_and(|expansion| expansion != 0) {
        return Err(text::CANNOT_EXPAND);
    }
    let expansion = match expansion {
        Some(given) => in_range(given, 0, MAX_EXPANSION).ok_or(text::EXPANSION_RANGE)? as u32,
        None => defaults.expansion,
    };
    Ok(Some(Params { capacity, error_rate, expansion, scaling: scaling && expansion != 0 }))
}

/// What `BF.INSERT` asks for.
#[derive(Debug, Clone, Copy)]
pub struct Insert<A> {
    /// For a filter that does not exist. The error rate is as of [`reserve`].
    pub params: Params,
    /// Whether to create a filter that does not exist.
    pub create: bool,
    /// The items, at least one.
    pub items: A,
}

/// `BF.INSERT key [CAPACITY n] [ERROR r] [EXPANSION n] [NOCREATE] [NONSCALING] ITEMS item ...`.
/// `defaults` gives what is left out.
///
/// # Errors
///
/// The reply.
pub fn insert<'a, A: Arguments<'a>>(args: A, defaults: Params) -> Result<Option<Insert<A>>, Error> {
    let mut params = defaults;
    let mut create = true;
    let mut options = Options::new(args, 2);
    loop {
        let Some(word) = options.word() else { return Ok(None) };
        if word.is("ITEMS") {
            break;
        } else if word.is("NOCREATE") {
            create = false;
        } else if word.is("NONSCALING") {
            params.scaling = false;
        } else if word.is("ERROR") {
            let Some(value) = options.value() else { return Ok(None) };
            let rate = value.double().ok_or(text::INSERT_BAD_RATE)?;
            params.error_rate = rate_in_range(rate).ok_or(text::INSERT_BAD_RATE)?;
        } else if word.is("CAPACITY") {
            let Some(value) = options.value() else { return Ok(None) };
            let capacity = value.integer().ok_or(text::INSERT_BAD_CAPACITY)?;
            params.capacity =
                in_range(capacity, 1, MAX_CAPACITY).ok_or(text::INSERT_BAD_CAPACITY)?;
        } else if word.is("EXPANSION") {
            let Some(value) = options.value() else { return Ok(None) };
            let expansion = value.integer().ok_or(text::INSERT_BAD_EXPANSION)?;
            let expansion =
                in_range(expansion, 0, MAX_EXPANSION).ok_or(text::INSERT_BAD_EXPANSION)?;
            params.expansion = expansion as u32;
        } else {
            return Err(error::UNKNOWN_ARGUMENT);
        }
    }
    params.scaling &= params.expansion != 0;
    let items = options.rest();
    Ok((items.count() > 0).then_some(Insert { params, create, items }))
}

/// The iterator of `BF.SCANDUMP`.
///
/// # Errors
///
/// The reply.
pub fn scan_iterator<'a>(arg: impl Argument<'a>) -> Result<i64, Error> {
    arg.integer().ok_or(text::SCAN_NOT_NUMERIC)
}

/// The iterator of `BF.LOADCHUNK`.
///
/// # Errors
///
/// The reply.
pub fn load_iterator<'a>(arg: impl Argument<'a>) -> Result<i64, Error> {
    arg.integer().ok_or(text::LOAD_NOT_NUMERIC)
}

fn rate_in_range(rate: f64) -> Option<f64> {
    (rate > 0.0 && rate < 1.0).then_some(rate)
}
