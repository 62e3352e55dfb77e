//! What the server is at the moment: its memory, its role in a call, its random
//! source.

use redis_module::raw;

use super::{Output, api};

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
