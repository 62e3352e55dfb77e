//! `CF.*`: cuckoo filters.

use std::ffi::CStr;

use super::accepted::Accepted;
use super::error::{self, Error, cf as text};
use super::limits;
use super::lookup::{ContainsBatch, reply_found};
use super::parse::cf as parse;
use super::table::cf as table;
use super::warn;
use crate::codec::LoadError;
use crate::codec::cuckoo as codec;
use crate::config;
use crate::host::spec::Spec;
use crate::host::{self, Call, Command, KeyMut, Keys, Output, StringRef};
use crate::metrics;
use crate::structures::BATCH;
use crate::structures::cuckoo::{CreateError, Filter as Core, Insertion, Limits, Outcome, Params};
use crate::structures::quota::Quota;
use crate::types::cuckoo::Filter;

/// The keyspace event of added items.
const ADDED: &CStr = c"cf.add";

/// `CF.RESERVE key capacity [BUCKETSIZE n] [MAXITERATIONS n] [EXPANSION n]`
pub(super) struct Reserve;

impl Command for Reserve {
    type Error = Error;
    const SPEC: Spec = table::RESERVE;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let most = || most_bucket_size(&out);
        let Some(params) = parse::reserve(args, default_params(), most)? else {
            out.arity_error();
            return Ok(());
        };
        let key = args.string(1);
        if keys.read::<Filter>(key)?.is_some() {
            return Err(error::ITEM_EXISTS);
        }
        let filter = created(&mut out, key, params)?;
        keys.set(key, filter, c"cf.reserve");
        out.ok();
        Ok(())
    }
}

/// `CF.ADD key item`
pub(super) struct Add;

impl Command for Add {
    type Error = Error;
    const SPEC: Spec = table::ADD;

    fn run(call: Call<'_>) -> Result<(), Error> {
        add(call, Insertion::Every)
    }
}

/// `CF.ADDNX key item`
pub(super) struct AddNx;

impl Command for AddNx {
    type Error = Error;
    const SPEC: Spec = table::ADDNX;

    fn run(call: Call<'_>) -> Result<(), Error> {
        add(call, Insertion::Absent)
    }
}

fn add(call: Call<'_>, which: Insertion) -> Result<(), Error> {
    let Call { args, mut keys, mut out } = call;
    let params = || Ok(default_params());
    let key = args.string(1);
    let mut filter = opened(&mut keys, &mut out, key, params, 1)?;
    let before = filter.tables().len();
    let quota = |growth| limits::allows(&out, growth);
    let limits = Limits {
        sub_filters: most_sub_filters(),
        quota: Quota::new(&quota),
        lifted: &|| host::must_follow(&out),
    };
    let outcome = filter.insert(args.bytes(2), which, limits);
    let added = outcome == Outcome::Inserted;
    let refused = !added && outcome != Outcome::Present;
    metrics::CUCKOO.added(added.into());
    metrics::CUCKOO.refused(refused.into());
    warn_of(&filter, key, before, refused);
    if added {
        filter.changed(ADDED);
        out.replicate();
    }
    match outcome {
        Outcome::Inserted | Outcome::Present => out.bool(added),
        Outcome::Full | Outcome::TooManyCopies => return Err(text::FULL),
        Outcome::NoMemory => return Err(text::CANNOT_GROW),
    }
    Ok(())
}

/// `CF.INSERT key [CAPACITY n] [NOCREATE] ITEMS item ...`
pub(super) struct Insert;

impl Command for Insert {
    type Error = Error;
    const SPEC: Spec = table::INSERT;

    fn run(call: Call<'_>) -> Result<(), Error> {
        insert(call, Insertion::Every, c"CF.INSERT")
    }
}

/// `CF.INSERTNX key [CAPACITY n] [NOCREATE] ITEMS item ...`
pub(super) struct InsertNx;

impl Command for InsertNx {
    type Error = Error;
    const SPEC: Spec = table::INSERTNX;

    fn run(call: Call<'_>) -> Result<(), Error> {
        insert(call, Insertion::Absent, c"CF.INSERTNX")
    }
}

fn insert(call: Call<'_>, which: Insertion, command: &CStr) -> Result<(), Error> {
    let Call { args, mut keys, mut out } = call;
    let least = || if host::must_follow(&out) { 1 } else { 2 * config::cf_bucket_size() };
    let Some(options) = parse::insert(args, default_params(), least)? else {
        out.arity_error();
        return Ok(());
    };
    let key = args.string(1);
    let items = options.word_and_items.from(1);
    let params = || options.params.ok_or(error::NOT_FOUND);
    let mut filter = opened(&mut keys, &mut out, key, params, items.len())?;
    let before = filter.tables().len();
    out.array(items.len());
    let (mut added, mut refused) = (0, 0);
    let mut accepted = Accepted::new(options.word_and_items, 1, 1);
    items.batches::<BATCH>(|batch| {
        let mut outcomes = [Outcome::Full; BATCH];
        let outcomes = &mut outcomes[..batch.len()];
        let quota = |growth| limits::allows(&out, growth);
        let limits = Limits {
            sub_filters: most_sub_filters(),
            quota: Quota::new(&quota),
            lifted: &|| host::must_follow(&out),
        };
        filter.insert_batch(batch, which, limits, outcomes);
        for outcome in outcomes {
            let taken = matches!(outcome, Outcome::Inserted | Outcome::Present);
            added += u64::from(*outcome == Outcome::Inserted);
            refused += u64::from(!taken);
            accepted.note(taken);
            reply_outcome(&mut out, which, *outcome);
        }
        true
    });
    metrics::CUCKOO.added(added);
    metrics::CUCKOO.refused(refused);
    warn_of(&filter, key, before, refused > 0);
    if added > 0 {
        filter.changed(ADDED);
        accepted.replicate(&mut out, command, key);
    }
    Ok(())
}

fn reply_outcome(out: &mut Output<'_>, which: Insertion, outcome: Outcome) {
    match (which, outcome) {
        (Insertion::Every, Outcome::Inserted) => out.bool(true),
        // RedisBloom's, which has no third value for clients of RESP3 here.
        (Insertion::Every, _) if out.is_resp3() => out.bool(false),
        (_, Outcome::Inserted) => out.integer(1),
        (_, Outcome::Present) => out.integer(0),
        (_, Outcome::Full | Outcome::TooManyCopies | Outcome::NoMemory) => out.integer(-1),
    }
}

/// `CF.EXISTS key item`
pub(super) struct Exists;

impl Command for Exists {
    type Error = Error;
    const SPEC: Spec = table::EXISTS;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1)).unwrap_or(None);
        let found = filter.is_some_and(|filter| filter.contains(args.bytes(2)));
        metrics::CUCKOO.looked_up(1, found.into());
        out.bool(found);
        Ok(())
    }
}

/// `CF.MEXISTS key item [item ...]`
pub(super) struct MExists;

impl Command for MExists {
    type Error = Error;
    const SPEC: Spec = table::MEXISTS;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1)).unwrap_or(None);
        let contains = filter.as_ref().map(|filter| {
            |batch: &[&[u8]], found: &mut [bool]| filter.contains_batch(batch, found)
        });
        let contains = contains.as_ref().map(|contains| contains as ContainsBatch<'_>);
        reply_found(&mut out, args.from(2), &metrics::CUCKOO, contains);
        Ok(())
    }
}

/// `CF.COUNT key item`
pub(super) struct Count;

impl Command for Count {
    type Error = Error;
    const SPEC: Spec = table::COUNT;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1)).unwrap_or(None);
        out.integer(filter.map_or(0, |filter| filter.count(args.bytes(2))) as i64);
        Ok(())
    }
}

/// `CF.DEL key item`
pub(super) struct Del;

impl Command for Del {
    type Error = Error;
    const SPEC: Spec = table::DEL;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let filter = keys.write::<Filter>(args.string(1)).unwrap_or(None);
        let mut filter = filter.ok_or(text::NO_ITEM)?;
        let deleted = filter.delete(args.bytes(2));
        if deleted {
            filter.changed(c"cf.del");
            out.replicate();
        }
        out.bool(deleted);
        Ok(())
    }
}

/// `CF.COMPACT key`
pub(super) struct Compact;

impl Command for Compact {
    type Error = Error;
    const SPEC: Spec = table::COMPACT;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let filter = keys.write::<Filter>(args.string(1)).unwrap_or(None);
        let mut filter = filter.ok_or(text::NO_FILTER)?;
        if filter.compact() {
            filter.changed(c"cf.compact");
            out.replicate();
        }
        out.ok();
        Ok(())
    }
}

/// `CF.INFO key`
pub(super) struct Info;

/// A field: its name in the reply and its value.
type Field = (&'static CStr, fn(&Core) -> u64);

/// The fields of `CF.INFO` in order.
const FIELDS: [Field; 8] = [
    (c"Size", reported_bytes),
    (c"Number of buckets", |filter| filter.shape().buckets()),
    (c"Number of filters", |filter| filter.tables().len() as u64),
    (c"Number of items inserted", Core::items),
    (c"Number of items deleted", Core::deletes),
    (c"Bucket size", |filter| filter.shape().bucket_size().into()),
    (c"Expansion rate", |filter| filter.shape().expansion().into()),
    (c"Max iterations", |filter| filter.shape().max_iterations().into()),
];

/// The size by RedisBloom's count: its structs and the slots.
fn reported_bytes(filter: &Core) -> u64 {
    40 + 16 * filter.tables().len() as u64 + filter.slots()
}

impl Command for Info {
    type Error = Error;
    const SPEC: Spec = table::INFO;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1))?.ok_or(error::NOT_FOUND)?;
        out.map(FIELDS.len());
        for (name, value) in FIELDS {
            out.simple(name);
            out.integer(value(&filter) as i64);
        }
        Ok(())
    }
}

/// `CF.DEBUG key`
pub(super) struct Debug;

impl Command for Debug {
    type Error = Error;
    const SPEC: Spec = table::DEBUG;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1))?.ok_or(error::NOT_FOUND)?;
        let shape = filter.shape();
        let line = format!(
            "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
            shape.bucket_size(),
            shape.buckets(),
            filter.items(),
            filter.deletes(),
            filter.tables().len(),
            shape.max_iterations(),
            shape.expansion(),
        );
        out.bulk(line.as_bytes());
        Ok(())
    }
}

/// `CF.SCANDUMP key iterator`
pub(super) struct ScanDump;

impl Command for ScanDump {
    type Error = Error;
    const SPEC: Spec = table::SCANDUMP;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let iterator = parse::scan_iterator(args.string(2))?;
        let filter = keys.read::<Filter>(args.string(1))?.ok_or(error::NOT_FOUND)?;
        let header = codec::header(&filter);
        let piece = match (filter.items(), iterator) {
            // Of an empty filter there is nothing to dump, not even the header.
            (0, _) => None,
            (_, 0) => Some((1, &header[..])),
            _ => codec::chunk(&filter, iterator),
        };
        out.array(2);
        match piece {
            Some((next, data)) => {
                out.integer(next as i64);
                out.bulk(data);
            }
            None => {
                out.integer(0);
                out.null();
            }
        }
        Ok(())
    }
}

/// `CF.LOADCHUNK key iterator data`
pub(super) struct LoadChunk;

impl LoadChunk {
    const NAME: &'static CStr = c"CF.LOADCHUNK";
}

impl Command for LoadChunk {
    type Error = Error;
    const SPEC: Spec = table::LOADCHUNK;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let key = args.string(1);
        let iterator = parse::load_iterator(args.string(2))?;
        let data = args.bytes(3);
        if iterator == 1 {
            if keys.read::<Filter>(key)?.is_some() {
                return Err(error::ITEM_EXISTS);
            }
            let quota = |growth| limits::allows(&out, growth);
            let filter = codec::from_header(data, Quota::new(&quota)).map_err(header_error)?;
            keys.set(key, Filter::new(filter), c"cf.loadchunk");
        } else {
            let mut filter = keys.write::<Filter>(key)?.ok_or(error::NOT_FOUND)?;
            codec::load_chunk(&mut filter, iterator, data).map_err(|_| text::BAD_CHUNK)?;
            filter.changed(c"cf.loadchunk");
        }
        out.ok();
        out.replicate();
        Ok(())
    }
}

fn header_error(error: LoadError) -> Error {
    match error {
        LoadError::ShortRead => text::BAD_HEADER,
        _ => text::HEADER_REFUSED,
    }
}

/// What a filter gets that an add creates. The settings are in the ranges of the
/// fields.
fn default_params() -> Params {
    Params {
        capacity: config::cf_initial_size(),
        bucket_size: config::cf_bucket_size() as u8,
        max_iterations: config::cf_max_iterations() as u16,
        expansion: config::cf_expansion() as u16,
    }
}

/// The largest bucket size of `CF.RESERVE`. It depends on the settings, and those of
/// a replica must not decide over what its primary has done.
fn most_bucket_size(out: &Output<'_>) -> u64 {
    if host::must_follow(out) { u8::MAX.into() } else { *config::cf_bucket_sizes().end() }
}

/// A filter for a key that does not exist. Replicas get it with all that was decided
/// here, so that their own settings do not matter.
fn created(out: &mut Output<'_>, key: StringRef<'_>, params: Params) -> Result<Filter, Error> {
    let quota = |growth| limits::allows(out, growth);
    let filter = Core::new(params, Quota::new(&quota)).map_err(|error| match error {
        CreateError::OutOfMemory => error::NO_MEMORY_FOR_FILTER,
        CreateError::Impossible => text::CANNOT_CREATE,
    })?;
    out.replicate_creation(LoadChunk::NAME, key, &codec::header(&filter));
    Ok(Filter::new(filter))
}

/// Opens a filter to add `items` items, or creates it as `params` says.
///
/// No key is left behind that the items are then not added to: an empty filter has
/// room for the first of them.
///
/// # Errors
///
/// Where the filter has all the sub-filters that it may have, as in RedisBloom: no
/// item is even tried then.
fn opened<'k>(
    keys: &'k mut Keys<'_>,
    out: &mut Output<'_>,
    key: StringRef<'k>,
    params: impl FnOnce() -> Result<Params, Error>,
    items: usize,
) -> Result<KeyMut<'k, Filter>, Error> {
    let below_limit = |out: &Output<'_>, sub_filters: usize| {
        if sub_filters < most_sub_filters() || host::must_follow(out) {
            return Ok(());
        }
        metrics::CUCKOO.refused(items as u64);
        let why = "has the number of sub-filters of cf-max-expansions: all items are refused";
        warn::about(key.bytes(), why);
        Err(text::MAX_EXPANSIONS)
    };
    let filter = keys.write_or_create(key, || {
        let params = params()?;
        below_limit(out, 1)?;
        created(out, key, params)
    })?;
    below_limit(out, filter.tables().len())?;
    Ok(filter)
}

/// Sub-filters from which on a filter was probably made without the capacity it needs.
const MANY_SUB_FILTERS: usize = 8;

/// Warns of filters that work worse than their makers expect. `before` is the number
/// of sub-filters before the command.
fn warn_of(filter: &Core, key: StringRef<'_>, before: usize, refused: bool) {
    let sub_filters = filter.tables().len();
    if refused {
        warn::about(key.bytes(), "has no room for an item, which is refused");
    } else if sub_filters > before.max(MANY_SUB_FILTERS - 1) {
        let text = format!(
            "has grown to {sub_filters} sub-filters, each of which a look-up visits; \
             reserve it for the number of items that it is to hold"
        );
        warn::about(key.bytes(), &text);
    }
}

fn most_sub_filters() -> usize {
    usize::try_from(config::cf_max_expansions()).unwrap_or(usize::MAX)
}
