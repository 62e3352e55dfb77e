//! Scalable Bloom filters: a chain of layers, newest last, in one of two layouts.
//!
//! Almeida, Baquero, Preguiça, Hutchison, "Scalable Bloom Filters" (2007): when the
//! newest layer holds as many items as it was made for, a larger and stricter one
//! is added, and an item is present where any layer has all its bits.

use super::buffer::{OutOfMemory, Part};
use super::quota::Quota;

pub mod layout;

use layout::{blocked, redisbloom};

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

/// A Bloom filter in one of the layouts.
#[derive(Debug, PartialEq)]
pub enum Filter {
    /// RedisBloom's bits.
    RedisBloom(Box<redisbloom::Chain>),
    /// Our own.
    Blocked(blocked::Chain),
}

/// What a layer of a filter is, for `BF.DEBUG` and metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerInfo {
    /// Bytes of the bit array.
    pub bytes: u64,
    /// Bits that probes can reach.
    pub bits: u64,
    /// Probes per item.
    pub hashes: u32,
    /// Bits of the hash function: 32 in filters of RedisBloom 1.x, else 64 or more.
    pub hash_width: u32,
    /// Items that the layer is made for.
    pub capacity: u64,
    /// Items in it.
    pub size: u64,
    /// Its false positive rate when it holds them.
    pub rate: f64,
}

impl Filter {
    /// An empty filter in RedisBloom's layout.
    ///
    /// # Errors
    ///
    /// As [`CreateError`] says.
    pub fn redisbloom(params: Params, quota: Quota<'_>) -> Result<Self, CreateError> {
        redisbloom::Chain::new(params, quota).map(|chain| Self::RedisBloom(Box::new(chain)))
    }

    /// An empty filter in our own layout. `seed` should be random and secret.
    ///
    /// # Errors
    ///
    /// As [`CreateError`] says.
    pub fn blocked(params: Params, seed: u64, quota: Quota<'_>) -> Result<Self, CreateError> {
        blocked::Chain::new(&params, seed, quota).map(Self::Blocked)
    }

    /// Items counted, those that were new when added.
    pub fn items(&self) -> u64 {
        match self {
            Self::RedisBloom(chain) => chain.items(),
            Self::Blocked(chain) => chain.items(),
        }
    }

    /// Items that all layers together are made for.
    pub fn capacity(&self) -> u64 {
        match self {
            Self::RedisBloom(chain) => chain.capacity(),
            Self::Blocked(chain) => chain.capacity(),
        }
    }

    /// Number of layers.
    pub fn layers(&self) -> u64 {
        match self {
            Self::RedisBloom(chain) => chain.links().len() as u64,
            Self::Blocked(chain) => chain.layers(),
        }
    }

    /// Capacity of a further layer as a multiple of the newest one's; `None` where
    /// the filter does not scale.
    pub fn expansion(&self) -> Option<u32> {
        match self {
            Self::RedisBloom(chain) => chain.scaling().then(|| chain.growth()),
            Self::Blocked(chain) => chain.scaling().then(|| chain.expansion()),
        }
    }

    /// Bytes as `BF.INFO` reports them.
    pub fn reported_bytes(&self) -> u64 {
        match self {
            Self::RedisBloom(chain) => chain.reported_bytes(),
            Self::Blocked(chain) => chain.heap_bytes(),
        }
    }

    /// Bytes of all heap blocks, as they were asked for.
    pub fn heap_bytes(&self) -> u64 {
        match self {
            Self::RedisBloom(chain) => chain.heap_bytes(),
            Self::Blocked(chain) => chain.heap_bytes(),
        }
    }

    /// A copy with memory of its own.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        match self {
            Self::RedisBloom(chain) => Ok(Self::RedisBloom(Box::new(chain.try_clone()?))),
            Self::Blocked(chain) => chain.try_clone().map(Self::Blocked),
        }
    }

    /// Shows every heap block of the filter.
    pub fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        match self {
            Self::RedisBloom(chain) => {
                visit(chain);
                chain.parts(visit);
            }
            Self::Blocked(chain) => chain.parts(visit),
        }
    }

    /// The layers, oldest first.
    pub fn layer_infos(&self) -> Vec<LayerInfo> {
        match self {
            Self::RedisBloom(chain) => chain.layer_infos().collect(),
            Self::Blocked(chain) => chain.layer_infos().collect(),
        }
    }

    /// The part of all bits that is set, 0 to 1; of large filters by a sample.
    pub fn fill_ratio(&self) -> f64 {
        match self {
            Self::RedisBloom(chain) => chain.fill_ratio(),
            Self::Blocked(chain) => chain.fill_ratio(),
        }
    }

    /// The number of distinct items that the set bits speak for: `-m/k ln(1 - fill)`
    /// of each layer (Swamidass, Baldi 2007). Other than the items counted, it does
    /// not miss those that were taken for present when they were added.
    pub fn estimated_items(&self) -> f64 {
        match self {
            Self::RedisBloom(chain) => chain.estimated_items(),
            Self::Blocked(chain) => chain.estimated_items(),
        }
    }

    /// The false positive rate to be expected now, from the items in each layer.
    pub fn estimated_rate(&self) -> f64 {
        match self {
            Self::RedisBloom(chain) => chain.estimated_rate(),
            Self::Blocked(chain) => chain.estimated_rate(),
        }
    }

    /// Whether `item` is reported present.
    #[inline]
    pub fn contains(&self, item: &[u8]) -> bool {
        match self {
            Self::RedisBloom(chain) => chain.contains(item),
            Self::Blocked(chain) => chain.contains(item),
        }
    }

    /// [`contains`](Self::contains) for many items.
    ///
    /// # Panics
    ///
    /// Where the slices differ in length.
    pub fn contains_batch(&self, items: &[&[u8]], found: &mut [bool]) {
        match self {
            Self::RedisBloom(chain) => chain.contains_batch(items, found),
            Self::Blocked(chain) => chain.contains_batch(items, found),
        }
    }

    /// Adds `item` unless it is reported present.
    ///
    /// # Errors
    ///
    /// As [`Refusal`] says.
    #[inline]
    pub fn insert(&mut self, item: &[u8], quota: Quota<'_>) -> Insertion {
        match self {
            Self::RedisBloom(chain) => chain.insert(item, quota),
            Self::Blocked(chain) => chain.insert(item, quota),
        }
    }

    /// [`insert`](Self::insert) for many items in turn, into as many outcomes. It
    /// stops behind a [`Refusal::Full`]; the number of outcomes is returned.
    ///
    /// # Panics
    ///
    /// Where the slices differ in length.
    pub fn insert_batch(
        &mut self,
        items: &[&[u8]],
        quota: Quota<'_>,
        outcomes: &mut [Insertion],
    ) -> usize {
        match self {
            Self::RedisBloom(chain) => chain.insert_batch(items, quota, outcomes),
            Self::Blocked(chain) => chain.insert_batch(items, quota, outcomes),
        }
    }
}
