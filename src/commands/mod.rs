//! What commands mean: arguments to structure, structure to reply, and what goes to
//! replicas. A command file never touches bits or stored bytes.

mod accepted;
mod args;
mod bf;
mod cf;
mod cms;
mod error;
mod limits;
mod lookup;
pub mod parse;
mod table;
mod tdigest;
mod text;
mod topk;
mod warn;

pub use error::Error;

use crate::host::{Ctx, Entry, Level, LoadFailure, log};

/// Every command of the module.
static COMMANDS: &[Entry] = &[
    Entry::of::<bf::Reserve>(),
    Entry::of::<bf::Add>(),
    Entry::of::<bf::MAdd>(),
    Entry::of::<bf::Insert>(),
    Entry::of::<bf::Exists>(),
    Entry::of::<bf::MExists>(),
    Entry::of::<bf::Info>(),
    Entry::of::<bf::Card>(),
    Entry::of::<bf::Debug>(),
    Entry::of::<bf::ScanDump>(),
    Entry::of::<bf::LoadChunk>(),
    Entry::of::<cf::Reserve>(),
    Entry::of::<cf::Add>(),
    Entry::of::<cf::AddNx>(),
    Entry::of::<cf::Insert>(),
    Entry::of::<cf::InsertNx>(),
    Entry::of::<cf::Exists>(),
    Entry::of::<cf::MExists>(),
    Entry::of::<cf::Count>(),
    Entry::of::<cf::Del>(),
    Entry::of::<cf::Compact>(),
    Entry::of::<cf::Info>(),
    Entry::of::<cf::Debug>(),
    Entry::of::<cf::ScanDump>(),
    Entry::of::<cf::LoadChunk>(),
    Entry::of::<cms::InitByDim>(),
    Entry::of::<cms::InitByProb>(),
    Entry::of::<cms::IncrBy>(),
    Entry::of::<cms::Query>(),
    Entry::of::<cms::Merge>(),
    Entry::of::<cms::Info>(),
    Entry::of::<topk::Reserve>(),
    Entry::of::<topk::Add>(),
    Entry::of::<topk::IncrBy>(),
    Entry::of::<topk::Query>(),
    Entry::of::<topk::Count>(),
    Entry::of::<topk::List>(),
    Entry::of::<topk::Info>(),
    Entry::of::<tdigest::Create>(),
    Entry::of::<tdigest::Reset>(),
    Entry::of::<tdigest::Add>(),
    Entry::of::<tdigest::Merge>(),
    Entry::of::<tdigest::Min>(),
    Entry::of::<tdigest::Max>(),
    Entry::of::<tdigest::Quantile>(),
    Entry::of::<tdigest::Cdf>(),
    Entry::of::<tdigest::Rank>(),
    Entry::of::<tdigest::RevRank>(),
    Entry::of::<tdigest::ByRank>(),
    Entry::of::<tdigest::ByRevRank>(),
    Entry::of::<tdigest::TrimmedMean>(),
    Entry::of::<tdigest::Info>(),
];

/// Registers the ACL categories and the commands.
///
/// # Errors
///
/// Where the server refuses one.
pub fn register(ctx: Ctx<'_>) -> Result<(), LoadFailure> {
    for category in table::CATEGORIES {
        ctx.add_acl_category(category)?;
    }
    if !ctx.has_acl_categories() {
        log(
            Level::Notice,
            "ferrobloom: this server has no ACL categories for modules; grant commands by name",
        );
    }
    COMMANDS.iter().try_for_each(|entry| ctx.add_command(entry))
}
