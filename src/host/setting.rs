//! Settings: text on the server's side, whatever the module makes of it here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::{ERR, OK, StringRef, api, guard};

/// A setting: its value is text for the server, as a numeric one cannot hold a
/// fraction.
pub struct Setting {
    /// The name without the module's prefix.
    pub name: &'static CStr,
    /// Applies a new value. `Ok(Some(text))` where the value taken is another than
    /// the one given, and reads so.
    pub set: fn(StringRef<'_>) -> Result<Option<&'static CStr>, Rejection>,
}

/// Why a setting does not take a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Rejection {
    /// Not a number, or not one of the words.
    Invalid,
    /// Outside this range.
    Range(String),
}

impl Rejection {
    /// The reason as `CONFIG SET` gives it.
    fn for_config(&self, name: &str) -> String {
        match self {
            Self::Invalid => format!("Invalid value for `{name}`"),
            Self::Range(range) => format!("Value for `{name}` must be in the range {range}"),
        }
    }

    /// The reason as the log gives it for a load argument.
    pub fn for_argument(&self, name: &str) -> String {
        match self {
            Self::Invalid => format!("Invalid argument for '{name}'"),
            Self::Range(range) => format!("'{name}' must be in the range {range}"),
        }
    }
}

/// A registered setting with the text `CONFIG GET` shows. The server only borrows
/// that string, so the module has to keep it.
pub(super) struct LiveSetting {
    setting: &'static Setting,
    shown: AtomicPtr<raw::RedisModuleString>,
}

impl LiveSetting {
    pub(super) fn new(setting: &'static Setting) -> Self {
        Self { setting, shown: AtomicPtr::new(ptr::null_mut()) }
    }
}

pub(super) unsafe extern "C" fn get_setting(
    _name: *const c_char,
    setting: *mut c_void,
) -> *mut raw::RedisModuleString {
    // SAFETY: the pointer given at registration.
    unsafe { &*setting.cast::<LiveSetting>() }.shown.load(Relaxed)
}

pub(super) unsafe extern "C" fn set_setting(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let result = guard(|| {
        // SAFETY: the pointer given at registration.
        let live = unsafe { &*setting.cast::<LiveSetting>() };
        let given = StringRef { raw: value, call: std::marker::PhantomData };
        let name = live.setting.name.to_string_lossy();
        let replaced = (live.setting.set)(given).map_err(|error| error.for_config(&name))?;
        // SAFETY: live strings; each one kept is freed once, when replaced.
        unsafe {
            let kept = match replaced {
                Some(text) => new_string(text),
                None => api!(RedisModule_HoldString)(ptr::null_mut(), value),
            };
            let old = live.shown.swap(kept, Relaxed);
            if !old.is_null() {
                api!(RedisModule_FreeString)(ptr::null_mut(), old);
            }
        }
        Ok(())
    });
    let result: Result<(), String> = result.unwrap_or(Err("internal error".into()));
    let Err(text) = result else { return OK };
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the server takes over the string it is given here.
    unsafe { *error = new_string(&text) };
    ERR
}

/// A string object of its own.
fn new_string(text: &CStr) -> *mut raw::RedisModuleString {
    // SAFETY: live bytes, which the server copies; a null context is allowed.
    unsafe { api!(RedisModule_CreateString)(ptr::null_mut(), text.as_ptr(), text.count_bytes()) }
}
