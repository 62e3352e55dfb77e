//! `TOPK.*`: Top-K sketches.

use super::accepted::Accepted;
use super::error::{Error, topk as text};
use super::limits;
use super::lookup::look_up;
use super::parse::topk::{self as parse, increment};
use super::table::topk as table;
use crate::host::spec::Spec;
use crate::host::{Call, Command, ErrorText, Output};
use crate::metrics;
use crate::structures::BATCH;
use crate::structures::quota::{Growth, Quota};
use crate::structures::topk::{self, Addition};
use crate::types::topk::TopK;

/// `TOPK.RESERVE key k [width depth decay]`
pub(super) struct Reserve;

impl Command for Reserve {
    type Error = Error;
    const SPEC: Spec = table::RESERVE;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        if !parse::reserve_accepts(args) {
            out.arity_error();
            return Ok(());
        }
        let key = args.string(1);
        if keys.exists(key) {
            return Err(text::KEY_EXISTS);
        }
        let params = parse::reserve(args)?;
        let allows = |growth: Growth| limits::allows(&out, growth);
        let topk = topk::TopK::new(params, Quota::new(&allows)).map_err(|_| text::NO_MEMORY)?;
        // Behind the memory, as RedisBloom says so of sizes that are beyond both.
        if !limits::allows_rows(&out, params.depth().into()) {
            return Err(text::BAD_DEPTH);
        }
        keys.set(key, TopK::new(topk), c"topk.reserve");
        out.replicate();
        out.ok();
        Ok(())
    }
}

/// `TOPK.ADD key item [item ...]`
pub(super) struct Add;

impl Command for Add {
    type Error = Error;
    const SPEC: Spec = table::ADD;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let key = args.string(1);
        let mut topk = keys.write::<TopK>(key)?.ok_or(text::NO_KEY)?;
        let items = args.from(2);
        let mut accepted = Accepted::new(items, 0, 1);
        out.array(items.len());
        items.batches::<BATCH>(|batch| {
            let mut units: [(&[u8], u32); BATCH] = [(&[], 1); BATCH];
            units.iter_mut().zip(batch).for_each(|(unit, item)| unit.0 = item);
            add(&mut topk, &units[..batch.len()], &mut out, &mut accepted);
            true
        });
        if accepted.replicate(&mut out, c"TOPK.ADD", key) {
            topk.changed(c"topk.add");
        }
        Ok(())
    }
}

/// `TOPK.INCRBY key item increment [item increment ...]`
pub(super) struct IncrBy;

impl Command for IncrBy {
    type Error = Error;
    const SPEC: Spec = table::INCRBY;

    /// A bad increment in the last pair gets the reply that RedisBloom gives: the
    /// others are added, and it has an error in its place. Before the last pair that
    /// would leave the client waiting for the replies behind it, as RedisBloom's
    /// does; there it is an error of the whole call, which adds nothing.
    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, mut keys, mut out } = call;
        let pairs = args.from(2);
        if !pairs.len().is_multiple_of(2) {
            out.arity_error();
            return Ok(());
        }
        let key = args.string(1);
        let mut topk = keys.write::<TopK>(key)?.ok_or(text::NO_KEY)?;
        let last = pairs.from(pairs.len() - 2);
        let others = pairs.take(pairs.len() - 2);
        others.iter().skip(1).step_by(2).try_for_each(|argument| increment(argument).map(drop))?;
        let good = if increment(last.string(1)).is_ok() { pairs } else { others };
        let mut accepted = Accepted::new(pairs, 0, 2);
        out.array(pairs.len() / 2);
        let mut changed = false;
        good.pairs::<BATCH, _, _>(increment, |batch| {
            changed |= add(&mut topk, batch, &mut out, &mut accepted);
        })?;
        if good.len() < pairs.len() {
            accepted.note(false);
            out.error(&text::BAD_INCREMENT.text());
        }
        if changed && accepted.replicate(&mut out, c"TOPK.INCRBY", key) {
            topk.changed(c"topk.incrby");
        }
        Ok(())
    }
}

/// Adds a batch and replies to each addition. Whether anything changed.
fn add<'a>(
    topk: &mut TopK,
    batch: &[(&[u8], u32)],
    out: &mut Output<'a>,
    accepted: &mut Accepted<'_>,
) -> bool {
    let mut additions: [Addition; BATCH] = [const { Ok(None) }; BATCH];
    let mut places = additions.iter_mut();
    let allows = |growth| limits::allows(out, growth);
    let changed = topk.add(batch, Quota::new(&allows), |addition| {
        if let Some(place) = places.next() {
            *place = addition;
        }
    });
    let additions = &additions[..batch.len()];
    let refused = additions.iter().filter(|addition| addition.is_err()).count();
    metrics::TOPK.added((batch.len() - refused) as u64);
    metrics::TOPK.refused(refused as u64);
    for addition in additions {
        accepted.note(addition.is_ok());
        match addition {
            Ok(None) => out.null(),
            Ok(Some(expelled)) => out.bulk(expelled),
            Err(_) => out.error(&text::NO_MEMORY_FOR_ITEM.text()),
        }
    }
    changed
}

/// `TOPK.QUERY key item [item ...]`
pub(super) struct Query;

impl Command for Query {
    type Error = Error;
    const SPEC: Spec = table::QUERY;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let topk = keys.read::<TopK>(args.string(1))?.ok_or(text::NO_KEY)?;
        look_up(&mut out, args.from(2), &metrics::TOPK, |batch, out| {
            let mut hits = 0;
            topk.query(batch, |listed| {
                hits += u64::from(listed);
                out.bool(listed);
            });
            hits
        });
        Ok(())
    }
}

/// `TOPK.COUNT key item [item ...]`
pub(super) struct Count;

impl Command for Count {
    type Error = Error;
    const SPEC: Spec = table::COUNT;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let topk = keys.read::<TopK>(args.string(1))?.ok_or(text::NO_KEY)?;
        look_up(&mut out, args.from(2), &metrics::TOPK, |batch, out| {
            let mut hits = 0;
            topk.count(batch, |count| {
                hits += u64::from(count > 0);
                out.integer(count.into());
            });
            hits
        });
        Ok(())
    }
}

/// `TOPK.LIST key [WITHCOUNT]`
pub(super) struct List;

impl Command for List {
    type Error = Error;
    const SPEC: Spec = table::LIST;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let Some(with_count) = parse::list(args)? else {
            out.arity_error();
            return Ok(());
        };
        let topk = keys.read::<TopK>(args.string(1))?.ok_or(text::NO_KEY)?;
        let list = topk.list().map_err(|_| text::NO_MEMORY_FOR_LIST)?;
        out.array(list.len() * if with_count { 2 } else { 1 });
        for listed in list {
            out.bulk(listed.item);
            if with_count {
                out.integer(listed.count.into());
            }
        }
        Ok(())
    }
}

/// `TOPK.INFO key`
pub(super) struct Info;

impl Command for Info {
    type Error = Error;
    const SPEC: Spec = table::INFO;

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { args, keys, mut out } = call;
        let topk = keys.read::<TopK>(args.string(1))?.ok_or(text::NO_KEY)?;
        let params = topk.params();
        out.map(4);
        for (name, size) in
            [(c"k", params.k()), (c"width", params.width()), (c"depth", params.depth())]
        {
            out.simple(name);
            out.integer(size.into());
        }
        out.simple(c"decay");
        out.double(params.decay());
        Ok(())
    }
}
