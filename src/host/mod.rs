//! A thin, safe layer over the server's module API; it knows nothing of filters.
//!
//! Three rules hold here and make the rest of the crate plain Rust: nothing unwinds
//! into the server ([`guard`]), nothing of the server's outlives the call that
//! brought it (the lifetimes of [`Call`] and [`Ctx`]), and a function that some
//! supported server lacks is asked for before it is used.

pub mod alloc;
mod call;
pub mod huge;
mod info;
mod key;
mod load;
mod log;
mod setting;
pub mod spec;
mod state;
pub mod stream;
mod tally;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use redis_module::raw;

pub use call::{Args, Call, Command, Entry, ErrorText, Output, StringRef};
pub use info::InfoWriter;
pub use key::{Beside, Key, KeyMut, Keys, Native, Others, TypeHandle, WithOthers, WrongType};
pub use load::{Ctx, LoadFailure};
pub use log::{Level, install_panic_hook, log};
pub use setting::{Rejection, Setting};
pub use state::{memory_headroom, must_follow, random_u64, saves_faithfully};
pub use tally::{Measure, Tally};

/// What callbacks answer when all went well.
pub const OK: c_int = raw::REDISMODULE_OK as c_int;
/// What callbacks answer when something did not.
pub const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// A function that every supported server has.
macro_rules! api {
    ($name:ident) => {
        match redis_module::raw::$name {
            Some(call) => call,
            None => panic!(concat!("the server lacks ", stringify!($name))),
        }
    };
}
use api;

/// Runs `body`, turning a panic into `None`: none may reach the server's frames.
pub fn guard<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}

/// The bytes of a string object, in place.
///
/// # Safety
///
/// `string` must be live and unchanged through `'a`.
#[inline]
unsafe fn string_bytes<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the caller's promise; the pointer is valid for `len` bytes.
    unsafe {
        let first = api!(RedisModule_StringPtrLen)(string, &mut len);
        slice::from_raw_parts(first.cast(), len)
    }
}
