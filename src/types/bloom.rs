//! `MBbloom--`: Bloom filters in either layout.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use super::{Purpose, Stored};
use crate::codec::{self, LoadError, Sink, Source};
use crate::host::stream::Aof;
use crate::host::{Measure, Native, Tally, TypeHandle};
pub use crate::structures::bloom::Filter;
use crate::structures::bloom::layout::{blocked, redisbloom};
use crate::structures::buffer::Part;

static TYPE: TypeHandle = TypeHandle::new();
static TALLY: Tally = Tally::new();

// SAFETY: `TYPE` is used here alone; a box stays where it is while its content
// changes.
unsafe impl Native for Filter {
    fn handle() -> &'static TypeHandle {
        &TYPE
    }

    fn tally() -> &'static Tally {
        &TALLY
    }

    fn measure(&self) -> Measure {
        Measure { bytes: self.heap_bytes(), items: self.items(), layers: self.layers() }
    }

    fn into_raw(self) -> *mut c_void {
        match self {
            Self::RedisBloom(chain) => Box::into_raw(chain).cast::<c_void>().map_addr(tagged),
            Self::Blocked(chain) => chain.into_raw().as_ptr().cast(),
        }
    }

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        let block = raw.map_addr(untagged);
        // SAFETY: the caller's promise; the mark tells which of the two it was.
        unsafe {
            if raw == block {
                Self::Blocked(blocked::Chain::from_raw(NonNull::new_unchecked(raw.cast())))
            } else {
                Self::RedisBloom(Box::from_raw(block.cast::<redisbloom::Chain>()))
            }
        }
    }
}

/// Marks the address of a chain in RedisBloom's layout. Both kinds of chains are
/// aligned to a word, so the lowest bit is free; a box around the two would cost
/// small filters an allocation.
fn tagged(address: usize) -> usize {
    address | 1
}

fn untagged(address: usize) -> usize {
    address & !1
}

const _: () = assert!(align_of::<redisbloom::Chain>() > 1);

impl Stored for Filter {
    const NAME: &'static CStr = c"MBbloom--";
    const VERSION: c_int = codec::bloom::VERSION;

    fn load(source: &mut impl Source, version: c_int) -> Result<Self, LoadError> {
        codec::bloom::load(source, version)
    }

    fn save(&self, _purpose: Purpose, sink: &mut impl Sink) {
        codec::bloom::save(self, sink);
    }

    fn rewrite(&self, aof: &mut Aof) -> bool {
        let command = c"BF.LOADCHUNK";
        aof.chunk(command, 1, codec::bloom::header_in(self, &mut [0; codec::bloom::MAX_HEADER]));
        let mut iterator = 1;
        while let Some((next, data)) = codec::bloom::chunk(self, iterator) {
            aof.chunk(command, next, data);
            iterator = next;
        }
        true
    }

    fn try_clone(&self) -> Option<Self> {
        Self::try_clone(self).ok()
    }

    fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        Self::parts(self, visit);
    }
}
