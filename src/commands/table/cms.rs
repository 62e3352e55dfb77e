//! The count-min sketch family.

use super::{ASK, KEY};
use crate::host::spec::{Arg, KeyAccess, KeyPlace, KeySpec, Spec};

/// What readers share.
const READER: Spec = Spec { acl: c"read cms", ..ASK };

/// What creators share.
const CREATOR: Spec = Spec {
    arity: 4,
    flags: c"write deny-oom",
    acl: c"write fast cms",
    keys: &[KeySpec::first(KeyAccess::Insert)],
    complexity: c"O(1)",
    ..READER
};

pub(in crate::commands) const INITBYDIM: Spec = Spec {
    name: c"cms.initbydim",
    summary: c"Creates an empty count-min sketch of a given size",
    args: &[KEY, Arg::integer(c"width"), Arg::integer(c"depth")],
    ..CREATOR
};

pub(in crate::commands) const INITBYPROB: Spec = Spec {
    name: c"cms.initbyprob",
    summary: c"Creates an empty count-min sketch whose estimates keep to a given error",
    args: &[KEY, Arg::double(c"error"), Arg::double(c"probability")],
    ..CREATOR
};

pub(in crate::commands) const INCRBY: Spec = Spec {
    name: c"cms.incrby",
    arity: -4,
    flags: c"write deny-oom",
    acl: c"write cms",
    keys: &[KeySpec::first(KeyAccess::UpdateAndReturn)],
    summary: c"Adds amounts to the counts of items and returns the new estimates",
    complexity: c"O(n * depth), where n is the number of items",
    args: &[
        KEY,
        Arg::block(c"items", &[Arg::string(c"item"), Arg::integer(c"increment")]).multiple(),
    ],
    ..READER
};

pub(in crate::commands) const QUERY: Spec = Spec {
    name: c"cms.query",
    summary: c"Returns the estimated counts of items; none is too low",
    complexity: c"O(n * depth), where n is the number of items",
    ..READER
};

pub(in crate::commands) const MERGE: Spec = Spec {
    name: c"cms.merge",
    arity: -4,
    flags: c"write deny-oom",
    acl: c"write cms",
    keys: &[
        KeySpec::first(KeyAccess::Update),
        KeySpec { place: KeyPlace::CountedAt(2), access: KeyAccess::Read },
    ],
    summary: c"Makes a count-min sketch the weighted sum of sketches of its size",
    complexity: c"O(n * width * depth), where n is the number of sources",
    args: &[
        KEY,
        Arg::integer(c"numKeys"),
        Arg::key(c"source", 1).multiple(),
        Arg::block(
            c"weights",
            &[Arg::word(c"weights", c"WEIGHTS"), Arg::integer(c"weight").multiple()],
        )
        .optional(),
    ],
    ..READER
};

pub(in crate::commands) const INFO: Spec = Spec {
    name: c"cms.info",
    arity: 2,
    acl: c"read fast cms",
    tips: c"dont_cache",
    summary: c"Returns the size of a count-min sketch and the sum of all increments",
    complexity: c"O(1)",
    args: &[KEY],
    ..READER
};
