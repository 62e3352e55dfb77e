//! What `COMMAND INFO`, `COMMAND DOCS` and the ACL system say of each command.

use std::ffi::CStr;

use crate::host::spec::{Arg, KeyAccess, KeySpec, Spec};

pub(super) mod bf;
pub(super) mod cf;
pub(super) mod cms;
pub(super) mod tdigest;
pub(super) mod topk;

/// The ACL categories, one per family.
pub(super) const CATEGORIES: [&CStr; 5] = [c"bloom", c"cuckoo", c"cms", c"topk", c"tdigest"];

const KEY: Arg = Arg::key(c"key", 0);
const ITEM: Arg = Arg::string(c"item");
const ITEMS: Arg = Arg::string(c"item").multiple();

/// A command that asks about items in one key. The others say what they do differently.
const ASK: Spec = Spec {
    name: c"",
    arity: -3,
    flags: c"readonly",
    acl: c"read",
    keys: &[KeySpec::first(KeyAccess::Read)],
    tips: c"",
    summary: c"",
    complexity: c"",
    since: c"2.0.0",
    args: &[KEY, ITEMS],
};
