//! Registration, all of it at load and each part as far as the server goes.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ptr;

use redis_module::raw;

use super::call::Entry;
use super::setting::{LiveSetting, get_setting, set_setting};
use super::spec::{Arg, KeyPlace, Spec};
use super::{OK, Setting, TypeHandle, api};

/// Why the module could not be loaded.
#[derive(Debug)]
pub struct LoadFailure(pub String);

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn check(status: c_int, what: &str, name: &CStr) -> Result<(), LoadFailure> {
    if status == OK {
        return Ok(());
    }
    Err(LoadFailure(format!("the server refused the {what} {}", name.to_string_lossy())))
}

/// The server, while it loads the module.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    raw: *mut raw::RedisModuleCtx,
    call: PhantomData<&'a ()>,
}

impl Ctx<'_> {
    /// # Safety
    ///
    /// `raw` must be the context of a load under way through the lifetime of the
    /// result.
    pub unsafe fn from_raw(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, call: PhantomData }
    }

    /// Follows the server's snapshots, so that values know what they are saved for.
    pub fn watch_snapshots(self) {
        super::state::watch_snapshots(self.raw);
    }

    /// Gives the log lines of this module its name.
    pub fn name_log_lines(self) {
        // SAFETY: a context of a load under way.
        unsafe { super::log::name_lines(self.raw) };
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// Tells the server what the module copes with: a broken RDB stream fails the
    /// load in place of ending the process, and reads go on during a diskless full
    /// resync (`repl-diskless-load swapdb`), as no value depends on another.
    pub fn set_options(self) {
        let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
            | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
        // SAFETY: a live context.
        unsafe { api!(RedisModule_SetModuleOptions)(self.raw, options as c_int) };
    }

    /// Whether the server has ACL categories for modules (Redis 7.4, Valkey 8.0).
    pub fn has_acl_categories(self) -> bool {
        // SAFETY: set once, before this.
        unsafe { raw::RedisModule_AddACLCategory }.is_some()
    }

    /// Adds an ACL category, where the server has them for modules. One that is there
    /// already will do: a server that could not finish loading the module keeps them.
    ///
    /// # Errors
    ///
    /// Where the server refuses it.
    pub fn add_acl_category(self, name: &CStr) -> Result<(), LoadFailure> {
        // SAFETY: set once, before this.
        match unsafe { raw::RedisModule_AddACLCategory } {
            // SAFETY: a live context.
            Some(add) if unsafe { add(self.raw, name.as_ptr()) } != OK => {
                match io::Error::last_os_error().kind() {
                    io::ErrorKind::ResourceBusy => Ok(()),
                    _ => check(super::ERR, "ACL category", name),
                }
            }
            _ => Ok(()),
        }
    }

    /// Adds a command, documented from 7.0 on and with categories from 7.4 on.
    ///
    /// # Errors
    ///
    /// Where the server refuses a part of it.
    pub fn add_command(self, entry: &'static Entry) -> Result<(), LoadFailure> {
        let Entry { spec, run } = entry;
        let name = spec.name;
        // Such keys are not in the range below: the server is to ask for them.
        let asks = if spec.counts_keys() { " getkeys-api" } else { "" };
        let flags = CString::new(format!("{}{asks}", spec.flags.to_string_lossy()))
            .map_err(|error| LoadFailure(error.to_string()))?;
        // SAFETY: a live context and strings, which the server copies or that are static.
        let created = unsafe {
            api!(RedisModule_CreateCommand)(
                self.raw,
                name.as_ptr(),
                Some(*run),
                flags.as_ptr(),
                1,
                1,
                1,
            )
        };
        check(created, "command", name)?;
        // SAFETY: set once, before this.
        let (find, describe, categorize) = unsafe {
            (
                raw::RedisModule_GetCommand,
                raw::RedisModule_SetCommandInfo,
                raw::RedisModule_SetCommandACLCategories,
            )
        };
        if let (Some(find), Some(describe)) = (find, describe) {
            // SAFETY: a live context; the server copies what it keeps.
            let described =
                unsafe { with_info(spec, |info| describe(find(self.raw, name.as_ptr()), info)) };
            check(described, "description of the command", name)?;
        }
        if let (Some(find), Some(categorize)) = (find, categorize) {
            // SAFETY: a live context.
            let set = unsafe { categorize(find(self.raw, name.as_ptr()), spec.acl.as_ptr()) };
            check(set, "ACL categories of the command", name)?;
        }
        Ok(())
    }

    /// Adds a data type.
    ///
    /// # Errors
    ///
    /// Where the server refuses it: the name is taken, by RedisBloom for one.
    pub fn add_type(
        self,
        handle: &'static TypeHandle,
        name: &CStr,
        version: c_int,
        mut methods: raw::RedisModuleTypeMethods,
    ) -> Result<(), LoadFailure> {
        // SAFETY: a live context; the server copies name and methods.
        let created = unsafe {
            api!(RedisModule_CreateDataType)(self.raw, name.as_ptr(), version, &mut methods)
        };
        check(if created.is_null() { super::ERR } else { OK }, "data type", name)?;
        handle.set(created);
        Ok(())
    }

    /// Whether the server has configuration parameters of modules (7.0).
    pub fn has_settings(self) -> bool {
        // SAFETY: set once, before this.
        let register = unsafe { raw::RedisModule_RegisterStringConfig };
        register.is_some()
    }

    /// Adds settings with these defaults, then has the server apply its
    /// configuration to them. Does nothing before 7.0.
    ///
    /// # Errors
    ///
    /// Where the server refuses a setting, or the configuration a value.
    pub fn add_settings<const N: usize>(
        self,
        settings: [&'static Setting; N],
        defaults: &[CString; N],
    ) -> Result<(), LoadFailure> {
        // SAFETY: set once, before this.
        let calls =
            unsafe { (raw::RedisModule_RegisterStringConfig, raw::RedisModule_LoadConfigs) };
        let (Some(register), Some(load)) = calls else { return Ok(()) };
        let unprefixed = self.is_redis_8();
        for (setting, default) in settings.iter().zip(defaults) {
            let live = ptr::from_ref(Box::leak(Box::new(LiveSetting::new(setting))));
            let try_with = |flags| {
                // SAFETY: a live context; the setting is never freed.
                unsafe {
                    register(
                        self.raw,
                        setting.name.as_ptr(),
                        default.as_ptr(),
                        flags,
                        Some(get_setting),
                        Some(set_setting),
                        None,
                        live.cast_mut().cast(),
                    )
                }
            };
            // Redis 8 can leave out the module's prefix. Elsewhere the bit that asks
            // for it is refused (Redis 7, Valkey 8) or ignored (Valkey 9).
            if !(unprefixed && try_with(raw::REDISMODULE_CONFIG_UNPREFIXED) == OK) {
                check(try_with(raw::REDISMODULE_CONFIG_DEFAULT), "setting", setting.name)?;
            }
        }
        // SAFETY: a live context.
        check(unsafe { load(self.raw) }, "configuration of module", c"bf")
    }

    fn is_redis_8(self) -> bool {
        // SAFETY: a live context; the data is freed here and not used after.
        unsafe {
            let info = api!(RedisModule_GetServerInfo)(self.raw, c"server".as_ptr());
            let valkey = api!(RedisModule_ServerInfoGetFieldC)(info, c"valkey_version".as_ptr());
            let redis_8 = valkey.is_null() && api!(RedisModule_GetServerVersion)() >= 0x08_00_00;
            api!(RedisModule_FreeServerInfo)(self.raw, info);
            redis_8
        }
    }
}

/// Lends the server's form of `spec` to `then`.
fn with_info<T>(spec: &Spec, then: impl FnOnce(&raw::RedisModuleCommandInfo) -> T) -> T {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut keys = key_specs(spec);
    let mut trees = Vec::new();
    let args = arg_tree(spec.args, &mut trees);
    // SAFETY: zeros mean "nothing given" in this C struct.
    let mut info: raw::RedisModuleCommandInfo = unsafe { std::mem::zeroed() };
    info.version = &version;
    info.summary = spec.summary.as_ptr();
    info.complexity = spec.complexity.as_ptr();
    info.since = spec.since.as_ptr();
    info.tips = if spec.tips.is_empty() { ptr::null() } else { spec.tips.as_ptr() };
    info.arity = spec.arity;
    info.key_specs = keys.as_mut_ptr();
    info.args = args;
    then(&info)
}

/// The server's form of a command's key specs, an empty one behind the last.
fn key_specs(spec: &Spec) -> Vec<raw::RedisModuleCommandKeySpec> {
    // SAFETY: zeros mean "nothing given" in this C struct, and end a list.
    let none = || unsafe { std::mem::zeroed::<raw::RedisModuleCommandKeySpec>() };
    let specs = spec.keys.iter().map(|key| {
        let mut raw = none();
        raw.flags = key.access.flags().into();
        raw.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        match key.place {
            KeyPlace::At(position) => {
                raw.bs.index.pos = position;
                raw.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
                raw.fk.range.keystep = 1;
            }
            KeyPlace::CountedAt(position) => {
                raw.bs.index.pos = position;
                raw.find_keys_type =
                    raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
                raw.fk.keynum.keynumidx = 0;
                raw.fk.keynum.firstkey = 1;
                raw.fk.keynum.keystep = 1;
            }
        }
        raw
    });
    specs.chain([none()]).collect()
}

/// The server's form of arguments, an empty one behind the last of each list. The
/// lists are kept in `trees`.
fn arg_tree(
    args: &[Arg],
    trees: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    // SAFETY: zeros mean "nothing given" in this C struct, and end a list.
    let none: raw::RedisModuleCommandArg = unsafe { std::mem::zeroed() };
    let mut list: Vec<_> = args
        .iter()
        .map(|arg| raw::RedisModuleCommandArg {
            name: arg.name.as_ptr(),
            type_: arg.kind,
            key_spec_index: arg.key_spec.unwrap_or(-1),
            token: arg.token.map_or(ptr::null::<c_char>(), CStr::as_ptr),
            flags: arg.flags as c_int,
            subargs: if arg.parts.is_empty() {
                ptr::null_mut()
            } else {
                arg_tree(arg.parts, trees)
            },
            ..none
        })
        .chain([none])
        .collect();
    let first = list.as_mut_ptr();
    trees.push(list);
    first
}
