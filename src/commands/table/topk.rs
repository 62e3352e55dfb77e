//! The Top-K family.

use super::{ASK, KEY};
use crate::host::spec::{Arg, KeyAccess, KeySpec, Spec};

/// What readers share.
const READER: Spec = Spec { acl: c"read topk", ..ASK };

/// What writers share. They return expelled items.
const WRITER: Spec = Spec {
    flags: c"write deny-oom",
    acl: c"write topk",
    keys: &[KeySpec::first(KeyAccess::UpdateAndReturn)],
    complexity: c"O(n * (depth + log(k))), where n is the number of items",
    ..READER
};

pub(in crate::commands) const RESERVE: Spec = Spec {
    name: c"topk.reserve",
    acl: c"write fast topk",
    keys: &[KeySpec::first(KeyAccess::Insert)],
    summary: c"Creates an empty Top-K sketch for the k items with the largest counts",
    complexity: c"O(1)",
    args: &[
        KEY,
        Arg::integer(c"topk"),
        Arg::block(
            c"params",
            &[Arg::integer(c"width"), Arg::integer(c"depth"), Arg::double(c"decay")],
        )
        .optional(),
    ],
    ..WRITER
};

pub(in crate::commands) const ADD: Spec = Spec {
    name: c"topk.add",
    summary: c"Counts items by one each and returns those that they expelled from the list",
    ..WRITER
};

pub(in crate::commands) const INCRBY: Spec = Spec {
    name: c"topk.incrby",
    arity: -4,
    summary: c"Counts items by amounts and returns those that they expelled from the list",
    args: &[
        KEY,
        Arg::block(c"item_increment", &[Arg::string(c"item"), Arg::integer(c"increment")])
            .multiple(),
    ],
    ..WRITER
};

pub(in crate::commands) const QUERY: Spec = Spec {
    name: c"topk.query",
    summary: c"Tells for each item whether it is in the list",
    complexity: c"O(n), where n is the number of items",
    ..READER
};

pub(in crate::commands) const COUNT: Spec = Spec {
    name: c"topk.count",
    summary: c"Returns the counts of items in the sketch's table; TOPK.LIST has those of the list",
    complexity: c"O(n * depth), where n is the number of items",
    ..READER
};

pub(in crate::commands) const LIST: Spec = Spec {
    name: c"topk.list",
    arity: -2,
    summary: c"Returns the items with the largest counts, the largest first",
    complexity: c"O(k * log(k))",
    args: &[KEY, Arg::word(c"withcount", c"WITHCOUNT").optional()],
    ..READER
};

pub(in crate::commands) const INFO: Spec = Spec {
    name: c"topk.info",
    arity: 2,
    acl: c"read fast topk",
    summary: c"Returns what a Top-K sketch is made for",
    complexity: c"O(1)",
    args: &[KEY],
    ..READER
};
