//! The server's streams: RDB to read and write, and the AOF being rewritten.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};

use redis_module::raw;

use super::log::with_c_text;
use super::{OK, api, huge};
use crate::codec::{LoadError, Sink, Source};

/// Writes fields to an RDB stream.
pub struct RdbSink(*mut raw::RedisModuleIO);

impl RdbSink {
    /// # Safety
    ///
    /// `io` must be a live save stream for as long as the sink is used.
    pub unsafe fn from_raw(io: *mut raw::RedisModuleIO) -> Self {
        Self(io)
    }
}

impl Sink for RdbSink {
    fn unsigned(&mut self, value: u64) {
        // SAFETY: a live stream.
        unsafe { api!(RedisModule_SaveUnsigned)(self.0, value) };
    }

    fn double(&mut self, value: f64) {
        // SAFETY: a live stream.
        unsafe { api!(RedisModule_SaveDouble)(self.0, value) };
    }

    fn string(&mut self, value: &[u8]) {
        // SAFETY: a live stream and a live buffer, which the server copies.
        unsafe { api!(RedisModule_SaveStringBuffer)(self.0, value.as_ptr().cast(), value.len()) };
    }
}

/// Adds fields to a value's `DEBUG DIGEST`.
pub struct DigestSink(*mut raw::RedisModuleDigest);

impl DigestSink {
    /// # Safety
    ///
    /// `digest` must be live for as long as the sink is used.
    pub unsafe fn from_raw(digest: *mut raw::RedisModuleDigest) -> Self {
        Self(digest)
    }
}

impl Sink for DigestSink {
    fn unsigned(&mut self, value: u64) {
        self.string(&value.to_le_bytes());
    }

    fn double(&mut self, value: f64) {
        self.string(&value.to_le_bytes());
    }

    fn string(&mut self, value: &[u8]) {
        // SAFETY: a live digest and bytes that the server copies.
        unsafe {
            api!(RedisModule_DigestAddStringBuffer)(self.0, value.as_ptr().cast(), value.len());
        };
    }
}

impl Drop for DigestSink {
    /// Ends the sequence: the order of the fields counts.
    fn drop(&mut self) {
        // SAFETY: a live digest.
        unsafe { api!(RedisModule_DigestEndSequence)(self.0) };
    }
}

/// Reads fields from an RDB stream, asking after each whether it broke.
pub struct RdbSource(*mut raw::RedisModuleIO);

impl RdbSource {
    /// # Safety
    ///
    /// `io` must be a live load stream for as long as the source is used.
    pub unsafe fn from_raw(io: *mut raw::RedisModuleIO) -> Self {
        Self(io)
    }

    /// Writes a line to the server's log that names the stream's key.
    pub fn log(&self, message: &str) {
        with_c_text(message, |text| {
            // SAFETY: a live stream; the message is an argument, not the format.
            unsafe {
                api!(RedisModule_LogIOError)(
                    self.0,
                    c"warning".as_ptr(),
                    c"%s".as_ptr(),
                    text.as_ptr(),
                );
            }
        });
    }

    fn check<T>(&self, value: T) -> Result<T, LoadError> {
        // SAFETY: a live stream.
        match unsafe { api!(RedisModule_IsIOError)(self.0) } {
            0 => Ok(value),
            _ => Err(LoadError::ShortRead),
        }
    }
}

impl Source for RdbSource {
    fn unsigned(&mut self) -> Result<u64, LoadError> {
        // SAFETY: a live stream.
        let value = unsafe { api!(RedisModule_LoadUnsigned)(self.0) };
        self.check(value)
    }

    fn double(&mut self) -> Result<f64, LoadError> {
        // SAFETY: a live stream.
        let value = unsafe { api!(RedisModule_LoadDouble)(self.0) };
        self.check(value)
    }

    fn string(&mut self) -> Result<Box<[u8]>, LoadError> {
        let mut len = 0;
        // SAFETY: a live stream and a place for the length.
        let first = unsafe { api!(RedisModule_LoadStringBuffer)(self.0, &mut len) };
        if first.is_null() {
            return Err(LoadError::ShortRead);
        }
        if len == 0 {
            // SAFETY: allocated by the server for the module, freed once.
            unsafe { api!(RedisModule_Free)(first.cast()) };
            return self.check(Box::default());
        }
        // It may become a table as it is.
        huge::ask_for(first.cast(), len);
        let bytes = std::ptr::slice_from_raw_parts_mut(first.cast::<u8>(), len);
        // SAFETY: a block of the server's allocator with `len` bytes, given up to
        // the module. The global allocator is the server's while a stream exists,
        // and takes blocks of word alignment and less as they are.
        self.check(unsafe { Box::from_raw(bytes) })
    }
}

/// Commands that make a key anew, written to an AOF.
pub struct Aof {
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *const c_void,
}

impl Aof {
    /// # Safety
    ///
    /// `io` must be a live rewrite stream and `key` a live string for as long as
    /// the result is used. `value` is what the key holds.
    pub unsafe fn from_raw(
        io: *mut raw::RedisModuleIO,
        key: *mut raw::RedisModuleString,
        value: *const c_void,
    ) -> Self {
        Self { io, key, value }
    }

    /// Writes `command key iterator data`.
    pub fn chunk(&mut self, command: &CStr, iterator: i64, data: &[u8]) {
        // A variadic call: each argument must have exactly the type its format
        // letter stands for. s: string object, l: long long, b: pointer and size.
        // SAFETY: a live stream and key; types that match the format.
        unsafe {
            api!(RedisModule_EmitAOF)(
                self.io,
                command.as_ptr(),
                c"slb".as_ptr(),
                self.key,
                iterator as c_longlong,
                data.as_ptr().cast::<c_char>(),
                data.len(),
            );
        }
    }

    /// Makes the rewrite fail, so that the server keeps the file that it has: servers
    /// take a command that they do not know for an error of the stream.
    pub fn fail(&mut self) {
        let unknown = c"FERROBLOOM.NO-SUCH-COMMAND";
        // SAFETY: a live stream and key; s: string object.
        unsafe { api!(RedisModule_EmitAOF)(self.io, unknown.as_ptr(), c"s".as_ptr(), self.key) };
    }

    /// Writes `RESTORE key 0 payload` with the payload that `DUMP` gives for the
    /// key in its own database; whether that worked. (The server adds the time to
    /// live itself.)
    pub fn restore(&mut self) -> bool {
        // SAFETY: a live stream and key; each object is freed once. The context of
        // the stream has no client and so no database; the detached one has.
        unsafe {
            let stream = api!(RedisModule_GetContextFromIO)(self.io);
            let ctx = api!(RedisModule_GetDetachedThreadSafeContext)(stream);
            let restored = self.select_database(ctx) && self.restore_from(ctx);
            api!(RedisModule_FreeThreadSafeContext)(ctx);
            restored
        }
    }

    /// Selects the database of the key; whether it is known.
    ///
    /// # Safety
    ///
    /// `ctx` must be live and have a client.
    unsafe fn select_database(&self, ctx: *mut raw::RedisModuleCtx) -> bool {
        // SAFETY: the caller's promise; a live stream and key; what is opened is
        // closed.
        unsafe {
            if let Some(database) = raw::RedisModule_GetDbIdFromIO {
                return api!(RedisModule_SelectDb)(ctx, database(self.io)) == OK;
            }
            // Before 7.0 the stream does not tell. It is the one where the key has
            // this value. The stream's own name object is not one to open keys with.
            let name = api!(RedisModule_CreateStringFromString)(ctx, self.key);
            let mut database = 0;
            let mut found = false;
            while !found && api!(RedisModule_SelectDb)(ctx, database) == OK {
                let mode = raw::REDISMODULE_READ as c_int;
                let key = api!(RedisModule_OpenKey)(ctx, name, mode).cast();
                found = api!(RedisModule_ModuleTypeGetValue)(key) == self.value.cast_mut();
                api!(RedisModule_CloseKey)(key);
                database += 1;
            }
            api!(RedisModule_FreeString)(ctx, name);
            found
        }
    }

    /// As [`restore`](Self::restore), with the key of the context's database.
    ///
    /// # Safety
    ///
    /// `ctx` must be live and have a client.
    unsafe fn restore_from(&self, ctx: *mut raw::RedisModuleCtx) -> bool {
        // SAFETY: the caller's promise; a live stream and key; each object is freed
        // once.
        unsafe {
            let reply = api!(RedisModule_Call)(ctx, c"DUMP".as_ptr(), c"s".as_ptr(), self.key);
            if reply.is_null() {
                return false;
            }
            let mut len = 0;
            let payload = api!(RedisModule_CallReplyStringPtr)(reply, &mut len);
            if !payload.is_null() {
                api!(RedisModule_EmitAOF)(
                    self.io,
                    c"RESTORE".as_ptr(),
                    c"slb".as_ptr(),
                    self.key,
                    0 as c_longlong,
                    payload,
                    len,
                );
            }
            api!(RedisModule_FreeCallReply)(reply);
            !payload.is_null()
        }
    }
}
