//! `MBbloom--`: Bloom filters in either layout.

use std::ffi::{CStr, c_int, c_void};

use super::{Purpose, Stored};
use crate::codec::{self, LoadError, Sink, Source};
use crate::host::stream::Aof;
use crate::host::{Measure, Native, Tally, TypeHandle};
pub use crate::structures::bloom::Filter;
use crate::structures::bloom::layout::redisbloom::Chain;
use crate::structures::buffer::{OutOfMemory, Part};

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
            Self::RedisBloom(chain) => Box::into_raw(chain).cast(),
        }
    }

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: the caller's promise.
        Self::RedisBloom(unsafe { Box::from_raw(raw.cast::<Chain>()) })
    }
}

impl Stored for Filter {
    const NAME: &'static CStr = c"MBbloom--";
    const VERSION: c_int = codec::bloom::VERSION;

    fn load(source: &mut impl Source, version: c_int) -> Result<Self, LoadError> {
        codec::bloom::load(source, version)
    }

    fn save(&self, _purpose: Purpose, sink: &mut impl Sink) -> Result<(), OutOfMemory> {
        codec::bloom::save(self, sink);
        Ok(())
    }

    fn rewrite(&self, aof: &mut Aof) -> bool {
        let command = c"BF.LOADCHUNK";
        aof.chunk(command, 1, &codec::bloom::header(self));
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
