//! Every error text, once. The texts are the contract: clients compare them, so
//! they are RedisBloom's to the byte, some with the code `ERR` and some without.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use crate::host::{ErrorText, WrongType};

/// An error that a client sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Error {
    /// A fixed text.
    Text(&'static CStr),
    /// A text with a number in it.
    Made(CString),
}

impl ErrorText for Error {
    fn text(&self) -> Cow<'static, CStr> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Made(text) => Cow::Owned(text.clone()),
        }
    }
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Self {
        WRONG_TYPE
    }
}

/// Names the constants of a group of texts.
macro_rules! texts {
    ($($name:ident = $text:literal),+ $(,)?) => {
        $(#[doc = concat!("`", stringify!($text), "`")]
        pub(in crate::commands) const $name: Error = Error::Text($text);)+
    };
}

texts! {
    WRONG_TYPE = c"WRONGTYPE Operation against a key holding the wrong kind of value",
    NOT_FOUND = c"ERR not found",
    ITEM_EXISTS = c"ERR item exists",
    UNKNOWN_ARGUMENT = c"Unknown argument received",
    NO_MEMORY_FOR_FILTER = c"ERR Insufficient memory to create filter",
}

/// The Bloom family's.
pub(super) mod bf {
    use super::Error;

    texts! {
        BAD_RATE = c"ERR bad error rate",
        RATE_RANGE = c"ERR error rate must be in the range (0.000000, 1.000000)",
        BAD_CAPACITY = c"ERR bad capacity",
        CAPACITY_RANGE = c"ERR capacity must be in the range [1, 1073741824]",
        NO_EXPANSION = c"ERR no expansion",
        BAD_EXPANSION = c"ERR bad expansion",
        EXPANSION_RANGE = c"ERR expansion must be in the range [0, 32768]",
        CANNOT_EXPAND = c"Nonscaling filters cannot expand",
        CANNOT_CREATE = c"ERR could not create filter",
        INSERT_BAD_RATE = c"Bad error rate",
        INSERT_BAD_CAPACITY = c"Bad capacity",
        INSERT_BAD_EXPANSION = c"Bad expansion",
        FULL = c"ERR non scaling filter is full",
        CANNOT_GROW = c"ERR problem inserting into filter",
        BAD_FIELD = c"Invalid information value",
        SCAN_NOT_NUMERIC = c"Second argument must be numeric",
        LOAD_NOT_NUMERIC = c"ERR Second argument must be numeric",
        BAD_DATA = c"ERR received bad data",
        NO_LINK = c"ERR invalid offset - no link found",
        CHUNK_TOO_BIG = c"ERR invalid chunk - Too big for current filter",
    }
}
