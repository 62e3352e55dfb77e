//! The settings: names, ranges and values. `CONFIG` parameters from Redis 7.0 on,
//! load arguments on every server.
//!
//! Names, defaults, ranges and texts of the first eight are RedisBloom's. A load
//! argument sets the default; a value of the server's configuration wins over it.

use std::ffi::{CStr, CString};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::host::{Args, Ctx, Level, LoadFailure, Rejection, Setting, StringRef, huge, log};

/// Largest capacity and initial size of a filter (RedisBloom's).
pub const MAX_CAPACITY: u64 = 1 << 30;
/// Largest expansion (RedisBloom's).
pub const MAX_EXPANSION: u64 = 32_768;
/// A false positive rate above this is taken as this (RedisBloom's).
pub const MAX_ERROR_RATE: f64 = 0.25;
/// Most iterations of a cuckoo filter's eviction.
pub const MAX_ITERATIONS: u64 = 65_535;
const MAX_BUCKET_SIZE: u64 = 255;

/// How new Bloom filters are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Our own: faster, with a secret seed.
    Blocked,
    /// RedisBloom's, bit for bit.
    RedisBloom,
}

static ERROR_RATE: AtomicU64 = AtomicU64::new(0.01f64.to_bits());
static INITIAL_SIZE: AtomicU64 = AtomicU64::new(100);
static EXPANSION: AtomicU64 = AtomicU64::new(2);
static LAYOUT: AtomicU64 = AtomicU64::new(Layout::Blocked as u64);
static CF_BUCKET_SIZE: AtomicU64 = AtomicU64::new(2);
static CF_INITIAL_SIZE: AtomicU64 = AtomicU64::new(1024);
static CF_MAX_ITERATIONS: AtomicU64 = AtomicU64::new(20);
static CF_EXPANSION: AtomicU64 = AtomicU64::new(1);
static CF_MAX_EXPANSIONS: AtomicU64 = AtomicU64::new(32);
static MAX_MEMORY_PER_KEY: AtomicU64 = AtomicU64::new(32 << 30);

/// `bf-error-rate`: the false positive rate of filters made by an add.
pub fn error_rate() -> f64 {
    f64::from_bits(ERROR_RATE.load(Relaxed))
}

/// `bf-initial-size`: the capacity of Bloom filters made by an add.
pub fn initial_size() -> u64 {
    INITIAL_SIZE.load(Relaxed)
}

/// `bf-expansion-factor`: 0 makes new filters non-scaling.
pub fn expansion() -> u64 {
    EXPANSION.load(Relaxed)
}

/// `bf-layout`: how new Bloom filters are laid out.
pub fn layout() -> Layout {
    if LAYOUT.load(Relaxed) == Layout::Blocked as u64 {
        Layout::Blocked
    } else {
        Layout::RedisBloom
    }
}

/// `cf-bucket-size`: fingerprints in a bucket of new cuckoo filters.
pub fn cf_bucket_size() -> u64 {
    CF_BUCKET_SIZE.load(Relaxed)
}

/// `cf-initial-size`: the capacity of cuckoo filters made by an add.
pub fn cf_initial_size() -> u64 {
    CF_INITIAL_SIZE.load(Relaxed)
}

/// `cf-max-iterations`: most evictions for one item in new cuckoo filters.
pub fn cf_max_iterations() -> u64 {
    CF_MAX_ITERATIONS.load(Relaxed)
}

/// `cf-expansion-factor`: growth of new cuckoo filters.
pub fn cf_expansion() -> u64 {
    CF_EXPANSION.load(Relaxed)
}

/// `cf-max-expansions`: most sub-filters of a cuckoo filter, looked at when adding.
pub fn cf_max_expansions() -> u64 {
    CF_MAX_EXPANSIONS.load(Relaxed)
}

/// `bf-max-memory-per-key`: bytes that one key of any family may take, in creating
/// it and in growing. 0 is no limit.
pub fn max_memory_per_key() -> u64 {
    MAX_MEMORY_PER_KEY.load(Relaxed)
}

/// The range of a cuckoo filter's bucket size, which follows `cf-initial-size`.
pub fn cf_bucket_sizes() -> RangeInclusive<u64> {
    1..=MAX_BUCKET_SIZE.min(cf_initial_size() / 2)
}

/// The settings with their defaults.
static SETTINGS: [(Setting, &CStr); 11] = [
    (
        Setting {
            name: c"bf-error-rate",
            set: |text| {
                let rate = text.double().ok_or(Rejection::Invalid)?;
                if !(rate > 0.0 && rate < 1.0) {
                    return Err(Rejection::Range("(0.000000, 1.000000)".into()));
                }
                ERROR_RATE.store(rate.min(MAX_ERROR_RATE).to_bits(), Relaxed);
                if rate <= MAX_ERROR_RATE {
                    return Ok(None);
                }
                log(Level::Warning, "bf-error-rate is capped at 0.250000");
                Ok(Some(c"0.25"))
            },
        },
        c"0.01",
    ),
    (
        Setting {
            name: c"bf-initial-size",
            set: |text| store(&INITIAL_SIZE, text, 1..=MAX_CAPACITY),
        },
        c"100",
    ),
    (
        Setting {
            name: c"bf-expansion-factor",
            set: |text| store(&EXPANSION, text, 0..=MAX_EXPANSION),
        },
        c"2",
    ),
    (
        Setting {
            name: c"cf-bucket-size",
            set: |text| store(&CF_BUCKET_SIZE, text, cf_bucket_sizes()),
        },
        c"2",
    ),
    (
        Setting {
            name: c"cf-initial-size",
            set: |text| store(&CF_INITIAL_SIZE, text, 2 * cf_bucket_size()..=MAX_CAPACITY),
        },
        c"1024",
    ),
    (
        Setting {
            name: c"cf-max-iterations",
            set: |text| store(&CF_MAX_ITERATIONS, text, 1..=MAX_ITERATIONS),
        },
        c"20",
    ),
    (
        Setting {
            name: c"cf-expansion-factor",
            set: |text| store(&CF_EXPANSION, text, 0..=MAX_EXPANSION),
        },
        c"1",
    ),
    (
        Setting {
            name: c"cf-max-expansions",
            set: |text| store(&CF_MAX_EXPANSIONS, text, 1..=65_536),
        },
        c"32",
    ),
    (
        Setting {
            name: c"bf-layout",
            set: |text| {
                let word = text.bytes();
                let layout = if word.eq_ignore_ascii_case(b"blocked") {
                    Layout::Blocked
                } else if word.eq_ignore_ascii_case(b"redisbloom") {
                    Layout::RedisBloom
                } else {
                    return Err(Rejection::Range("{blocked, redisbloom}".into()));
                };
                LAYOUT.store(layout as u64, Relaxed);
                Ok(None)
            },
        },
        c"blocked",
    ),
    (
        Setting {
            name: c"bf-max-memory-per-key",
            set: |text| store(&MAX_MEMORY_PER_KEY, text, 0..=i64::MAX as u64),
        },
        c"34359738368",
    ),
    (
        Setting {
            name: c"bf-huge-pages-limit",
            set: |text| store(&huge::LARGEST_TABLE, text, 0..=i64::MAX as u64),
        },
        c"134217728",
    ),
];

/// Names that RedisBloom's load arguments had before its settings.
const LEGACY_NAMES: [(&str, &CStr); 3] = [
    ("ERROR_RATE", c"bf-error-rate"),
    ("INITIAL_SIZE", c"bf-initial-size"),
    ("CF_MAX_EXPANSIONS", c"cf-max-expansions"),
];

fn store(
    place: &AtomicU64,
    text: StringRef<'_>,
    range: RangeInclusive<u64>,
) -> Result<Option<&'static CStr>, Rejection> {
    let value = text.integer().ok_or(Rejection::Invalid)?;
    let value = u64::try_from(value).ok().filter(|value| range.contains(value));
    let (least, most) = (range.start(), range.end());
    let value = value.ok_or_else(|| Rejection::Range(format!("[{least}, {most}]")))?;
    place.store(value, Relaxed);
    Ok(None)
}

/// Applies the load arguments, then registers the settings.
///
/// # Errors
///
/// Where an argument or a value of the server's configuration is refused.
pub fn register(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), LoadFailure> {
    let mut defaults = SETTINGS.each_ref().map(|(_, default)| (*default).to_owned());
    let none = args.len() == 1 && args.bytes(0).is_empty();
    if !none {
        apply_arguments(args, &mut defaults)?;
    }
    ctx.add_settings(SETTINGS.each_ref().map(|(setting, _)| setting), &defaults)
}

fn apply_arguments(args: Args<'_>, defaults: &mut [CString]) -> Result<(), LoadFailure> {
    if !args.len().is_multiple_of(2) {
        let last = args.bytes(args.len() - 1).escape_ascii();
        let why = format!("Invalid number of arguments passed: '{last}' has no value");
        return Err(LoadFailure(why));
    }
    let mut args = args.iter();
    while let (Some(name), Some(value)) = (args.next(), args.next()) {
        let unknown =
            || LoadFailure(format!("Unrecognized option '{}'", name.bytes().escape_ascii()));
        let index = setting_named(name.bytes()).ok_or_else(unknown)?;
        let setting = &SETTINGS[index].0;
        let name = setting.name.to_string_lossy();
        let replaced =
            (setting.set)(value).map_err(|rejection| LoadFailure(rejection.for_argument(&name)))?;
        let given = CString::new(value.bytes()).unwrap_or_default();
        let text = replaced.map_or(given, CStr::to_owned);
        log(Level::Notice, &format!("Setting '{name}' to {}", text.to_string_lossy()));
        defaults[index] = text;
    }
    Ok(())
}

/// The number of the setting that a load argument names.
fn setting_named(name: &[u8]) -> Option<usize> {
    let legacy = LEGACY_NAMES.iter().find(|(old, _)| name.eq_ignore_ascii_case(old.as_bytes()));
    if let Some((old, new)) = legacy {
        let new = new.to_string_lossy();
        log(
            Level::Warning,
            &format!("The '{old}' configuration is deprecated. Please use '{new}' instead"),
        );
    }
    let name = legacy.map_or(name, |(_, new)| new.to_bytes());
    SETTINGS.iter().position(|(setting, _)| setting.name.to_bytes().eq_ignore_ascii_case(name))
}
