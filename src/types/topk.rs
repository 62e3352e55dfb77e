//! `TopK-TYPE`: Top-K sketches.

use std::ffi::{CStr, c_int, c_void};

use super::{Purpose, Stored};
use crate::codec::{self, LoadError, Sink, Source};
use crate::host::stream::Aof;
use crate::host::{Measure, Native, Tally, TypeHandle};
use crate::structures::buffer::Part;
use crate::structures::topk;

/// A sketch as keys hold it: its place stays while its content changes.
pub type TopK = Box<topk::TopK>;

static TYPE: TypeHandle = TypeHandle::new();
static TALLY: Tally = Tally::new();

// SAFETY: `TYPE` is used here alone; a box stays where it is while its content
// changes.
unsafe impl Native for TopK {
    fn handle() -> &'static TypeHandle {
        &TYPE
    }

    fn tally() -> &'static Tally {
        &TALLY
    }

    fn measure(&self) -> Measure {
        Measure { bytes: self.heap_bytes(), items: self.items() as u64, layers: 1 }
    }

    fn into_raw(self) -> *mut c_void {
        Box::into_raw(self).cast()
    }

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw(raw.cast()) }
    }
}

impl Stored for TopK {
    const NAME: &'static CStr = c"TopK-TYPE";
    const VERSION: c_int = codec::topk::VERSION;

    fn load(source: &mut impl Source, version: c_int) -> Result<Self, LoadError> {
        codec::topk::load(source, version).map(Self::new)
    }

    fn save(&self, purpose: Purpose, sink: &mut impl Sink) {
        match purpose {
            Purpose::Snapshot | Purpose::Dump => codec::topk::save(self, sink),
            Purpose::Digest => codec::topk::save_plain(self, sink),
        }
    }

    fn rewrite(&self, aof: &mut Aof) -> bool {
        aof.restore()
    }

    fn try_clone(&self) -> Option<Self> {
        topk::TopK::try_clone(self).ok().map(Self::new)
    }

    fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(self);
        topk::TopK::parts(self, visit);
    }
}
