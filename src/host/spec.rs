//! What the server is told of a command: flags, keys, categories, documentation.

use std::ffi::{CStr, c_int};

use redis_module::raw;

/// A command's public face.
pub struct Spec {
    /// The name in lower case.
    pub name: &'static CStr,
    /// Number of arguments, the name included; negative for "at least".
    pub arity: c_int,
    /// The server's command flags.
    pub flags: &'static CStr,
    /// ACL categories, on servers that have them for modules.
    pub acl: &'static CStr,
    /// Every key that the command touches.
    pub keys: &'static [KeySpec],
    /// Tips for clients and proxies; empty for none.
    pub tips: &'static CStr,
    /// One line for `COMMAND DOCS`.
    pub summary: &'static CStr,
    /// Time complexity for `COMMAND DOCS`.
    pub complexity: &'static CStr,
    /// The release of RedisBloom that brought the command.
    pub since: &'static CStr,
    /// The arguments behind the name.
    pub args: &'static [Arg],
}

impl Spec {
    /// Whether a call of `argc` arguments, the name included, has the right number.
    pub fn accepts(&self, argc: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { argc >= wanted } else { argc == wanted }
    }

    /// Whether the number of keys stands among the arguments.
    pub const fn counts_keys(&self) -> bool {
        let mut next = 0;
        while next < self.keys.len() {
            if matches!(self.keys[next].place, KeyPlace::CountedAt(_)) {
                return true;
            }
            next += 1;
        }
        false
    }

    /// Whether the command may change a key.
    pub fn writes(&self) -> bool {
        self.keys.iter().any(|key| key.access.flags() & raw::REDISMODULE_CMD_KEY_RW != 0)
    }
}

/// What a command does with a key; decides which `%R~` and `%W~` permissions of an
/// ACL user it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAccess {
    /// Reads and returns the value.
    Read,
    /// Adds data without removing any, and tells something of what was there.
    Insert,
    /// Changes or adds data, and tells something of what was there.
    Update,
    /// Removes data, and tells something of what was there.
    Delete,
    /// Changes data and returns values that are there, as `INCR` does.
    UpdateAndReturn,
}

impl KeyAccess {
    pub(super) fn flags(self) -> u32 {
        use raw::{
            REDISMODULE_CMD_KEY_ACCESS, REDISMODULE_CMD_KEY_DELETE, REDISMODULE_CMD_KEY_INSERT,
            REDISMODULE_CMD_KEY_RO, REDISMODULE_CMD_KEY_RW, REDISMODULE_CMD_KEY_UPDATE,
        };
        match self {
            Self::Read => REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
            Self::Insert => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_INSERT,
            Self::Update => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_UPDATE,
            Self::Delete => REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_DELETE,
            Self::UpdateAndReturn => {
                REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE
            }
        }
    }
}

/// Where keys stand among the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// The argument with this number, the name being 0.
    At(c_int),
    /// The argument with this number tells how many keys follow it.
    CountedAt(c_int),
}

/// Keys of a command.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// Where they stand.
    pub place: KeyPlace,
    /// What is done with them.
    pub access: KeyAccess,
}

impl KeySpec {
    /// The first argument is the key.
    pub const fn first(access: KeyAccess) -> Self {
        Self { place: KeyPlace::At(1), access }
    }
}

/// The documentation of an argument.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    pub(super) name: &'static CStr,
    pub(super) kind: raw::RedisModuleCommandArgType,
    pub(super) token: Option<&'static CStr>,
    pub(super) key_spec: Option<c_int>,
    pub(super) flags: u32,
    pub(super) parts: &'static [Arg],
}

impl Arg {
    const fn new(name: &'static CStr, kind: raw::RedisModuleCommandArgType) -> Self {
        Self { name, kind, token: None, key_spec: None, flags: 0, parts: &[] }
    }

    /// A key, described by the command's key spec of this number.
    pub const fn key(name: &'static CStr, key_spec: c_int) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
        Self { key_spec: Some(key_spec), ..Self::new(name, kind) }
    }

    /// Any bytes.
    pub const fn string(name: &'static CStr) -> Self {
        Self::new(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING)
    }

    /// A whole number.
    pub const fn integer(name: &'static CStr) -> Self {
        Self::new(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER)
    }

    /// A number.
    pub const fn double(name: &'static CStr) -> Self {
        Self::new(name, raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE)
    }

    /// A word that stands for itself.
    pub const fn word(name: &'static CStr, token: &'static CStr) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN;
        Self::new(name, kind).after(token)
    }

    /// Arguments that come together.
    pub const fn block(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK;
        Self { parts, ..Self::new(name, kind) }
    }

    /// One of several arguments.
    pub const fn one_of(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;
        Self { parts, ..Self::new(name, kind) }
    }

    /// Comes behind a word.
    pub const fn after(mut self, token: &'static CStr) -> Self {
        self.token = Some(token);
        self
    }

    /// May be left out.
    pub const fn optional(mut self) -> Self {
        self.flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL;
        self
    }

    /// May come several times.
    pub const fn multiple(mut self) -> Self {
        self.flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE;
        self
    }
}
