//! Keys that hold a Rust value.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

use super::{Measure, OK, StringRef, Tally, api};

/// The server's handle of a native type, set at load.
pub struct TypeHandle(AtomicPtr<raw::RedisModuleType>);

impl TypeHandle {
    /// A handle that no type has been registered for yet.
    #[expect(clippy::new_without_default, reason = "needed in a static")]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(super) fn set(&self, handle: *mut raw::RedisModuleType) {
        self.0.store(handle, Relaxed);
    }

    #[inline]
    fn get(&self) -> *mut raw::RedisModuleType {
        self.0.load(Relaxed)
    }
}

/// A value that keys hold: an owning handle that is one pointer for the server.
///
/// # Safety
///
/// No other type may use the type handle. The pointer must stay the same while the
/// value is changed through `&mut Self`, and `from_raw` must undo `into_raw`.
pub unsafe trait Native: Sized + 'static {
    /// The server's type for it.
    fn handle() -> &'static TypeHandle;

    /// The sums over all values of the type.
    fn tally() -> &'static Tally;

    /// What this value takes. Cheap: it is asked before and after every write.
    fn measure(&self) -> Measure;

    /// Gives the value up to the server.
    fn into_raw(self) -> *mut c_void;

    /// Takes the value back.
    ///
    /// # Safety
    ///
    /// `raw` must come from [`into_raw`](Self::into_raw), and only one of the values
    /// made of it may be dropped.
    unsafe fn from_raw(raw: *mut c_void) -> Self;
}

/// The key holds a value of another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongType;

/// The keyspace during one call. Borrowing it as Rust borrows anything is what
/// keeps a value from being read and written at once: many keys can be open for
/// reading, or one for writing.
pub struct Keys<'a> {
    ctx: *mut raw::RedisModuleCtx,
    call: PhantomData<&'a mut ()>,
}

/// A value borrowed for reading.
pub struct Key<'k, T: Native> {
    value: ManuallyDrop<T>,
    keys: PhantomData<&'k T>,
}

/// A value borrowed for writing.
pub struct KeyMut<'k, T: Native> {
    value: ManuallyDrop<T>,
    before: Measure,
    ctx: *mut raw::RedisModuleCtx,
    name: StringRef<'k>,
    keys: PhantomData<&'k mut T>,
}

/// The keys to read while one is borrowed for writing.
pub struct Others<'k, T: Native> {
    keys: Keys<'k>,
    written: *mut c_void,
    value: PhantomData<&'k T>,
}

/// A value borrowed for writing, and the keys to read meanwhile.
pub type WithOthers<'k, T> = (KeyMut<'k, T>, Others<'k, T>);

/// A key that is read while one is borrowed for writing.
pub enum Beside<'k, T: Native> {
    /// It is that one.
    Written,
    /// It has another value.
    Other(Key<'k, T>),
}

impl Keys<'_> {
    /// # Safety
    ///
    /// `ctx` must be live through the result's lifetime, the server's lock held, and
    /// no other `Keys` in use.
    pub(super) unsafe fn from_raw(ctx: *mut raw::RedisModuleCtx) -> Self {
        Self { ctx, call: PhantomData }
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    ///
    /// [`WrongType`].
    #[inline]
    pub fn read<T: Native>(&self, name: StringRef<'_>) -> Result<Option<Key<'_, T>>, WrongType> {
        let Some(raw) = self.value::<T>(name)? else { return Ok(None) };
        // SAFETY: a live value of type `T` that is never dropped here; nothing
        // writes while the keyspace is borrowed.
        let value = ManuallyDrop::new(unsafe { T::from_raw(raw) });
        Ok(Some(Key { value, keys: PhantomData }))
    }

    /// The value of a key to change, if it has one. A change must be told by
    /// [`KeyMut::changed`].
    ///
    /// The key is opened for reading: closing one that was opened for writing counts
    /// as a change and aborts the transactions of clients that watch it, whether or
    /// not anything changed.
    ///
    /// # Errors
    ///
    /// [`WrongType`].
    #[inline]
    pub fn write<'k, T: Native>(
        &'k mut self,
        name: StringRef<'k>,
    ) -> Result<Option<KeyMut<'k, T>>, WrongType> {
        let Some(raw) = self.value::<T>(name)? else { return Ok(None) };
        // SAFETY: a live value of type `T`; the keyspace is borrowed exclusively.
        Ok(Some(unsafe { KeyMut::new(raw, self.ctx, name) }))
    }

    /// As [`write`](Self::write), together with the means to read other keys
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`WrongType`].
    pub fn write_beside<'k, T: Native>(
        &'k mut self,
        name: StringRef<'k>,
    ) -> Result<Option<WithOthers<'k, T>>, WrongType> {
        let Some(written) = self.value::<T>(name)? else { return Ok(None) };
        let keys = Keys { ctx: self.ctx, call: PhantomData };
        // SAFETY: a live value of type `T`; the keyspace is borrowed exclusively, by
        // these two together, and `Others` leaves this value out.
        let key = unsafe { KeyMut::new(written, self.ctx, name) };
        Ok(Some((key, Others { keys, written, value: PhantomData })))
    }

    /// As [`write`](Self::write), with the value of `make` for a key that does not
    /// exist.
    ///
    /// # Errors
    ///
    /// [`WrongType`], and what `make` gives; the key does not exist then.
    #[inline]
    pub fn write_or_create<'k, T: Native, E: From<WrongType>>(
        &'k mut self,
        name: StringRef<'k>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<KeyMut<'k, T>, E> {
        let raw = match self.value::<T>(name)? {
            Some(raw) => raw,
            None => self.put(name, make()?),
        };
        // SAFETY: a live value of type `T`; the keyspace is borrowed exclusively.
        Ok(unsafe { KeyMut::new(raw, self.ctx, name) })
    }

    /// Whether the key exists, with a value of whatever type.
    pub fn exists(&self, name: StringRef<'_>) -> bool {
        // SAFETY: a live context and string; closing null is allowed.
        unsafe {
            let key = self.open(name, raw::REDISMODULE_READ);
            api!(RedisModule_CloseKey)(key);
            !key.is_null()
        }
    }

    /// Gives the key a value in place of the one that it has, and tells of it as
    /// [`KeyMut::changed`] does. A key of the same type keeps its time to live.
    pub fn set<T: Native>(&mut self, name: StringRef<'_>, value: T, event: &CStr) {
        self.put(name, value);
        // SAFETY: a live context.
        unsafe { notify(self.ctx, event, name) };
    }

    fn put<T: Native>(&mut self, name: StringRef<'_>, value: T) -> *mut c_void {
        T::tally().add(value.measure());
        // SAFETY: a live context and string; the server owns the value from here on.
        unsafe {
            let key = self.open(name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
            let value = value.into_raw();
            let mut old = ptr::null_mut();
            // Refused where the key is new or of another type.
            let replaced =
                api!(RedisModule_ModuleTypeReplaceValue)(key, T::handle().get(), value, &mut old);
            if replaced == OK {
                let old = T::from_raw(old);
                T::tally().remove(old.measure());
            } else {
                let status = api!(RedisModule_ModuleTypeSetValue)(key, T::handle().get(), value);
                assert_eq!(status, OK, "a key opened for writing takes a value");
            }
            api!(RedisModule_CloseKey)(key);
            value
        }
    }

    /// # Safety
    ///
    /// The result is open until closed, and no longer than the call.
    #[inline]
    unsafe fn open(&self, name: StringRef<'_>, mode: u32) -> *mut raw::RedisModuleKey {
        // SAFETY: a live context and a live string.
        unsafe { api!(RedisModule_OpenKey)(self.ctx, name.raw, mode as c_int) }.cast()
    }

    #[inline]
    fn value<T: Native>(&self, name: StringRef<'_>) -> Result<Option<*mut c_void>, WrongType> {
        // SAFETY: a key of this call, closed before it ends. The value lives on
        // behind a closed key: nothing but this call runs.
        unsafe {
            let key = self.open(name, raw::REDISMODULE_READ);
            if key.is_null() {
                return Ok(None);
            }
            // Null where the value is of no module's type.
            let matches = api!(RedisModule_ModuleTypeGetType)(key) == T::handle().get();
            let value = matches.then(|| api!(RedisModule_ModuleTypeGetValue)(key));
            api!(RedisModule_CloseKey)(key);
            value.map(Some).ok_or(WrongType)
        }
    }
}

impl<'k, T: Native> Others<'k, T> {
    /// The value of a key, if it has one.
    ///
    /// # Errors
    ///
    /// [`WrongType`].
    pub fn read(&self, name: StringRef<'_>) -> Result<Option<Beside<'k, T>>, WrongType> {
        let Some(raw) = self.keys.value::<T>(name)? else { return Ok(None) };
        if raw == self.written {
            return Ok(Some(Beside::Written));
        }
        // SAFETY: a live value of type `T` that is never dropped here. It is another
        // one than the written, as values in different places are, and no other is
        // written while the keyspace is borrowed. Opening a key can remove one that
        // has expired, but not one found before: the clock stands still in a call.
        let value = ManuallyDrop::new(unsafe { T::from_raw(raw) });
        Ok(Some(Beside::Other(Key { value, keys: PhantomData })))
    }
}

impl<T: Native> Deref for Key<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'k, T: Native> KeyMut<'k, T> {
    /// # Safety
    ///
    /// `raw` must be a live value of type `T` that nothing else uses through `'k`.
    unsafe fn new(raw: *mut c_void, ctx: *mut raw::RedisModuleCtx, name: StringRef<'k>) -> Self {
        // SAFETY: the caller's promise; the value is never dropped here.
        let value = ManuallyDrop::new(unsafe { T::from_raw(raw) });
        let before = value.measure();
        Self { value, before, ctx, name, keys: PhantomData }
    }

    /// Tells the server that the value has changed: for `WATCH` and client caches,
    /// and as a keyspace event of this name where `notify-keyspace-events` asks for
    /// events of modules (class `d`).
    pub fn changed(&self, event: &CStr) {
        // SAFETY: a live context and string.
        unsafe {
            api!(RedisModule_SignalModifiedKey)(self.ctx, self.name.raw);
            notify(self.ctx, event, self.name);
        }
    }
}

/// # Safety
///
/// `ctx` must be live.
unsafe fn notify(ctx: *mut raw::RedisModuleCtx, event: &CStr, name: StringRef<'_>) {
    // SAFETY: the caller's promise, and a live string.
    unsafe {
        api!(RedisModule_NotifyKeyspaceEvent)(
            ctx,
            raw::REDISMODULE_NOTIFY_MODULE as c_int,
            event.as_ptr(),
            name.raw,
        );
    }
}

impl<T: Native> Drop for KeyMut<'_, T> {
    fn drop(&mut self) {
        T::tally().change(self.before, self.value.measure());
    }
}

impl<T: Native> Deref for KeyMut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Native> DerefMut for KeyMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
