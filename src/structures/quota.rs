//! Permission to allocate, asked for before every allocation whose size a client
//! chose.

use super::buffer::OutOfMemory;

/// Decides whether a structure may grow.
///
/// The cores do not know limits: the caller (a command) knows the limit per key,
/// the server's `maxmemory`, and that a replica has to follow its primary. It is
/// asked only when something is about to be allocated, so it costs the hot path
/// nothing.
#[derive(Clone, Copy)]
pub struct Quota<'a>(&'a dyn Fn(Growth) -> bool);

/// An allocation that a structure is about to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Bytes that come in addition.
    pub more: u64,
    /// Bytes of the whole structure afterwards.
    pub total: u64,
}

impl<'a> Quota<'a> {
    /// A quota that asks `allows`.
    pub const fn new(allows: &'a dyn Fn(Growth) -> bool) -> Self {
        Self(allows)
    }

    /// Asks for `more` bytes on top of the `held` ones.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] where it is refused or the sum overflows.
    pub fn ask(self, held: u64, more: u64) -> Result<(), OutOfMemory> {
        let total = held.checked_add(more).ok_or(OutOfMemory)?;
        if (self.0)(Growth { more, total }) { Ok(()) } else { Err(OutOfMemory) }
    }
}

impl Quota<'static> {
    /// No limit but the address space.
    pub const UNLIMITED: Self = Self(&|growth| growth.total <= isize::MAX as u64);
}
