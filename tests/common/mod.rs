//! Starts real servers with the module for the integration tests, and talks to them.
//!
//! What the tests run against comes from the environment:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FERROBLOOM_SERVER` | server program to start | `redis-server` on the `PATH` |
//! | `FERROBLOOM_MODULE` | module to load | `release/libferrobloom.so` in Cargo's target folder |
//! | `FERROBLOOM_MODULE_ARGS` | arguments loaded in place of those a test asks for; empty: none | the test's |
//! | `FERROBLOOM_PEER` | RedisBloom's `redisbloom.so` | `.servers/redisbloom.so`, see `make peer` |
//! | `FERROBLOOM_URL` | `redis://host:port` of a running server with the module; tests that need a server of their own are skipped | none |

#![allow(dead_code, unused_imports, reason = "each test file uses the part it needs")]

pub(crate) mod golden;
pub(crate) mod kind;
pub(crate) mod payload;
pub(crate) mod resp;
pub(crate) mod server;
pub(crate) mod sha256;

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use kind::Kind;
pub(crate) use resp::{Protocol, Reply, RespConnection};
pub(crate) use server::{Builder, Server};

/// Says on standard error, past the test runner's capture, that the running test
/// does not check anything here, and why.
pub(crate) fn skip(why: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("skipped: {test}: {why}\n");
    // In one write, so that tests do not talk into each other. A failure to print
    // must not fail the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether tests can start, stop and configure servers. If not, says that the
/// running test is skipped: `if !common::own_server() { return; }`.
pub(crate) fn own_server() -> bool {
    if external_address().is_some() {
        skip("needs a server of its own, and FERROBLOOM_URL names a running one");
        return false;
    }
    true
}

/// RedisBloom's module, if it is at hand; says that the running test is skipped if not.
///
/// # Panics
/// When `FERROBLOOM_PEER` names a file that does not exist.
pub(crate) fn peer() -> Option<PathBuf> {
    if !own_server() {
        return None;
    }
    if let Some(path) = env::var_os("FERROBLOOM_PEER").map(PathBuf::from) {
        assert!(path.is_file(), "FERROBLOOM_PEER names no file: {}", path.display());
        return Some(path);
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers/redisbloom.so");
    if fetched.is_file() {
        return Some(fetched);
    }
    skip("needs RedisBloom's module: run `make peer` or set FERROBLOOM_PEER");
    None
}

/// The module under test.
///
/// # Panics
/// When it is not built yet.
pub(crate) fn module() -> PathBuf {
    let built = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
        target.join("release/libferrobloom.so")
    };
    let path = env::var_os("FERROBLOOM_MODULE").map_or_else(built, PathBuf::from);
    let path = path.canonicalize().unwrap_or(path);
    assert!(
        path.is_file(),
        "no module at {}: run `make build` first, or set FERROBLOOM_MODULE",
        path.display()
    );
    path
}

/// The arguments to load the module under test with: those that a test asks for,
/// unless `FERROBLOOM_MODULE_ARGS` replaces them.
pub(crate) fn module_args(wanted: &[String]) -> Vec<String> {
    match env::var("FERROBLOOM_MODULE_ARGS") {
        Ok(instead) => instead.split_whitespace().map(str::to_owned).collect(),
        Err(_) => wanted.to_vec(),
    }
}

/// Whether tests can choose the module's arguments. If not, says that the running test
/// is skipped: `if !common::own_arguments() { return; }`.
pub(crate) fn own_arguments() -> bool {
    if own_server() && env::var_os("FERROBLOOM_MODULE_ARGS").is_none() {
        return true;
    }
    skip("chooses the module's arguments, and FERROBLOOM_MODULE_ARGS or FERROBLOOM_URL does");
    false
}

/// `host:port` of `FERROBLOOM_URL`.
pub(crate) fn external_address() -> Option<String> {
    let url = env::var("FERROBLOOM_URL").ok().filter(|url| !url.is_empty())?;
    let address = url.strip_prefix("redis://").unwrap_or(&url);
    let address = address.split('/').next().unwrap_or(address);
    Some(if address.contains(':') { address.to_owned() } else { format!("{address}:6379") })
}

/// Waits until `done` says so.
///
/// # Panics
/// After a minute, naming `what` did not come.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "waited a minute in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
