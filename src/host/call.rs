//! One call of a command: its arguments, the keyspace, its reply.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_longlong};
use std::marker::PhantomData;
use std::slice;

use redis_module::raw;

use super::spec::{KeyPlace, Spec};
use super::{Keys, OK, api, guard, string_bytes};

/// A command: its public face and what it does.
pub trait Command {
    /// What can go wrong.
    type Error: ErrorText;
    /// What the server is told.
    const SPEC: Spec;
    /// Runs a call whose number of arguments fits the arity.
    ///
    /// # Errors
    ///
    /// The reply, where the call changed nothing and has not begun to reply.
    fn run(call: Call<'_>) -> Result<(), Self::Error>;
}

/// The text a client gets for an error, its code first.
pub trait ErrorText {
    /// The line behind the `-`. Never contains a line break.
    fn text(&self) -> Cow<'static, CStr>;
}

/// A command as the registry holds it.
pub struct Entry {
    pub(super) spec: Spec,
    pub(super) run: unsafe extern "C" fn(
        *mut raw::RedisModuleCtx,
        *mut *mut raw::RedisModuleString,
        c_int,
    ) -> c_int,
}

impl Entry {
    /// The entry of command `C`.
    pub const fn of<C: Command>() -> Self {
        Self { spec: C::SPEC, run: trampoline::<C> }
    }
}

/// The function the server calls for command `C`.
unsafe extern "C" fn trampoline<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let done = guard(|| {
        // SAFETY: the server passes a live context and `argc` live strings, and
        // calls one command at a time.
        let call = unsafe {
            Call {
                args: Args::from_raw(argv, argc),
                keys: Keys::from_raw(ctx),
                out: Output { ctx, call: PhantomData },
            }
        };
        if C::SPEC.counts_keys() && call.out.is_asked_for_keys() {
            call.out.tell_keys(&C::SPEC, call.args);
        } else if !C::SPEC.accepts(call.args.len()) {
            call.out.wrong_arity();
        } else if let Err(error) = C::run(call) {
            Output { ctx, call: PhantomData }.error(&error.text());
        }
    });
    if done.is_none() {
        Output { ctx, call: PhantomData }.error(c"ERR internal error, see the server log");
    }
    OK
}

/// One call of a command. The parts are separate so that a handler can hold a value
/// borrowed from a key while it writes its reply.
pub struct Call<'a> {
    /// The arguments.
    pub args: Args<'a>,
    /// The keyspace.
    pub keys: Keys<'a>,
    /// The reply, and what goes to replicas.
    pub out: Output<'a>,
}

/// The arguments, the command's name included.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [*mut raw::RedisModuleString]);

impl<'a> Args<'a> {
    /// # Safety
    ///
    /// `argv` must point to `argc` strings that live through `'a`.
    pub unsafe fn from_raw(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        if argc <= 0 {
            return Self(&[]);
        }
        // SAFETY: the caller's promise.
        Self(unsafe { slice::from_raw_parts(argv, argc as usize) })
    }

    /// Number of arguments.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are none, which only load arguments can be.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The arguments from number `index` on, none if there are fewer.
    pub fn from(self, index: usize) -> Self {
        Self(self.0.get(index..).unwrap_or(&[]))
    }

    /// The first `count` arguments, all if there are fewer.
    pub fn take(self, count: usize) -> Self {
        Self(self.0.get(..count).unwrap_or(self.0))
    }

    /// The argument with number `index`, if there is one.
    pub fn get(self, index: usize) -> Option<StringRef<'a>> {
        self.0.get(index).map(|&raw| StringRef { raw, call: PhantomData })
    }

    /// The argument with number `index`.
    ///
    /// # Panics
    ///
    /// Where there is none: for numbers that the arity guarantees.
    pub fn string(self, index: usize) -> StringRef<'a> {
        StringRef { raw: self.0[index], call: PhantomData }
    }

    /// The bytes of the argument with number `index`.
    ///
    /// # Panics
    ///
    /// As [`string`](Self::string).
    #[inline]
    pub fn bytes(self, index: usize) -> &'a [u8] {
        self.string(index).bytes()
    }

    /// All arguments in turn.
    pub fn iter(self) -> impl ExactSizeIterator<Item = StringRef<'a>> {
        self.0.iter().map(|&raw| StringRef { raw, call: PhantomData })
    }

    /// Lends the bytes of up to `N` arguments at a time to `each`, which tells
    /// whether to go on. The batches are of equal size: the waiting for memory of a
    /// short last one would not be hidden. Nothing is allocated.
    #[inline]
    pub fn batches<const N: usize>(self, mut each: impl FnMut(&[&'a [u8]]) -> bool) {
        let count = self.0.len().div_ceil(N).max(1);
        for strings in self.0.chunks(self.0.len().div_ceil(count).max(1)) {
            let mut batch: [&[u8]; N] = [&[]; N];
            for (bytes, string) in batch.iter_mut().zip(strings) {
                // SAFETY: live through `'a` by `from_raw`.
                *bytes = unsafe { string_bytes(*string) };
            }
            if !each(&batch[..strings.len()]) {
                return;
            }
        }
    }

    /// Lends up to `N` pairs of arguments at a time to `each`: the bytes of the first,
    /// and the second as `read` takes it. An odd one at the end is left out. Nothing
    /// is allocated.
    ///
    /// # Errors
    ///
    /// What `read` gives; `each` has seen the batches before that.
    #[inline]
    pub fn pairs<const N: usize, V: Copy + Default, E>(
        self,
        read: impl Fn(StringRef<'a>) -> Result<V, E>,
        mut each: impl FnMut(&[(&'a [u8], V)]),
    ) -> Result<(), E> {
        for pairs in self.0.as_chunks::<2>().0.chunks(N) {
            let mut batch: [(&[u8], V); N] = [(&[], V::default()); N];
            for (place, &[first, second]) in batch.iter_mut().zip(pairs) {
                // SAFETY: live through `'a` by `from_raw`.
                let bytes = unsafe { string_bytes(first) };
                *place = (bytes, read(StringRef { raw: second, call: PhantomData })?);
            }
            each(&batch[..pairs.len()]);
        }
        Ok(())
    }
}

/// A string object of the server, borrowed for one call.
#[derive(Clone, Copy)]
pub struct StringRef<'a> {
    pub(super) raw: *mut raw::RedisModuleString,
    pub(super) call: PhantomData<&'a ()>,
}

impl<'a> StringRef<'a> {
    /// The bytes, in place.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        // SAFETY: live through `'a`.
        unsafe { string_bytes(self.raw) }
    }

    /// The bytes as a signed 64-bit integer, by the server's rules: decimal, without
    /// plus sign, leading zeros or blanks.
    pub fn integer(self) -> Option<i64> {
        let mut value: c_longlong = 0;
        // SAFETY: a live string and a place for the value.
        let status = unsafe { api!(RedisModule_StringToLongLong)(self.raw, &mut value) };
        (status == OK).then_some(value)
    }

    /// The bytes as a real number, by the server's rules. Never NaN.
    #[inline]
    pub fn double(self) -> Option<f64> {
        plain_decimal(self.bytes()).or_else(|| self.double_of_server())
    }

    fn double_of_server(self) -> Option<f64> {
        let mut value = 0.0;
        // SAFETY: a live string and a place for the value.
        let status = unsafe { api!(RedisModule_StringToDouble)(self.raw, &mut value) };
        (status == OK && !value.is_nan()).then_some(value)
    }
}

/// Up to 15 digits with a point between them, or 16 without: what every server reads
/// alike and one exact division gives. `None` leaves all other numbers to the server.
fn plain_decimal(bytes: &[u8]) -> Option<f64> {
    const LONGEST: usize = 16;
    const POWERS: [f64; LONGEST] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > LONGEST || !digits.last()?.is_ascii_digit() {
        return None;
    }
    let (mut whole, mut decimals) = (0_u64, 0);
    for (place, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => whole = 10 * whole + u64::from(byte - b'0'),
            b'.' if place > 0 && decimals == 0 => decimals = digits.len() - 1 - place,
            _ => return None,
        }
    }
    let value = whole as f64 / POWERS[decimals];
    Some(if negative { -value } else { value })
}

/// The reply to the client, and what goes to replicas and the AOF.
pub struct Output<'a> {
    ctx: *mut raw::RedisModuleCtx,
    call: PhantomData<&'a mut ()>,
}

impl Output<'_> {
    pub(super) fn context(&self) -> *mut raw::RedisModuleCtx {
        self.ctx
    }

    /// Whether the server wants to know the keys of the call, not to run it.
    fn is_asked_for_keys(&self) -> bool {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_IsKeysPositionRequest)(self.ctx) != 0 }
    }

    /// Tells the server where the keys of a call are: before 7.0, and where a number
    /// of keys makes no sense. Of keys that are announced, those that are there.
    fn tell_keys(&self, spec: &Spec, args: Args<'_>) {
        for key in spec.keys {
            let (first, count) = match key.place {
                KeyPlace::At(position) => (position, 1),
                KeyPlace::CountedAt(position) => {
                    let count = args.get(position as usize).and_then(StringRef::integer);
                    (position + 1, count.unwrap_or(0))
                }
            };
            let there = args.from(first as usize).len() as i64;
            for position in first..first + count.clamp(0, there) as c_int {
                // SAFETY: a live context that asks for keys, and a position within
                // the arguments.
                unsafe {
                    match raw::RedisModule_KeyAtPosWithFlags {
                        Some(tell) => tell(self.ctx, position, key.access.flags() as c_int),
                        None => api!(RedisModule_KeyAtPos)(self.ctx, position),
                    }
                }
            }
        }
    }

    fn wrong_arity(&self) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_WrongArity)(self.ctx) };
    }

    /// The server's error for a wrong number of arguments.
    pub fn arity_error(&mut self) {
        self.wrong_arity();
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.ctx, value) };
    }

    /// RESP3: a boolean; RESP2, and servers before 7.0: 1 or 0.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        // SAFETY: set once at load.
        match unsafe { raw::RedisModule_ReplyWithBool } {
            // SAFETY: a live context.
            Some(reply) => _ = unsafe { reply(self.ctx, value.into()) },
            None => self.integer(value.into()),
        }
    }

    /// A real number, as the server formats it.
    pub fn double(&mut self, value: f64) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplyWithDouble)(self.ctx, value) };
    }

    /// Begins an array; exactly `len` replies must follow.
    pub fn array(&mut self, len: usize) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplyWithArray)(self.ctx, len as _) };
    }

    /// Begins an array whose length [`array_end`](Self::array_end) tells.
    pub fn array_begin(&mut self) {
        const POSTPONED: std::ffi::c_long = raw::REDISMODULE_POSTPONED_LEN as _;
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplyWithArray)(self.ctx, POSTPONED) };
    }

    /// Ends an array begun by [`array_begin`](Self::array_begin), with the number of
    /// replies since.
    pub fn array_end(&mut self, len: usize) {
        // SAFETY: a live context with an array whose length is open.
        unsafe { api!(RedisModule_ReplySetArrayLength)(self.ctx, len as _) };
    }

    /// Begins a map of `len` pairs; RESP2, and servers before 7.0: a flat array.
    pub fn map(&mut self, len: usize) {
        // SAFETY: set once at load.
        match unsafe { raw::RedisModule_ReplyWithMap } {
            // SAFETY: a live context.
            Some(reply) => _ = unsafe { reply(self.ctx, len as _) },
            None => self.array(2 * len),
        }
    }

    /// Whether the client gets RESP3 forms: never before 7.0, which lack them.
    pub fn is_resp3(&self) -> bool {
        // SAFETY: set once at load; a live context.
        unsafe {
            let maps = raw::RedisModule_ReplyWithMap;
            maps.is_some()
                && api!(RedisModule_GetContextFlags)(self.ctx) as u32
                    & raw::REDISMODULE_CTX_FLAGS_RESP3
                    != 0
        }
    }

    /// A simple string.
    pub fn simple(&mut self, text: &CStr) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.ctx, text.as_ptr()) };
    }

    /// The simple string `OK`.
    pub fn ok(&mut self) {
        self.simple(c"OK");
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        // SAFETY: a live context; the server copies the bytes.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer)(
                self.ctx,
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
            );
        }
    }

    /// Null.
    pub fn null(&mut self) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplyWithNull)(self.ctx) };
    }

    /// An error; `text` must not contain a line break.
    pub fn error(&mut self, text: &CStr) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplyWithError)(self.ctx, text.as_ptr()) };
    }

    /// Sends the command on as it came. Without this a module's write stays on the
    /// server it ran on.
    pub fn replicate(&mut self) {
        // SAFETY: a live context.
        unsafe { api!(RedisModule_ReplicateVerbatim)(self.ctx) };
    }

    /// Sends on `command key 1 header`: the creation of a key with all that this
    /// server decided about it.
    pub fn replicate_creation(&mut self, command: &CStr, key: StringRef<'_>, header: &[u8]) {
        // A variadic call: each argument must have exactly the type its format
        // letter stands for. s: string object, l: long long, b: pointer and size.
        // SAFETY: a live context and key; types that match the format.
        unsafe {
            api!(RedisModule_Replicate)(
                self.ctx,
                command.as_ptr(),
                c"slb".as_ptr(),
                key.raw,
                1 as c_longlong,
                header.as_ptr().cast::<c_char>(),
                header.len(),
            );
        }
    }

    /// Sends on `command key arguments...`.
    pub fn replicate_as(&mut self, command: &CStr, key: StringRef<'_>, args: &[StringRef<'_>]) {
        // A `StringRef` is its pointer and nothing else, see the assertion below.
        let first = args.as_ptr().cast::<*mut raw::RedisModuleString>();
        // SAFETY: a live context and strings; v: pointer to strings and size.
        unsafe {
            api!(RedisModule_Replicate)(
                self.ctx,
                command.as_ptr(),
                c"sv".as_ptr(),
                key.raw,
                first,
                args.len(),
            );
        }
    }
}

const _: () = assert!(size_of::<StringRef<'_>>() == size_of::<*mut raw::RedisModuleString>());

#[cfg(test)]
mod tests {
    use super::plain_decimal;

    #[test]
    fn plain_decimals_are_read_to_the_last_bit() {
        let numbers = "0 1 -2.5 0.00 -0 00.10 0.1 123456.789 -9999999.9999999 0.00000000000001 \
            999999999999999 9007199254740993 9999999999999999 0.30000000000000";
        for text in numbers.split_whitespace() {
            let value: f64 = text.parse().expect("a number");
            let got = plain_decimal(text.as_bytes());
            assert_eq!(got.map(f64::to_bits), Some(value.to_bits()), "{text}");
        }
    }

    #[test]
    fn all_other_numbers_are_left_to_the_server() {
        let others = "|-|+1|.5|-.5|1.|1..5|1.2.3|1e3|1e| 1|1 |1_0|0x1|inf|-inf|nan|--1|1-1|\
            12345678901234567|1234567890.123456";
        for text in others.split('|') {
            assert_eq!(plain_decimal(text.as_bytes()), None, "{text}");
        }
    }
}
