//! `BF.*`: Bloom filters.

use std::ffi::CStr;

use super::accepted::Accepted;
use super::error::{self, Error, bf as text};
use super::limits;
use super::lookup::{ContainsBatch, reply_found};
use super::parse::bf as parse;
use super::table::bf as table;
use super::text::general;
use super::warn;
use crate::codec::LoadError;
use crate::codec::bloom as codec;
use crate::codec::chunks::ChunkError;
use crate::config::{self, Layout};
use crate::host::spec::Spec;
use crate::host::{self, Args, Call, Command, Keys, Level, Output, StringRef, log, random_u64};
use crate::metrics;
use crate::structures::BATCH;
use crate::structures::bloom::{CreateError, Filter, Insertion, Params, Refusal};
use crate::structures::quota::{Growth, Quota};

/// The keyspace event of added items.
const ADDED: &CStr = c"bf.add";

/// `BF.RESERVE key error_rate capacity [EXPANSION n] [NONSCALING]`
pub(super) struct Reserve;

impl Command for Reserve {
    type Error = Error;
    const SPEC: Spec = table::RESERVE;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let Some(params) = parse::reserve(args, default_params())? else {
            out.arity_error();
            return Ok(());
        };
        let params = capped(params);
        let key = args.string(1);
        if keys.read::<Filter>(key)?.is_some() {
            return Err(error::ITEM_EXISTS);
        }
        let filter = created(&mut out, key, params)?;
        keys.set(key, filter, c"bf.reserve");
        out.ok();
        Ok(())
    }
}

/// `BF.ADD key item`
pub(super) struct Add;

impl Command for Add {
    type Error = Error;
    const SPEC: Spec = table::ADD;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let key = args.string(1);
        let mut filter = keys.write_or_create(key, || created(&mut out, key, default_params()))?;
        let layers = filter.layers();
        let added =
            filter.insert(args.bytes(2), Quota::new(&|growth| limits::allows(&out, growth)));
        if added == Ok(true) {
            filter.changed(ADDED);
            out.replicate();
            metrics::BLOOM.added(1);
        }
        metrics::BLOOM.refused(added.is_err().into());
        warn_of(&filter, key, layers, added == Err(Refusal::Full));
        reply_insertion(&mut out, added);
        Ok(())
    }
}

/// `BF.MADD key item [item ...]`
pub(super) struct MAdd;

impl Command for MAdd {
    type Error = Error;
    const SPEC: Spec = table::MADD;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, out } = call;
        insert_all(keys, out, args.string(1), default_params, args.from(2))
    }
}

/// `BF.INSERT key [CAPACITY n] [ERROR r] [EXPANSION n] [NOCREATE] [NONSCALING] ITEMS item ...`
pub(super) struct Insert;

impl Command for Insert {
    type Error = Error;
    const SPEC: Spec = table::INSERT;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let Some(options) = parse::insert(args, default_params())? else {
            out.arity_error();
            return Ok(());
        };
        let key = args.string(1);
        if !options.create && keys.read::<Filter>(key)?.is_none() {
            return Err(error::NOT_FOUND);
        }
        let params = capped(options.params);
        insert_all(keys, out, key, || params, options.items)
    }
}

/// `BF.EXISTS key item`
pub(super) struct Exists;

impl Command for Exists {
    type Error = Error;
    const SPEC: Spec = table::EXISTS;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1)).unwrap_or(None);
        let found = filter.is_some_and(|filter| filter.contains(args.bytes(2)));
        metrics::BLOOM.looked_up(1, found.into());
        out.bool(found);
        Ok(())
    }
}

/// `BF.MEXISTS key item [item ...]`
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
        reply_found(&mut out, args.from(2), &metrics::BLOOM, contains);
        Ok(())
    }
}

/// `BF.INFO key [field]`
pub(super) struct Info;

/// The value of an information field.
enum Value {
    Integer(u64),
    Double(f64),
    Text(&'static CStr),
    Null,
}

/// A field: its word, its name in the reply, its value.
type Field = (&'static str, &'static CStr, fn(&Filter) -> Value);

/// The fields of `BF.INFO` in order.
const FIELDS: [Field; 5] = [
    ("CAPACITY", c"Capacity", |filter| Value::Integer(filter.capacity())),
    ("SIZE", c"Size", |filter| Value::Integer(filter.reported_bytes())),
    ("FILTERS", c"Number of filters", |filter| Value::Integer(filter.layers())),
    ("ITEMS", c"Number of items inserted", |filter| Value::Integer(filter.items())),
    ("EXPANSION", c"Expansion rate", |filter| {
        filter.expansion().map_or(Value::Null, |expansion| Value::Integer(expansion.into()))
    }),
];

/// Fields beyond RedisBloom's. They are given where they are asked for by name, or
/// all with the word `ALL`: clients take the plain reply apart by its length.
const MORE_FIELDS: [Field; 4] = [
    ("LAYOUT", c"Layout", |filter| match filter {
        Filter::RedisBloom(_) => Value::Text(c"redisbloom"),
        Filter::Blocked(_) => Value::Text(c"blocked"),
    }),
    ("FILL", c"Fill ratio", |filter| Value::Double(filter.fill_ratio())),
    ("ESTIMATE", c"Estimated items", |filter| Value::Double(filter.estimated_items())),
    ("FPR", c"Estimated error rate", |filter| Value::Double(filter.estimated_rate())),
];

impl Command for Info {
    type Error = Error;
    const SPEC: Spec = table::INFO;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        if args.len() > 3 {
            out.arity_error();
            return Ok(());
        }
        let filter = keys.read::<Filter>(args.string(1))?.ok_or(error::NOT_FOUND)?;
        let Some(wanted) = args.get(2) else {
            out.map(FIELDS.len());
            for (_, name, value) in FIELDS {
                out.simple(name);
                reply_value(&mut out, &value(&filter));
            }
            return Ok(());
        };
        let word = super::parse::Word(wanted.bytes());
        if word.is("ALL") {
            out.map(FIELDS.len() + MORE_FIELDS.len());
            for (_, name, value) in FIELDS.iter().chain(&MORE_FIELDS) {
                out.simple(name);
                reply_value(&mut out, &value(&filter));
            }
            return Ok(());
        }
        let field = FIELDS.iter().chain(&MORE_FIELDS).find(|(field, _, _)| word.is(field));
        let (_, name, value) = field.ok_or(text::BAD_FIELD)?;
        if out.is_resp3() {
            out.map(1);
            out.simple(name);
        } else {
            out.array(1);
        }
        reply_value(&mut out, &value(&filter));
        Ok(())
    }
}

fn reply_value(out: &mut Output<'_>, value: &Value) {
    match value {
        Value::Integer(value) => out.integer(*value as i64),
        Value::Double(value) => out.double(*value),
        Value::Text(value) => out.simple(value),
        Value::Null => out.null(),
    }
}

/// `BF.CARD key`
pub(super) struct Card;

impl Command for Card {
    type Error = Error;
    const SPEC: Spec = table::CARD;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1))?;
        out.integer(filter.map_or(0, |filter| filter.items()) as i64);
        Ok(())
    }
}

/// `BF.DEBUG key`
pub(super) struct Debug;

impl Command for Debug {
    type Error = Error;
    const SPEC: Spec = table::DEBUG;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1))?.ok_or(error::NOT_FOUND)?;
        let layers = filter.layer_infos();
        out.array(1 + layers.len());
        out.bulk(format!("size:{}", filter.items()).as_bytes());
        for layer in layers {
            let line = format!(
                "bytes:{} bits:{} hashes:{} hashwidth:{} capacity:{} size:{} ratio:{}",
                layer.bytes,
                layer.bits,
                layer.hashes,
                layer.hash_width,
                layer.capacity,
                layer.size,
                general(layer.rate),
            );
            out.bulk(line.as_bytes());
        }
        Ok(())
    }
}

/// `BF.SCANDUMP key iterator`
pub(super) struct ScanDump;

impl Command for ScanDump {
    type Error = Error;
    const SPEC: Spec = table::SCANDUMP;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let filter = keys.read::<Filter>(args.string(1))?.ok_or(error::NOT_FOUND)?;
        let iterator = parse::scan_iterator(args.string(2))?;
        out.array(2);
        if iterator == 0 {
            out.integer(1);
            out.bulk(codec::header_in(&filter, &mut [0; codec::MAX_HEADER]));
        } else {
            let (next, data) = codec::chunk(&filter, iterator).unwrap_or((0, &[]));
            out.integer(next);
            out.bulk(data);
        }
        Ok(())
    }
}

/// `BF.LOADCHUNK key iterator data`
pub(super) struct LoadChunk;

impl LoadChunk {
    const NAME: &'static CStr = c"BF.LOADCHUNK";
}

impl Command for LoadChunk {
    type Error = Error;
    const SPEC: Spec = table::LOADCHUNK;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let key = args.string(1);
        let iterator = parse::load_iterator(args.string(2))?;
        let data = args.bytes(3);
        if let Some(mut filter) = keys.write::<Filter>(key)? {
            codec::load_chunk(&mut filter, iterator, data).map_err(chunk_error)?;
            filter.changed(c"bf.loadchunk");
        } else if iterator == 1 {
            let quota = |growth| limits::allows(&out, growth);
            let filter = codec::from_header(data, Quota::new(&quota)).map_err(header_error)?;
            keys.set(key, filter, c"bf.loadchunk");
        } else {
            return Err(error::NOT_FOUND);
        }
        out.ok();
        out.replicate();
        Ok(())
    }
}

fn chunk_error(error: ChunkError) -> Error {
    match error {
        ChunkError::BadData => text::BAD_DATA,
        ChunkError::NoSuchPlace => text::NO_LINK,
        ChunkError::TooLong => text::CHUNK_TOO_BIG,
    }
}

fn header_error(error: LoadError) -> Error {
    match error {
        LoadError::OutOfMemory => error::NO_MEMORY_FOR_FILTER,
        _ => text::BAD_DATA,
    }
}

/// What a filter gets that an add creates.
fn default_params() -> Params {
    let expansion = config::expansion();
    Params {
        capacity: config::initial_size(),
        error_rate: config::error_rate(),
        expansion: expansion as u32,
        scaling: expansion != 0,
    }
}

/// With an error rate that filters take.
fn capped(params: Params) -> Params {
    if params.error_rate > config::MAX_ERROR_RATE {
        log(Level::Warning, "the error rate of a filter is capped at 0.250000");
    }
    Params { error_rate: params.error_rate.min(config::MAX_ERROR_RATE), ..params }
}

fn create(params: Params, out: &Output<'_>) -> Result<Filter, Error> {
    let allows = |growth: Growth| limits::allows(out, growth);
    let quota = Quota::new(&allows);
    // This module's own stream and AOF create filters by their header. A command that
    // does comes from a RedisBloom, whose bits every follower can and has to repeat.
    let layout = if host::must_follow(out) { Layout::RedisBloom } else { config::layout() };
    let made = match layout {
        Layout::Blocked => Filter::blocked(params, random_u64(), quota),
        Layout::RedisBloom => Filter::redisbloom(params, quota),
    };
    made.map_err(|error| match error {
        CreateError::OutOfMemory => error::NO_MEMORY_FOR_FILTER,
        CreateError::Impossible => text::CANNOT_CREATE,
    })
}

/// A filter for a key that does not exist. Replicas get it with all that was decided
/// here, so that their own settings do not matter.
fn created(out: &mut Output<'_>, key: StringRef<'_>, params: Params) -> Result<Filter, Error> {
    let filter = create(params, out)?;
    out.replicate_creation(LoadChunk::NAME, key, &codec::header(&filter));
    Ok(filter)
}

/// Adds items, replying to each as it goes, to a filter that is created where it
/// does not exist.
fn insert_all(
    mut keys: Keys<'_>,
    mut out: Output<'_>,
    key: StringRef<'_>,
    params: impl FnOnce() -> Params,
    items: Args<'_>,
) -> Result<(), Error> {
    let mut filter = keys.write_or_create(key, || created(&mut out, key, params()))?;
    let scaling = filter.expansion().is_some();
    let layers = filter.layers();
    // Only a non-scaling filter can end the reply early.
    if scaling {
        out.array(items.len());
    } else {
        out.array_begin();
    }
    let (mut done, mut added, mut refused) = (0, 0, 0);
    let mut accepted = Accepted::new(items, 0, 1);
    items.batches::<BATCH>(|batch| {
        let mut outcomes: [Insertion; BATCH] = [Ok(false); BATCH];
        let outcomes = &mut outcomes[..batch.len()];
        let quota = |growth| limits::allows(&out, growth);
        let count = filter.insert_batch(batch, Quota::new(&quota), outcomes);
        for outcome in &outcomes[..count] {
            added += u64::from(*outcome == Ok(true));
            refused += u64::from(outcome.is_err());
            accepted.note(outcome.is_ok());
            reply_insertion(&mut out, *outcome);
            done += 1;
        }
        outcomes[count - 1] != Err(Refusal::Full)
    });
    if !scaling {
        out.array_end(done);
    }
    metrics::BLOOM.added(added);
    metrics::BLOOM.refused(refused);
    warn_of(&filter, key, layers, !scaling && refused > 0);
    if added > 0 {
        filter.changed(ADDED);
        accepted.replicate(&mut out, c"BF.MADD", key);
    }
    Ok(())
}

/// Layers from which on a filter was probably made without the capacity it needs.
const MANY_LAYERS: u64 = 8;

/// Warns of filters that work worse than their makers expect. `layers` is their
/// number before the command.
fn warn_of(filter: &Filter, key: StringRef<'_>, layers: u64, full: bool) {
    if full {
        warn::about(key.bytes(), "is full and does not scale: new items are refused");
    } else if filter.layers() > layers.max(MANY_LAYERS - 1) {
        let text = format!(
            "has grown to {} layers, each of which a look-up visits; \
             reserve it for the number of items that it is to hold",
            filter.layers()
        );
        warn::about(key.bytes(), &text);
    }
}

fn reply_insertion(out: &mut Output<'_>, insertion: Insertion) {
    use crate::host::ErrorText;
    match insertion {
        Ok(added) => out.bool(added),
        Err(Refusal::Full) => out.error(&text::FULL.text()),
        Err(Refusal::CannotGrow) => out.error(&text::CANNOT_GROW.text()),
    }
}
