//! The server's arguments as the parsers take them.

use super::parse::{Argument, Arguments};
use crate::host::{Args, StringRef};

impl<'a> Argument<'a> for StringRef<'a> {
    #[inline]
    fn bytes(self) -> &'a [u8] {
        StringRef::bytes(self)
    }

    #[inline]
    fn integer(self) -> Option<i64> {
        StringRef::integer(self)
    }

    #[inline]
    fn double(self) -> Option<f64> {
        StringRef::double(self)
    }
}

impl<'a> Arguments<'a> for Args<'a> {
    type One = StringRef<'a>;

    #[inline]
    fn count(self) -> usize {
        self.len()
    }

    #[inline]
    fn get(self, index: usize) -> Option<StringRef<'a>> {
        Args::get(self, index)
    }

    #[inline]
    fn skip(self, index: usize) -> Self {
        self.from(index)
    }

    #[inline]
    fn take(self, count: usize) -> Self {
        Args::take(self, count)
    }
}
