//! The arguments of `CF.*`.

#![forbid(unsafe_code)]

use super::super::error::{self, Error, cf as text};
use super::{Argument, Arguments, Options, in_range};
use crate::config::MAX_CAPACITY;
use crate::structures::cuckoo::{MAX_EXPANSION, Params};

/// `CF.RESERVE key capacity [BUCKETSIZE n] [MAXITERATIONS n] [EXPANSION n]`: what the
/// filter is made for. `defaults` gives what is left out, `most_bucket_size`, below 256,
/// is asked where a bucket size is given.
///
/// # Errors
///
/// The reply. The values are checked in RedisBloom's order, whatever theirs is in the
/// call.
pub fn reserve<'a>(
    args: impl Arguments<'a>,
    defaults: Params,
    most_bucket_size: impl FnOnce() -> u64,
) -> Result<Option<Params>, Error> {
    let Some(capacity) = args.get(2).filter(|_| !args.count().is_multiple_of(2)) else {
        return Ok(None);
    };
    let capacity = capacity.integer().ok_or(text::BAD_CAPACITY)?;
    let (mut bucket_size, mut max_iterations, mut expansion) = (None, None, None);
    let mut options = Options::new(args, 3);
    while let Some(word) = options.word() {
        let place = if word.is("BUCKETSIZE") {
            &mut bucket_size
        } else if word.is("MAXITERATIONS") {
            &mut max_iterations
        } else if word.is("EXPANSION") {
            &mut expansion
        } else {
            return Err(error::UNKNOWN_ARGUMENT);
        };
        // Of an option that comes twice the first counts, as in RedisBloom.
        *place = place.or(options.value());
    }
    let mut params = defaults;
    if let Some(given) = max_iterations {
        let given = given.integer().ok_or(text::BAD_ITERATIONS)?;
        params.max_iterations =
            u16::try_from(given).ok().filter(|n| *n > 0).ok_or(text::ITERATIONS_RANGE)?;
    }
    if let Some(given) = bucket_size {
        let given = given.integer().ok_or(text::BAD_BUCKET_SIZE)?;
        let most = most_bucket_size();
        params.bucket_size = u8::try_from(given)
            .ok()
            .filter(|size| (1..=most).contains(&u64::from(*size)))
            .ok_or_else(|| text::bucket_size_range(most))?;
    }
    if let Some(given) = expansion {
        let given = given.integer().ok_or(text::BAD_EXPANSION)?;
        params.expansion = u16::try_from(given)
            .ok()
            .filter(|n| *n <= MAX_EXPANSION)
            .ok_or(text::EXPANSION_RANGE)?;
    }
    let least = 2 * u64::from(params.bucket_size);
    params.capacity = in_range(capacity, least, MAX_CAPACITY).ok_or(text::CAPACITY_RANGE)?;
    Ok(Some(params))
}

/// What `CF.INSERT` and `CF.INSERTNX` ask for.
#[derive(Debug, Clone, Copy)]
pub struct Insert<A> {
    /// For a filter that does not exist; `None` if none is to be created.
    pub params: Option<Params>,
    /// `ITEMS` and the items, at least one.
    pub word_and_items: A,
}

/// `CF.INSERT key [CAPACITY n] [NOCREATE] ITEMS item ...`. `defaults` gives what is left
/// out, `least_capacity` is asked where a capacity is given.
///
/// # Errors
///
/// The reply.
pub fn insert<'a, A: Arguments<'a>>(
    args: A,
    defaults: Params,
    least_capacity: impl Fn() -> u64,
) -> Result<Option<Insert<A>>, Error> {
    let mut params = defaults;
    let mut create = true;
    let mut options = Options::new(args, 2);
    loop {
        let word_and_items = options.rest();
        let Some(word) = options.word() else { return Ok(None) };
        if word.is("ITEMS") {
            let params = create.then_some(params);
            let any = word_and_items.count() > 1;
            return Ok(any.then_some(Insert { params, word_and_items }));
        } else if word.is("NOCREATE") {
            create = false;
        } else if word.is("CAPACITY") {
            let Some(value) = options.value() else { return Ok(None) };
            let capacity = value.integer().ok_or(text::BAD_CAPACITY)?;
            params.capacity = in_range(capacity, least_capacity(), MAX_CAPACITY)
                .ok_or(text::INSERT_CAPACITY_RANGE)?;
        } else {
            return Err(error::UNKNOWN_ARGUMENT);
        }
    }
}

/// The iterator of `CF.SCANDUMP`.
///
/// # Errors
///
/// The reply.
pub fn scan_iterator<'a>(arg: impl Argument<'a>) -> Result<u64, Error> {
    arg.integer().and_then(|given| u64::try_from(given).ok()).ok_or(text::BAD_POSITION)
}

/// The iterator of `CF.LOADCHUNK`, which is not 0.
///
/// # Errors
///
/// The reply.
pub fn load_iterator<'a>(arg: impl Argument<'a>) -> Result<i64, Error> {
    arg.integer().filter(|iterator| *iterator != 0).ok_or(text::BAD_POSITION)
}
