//! What the arguments of a call mean: pure functions, which know nothing of a server.
//!
//! They take the whole call, the command's name first, or a single argument. Where a
//! call of a wrong number of arguments is possible they give `Ok(None)` for it. None
//! panics, whatever the arguments are and however many. [`Arguments`] are a server's or,
//! for tests and the fuzzer, slices of bytes.

#![forbid(unsafe_code)]

pub mod bf;
pub mod cf;
pub mod cms;
pub mod tdigest;
pub mod topk;

/// An argument.
pub trait Argument<'a>: Copy {
    /// Its bytes.
    fn bytes(self) -> &'a [u8];

    /// The bytes as a signed 64-bit integer: decimal, without plus sign, leading zeros
    /// or blanks.
    fn integer(self) -> Option<i64>;

    /// The bytes as a real number. Never NaN.
    fn double(self) -> Option<f64>;
}

/// The arguments of a call, or those from some place on.
pub trait Arguments<'a>: Copy {
    /// One of them.
    type One: Argument<'a>;

    /// How many there are.
    fn count(self) -> usize;

    /// The argument with number `index`, if there is one.
    fn get(self, index: usize) -> Option<Self::One>;

    /// The arguments from number `index` on, none if there are fewer.
    fn skip(self, index: usize) -> Self;

    /// The first `count` arguments, all if there are fewer.
    fn take(self, count: usize) -> Self;
}

impl<'a> Argument<'a> for &'a [u8] {
    fn bytes(self) -> &'a [u8] {
        self
    }

    fn integer(self) -> Option<i64> {
        let digits = self.strip_prefix(b"-").unwrap_or(self);
        let plain = match digits {
            b"0" => digits.len() == self.len(),
            [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        plain.then(|| str::from_utf8(self).ok()?.parse().ok())?
    }

    fn double(self) -> Option<f64> {
        let value: f64 = str::from_utf8(self).ok()?.parse().ok()?;
        (!value.is_nan()).then_some(value)
    }
}

impl<'a> Arguments<'a> for &'a [&'a [u8]] {
    type One = &'a [u8];

    fn count(self) -> usize {
        self.len()
    }

    fn get(self, index: usize) -> Option<&'a [u8]> {
        <[_]>::get(self, index).copied()
    }

    fn skip(self, index: usize) -> Self {
        <[_]>::get(self, index..).unwrap_or_default()
    }

    fn take(self, count: usize) -> Self {
        <[_]>::get(self, ..count).unwrap_or(self)
    }
}

/// Options: words in full, in any case, each with its value, from left to right.
struct Options<A> {
    args: A,
    next: usize,
}

impl<'a, A: Arguments<'a>> Options<A> {
    /// The options from argument `first` on.
    fn new(args: A, first: usize) -> Self {
        Self { args, next: first }
    }

    /// The next argument, taken as the word of an option.
    fn word(&mut self) -> Option<Word<'a>> {
        self.value().map(|value| Word(value.bytes()))
    }

    /// The next argument, taken as the value of an option.
    fn value(&mut self) -> Option<A::One> {
        let value = self.args.get(self.next)?;
        self.next += 1;
        Some(value)
    }

    /// The arguments that have not been taken.
    fn rest(&self) -> A {
        self.args.skip(self.next)
    }
}

/// A word of an option.
#[derive(Clone, Copy)]
pub(super) struct Word<'a>(pub(super) &'a [u8]);

impl Word<'_> {
    /// Whether it is `name`, in any case.
    pub(super) fn is(self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The place of a word among arguments, in any case.
fn find_word<'a>(args: impl Arguments<'a>, word: &str) -> Option<usize> {
    let is_word = |place: &usize| args.get(*place).is_some_and(|arg| Word(arg.bytes()).is(word));
    (0..args.count()).find(is_word)
}

/// A number from `least` to `most`.
fn in_range(value: i64, least: u64, most: u64) -> Option<u64> {
    u64::try_from(value).ok().filter(|value| (least..=most).contains(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_servers_read_them() {
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("-7", -7),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(text.as_bytes().integer(), Some(value));
        }
        let others = "|-|-0|00|01|+1| 1|1 |1.0|1e3|0x1|9223372036854775808|-9223372036854775809|ä";
        for text in others.split('|') {
            assert_eq!(text.as_bytes().integer(), None, "{text}");
        }
    }

    #[test]
    fn arguments_behind_the_end_are_none() {
        let args = [b"a".as_slice(), b"b"];
        let args = args.as_slice();
        assert_eq!(Arguments::skip(args, 1), [b"b"]);
        assert_eq!(Arguments::skip(args, 3).count(), 0);
        assert_eq!(Arguments::take(args, 1), [b"a"]);
        assert_eq!(Arguments::take(args, 3), args);
    }
}
