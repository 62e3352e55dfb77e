//! What the server is at the moment: its memory, its role in a call, its random
//! source.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::{OK, Output, api};

/// Whether the main thread is writing a snapshot in the foreground (`SAVE`,
/// `DEBUG RELOAD`, shutdown).
static SAVING: AtomicBool = AtomicBool::new(false);

/// Follows the server's snapshots, for [`saves_snapshot`].
pub(super) fn watch_snapshots(ctx: *mut raw::RedisModuleCtx) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_PERSISTENCE, dataver: 1 };
    // SAFETY: a live context.
    let status =
        unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, Some(persistence_event)) };
    debug_assert_eq!(status, OK);
}

unsafe extern "C" fn persistence_event(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    let ended =
        [raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED, raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED];
    SAVING.store(!ended.contains(&(subevent as _)), Relaxed);
}

/// Whether a save stream belongs to a snapshot (an RDB file, a full resync, an AOF
/// rewrite) and not to a payload of `DUMP`: the process is a snapshot's child, or
/// the main thread is writing one.
///
/// # Safety
///
/// `io` must be a live save stream.
pub unsafe fn saves_snapshot(io: *mut raw::RedisModuleIO) -> bool {
    // SAFETY: the caller's promise.
    let flags = unsafe {
        let ctx = api!(RedisModule_GetContextFromIO)(io);
        api!(RedisModule_GetContextFlags)(ctx) as u32
    };
    flags & raw::REDISMODULE_CTX_FLAGS_IS_CHILD != 0 || SAVING.load(Relaxed)
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
    // SAFETY: a live context; the data are freed here and not used after.
    unsafe {
        let context = out.context();
        let info = api!(RedisModule_GetServerInfo)(context, c"memory".as_ptr());
        let field = |name: &std::ffi::CStr| {
            let mut error = 0;
            let value =
                api!(RedisModule_ServerInfoGetFieldUnsigned)(info, name.as_ptr(), &mut error);
            if error == 0 { value } else { 0 }
        };
        let (limit, used) = (field(c"maxmemory"), field(c"used_memory"));
        api!(RedisModule_FreeServerInfo)(context, info);
        (limit != 0).then(|| limit.saturating_sub(used))
    }
}

/// A random number from the server's cryptographic generator.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: room for eight bytes.
    unsafe { api!(RedisModule_GetRandomBytes)(bytes.as_mut_ptr(), bytes.len()) };
    u64::from_le_bytes(bytes)
}
