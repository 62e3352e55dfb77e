//! Sections of the server's `INFO`.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use redis_module::raw;

use super::load::check;
use super::{Ctx, LoadFailure, api, guard};

/// Fills the sections when somebody asks.
static FILL: OnceLock<fn(&mut InfoWriter)> = OnceLock::new();

/// Writes sections and fields. The server puts the module's name before both.
pub struct InfoWriter(*mut raw::RedisModuleInfoCtx);

impl InfoWriter {
    /// Begins a section; whether it is wanted.
    pub fn section(&mut self, name: &CStr) -> bool {
        // SAFETY: a live context of one `INFO` call.
        unsafe { api!(RedisModule_InfoAddSection)(self.0, name.as_ptr()) == super::OK }
    }

    /// A whole number.
    pub fn number(&mut self, name: &CStr, value: u64) {
        // SAFETY: a live context of one `INFO` call.
        unsafe { api!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), value) };
    }

    /// A text without line breaks.
    pub fn text(&mut self, name: &CStr, value: &CStr) {
        // SAFETY: a live context of one `INFO` call.
        unsafe { api!(RedisModule_InfoAddFieldCString)(self.0, name.as_ptr(), value.as_ptr()) };
    }
}

impl Ctx<'_> {
    /// Has `fill` write the module's part of `INFO`.
    ///
    /// # Errors
    ///
    /// Where the server refuses it.
    pub fn add_info(self, fill: fn(&mut InfoWriter)) -> Result<(), LoadFailure> {
        FILL.get_or_init(|| fill);
        // SAFETY: a live context.
        check(
            unsafe { api!(RedisModule_RegisterInfoFunc)(self.raw(), Some(write_info)) },
            "INFO section of module",
            c"bf",
        )
    }
}

unsafe extern "C" fn write_info(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    // A crash report is written from a signal handler: nothing may run there that
    // allocates or locks.
    if for_crash_report != 0 {
        return;
    }
    if let Some(fill) = FILL.get() {
        guard(|| fill(&mut InfoWriter(ctx)));
    }
}
