//! `ferrobloom`: Bloom and cuckoo filters, count-min sketch, Top-K and t-digest as
//! one module for Redis and Valkey, a drop-in for RedisBloom.
//!
//! | module         | knows about                                               |
//! |----------------|-----------------------------------------------------------|
//! | [`structures`] | the filters and sketches; nothing of a server or a format |
//! | [`codec`]      | their stored bytes: RDB fields, dump headers and chunks   |
//! | [`types`]      | the data types of the server                              |
//! | [`commands`]   | arguments, replies, replication                           |
//! | [`config`]     | the settings                                              |
//! | [`metrics`]    | counters and the sections of `INFO`                       |
//! | [`host`]       | the server's API made safe; nearly every `unsafe`         |
//!
//! Dependencies point one way: commands and types to codec to structures, and
//! commands, types and config to host.

pub mod codec;
pub mod commands;
pub mod config;
pub mod host;
pub mod metrics;
pub mod structures;
pub mod types;

use std::ffi::c_int;

use redis_module::raw;

use host::alloc::ServerAlloc;
use host::{Args, Ctx, Level, LoadFailure};

#[global_allocator]
static ALLOCATOR: ServerAlloc = ServerAlloc;

/// The level of RedisBloom whose commands the module has, as `MODULE LIST` shows
/// it: clients choose their commands by it. Our own version is in the log.
const REDISBLOOM_LEVEL: c_int = 81_000;

/// Called once by the server, on its main thread.
///
/// # Safety
///
/// Only the server may call this, with the arguments its module API promises.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name that servers look up")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // Nothing may allocate before this call: it fills the API pointers that the
    // global allocator reads.
    // SAFETY: the caller passes a live context.
    let status = unsafe {
        raw::Export_RedisModule_Init(
            ctx,
            c"bf".as_ptr(),
            REDISBLOOM_LEVEL,
            raw::REDISMODULE_APIVER_1 as c_int,
        )
    };
    if status != host::OK {
        return host::ERR;
    }
    host::install_panic_hook();
    // SAFETY: both are live for the length of this call.
    let loaded =
        host::guard(|| load(unsafe { Ctx::from_raw(ctx) }, unsafe { Args::from_raw(argv, argc) }));
    match loaded {
        Some(Ok(())) => host::OK,
        Some(Err(reason)) => {
            host::log(Level::Warning, &format!("ferrobloom: not loaded: {reason}"));
            host::ERR
        }
        None => host::ERR, // the panic hook has logged it
    }
}

fn load(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), LoadFailure> {
    ctx.name_log_lines();
    let version = env!("CARGO_PKG_VERSION");
    host::log(Level::Notice, &format!("ferrobloom version {version}"));
    ctx.set_options();
    types::register(ctx)?;
    commands::register(ctx)?;
    metrics::register(ctx)?;
    config::register(ctx, args)?;
    if !ctx.has_settings() {
        host::log(
            Level::Notice,
            "ferrobloom: this server has no CONFIG parameters of modules; \
             settings come from the load arguments alone",
        );
    }
    Ok(())
}
