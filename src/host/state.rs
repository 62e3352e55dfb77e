//! What the server is at the moment: its memory, its role in a call, its random
//! source.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::{OK, Output, api, guard};

/// Whether this process is writing a snapshot that others go on from.
static FAITHFUL: AtomicBool = AtomicBool::new(false);

/// Follows the server's snapshots, for [`saves_faithfully`].
pub(super) fn watch_snapshots(ctx: *mut raw::RedisModuleCtx) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_PERSISTENCE, dataver: 1 };
    // SAFETY: a live context.
    let status =
        unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, Some(persistence_event)) };
    debug_assert_eq!(status, OK);
}

/// Called in the process that writes: the server itself, or its child.
unsafe extern "C" fn persistence_event(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    let ended =
        [raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED, raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED];
    guard(|| {
        // SAFETY: the server passes a live context.
        let faithful = !ended.contains(&(subevent as _)) && unsafe { has_peers(ctx) };
        FAITHFUL.store(faithful, Relaxed);
    });
}

/// Whether another server has, or may soon have, the same data: this one is a
/// replica, or it has replicas, or it keeps a backlog for some that are away.
///
/// # Safety
///
/// `ctx` must be live.
unsafe fn has_peers(ctx: *mut raw::RedisModuleCtx) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        api!(RedisModule_GetContextFlags)(ctx) as u32 & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
            || ServerInfo::of(ctx, c"replication").number(c"connected_slaves") > 0
            || ServerInfo::of(ctx, c"replication").number(c"repl_backlog_active") > 0
    }
}

/// Whether what is being saved must go on exactly as what it is saved from: it is
/// part of a snapshot (an RDB file, a full resync, an AOF rewrite) of a server whose
/// data another one has too. A payload of `DUMP` is not, nor is the snapshot of a
/// server on its own, which RedisBloom may read.
pub fn saves_faithfully() -> bool {
    FAITHFUL.load(Relaxed)
}

/// A section of the server's information about itself.
struct ServerInfo {
    ctx: *mut raw::RedisModuleCtx,
    data: *mut raw::RedisModuleServerInfoData,
}

impl ServerInfo {
    /// # Safety
    ///
    /// `ctx` must be live for as long as the result is.
    unsafe fn of(ctx: *mut raw::RedisModuleCtx, section: &CStr) -> Self {
        // SAFETY: the caller's promise.
        let data = unsafe { api!(RedisModule_GetServerInfo)(ctx, section.as_ptr()) };
        Self { ctx, data }
    }

    /// A field, 0 where there is none of the name.
    fn number(&self, name: &CStr) -> u64 {
        let mut error = 0;
        // SAFETY: live data and a place for the status.
        let value = unsafe {
            api!(RedisModule_ServerInfoGetFieldUnsigned)(self.data, name.as_ptr(), &mut error)
        };
        if error == 0 { value } else { 0 }
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        // SAFETY: made by `of`, freed once.
        unsafe { api!(RedisModule_FreeServerInfo)(self.ctx, self.data) };
    }
}

/// Whether this call repeats what has been decided elsewhere: it comes from a
/// primary or from the AOF. Limits of this server must not make it differ.
pub fn must_follow(out: &Output<'_>) -> bool {
    // SAFETY: a live context.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(out.context()) } as u32;
    flags & (raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING) != 0
}

/// Bytes that may still be allocated below `maxmemory`, `None` where there is no
/// such limit. Costs some microseconds: for large allocations only.
pub fn memory_headroom(out: &Output<'_>) -> Option<u64> {
    // SAFETY: a live context.
    let info = unsafe { ServerInfo::of(out.context(), c"memory") };
    let limit = info.number(c"maxmemory");
    (limit != 0).then(|| limit.saturating_sub(info.number(c"used_memory")))
}

/// A random number from the server's cryptographic generator.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: room for eight bytes.
    unsafe { api!(RedisModule_GetRandomBytes)(bytes.as_mut_ptr(), bytes.len()) };
    u64::from_le_bytes(bytes)
}
