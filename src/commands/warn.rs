//! Warnings in the server's log about single keys, few enough not to flood it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::host::{Level, log};

/// The least time between two warnings, of whatever keys.
const QUIET: Duration = Duration::from_secs(10);

/// Characters of a key that a warning shows.
const SHOWN: usize = 64;

/// When the last warning was written, in seconds since 1970.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Warns that the key is so or does so, unless another warning was just written.
/// The key is shown escaped: it may hold line breaks.
pub(super) fn about(key: &[u8], text: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if now.saturating_sub(LAST.load(Relaxed)) < QUIET.as_secs() {
        return;
    }
    LAST.store(now, Relaxed);
    let shown = &key[..key.len().min(SHOWN)];
    log(Level::Warning, &format!("key \"{}\" {text}", shown.escape_ascii()));
}
