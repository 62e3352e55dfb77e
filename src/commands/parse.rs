//! Options: words in full, in any case, each with its value.

use crate::host::{Args, StringRef};

/// The options of a call, from left to right.
pub(super) struct Options<'a> {
    args: Args<'a>,
    next: usize,
}

impl<'a> Options<'a> {
    /// The options from argument `first` on.
    pub(super) fn new(args: Args<'a>, first: usize) -> Self {
        Self { args, next: first }
    }

    /// The next argument, taken as the word of an option.
    pub(super) fn word(&mut self) -> Option<Word<'a>> {
        self.value().map(|value| Word(value.bytes()))
    }

    /// The next argument, taken as the value of an option.
    pub(super) fn value(&mut self) -> Option<StringRef<'a>> {
        let value = self.args.get(self.next)?;
        self.next += 1;
        Some(value)
    }

    /// The arguments that have not been taken.
    pub(super) fn rest(&self) -> Args<'a> {
        self.args.from(self.next)
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
