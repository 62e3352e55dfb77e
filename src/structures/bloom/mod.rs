//! Scalable Bloom filters: a chain of layers, newest last, in one of two layouts.
//!
//! Almeida, Baquero, Preguiça, Hutchison, "Scalable Bloom Filters" (2007): when the
//! newest layer holds as many items as it was made for, a larger and stricter one
//! is added, and an item is present where any layer has all its bits.

use super::buffer::OutOfMemory;

pub mod layout;

/// What a filter is made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Items that the first layer is made for, at least 1.
    pub capacity: u64,
    /// The false positive rate asked for, above 0 and at most 0.25.
    pub error_rate: f64,
    /// The capacity of each further layer, as a multiple of the one before. Stored
    /// also where `scaling` is off, as RedisBloom does.
    pub expansion: u32,
    /// Whether a full filter gets a further layer; without, it refuses items.
    pub scaling: bool,
}

/// Why a filter could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateError {
    /// No memory, or none allowed.
    OutOfMemory,
    /// No layer has these parameters (a rate so small that its half is 0).
    Impossible,
}

impl From<OutOfMemory> for CreateError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Why an item that is not in a filter was not added either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A filter that does not scale holds all the items it was made for.
    Full,
    /// A further layer was due and could not be made: no memory, none allowed, or
    /// no such layer (see the layouts' limits).
    CannotGrow,
}

/// What became of an item: `Ok(true)` if it was added, `Ok(false)` if it was
/// reported present already.
pub type Insertion = Result<bool, Refusal>;
