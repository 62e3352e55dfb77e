//! The t-digest family.

use super::{ASK, KEY};
use crate::host::spec::{Arg, KeyAccess, KeyPlace, KeySpec, Spec};

const COMPRESSION: Arg = Arg::integer(c"compression").after(c"COMPRESSION").optional();

/// What readers share.
const READER: Spec = Spec {
    acl: c"read fast tdigest",
    complexity: PER_ANSWER,
    since: c"2.4.0",
    args: &[KEY],
    ..ASK
};

/// What writers share.
const WRITER: Spec = Spec {
    flags: c"write deny-oom",
    acl: c"write fast tdigest",
    keys: &[KeySpec::first(KeyAccess::Update)],
    ..READER
};

/// Complexity of questions with several answers.
const PER_ANSWER: &std::ffi::CStr = c"O(n * log(c)), where n is the number of answers and c the \
    compression; the first question after a change O(c * log(c)) more";

pub(in crate::commands) const CREATE: Spec = Spec {
    name: c"tdigest.create",
    arity: -2,
    keys: &[KeySpec::first(KeyAccess::Insert)],
    summary: c"Creates an empty t-digest",
    complexity: c"O(1)",
    args: &[KEY, COMPRESSION],
    ..WRITER
};

pub(in crate::commands) const RESET: Spec = Spec {
    name: c"tdigest.reset",
    arity: 2,
    summary: c"Empties a t-digest and keeps its compression",
    complexity: c"O(1)",
    ..WRITER
};

pub(in crate::commands) const ADD: Spec = Spec {
    name: c"tdigest.add",
    acl: c"write tdigest",
    summary: c"Adds observations to a t-digest: all of them, or on an error none",
    complexity: c"O(n * log(c)), where n is the number of observations and c the compression",
    args: &[KEY, Arg::double(c"value").multiple()],
    ..WRITER
};

pub(in crate::commands) const MERGE: Spec = Spec {
    name: c"tdigest.merge",
    arity: -4,
    acl: c"write tdigest",
    keys: &[
        KeySpec::first(KeyAccess::Update),
        KeySpec { place: KeyPlace::CountedAt(2), access: KeyAccess::Read },
    ],
    summary: c"Merges t-digests into another, which is created where it does not exist",
    complexity: c"O(n * c * log(c)), where n is the number of sources and c their compression",
    args: &[
        Arg::key(c"destination-key", 0),
        Arg::integer(c"numkeys"),
        Arg::key(c"source-key", 1).multiple(),
        COMPRESSION,
        Arg::word(c"override", c"OVERRIDE").optional(),
    ],
    ..WRITER
};

pub(in crate::commands) const MIN: Spec = Spec {
    name: c"tdigest.min",
    arity: 2,
    summary: c"Returns the smallest observation in a t-digest",
    complexity: c"O(1)",
    ..READER
};

pub(in crate::commands) const MAX: Spec = Spec {
    name: c"tdigest.max",
    arity: 2,
    summary: c"Returns the largest observation in a t-digest",
    complexity: c"O(1)",
    ..READER
};

pub(in crate::commands) const QUANTILE: Spec = Spec {
    name: c"tdigest.quantile",
    summary: c"Estimates for each share of the observations the value that so many are below",
    args: &[KEY, Arg::double(c"quantile").multiple()],
    ..READER
};

pub(in crate::commands) const CDF: Spec = Spec {
    name: c"tdigest.cdf",
    summary: c"Estimates for each value the share of the observations that are below it",
    args: &[KEY, Arg::double(c"value").multiple()],
    ..READER
};

pub(in crate::commands) const RANK: Spec = Spec {
    name: c"tdigest.rank",
    summary: c"Estimates for each value how many observations are below it",
    args: &[KEY, Arg::double(c"value").multiple()],
    ..READER
};

pub(in crate::commands) const REVRANK: Spec = Spec {
    name: c"tdigest.revrank",
    summary: c"Estimates for each value how many observations are above it",
    args: &[KEY, Arg::double(c"value").multiple()],
    ..READER
};

pub(in crate::commands) const BYRANK: Spec = Spec {
    name: c"tdigest.byrank",
    summary: c"Estimates for each rank the value with so many observations below it",
    args: &[KEY, Arg::double(c"rank").multiple()],
    ..READER
};

pub(in crate::commands) const BYREVRANK: Spec = Spec {
    name: c"tdigest.byrevrank",
    summary: c"Estimates for each rank the value with so many observations above it",
    args: &[KEY, Arg::double(c"reverse_rank").multiple()],
    ..READER
};

pub(in crate::commands) const TRIMMED_MEAN: Spec = Spec {
    name: c"tdigest.trimmed_mean",
    arity: 4,
    acl: c"read tdigest",
    summary: c"Estimates the mean of the observations between two shares of them",
    complexity: c"O(c), where c is the compression",
    args: &[KEY, Arg::double(c"low_cut_quantile"), Arg::double(c"high_cut_quantile")],
    ..READER
};

pub(in crate::commands) const INFO: Spec = Spec {
    name: c"tdigest.info",
    arity: 2,
    tips: c"dont_cache",
    summary: c"Returns what a t-digest is made for and what it holds",
    complexity: c"O(1)",
    ..READER
};
