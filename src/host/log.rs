//! The server's log.

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::api;

/// A context that outlives the load, so that lines carry the module's name.
static CONTEXT: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Shown by default.
    Notice,
    /// Something an operator should look at.
    Warning,
}

/// Gives log lines the name of the module.
///
/// # Safety
///
/// `ctx` must be the context of a load under way.
pub(super) unsafe fn name_lines(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the caller's promise. Never freed: lines may come at any time.
    unsafe {
        if let Some(detached) = raw::RedisModule_GetDetachedThreadSafeContext {
            CONTEXT.store(detached(ctx), Relaxed);
        }
    }
}

/// Writes a line to the server's log.
pub fn log(level: Level, message: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    with_c_text(message, |text| {
        // The message is an argument and never the format: it may contain `%`.
        // SAFETY: a context that is never freed, or null, which is allowed here.
        unsafe {
            api!(RedisModule_Log)(
                CONTEXT.load(Relaxed),
                level.as_ptr(),
                c"%s".as_ptr(),
                text.as_ptr(),
            );
        }
    });
}

/// Sends panic messages to the server's log; standard error is often closed.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| log(Level::Warning, &format!("ferrobloom: {info}"))));
}

/// `message` as a C string, with a space for each NUL.
pub(super) fn with_c_text<T>(message: &str, then: impl FnOnce(&CStr) -> T) -> T {
    let bytes: Vec<u8> = message.bytes().map(|byte| if byte == 0 { b' ' } else { byte }).collect();
    then(&CString::new(bytes).expect("no NUL is left"))
}
