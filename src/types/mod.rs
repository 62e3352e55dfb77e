//! The data types of the server: one generic set of callbacks, and per type what is
//! its own. A type only wires; formats are the codecs' and algorithms the cores'.

pub mod bloom;
pub mod cms;
pub mod cuckoo;
pub mod tdigest;
pub mod topk;

use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use redis_module::raw;

use crate::codec::{LoadError, Sink, Source};
use crate::host::stream::{Aof, DigestSink, RdbSink, RdbSource};
use crate::host::{self, Ctx, Level, LoadFailure, Native, alloc};
use crate::structures::buffer::Part;

/// A value that is saved, loaded and freed with its key.
pub trait Stored: Native {
    /// The type's name, nine characters.
    const NAME: &'static CStr;
    /// The encoding version that is written.
    const VERSION: c_int;

    /// Reads what any known version wrote.
    ///
    /// # Errors
    ///
    /// As [`LoadError`] says.
    fn load(source: &mut impl Source, version: c_int) -> Result<Self, LoadError>;

    /// Writes the current version. What is written loads, however little memory there
    /// is: saving cannot fail, as the server has no way to be told.
    fn save(&self, purpose: Purpose, sink: &mut impl Sink);

    /// Writes the commands that make the key anew; whether that worked.
    fn rewrite(&self, aof: &mut Aof) -> bool;

    /// A copy with memory of its own; `None` where there is no room.
    fn try_clone(&self) -> Option<Self>;

    /// Shows every heap block of the value.
    fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part));
}

/// What a value is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A snapshot that a replica or a restarted server goes on from beside others:
    /// what is loaded must go on exactly as what was saved.
    Snapshot,
    /// A payload of `DUMP`, or the snapshot of a server on its own: what is loaded
    /// must answer alike, here and in RedisBloom.
    Dump,
    /// `DEBUG DIGEST`: equal content must be written alike, also where memory is short.
    Digest,
}

/// Registers all types.
///
/// # Errors
///
/// Where the server refuses one.
pub fn register(ctx: Ctx<'_>) -> Result<(), LoadFailure> {
    ctx.watch_snapshots();
    register_type::<bloom::Filter>(ctx)?;
    register_type::<cuckoo::Filter>(ctx)?;
    register_type::<cms::Sketch>(ctx)?;
    register_type::<topk::TopK>(ctx)?;
    register_type::<tdigest::Digest>(ctx)
}

fn register_type<T: Stored>(ctx: Ctx<'_>) -> Result<(), LoadFailure> {
    // Servers read only the fields of versions they know, so the newest is right on
    // all of them. The `*2` callbacks add the key's name and database, which no type
    // has a use for.
    let methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
        rdb_load: Some(rdb_load::<T>),
        rdb_save: Some(rdb_save::<T>),
        aof_rewrite: Some(aof_rewrite::<T>),
        mem_usage: Some(mem_usage::<T>),
        digest: Some(digest::<T>),
        free: Some(free::<T>),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: Some(free_effort::<T>),
        unlink: None,
        copy: Some(copy::<T>),
        defrag: Some(defrag::<T>),
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    };
    ctx.add_type(T::handle(), T::NAME, T::VERSION, methods)
}

/// Gives a value to the server.
fn given<T: Stored>(value: T) -> *mut c_void {
    T::tally().add(value.measure());
    value.into_raw()
}

/// Lends the value behind a pointer of the server to `then`; `None` if it panicked.
///
/// # Safety
///
/// `value` must be a live value of type `T` that nothing changes meanwhile.
unsafe fn with<T: Stored, R>(value: *const c_void, then: impl FnOnce(&T) -> R) -> Option<R> {
    host::guard(|| {
        // SAFETY: the caller's promise; the value stays the server's.
        let value = unsafe { T::from_raw(value.cast_mut()) };
        then(&ManuallyDrop::new(value))
    })
}

unsafe extern "C" fn rdb_load<T: Stored>(
    io: *mut raw::RedisModuleIO,
    version: c_int,
) -> *mut c_void {
    host::guard(|| {
        // SAFETY: the server passes a live stream.
        let mut source = unsafe { RdbSource::from_raw(io) };
        match T::load(&mut source, version) {
            Ok(value) => given(value),
            Err(error) => {
                source.log(&format!("{}: cannot load: {error}", T::NAME.to_string_lossy()));
                ptr::null_mut()
            }
        }
    })
    .unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn rdb_save<T: Stored>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: a live stream and a value of this type.
    let saved = unsafe {
        with(value, |value: &T| {
            let purpose = if host::saves_faithfully() { Purpose::Snapshot } else { Purpose::Dump };
            value.save(purpose, &mut RdbSink::from_raw(io));
        })
    };
    if saved.is_none() {
        host::log(Level::Warning, "ferrobloom: a key could not be saved");
    }
}

/// Used when the AOF has no RDB preamble.
unsafe extern "C" fn aof_rewrite<T: Stored>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: a live stream and key.
    let mut aof = unsafe { Aof::from_raw(io, key, value) };
    // SAFETY: a value of this type.
    let written = unsafe { with(value, |native: &T| native.rewrite(&mut aof)) };
    if written != Some(true) {
        host::log(Level::Warning, "ferrobloom: a key could not be written to the AOF");
        // Else the new file would take the place of one that has the key.
        host::guard(|| aof.fail());
    }
}

/// Bytes that the allocator set aside for the value.
///
/// # Safety
///
/// `value` must be a live value of type `T` that nothing else uses meanwhile: the
/// server calls on its main thread, with no command running.
unsafe fn allocated<T: Stored>(value: *const c_void) -> usize {
    let mut sum = 0;
    host::guard(|| {
        // SAFETY: the caller's promise; the value stays the server's.
        let mut value = ManuallyDrop::new(unsafe { T::from_raw(value.cast_mut()) });
        value.parts(&mut |part| {
            let (block, layout) = part.block();
            if layout.size() != 0 {
                // SAFETY: a live block of the global allocator, within a server.
                sum += unsafe { alloc::usable_size(block, layout) };
            }
        });
    });
    sum
}

unsafe extern "C" fn mem_usage<T: Stored>(value: *const c_void) -> usize {
    // SAFETY: a value of this type.
    unsafe { allocated::<T>(value) }
}

/// The server frees in the background what takes an effort above 64. Freeing costs
/// by the page.
unsafe extern "C" fn free_effort<T: Stored>(
    _key: *mut raw::RedisModuleString,
    value: *const c_void,
) -> usize {
    const PAGE: usize = 4096;
    // SAFETY: a value of this type.
    1 + unsafe { allocated::<T>(value) } / PAGE
}

unsafe extern "C" fn copy<T: Stored>(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: a value of this type.
    unsafe { with(value, T::try_clone) }.flatten().map_or(ptr::null_mut(), given)
}

/// Equal content, equal digest.
unsafe extern "C" fn digest<T: Stored>(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: a live digest and a value of this type.
    unsafe {
        with(value, |value: &T| value.save(Purpose::Digest, &mut DigestSink::from_raw(digest)))
    };
}

unsafe extern "C" fn defrag<T: Stored>(
    ctx: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    host::guard(|| {
        // SAFETY: a value of this type that nothing else uses; it is given back
        // below under the place that it has then.
        let mut handle = unsafe { T::from_raw(*value) };
        handle.parts(&mut |part| {
            let (block, layout) = part.block();
            if layout.size() == 0 {
                return;
            }
            // SAFETY: a live context and block; the owner learns the new place.
            unsafe {
                if let Some(moved) = alloc::defrag(ctx, block, layout) {
                    part.moved_to(moved);
                }
            }
        });
        // SAFETY: the server's place for the value.
        unsafe { *value = handle.into_raw() };
    });
    0 // finished with this key
}

unsafe extern "C" fn free<T: Stored>(value: *mut c_void) {
    // Runs on a background thread after UNLINK: no server API but the allocator.
    host::guard(|| {
        // SAFETY: the server gives up a value made by `into_raw`, once.
        let value = unsafe { T::from_raw(value) };
        T::tally().remove(value.measure());
    });
}
