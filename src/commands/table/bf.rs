//! The Bloom family.

use super::{ASK, ITEM, ITEMS, KEY};
use crate::host::spec::{Arg, KeyAccess, KeySpec, Spec};

/// What readers share.
const READER: Spec = Spec {
    arity: 3,
    flags: c"readonly fast",
    acl: c"read bloom",
    since: c"1.0.0",
    args: &[KEY, ITEM],
    ..ASK
};

/// What writers share.
const WRITER: Spec = Spec {
    flags: c"write deny-oom",
    acl: c"write bloom",
    keys: &[KeySpec::first(KeyAccess::Update)],
    ..READER
};

pub(in crate::commands) const RESERVE: Spec = Spec {
    name: c"bf.reserve",
    arity: -4,
    acl: c"write fast bloom",
    keys: &[KeySpec::first(KeyAccess::Insert)],
    summary: c"Creates an empty Bloom filter for a number of items and a false positive rate",
    complexity: c"O(1)",
    args: &[
        KEY,
        Arg::double(c"error_rate"),
        Arg::integer(c"capacity"),
        Arg::integer(c"expansion").after(c"EXPANSION").optional(),
        Arg::word(c"nonscaling", c"NONSCALING").optional(),
    ],
    ..WRITER
};

pub(in crate::commands) const ADD: Spec = Spec {
    name: c"bf.add",
    arity: 3,
    summary: c"Adds an item to a Bloom filter, which is created where it does not exist",
    complexity: c"O(k + layers), where k is the number of hash functions",
    ..WRITER
};

pub(in crate::commands) const MADD: Spec = Spec {
    name: c"bf.madd",
    arity: -3,
    summary: c"Adds items to a Bloom filter, which is created where it does not exist",
    complexity: c"O(n * (k + layers)), where n is the number of items and k of hash functions",
    args: &[KEY, ITEMS],
    ..WRITER
};

pub(in crate::commands) const INSERT: Spec = Spec {
    name: c"bf.insert",
    arity: -4,
    summary:
        c"Adds items to a Bloom filter, which is created as the options say where it does not exist",
    complexity: c"O(n * (k + layers)), where n is the number of items and k of hash functions",
    args: &[
        KEY,
        Arg::integer(c"capacity").after(c"CAPACITY").optional(),
        Arg::double(c"error").after(c"ERROR").optional(),
        Arg::integer(c"expansion").after(c"EXPANSION").optional(),
        Arg::word(c"nocreate", c"NOCREATE").optional(),
        Arg::word(c"nonscaling", c"NONSCALING").optional(),
        Arg::string(c"item").after(c"ITEMS").multiple(),
    ],
    ..WRITER
};

pub(in crate::commands) const EXISTS: Spec = Spec {
    name: c"bf.exists",
    summary: c"Tells whether an item may have been added to a Bloom filter; no is always right",
    complexity: c"O(k + layers), where k is the number of hash functions",
    ..READER
};

pub(in crate::commands) const MEXISTS: Spec = Spec {
    name: c"bf.mexists",
    arity: -3,
    summary:
        c"Tells for each item whether it may have been added to a Bloom filter; no is always right",
    complexity: c"O(n * (k + layers)), where n is the number of items and k of hash functions",
    args: &[KEY, ITEMS],
    ..READER
};

pub(in crate::commands) const INFO: Spec = Spec {
    name: c"bf.info",
    arity: -2,
    acl: c"read fast bloom",
    tips: c"dont_cache",
    summary: c"Returns what a Bloom filter is made for and what it holds",
    complexity: c"O(layers)",
    args: &[
        KEY,
        Arg::one_of(
            c"field",
            &[
                Arg::word(c"capacity", c"CAPACITY"),
                Arg::word(c"size", c"SIZE"),
                Arg::word(c"filters", c"FILTERS"),
                Arg::word(c"items", c"ITEMS"),
                Arg::word(c"expansion", c"EXPANSION"),
                Arg::word(c"layout", c"LAYOUT"),
                Arg::word(c"fill", c"FILL"),
                Arg::word(c"estimate", c"ESTIMATE"),
                Arg::word(c"fpr", c"FPR"),
                Arg::word(c"all", c"ALL"),
            ],
        )
        .optional(),
    ],
    ..READER
};

pub(in crate::commands) const CARD: Spec = Spec {
    name: c"bf.card",
    arity: 2,
    acl: c"read fast bloom",
    summary: c"Returns the number of items that were new to a Bloom filter when added",
    complexity: c"O(1)",
    since: c"2.4.4",
    args: &[KEY],
    ..READER
};

pub(in crate::commands) const DEBUG: Spec = Spec {
    name: c"bf.debug",
    arity: 2,
    tips: c"dont_cache",
    summary: c"Describes the layers of a Bloom filter",
    complexity: c"O(layers)",
    args: &[KEY],
    ..READER
};

pub(in crate::commands) const SCANDUMP: Spec = Spec {
    name: c"bf.scandump",
    flags: c"readonly",
    tips: c"dont_cache",
    summary: c"Returns a piece of a Bloom filter, to be given to BF.LOADCHUNK elsewhere",
    complexity: c"O(n), where n is the size of the piece, at most 16 MiB",
    args: &[KEY, Arg::integer(c"iterator")],
    ..READER
};

pub(in crate::commands) const LOADCHUNK: Spec = Spec {
    name: c"bf.loadchunk",
    arity: 4,
    summary: c"Restores a piece of a Bloom filter from BF.SCANDUMP",
    complexity: c"O(n), where n is the size of the piece",
    args: &[KEY, Arg::integer(c"iterator"), Arg::string(c"data")],
    ..WRITER
};
