//! Every error text, once. The texts are the contract: clients compare them, so
//! they are RedisBloom's to the byte, some with the code `ERR` and some without.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use crate::host::{ErrorText, WrongType};

/// An error that a client sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A fixed text.
    Text(&'static CStr),
    /// A text with a number in it.
    Made(CString),
}

impl Error {
    /// An error with a text made for the case.
    fn made(text: &str) -> Self {
        Self::Made(CString::new(text).unwrap_or_default())
    }
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

/// The cuckoo family's.
pub(super) mod cf {
    use super::Error;

    texts! {
        BAD_CAPACITY = c"Bad capacity",
        CAPACITY_RANGE = c"Capacity must be in the range [2 * BUCKETSIZE, 1073741824]",
        INSERT_CAPACITY_RANGE =
            c"Capacity must be in the range [cf-bucket-size * 2, 1073741824]",
        BAD_ITERATIONS = c"Couldn't parse MAXITERATIONS",
        ITERATIONS_RANGE = c"MAXITERATIONS: value must be in the range [1, 65535]",
        BAD_BUCKET_SIZE = c"Couldn't parse BUCKETSIZE",
        BAD_EXPANSION = c"Couldn't parse EXPANSION",
        EXPANSION_RANGE = c"EXPANSION: value must be in the range [0, 32768]",
        CANNOT_CREATE = c"ERR Could not create filter",
        MAX_EXPANSIONS = c"Maximum expansions reached",
        FULL = c"Filter is full",
        CANNOT_GROW = c"ERR Insufficient memory",
        NO_ITEM = c"Not found",
        NO_FILTER = c"Cuckoo filter was not found",
        BAD_POSITION = c"Invalid position",
        BAD_HEADER = c"Invalid header",
        HEADER_REFUSED = c"Couldn't create filter!",
        BAD_CHUNK = c"Couldn't load chunk!",
    }

    /// `BUCKETSIZE: value must be in the range [1, most]`
    pub(in crate::commands) fn bucket_size_range(most: u64) -> Error {
        Error::made(&format!("BUCKETSIZE: value must be in the range [1, {most}]"))
    }
}

/// The count-min sketch's.
pub(super) mod cms {
    use super::Error;

    texts! {
        NO_KEY = c"CMS: key does not exist",
        KEY_EXISTS = c"CMS: key already exists",
        BAD_WIDTH = c"CMS: invalid width",
        BAD_DEPTH = c"CMS: invalid depth",
        BAD_ERROR = c"CMS: invalid overestimation value",
        BAD_PROBABILITY = c"CMS: invalid prob value",
        BAD_DIMENSIONS = c"CMS: invalid init arguments",
        NO_MEMORY = c"CMS: Insufficient memory to create the key",
        NOT_A_NUMBER = c"CMS: Cannot parse number",
        NEGATIVE = c"CMS: Number cannot be negative",
        SATURATED = c"CMS: INCRBY overflow",
        BAD_NUMKEYS = c"CMS: invalid numkeys",
        NO_KEYS = c"CMS: Number of keys must be positive",
        WRONG_KEYS = c"CMS: wrong number of keys",
        WRONG_WEIGHTS = c"CMS: wrong number of keys/weights",
        BAD_WEIGHT = c"CMS: invalid weight value",
        OTHER_DIMENSIONS = c"CMS: width/depth is not equal",
        MERGE_OVERFLOW = c"CMS: MERGE overflow",
    }
}

/// Top-K's.
pub(super) mod topk {
    use super::Error;

    texts! {
        NO_KEY = c"TopK: key does not exist",
        KEY_EXISTS = c"TopK: key already exists",
        BAD_K = c"TopK: invalid k",
        BAD_WIDTH = c"TopK: invalid width",
        BAD_DEPTH = c"TopK: invalid depth",
        BAD_DECAY = c"TopK: invalid decay value. must be '<= 1' & '> 0'",
        NO_MEMORY = c"ERR Insufficient memory to create topk data structure",
        NO_MEMORY_FOR_ITEM = c"ERR Insufficient memory to add the item",
        NO_MEMORY_FOR_LIST = c"ERR Insufficient memory to list the items",
        // The blanks are RedisBloom's.
        BAD_INCREMENT = c"TopK: increment must be an integer greater or equal to 0                            and smaller or equal to 100,000",
        NOT_WITHCOUNT = c"WITHCOUNT keyword expected",
    }
}

/// The t-digest family's.
pub(super) mod tdigest {
    use super::Error;

    texts! {
        MISSING = c"ERR T-Digest: key does not exist",
        EXISTS = c"ERR T-Digest: key already exists",
        WRONG_KEYWORD = c"ERR T-Digest: wrong keyword",
        BAD_COMPRESSION = c"ERR T-Digest: error parsing compression parameter",
        COMPRESSION_RANGE = c"ERR T-Digest: compression parameter needs to be a positive integer",
        NO_MEMORY = c"ERR T-Digest: allocation failed",
        NO_MEMORY_FOR_MERGE = c"ERR T-Digest: allocation of destination digest failed",
        BAD_NUMKEYS = c"ERR T-Digest: error parsing numkeys",
        NUMKEYS_RANGE = c"ERR T-Digest: numkeys needs to be a positive integer",
        BAD_OBSERVATION = c"ERR T-Digest: error parsing val parameter",
        NOT_FINITE = c"ERR T-Digest: val parameter needs to be a finite number",
        OVERFLOW = c"ERR T-Digest: overflow detected",
        BAD_QUANTILE = c"ERR T-Digest: error parsing quantile",
        QUANTILE_RANGE = c"ERR T-Digest: quantile should be in [0,1]",
        BAD_CDF = c"ERR T-Digest: error parsing cdf",
        BAD_VALUE = c"ERR T-Digest: error parsing value",
        BAD_RANK = c"ERR T-Digest: error parsing rank",
        RANK_RANGE = c"ERR T-Digest: rank needs to be non negative",
        BAD_LOW_CUT = c"ERR T-Digest: error parsing low_cut_percentile",
        BAD_HIGH_CUT = c"ERR T-Digest: error parsing high_cut_percentile",
        CUT_RANGE = c"ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]",
        CUT_ORDER = c"ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
    }
}
