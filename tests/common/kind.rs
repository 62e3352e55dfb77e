//! What kind of server the tests talk to, and what it can do.

use std::path::Path;
use std::process::Command;

/// A server's make and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Valkey, as opposed to Redis.
    pub(crate) valkey: bool,
    /// Major and minor version, of Valkey or of Redis.
    pub(crate) version: (u32, u32),
}

impl Kind {
    /// Asks the program for its version.
    ///
    /// # Panics
    /// When the program cannot be run or is no server.
    pub(crate) fn of_program(program: &Path) -> Self {
        let output = Command::new(program).arg("--version").output().unwrap_or_else(|error| {
            panic!(
                "cannot run the server {}: {error}; install redis-server or set FERROBLOOM_SERVER",
                program.display()
            )
        });
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
        let version = version.and_then(parse_version);
        let version =
            version.unwrap_or_else(|| panic!("no server: {} says {text:?}", program.display()));
        Self { valkey: text.starts_with("Valkey"), version }
    }

    /// Reads it from the reply to `INFO server`.
    ///
    /// # Panics
    /// When the text has no version.
    pub(crate) fn of_info(info: &str) -> Self {
        let field = |name: &str| {
            info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        let valkey = field("valkey_version");
        let version = valkey.or_else(|| field("redis_version")).and_then(parse_version);
        Self { valkey: valkey.is_some(), version: version.expect("INFO names a version") }
    }

    /// Whether it is a Redis of this version or newer.
    pub(crate) fn redis_at_least(self, major: u32, minor: u32) -> bool {
        !self.valkey && self.version >= (major, minor)
    }

    /// Whether it is Redis 6.2, the oldest supported: no RESP3 forms for modules,
    /// no module settings, no `enable-debug-command`.
    pub(crate) fn is_redis_6(self) -> bool {
        !self.valkey && self.version < (7, 0)
    }

    /// Whether modules can reply with maps, booleans and doubles of RESP3.
    pub(crate) fn has_resp3_forms(self) -> bool {
        !self.is_redis_6()
    }

    /// Whether modules can have settings for CONFIG GET and SET.
    pub(crate) fn has_module_settings(self) -> bool {
        !self.is_redis_6()
    }

    /// Whether COMMAND DOCS and key specifications exist.
    pub(crate) fn has_command_docs(self) -> bool {
        !self.is_redis_6()
    }

    /// Whether modules can add ACL categories.
    pub(crate) fn has_module_acl_categories(self) -> bool {
        self.valkey || self.redis_at_least(7, 4)
    }

    /// Whether module settings go by their own name, without the module's in front.
    pub(crate) fn has_unprefixed_settings(self) -> bool {
        self.redis_at_least(8, 0)
    }

    /// Whether doubles are printed with other digits than by Redis 8.
    pub(crate) fn prints_long_doubles(self) -> bool {
        !self.valkey && self.version < (7, 2)
    }

    /// The newest RDB version that the server reads, of those that Redis wrote.
    pub(crate) fn rdb_version(self) -> u32 {
        match (self.valkey, self.version) {
            (true, _) => 11,
            (false, version) if version < (7, 0) => 9,
            (false, version) if version < (7, 2) => 10,
            (false, version) if version < (7, 4) => 11,
            _ => 12,
        }
    }

    /// A module setting's name in CONFIG commands: `bf.` in front where the server wants it.
    pub(crate) fn setting(self, name: &str) -> String {
        if self.has_unprefixed_settings() { name.to_owned() } else { format!("bf.{name}") }
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
