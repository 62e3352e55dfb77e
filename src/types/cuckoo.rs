//! `MBbloomCF`: cuckoo filters.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Once;

use super::{Purpose, Stored};
use crate::codec::{self, LoadError, Sink, Source};
use crate::host::stream::Aof;
use crate::host::{Level, Measure, Native, Tally, TypeHandle, log};
use crate::structures::buffer::Part;
use crate::structures::cuckoo;

/// A cuckoo filter as keys hold it: its place stays while its content changes.
pub type Filter = Box<cuckoo::Filter>;

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
        Measure {
            bytes: size_of::<cuckoo::Filter>() as u64 + self.heap_bytes(),
            items: self.items(),
            layers: self.tables().len() as u64,
        }
    }

    fn into_raw(self) -> *mut c_void {
        Box::into_raw(self).cast()
    }

    unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw(raw.cast()) }
    }
}

impl Stored for Filter {
    const NAME: &'static CStr = c"MBbloomCF";
    const VERSION: c_int = codec::cuckoo::VERSION;

    fn load(source: &mut impl Source, version: c_int) -> Result<Self, LoadError> {
        let filter = codec::cuckoo::load(source, version)?;
        if version < Self::VERSION {
            warn_of_old_encoding(version);
        }
        Ok(Self::new(filter))
    }

    fn save(&self, _purpose: Purpose, sink: &mut impl Sink) {
        codec::cuckoo::save(self, sink);
    }

    fn rewrite(&self, aof: &mut Aof) -> bool {
        let command = c"CF.LOADCHUNK";
        aof.chunk(command, 1, &codec::cuckoo::header(self));
        let mut iterator = 1;
        while let Some((next, data)) = codec::cuckoo::chunk(self, iterator) {
            aof.chunk(command, next as i64, data);
            iterator = next;
        }
        true
    }

    fn try_clone(&self) -> Option<Self> {
        cuckoo::Filter::try_clone(self).ok().map(Self::new)
    }

    fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(self);
        cuckoo::Filter::parts(self, visit);
    }
}

/// Says once, not for each of perhaps a million keys, that there are filters of
/// modules with another hash function.
fn warn_of_old_encoding(version: c_int) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log(
            Level::Warning,
            &format!(
                "a cuckoo filter has encoding version {version}, of a very old module: most of \
                 its items will not be found, as in RedisBloom; rebuild such filters"
            ),
        );
    });
}
