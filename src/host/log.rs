//! The server's log.

use std::ffi::{CStr, CString};
use std::ptr;

use super::api;

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Shown by default.
    Notice,
    /// Something an operator should look at.
    Warning,
}

/// Writes a line to the server's log.
pub fn log(level: Level, message: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    with_c_text(message, |text| {
        // The message is an argument and never the format: it may contain `%`.
        // SAFETY: the server allows a null context here.
        unsafe {
            api!(RedisModule_Log)(ptr::null_mut(), level.as_ptr(), c"%s".as_ptr(), text.as_ptr());
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
