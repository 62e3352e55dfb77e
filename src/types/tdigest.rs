//! `TDIS-TYPE`: t-digests.

use std::ffi::{CStr, c_int, c_void};

use super::{Purpose, Stored};
use crate::codec::tdigest::{self as codec, Form};
use crate::codec::{LoadError, Sink, Source};
use crate::host::stream::Aof;
use crate::host::{Measure, Native, Tally, TypeHandle};
use crate::structures::buffer::Part;
use crate::structures::tdigest::TDigest;

/// The value of a key.
pub type Digest = Box<TDigest>;

static TYPE: TypeHandle = TypeHandle::new();
static TALLY: Tally = Tally::new();

// SAFETY: `TYPE` is used here alone; a box stays where it is while its content
// changes.
unsafe impl Native for Digest {
    fn handle() -> &'static TypeHandle {
        &TYPE
    }

    fn tally() -> &'static Tally {
        &TALLY
    }

    /// Without the view of the last question: reading makes it, and readings are
    /// not counted.
    fn measure(&self) -> Measure {
        let bytes = size_of::<TDigest>() + self.stored_bytes();
        Measure { bytes: bytes as u64, items: self.observations(), layers: 0 }
    }

    fn into_raw(self) -> *mut c_void {
        Box::into_raw(self).cast()
    }

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Box::from_raw(raw.cast::<TDigest>()) }
    }
}

impl Stored for Digest {
    const NAME: &'static CStr = c"TDIS-TYPE";
    const VERSION: c_int = codec::VERSION;

    fn load(source: &mut impl Source, version: c_int) -> Result<Self, LoadError> {
        codec::load(source, version).map(Box::new)
    }

    fn save(&self, purpose: Purpose, sink: &mut impl Sink) {
        // Replicas and restarts go on where this digest stands. A payload is the
        // same as RedisBloom's.
        match purpose {
            Purpose::Snapshot => codec::save(self, Form::Exact, sink),
            Purpose::Dump => codec::save(self, Form::Compressed, sink),
            Purpose::Digest => codec::save_plain(self, sink),
        }
    }

    fn rewrite(&self, aof: &mut Aof) -> bool {
        aof.restore()
    }

    fn try_clone(&self) -> Option<Self> {
        TDigest::try_clone(self).ok().map(Box::new)
    }

    fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(self);
        self.buffers_mut().for_each(|buffer| visit(buffer));
    }
}
