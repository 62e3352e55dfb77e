//! Making a chain of what was stored.

#![forbid(unsafe_code)]

use super::super::super::{CreateError, Params};
use super::layer::Layer;
use super::{Chain, Record};
use crate::structures::buffer::OutOfMemory;

/// Why stored layers do not make a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// No memory.
    OutOfMemory,
    /// A number that no chain has; says which.
    Invalid(&'static str),
}

impl From<OutOfMemory> for RestoreError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// How a chain is made of what was stored: [`restore`](Self::restore) with the
/// first layer, then [`restore_next`](Self::restore_next) for each other. Memory is
/// taken as the layers come, zeroed and untouched.
impl Chain {
    /// A chain with the stored first layer, its bits 0.
    ///
    /// # Errors
    ///
    /// [`RestoreError`].
    pub fn restore(params: &Params, seed: u64, first: Record) -> Result<Self, RestoreError> {
        let rate = params.error_rate;
        require(rate > 0.0 && rate < 1.0, "error rate")?;
        require((1..=u32::MAX.into()).contains(&params.capacity), "capacity")?;
        require(first.capacity == params.capacity, "capacity of the first layer")?;
        require(u16::try_from(params.expansion).is_ok(), "expansion")?;
        Self::check(first)?;
        let mut chain = match Self::with_first(params, seed, first.shape) {
            Ok(chain) => chain,
            Err(CreateError::OutOfMemory) => return Err(RestoreError::OutOfMemory),
            Err(CreateError::Impossible) => return Err(RestoreError::Invalid("parameters")),
        };
        let head = chain.0.parts_mut().0;
        match &mut head.newest {
            Some(node) => node.layer.size = first.size,
            // At most the capacity, which has 32 bits.
            None => head.size = first.size as u32,
        }
        Ok(chain)
    }

    /// Adds the stored next layer, its bits 0.
    ///
    /// # Errors
    ///
    /// [`RestoreError`], also where the chain so far would not have grown.
    pub fn restore_next(&mut self, next: Record) -> Result<(), RestoreError> {
        let newest = self.newest();
        require(self.scaling(), "layers of a filter that does not scale")?;
        require(newest.size == newest.capacity, "layer after one with room")?;
        require(self.next_capacity() == Some(next.capacity), "capacity of a layer")?;
        Self::check(next)?;
        let mut layer = Layer::new(next.shape, next.capacity)?;
        layer.size = next.size;
        self.push(layer);
        Ok(())
    }

    fn check(record: Record) -> Result<(), RestoreError> {
        require(record.size <= record.capacity, "items of a layer")?;
        require(record.shape.is_plausible(record.capacity), "shape of a layer")
    }
}

fn require(holds: bool, what: &'static str) -> Result<(), RestoreError> {
    if holds { Ok(()) } else { Err(RestoreError::Invalid(what)) }
}
