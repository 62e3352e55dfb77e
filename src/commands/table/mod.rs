//! What `COMMAND INFO`, `COMMAND DOCS` and the ACL system say of each command.

use std::ffi::CStr;

pub(super) mod bf;
pub(super) mod cf;
pub(super) mod cms;
pub(super) mod tdigest;
pub(super) mod topk;

/// The ACL categories, one per family.
pub(super) const CATEGORIES: [&CStr; 5] = [c"bloom", c"cuckoo", c"cms", c"topk", c"tdigest"];
