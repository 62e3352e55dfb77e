//! The cuckoo family.

use super::{ASK, ITEM, ITEMS, KEY};
use crate::host::spec::{Arg, KeyAccess, KeySpec, Spec};

/// What readers share.
const READER: Spec = Spec {
    arity: 3,
    flags: c"readonly fast",
    acl: c"read cuckoo",
    since: c"1.0.0",
    args: &[KEY, ITEM],
    ..ASK
};

/// What writers share.
const WRITER: Spec = Spec {
    flags: c"write deny-oom",
    acl: c"write cuckoo",
    keys: &[KeySpec::first(KeyAccess::Update)],
    ..READER
};

pub(in crate::commands) const RESERVE: Spec = Spec {
    name: c"cf.reserve",
    arity: -3,
    acl: c"write fast cuckoo",
    keys: &[KeySpec::first(KeyAccess::Insert)],
    summary: c"Creates an empty cuckoo filter for a number of items",
    complexity: c"O(1)",
    args: &[
        KEY,
        Arg::integer(c"capacity"),
        Arg::integer(c"bucketsize").after(c"BUCKETSIZE").optional(),
        Arg::integer(c"maxiterations").after(c"MAXITERATIONS").optional(),
        Arg::integer(c"expansion").after(c"EXPANSION").optional(),
    ],
    ..WRITER
};

pub(in crate::commands) const ADD: Spec = Spec {
    name: c"cf.add",
    summary: c"Adds an item once more to a cuckoo filter, which is created where it does not exist",
    complexity: c"O(n + i), where n is the number of sub-filters and i of evictions",
    ..WRITER
};

pub(in crate::commands) const ADDNX: Spec = Spec {
    name: c"cf.addnx",
    summary: c"Adds an item that seems not to be there to a cuckoo filter, which is created where \
               it does not exist",
    ..ADD
};

pub(in crate::commands) const INSERT: Spec = Spec {
    name: c"cf.insert",
    arity: -4,
    summary: c"Adds items once more to a cuckoo filter, which is created as the options say where \
               it does not exist",
    complexity: c"O(k * (n + i)), where k is the number of items, n of sub-filters and i of \
                  evictions",
    args: &[
        KEY,
        Arg::integer(c"capacity").after(c"CAPACITY").optional(),
        Arg::word(c"nocreate", c"NOCREATE").optional(),
        Arg::string(c"item").after(c"ITEMS").multiple(),
    ],
    ..WRITER
};

pub(in crate::commands) const INSERTNX: Spec = Spec {
    name: c"cf.insertnx",
    summary: c"Adds those items that seem not to be there to a cuckoo filter, which is created as \
               the options say where it does not exist",
    ..INSERT
};

pub(in crate::commands) const EXISTS: Spec = Spec {
    name: c"cf.exists",
    summary: c"Tells whether an item may be in a cuckoo filter; no is always right",
    complexity: c"O(n), where n is the number of sub-filters",
    ..READER
};

pub(in crate::commands) const MEXISTS: Spec = Spec {
    name: c"cf.mexists",
    arity: -3,
    summary: c"Tells for each item whether it may be in a cuckoo filter; no is always right",
    complexity: c"O(k * n), where k is the number of items and n of sub-filters",
    args: &[KEY, ITEMS],
    ..READER
};

pub(in crate::commands) const COUNT: Spec = Spec {
    name: c"cf.count",
    summary: c"Returns how often an item may be in a cuckoo filter: never too low",
    complexity: c"O(n), where n is the number of sub-filters",
    ..READER
};

pub(in crate::commands) const DEL: Spec = Spec {
    name: c"cf.del",
    flags: c"write fast",
    keys: &[KeySpec::first(KeyAccess::Delete)],
    summary: c"Removes an item once from a cuckoo filter; only for items that were added",
    complexity: c"O(n), where n is the number of sub-filters; now and then more, to compact them",
    ..WRITER
};

pub(in crate::commands) const COMPACT: Spec = Spec {
    name: c"cf.compact",
    arity: 2,
    flags: c"write",
    summary: c"Moves what deletions left behind in a cuckoo filter together and frees sub-filters",
    complexity: c"O(n), where n is the size of the filter",
    args: &[KEY],
    ..WRITER
};

pub(in crate::commands) const INFO: Spec = Spec {
    name: c"cf.info",
    arity: 2,
    acl: c"read fast cuckoo",
    tips: c"dont_cache",
    summary: c"Returns what a cuckoo filter is made for and what it holds",
    complexity: c"O(n), where n is the number of sub-filters",
    args: &[KEY],
    ..READER
};

pub(in crate::commands) const DEBUG: Spec = Spec {
    name: c"cf.debug",
    acl: c"read cuckoo",
    summary: c"Describes a cuckoo filter in one line",
    ..INFO
};

pub(in crate::commands) const SCANDUMP: Spec = Spec {
    name: c"cf.scandump",
    tips: c"dont_cache",
    summary: c"Returns a piece of a cuckoo filter, to be given to CF.LOADCHUNK elsewhere",
    complexity: c"O(n), where n is the size of the piece, at most 16 MiB",
    args: &[KEY, Arg::integer(c"iterator")],
    ..READER
};

pub(in crate::commands) const LOADCHUNK: Spec = Spec {
    name: c"cf.loadchunk",
    arity: 4,
    summary: c"Restores a piece of a cuckoo filter from CF.SCANDUMP",
    complexity: c"O(n), where n is the size of the piece",
    args: &[KEY, Arg::integer(c"iterator"), Arg::string(c"data")],
    ..WRITER
};
