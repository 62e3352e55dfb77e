//! The blocked layout: an item is hashed once with the key's secret seed, and its
//! bits lie in few cache lines of each layer, or, in layers of a few kilobytes,
//! anywhere.
//!
//! Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters"
//! (2007); Almeida et al., "Scalable Bloom Filters" (2007). [`sizing`] has the
//! formulas, `layer` the bits, `operations` looks items up and adds them, `report`
//! tells about a chain, `restore` makes one of what was stored.
//!
//! A chain is a value of one pointer. Its block holds the parameters and, where
//! that has no cache lines, the first layer's bits: a key with a small filter is
//! one allocation. What a chain becomes depends on its parameters, its seed and the
//! items in their order, on nothing else.

use std::alloc::Layout;
use std::fmt;
use std::iter;
use std::ptr::NonNull;

use self::layer::{Free, Layer, View, slice_of};
use self::sizing::Shape;
use super::super::{CreateError, Params};
use crate::structures::buffer::{Line, OutOfMemory, Part};
use crate::structures::quota::Quota;
use crate::structures::thin::Thin;

mod layer;
mod operations;
mod report;
mod restore;
pub mod sizing;

pub use self::layer::Bits;
pub use self::report::Record;
pub use self::restore::RestoreError;

#[cfg(test)]
mod tests;

/// Further layers each have one layer of RedisBloom's until there are so many.
/// From then on, where layers do not grow by themselves (expansion 1), a layer
/// takes the place of as many as hold a quarter of all capacity before it: so a
/// chain of a million equal layers is some seventy deep. Counts and capacities are
/// reported as if each was there.
const LAYERS_OF_THEIR_OWN: usize = 16;

/// The head of a chain's block.
#[derive(Debug)]
struct Head {
    seed: u64,
    error_rate: f64,
    /// The newest of the layers that are not in the block itself.
    newest: Option<Box<Node>>,
    /// Items that the first layer is made for.
    capacity: u32,
    /// Items in the first layer, if it is in the block.
    size: u32,
}

/// What else a chain is made with.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Note {
    expansion: u16,
    /// Bits of an item in the first layer, if that is in the block.
    probes: u8,
    scaling: bool,
}

/// A layer outside the block, and the one that was the newest before it.
///
/// A list, as a table would cost every chain of one large layer a second
/// allocation; its nodes are few.
#[derive(Debug, PartialEq)]
struct Node {
    layer: Layer,
    older: Option<Box<Node>>,
}

/// A scalable Bloom filter in the blocked layout.
#[repr(transparent)]
pub struct Chain(Thin<Head, Note>);

/// How far a layer is filled.
#[derive(Clone, Copy)]
struct Fill {
    capacity: u64,
    size: u64,
}

impl Chain {
    /// An empty filter. `seed` keeps others from computing which items collide: it
    /// should be random and secret.
    ///
    /// # Errors
    ///
    /// [`CreateError::OutOfMemory`] where the quota or the allocator refuses, and
    /// [`CreateError::Impossible`] for a capacity of 0 or beyond 32 bits, a rate
    /// outside of 0 to 1 or whose half is 0 in a filter that scales, or an
    /// expansion beyond 16 bits.
    pub fn new(params: &Params, seed: u64, quota: Quota<'_>) -> Result<Self, CreateError> {
        let rate = params.error_rate;
        let valid = rate > 0.0 && rate < 1.0 && !(params.scaling && rate * 0.5 == 0.0);
        if !valid || params.capacity == 0 {
            return Err(CreateError::Impossible);
        }
        let shape = sizing::shape(rate, params.capacity, 0, params.scaling);
        let shape = shape.ok_or(CreateError::OutOfMemory)?;
        quota.ask(0, Self::first_bytes(shape))?;
        Self::with_first(params, seed, shape)
    }

    /// An empty filter with a first layer of `shape`.
    fn with_first(params: &Params, seed: u64, shape: Shape) -> Result<Self, CreateError> {
        let capacity = u32::try_from(params.capacity).map_err(|_| CreateError::Impossible)?;
        let expansion = u16::try_from(params.expansion).map_err(|_| CreateError::Impossible)?;
        let head = Head { seed, error_rate: params.error_rate, newest: None, capacity, size: 0 };
        let note = Note { expansion, probes: 0, scaling: params.scaling };
        if let Shape::Free { words, probes } = shape {
            let words = usize::try_from(words).map_err(|_| CreateError::OutOfMemory)?;
            return Ok(Self(Thin::new(head, Note { probes, ..note }, words)?));
        }
        let mut chain = Self(Thin::new(head, note, 0)?);
        chain.push(Layer::new(shape, params.capacity)?);
        Ok(chain)
    }

    /// Bytes of a chain with one layer of `shape`.
    fn first_bytes(shape: Shape) -> u64 {
        let bits = match shape {
            Shape::Free { .. } => shape.bytes(),
            Shape::Lines { .. } => Self::further_bytes(shape),
        };
        (Thin::<Head, Note>::size_for(0) as u64).saturating_add(bits)
    }

    /// Bytes of a layer of `shape` outside the block, with what aligning it to a
    /// line may take.
    fn further_bytes(shape: Shape) -> u64 {
        let aligning = match shape {
            Shape::Free { .. } => 0,
            Shape::Lines { .. } => size_of::<Line>(),
        };
        shape.bytes().saturating_add((size_of::<Node>() + aligning) as u64)
    }

    /// Adds a layer.
    fn push(&mut self, layer: Layer) {
        let newest = &mut self.0.parts_mut().0.newest;
        let older = newest.take();
        *newest = Some(Box::new(Node { layer, older }));
    }

    /// Items that a layer after the newest would be made for. `None` where the
    /// number is 0 or exceeds 64 bits.
    fn next_capacity(&self) -> Option<u64> {
        let expansion = u64::from(self.0.note().expansion);
        let next = self.newest().capacity.checked_mul(expansion)?;
        if expansion != 1 || self.depth() < LAYERS_OF_THEIR_OWN {
            return (next > 0).then_some(next);
        }
        let one = u64::from(self.0.head().capacity);
        let held = self.fills().try_fold(0u64, |sum, layer| sum.checked_add(layer.capacity))?;
        (held / 4).div_ceil(one).max(1).checked_mul(one)
    }

    /// The layers outside the block, newest first.
    #[inline(always)]
    fn further(&self) -> impl Iterator<Item = &Layer> {
        let newest = self.0.head().newest.as_deref();
        iter::successors(newest, |node| node.older.as_deref()).map(|node| &node.layer)
    }

    /// The layer in the block, if there is one.
    #[inline(always)]
    fn inline(&self) -> Option<View<'_>> {
        let (words, probes) = (self.0.words(), self.0.note().probes);
        let free = || View::Free(Free::new(words, slice_of(words.len(), probes), probes));
        (!words.is_empty()).then(free)
    }

    /// The layers, newest first.
    #[inline(always)]
    fn views(&self) -> impl Iterator<Item = View<'_>> {
        self.further().map(Layer::view).chain(self.inline())
    }

    /// How far the layers are filled, newest first.
    #[inline(always)]
    fn fills(&self) -> impl Iterator<Item = Fill> {
        let head = self.0.head();
        let first = Fill { capacity: head.capacity.into(), size: head.size.into() };
        let inline = (!self.0.words().is_empty()).then_some(first);
        let further = self.further();
        further.map(|layer| Fill { capacity: layer.capacity, size: layer.size }).chain(inline)
    }

    /// How far the newest layer is filled.
    #[inline(always)]
    fn newest(&self) -> Fill {
        self.fills().next().unwrap_or(Fill { capacity: 0, size: 0 })
    }

    /// Layers in memory.
    fn depth(&self) -> usize {
        self.fills().count()
    }

    /// A second filter with the same content.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where the allocator has no room.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let head = Head { newest: None, ..*self.0.head() };
        let mut copy = Self(Thin::new(head, *self.0.note(), self.0.words().len())?);
        copy.0.parts_mut().2.copy_from_slice(self.0.words());
        let further: Vec<&Layer> = self.further().collect();
        for layer in further.into_iter().rev() {
            copy.push(layer.try_clone()?);
        }
        Ok(copy)
    }
}

/// A chain as an address.
impl Chain {
    /// Gives the chain away as the address of its block, a multiple of 8.
    pub fn into_raw(self) -> NonNull<()> {
        self.0.into_raw()
    }

    /// Takes back what [`into_raw`](Self::into_raw) gave away.
    ///
    /// # Safety
    ///
    /// `block` must come from `into_raw`, and only one value may own it.
    pub unsafe fn from_raw(block: NonNull<()>) -> Self {
        // SAFETY: `Chain` is a `Thin` of just these types; the rest is the caller's.
        Self(unsafe { Thin::from_raw(block) })
    }
}

impl Part for Chain {
    fn block(&self) -> (NonNull<u8>, Layout) {
        self.0.block()
    }

    unsafe fn moved_to(&mut self, block: NonNull<u8>) {
        // SAFETY: the same contract.
        unsafe { self.0.moved_to(block) }
    }
}

impl Chain {
    /// Shows every heap block of the chain, its own first.
    pub fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(self);
        let mut next = self.0.parts_mut().0.newest.as_mut();
        while let Some(node) = next {
            visit(node);
            match &mut node.layer.bits {
                Bits::Words { words, .. } => visit(words),
                Bits::Lines { all, .. } => visit(all),
            }
            next = node.older.as_mut();
        }
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.0.head(), other.0.head());
        (a.seed, a.error_rate.to_bits(), a.capacity, a.size)
            == (b.seed, b.error_rate.to_bits(), b.capacity, b.size)
            && self.0.note() == other.0.note()
            && self.0.words() == other.0.words()
            && a.newest == b.newest
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the seed, which is secret, and the bits, which are many.
        f.debug_struct("Chain")
            .field("params", &self.params())
            .field("layers", &self.records().collect::<Vec<_>>())
            .finish()
    }
}
