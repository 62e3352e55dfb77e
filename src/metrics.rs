//! What an operator can watch and alarm on: a section per family in `INFO bf`.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::host::{Ctx, InfoWriter, LoadFailure, Tally};

/// What the commands of a family have done since the server started. Commands run on
/// one thread and count once each, however many items they have.
#[derive(Debug)]
pub struct Counters {
    lookups: AtomicU64,
    hits: AtomicU64,
    added: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
    const fn new() -> Self {
        Self {
            lookups: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            added: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Items were asked for, and so many of them found.
    pub fn looked_up(&self, items: u64, found: u64) {
        count(&self.lookups, items);
        count(&self.hits, found);
    }

    /// Items, increments or observations were added.
    pub fn added(&self, items: u64) {
        count(&self.added, items);
    }

    /// Items were refused: the structure is full, or there was no memory for it.
    pub fn refused(&self, items: u64) {
        count(&self.refused, items);
    }
}

/// All writers hold the server's lock, so a load and a store do for an atomic
/// addition, without its price.
fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// The Bloom family's counters.
pub static BLOOM: Counters = Counters::new();
/// The cuckoo family's counters.
pub static CUCKOO: Counters = Counters::new();
/// The count-min sketches' counters.
pub static CMS: Counters = Counters::new();
/// The Top-K family's counters.
pub static TOPK: Counters = Counters::new();
/// The t-digests' counters.
pub static TDIGEST: Counters = Counters::new();

/// The names of a family's section and its fields.
struct Names {
    section: &'static CStr,
    fields: [&'static CStr; 8],
}

/// Two literals as one C string.
macro_rules! text {
    ($family:literal, $field:literal) => {
        match CStr::from_bytes_with_nul(concat!($family, $field, "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("the literals hold no NUL"),
        }
    };
}
/// The names of a family, by the word before the underscore.
macro_rules! names {
    ($section:literal, $family:literal) => {
        Names {
            section: $section,
            fields: [
                text!($family, "_keys"),
                text!($family, "_memory_bytes"),
                text!($family, "_items"),
                text!($family, "_layers_grown"),
                text!($family, "_lookups"),
                text!($family, "_hits"),
                text!($family, "_adds"),
                text!($family, "_refusals"),
            ],
        }
    };
}

static BLOOM_NAMES: Names = names!(c"bloom", "bloom");
static CUCKOO_NAMES: Names = names!(c"cuckoo", "cuckoo");
static CMS_NAMES: Names = names!(c"cms", "cms");
static TOPK_NAMES: Names = names!(c"topk", "topk");
static TDIGEST_NAMES: Names = names!(c"tdigest", "tdigest");

/// Registers the sections.
///
/// # Errors
///
/// Where the server refuses them.
pub fn register(ctx: Ctx<'_>) -> Result<(), LoadFailure> {
    ctx.add_info(write)
}

fn write(info: &mut InfoWriter) {
    use crate::host::Native;
    use crate::types::{bloom, cms, cuckoo, tdigest, topk};
    if info.section(c"module") {
        info.text(c"ferrobloom_version", VERSION);
    }
    family(info, &BLOOM_NAMES, bloom::Filter::tally(), &BLOOM);
    family(info, &CUCKOO_NAMES, cuckoo::Filter::tally(), &CUCKOO);
    family(info, &CMS_NAMES, cms::Sketch::tally(), &CMS);
    family(info, &TOPK_NAMES, topk::TopK::tally(), &TOPK);
    family(info, &TDIGEST_NAMES, tdigest::Digest::tally(), &TDIGEST);
}

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version holds no NUL"),
    };

fn family(info: &mut InfoWriter, names: &Names, tally: &Tally, counters: &Counters) {
    if !info.section(names.section) {
        return;
    }
    let values = [
        tally.keys(),
        tally.bytes(),
        tally.items(),
        tally.grown(),
        counters.lookups.load(Relaxed),
        counters.hits.load(Relaxed),
        counters.added.load(Relaxed),
        counters.refused.load(Relaxed),
    ];
    for (name, value) in names.fields.iter().zip(values) {
        info.number(name, value);
    }
}
