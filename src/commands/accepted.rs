//! What replicas are to see of a command that takes many items.

use std::ffi::CStr;

use crate::host::{Args, Output, StringRef};

/// The additions of a call that were made. One that was refused here, for a limit or
/// want of memory, must not be made on a replica; and a replica that refuses one itself
/// raises an alarm.
pub(super) struct Accepted<'a> {
    args: Args<'a>,
    /// Arguments in front of the additions.
    before: usize,
    /// Arguments of one addition.
    width: usize,
    /// Arguments in front of the next addition.
    done: usize,
    /// The arguments of accepted additions, where not all were.
    some: Option<Vec<StringRef<'a>>>,
}

impl<'a> Accepted<'a> {
    /// For the additions in `args`, of `width` arguments each. `before` arguments stand
    /// in front of them and are sent on in any case.
    pub(super) fn new(args: Args<'a>, before: usize, width: usize) -> Self {
        Self { args, before, width, done: before, some: None }
    }

    /// Notes what became of the next addition.
    #[inline]
    pub(super) fn note(&mut self, accepted: bool) {
        if !accepted {
            self.some.get_or_insert_with(|| self.args.take(self.done).iter().collect());
        } else if let Some(some) = &mut self.some {
            some.extend(self.args.from(self.done).take(self.width).iter());
        }
        self.done += self.width;
    }

    /// Sends the call on, with the accepted additions only; whether there was one.
    pub(super) fn replicate(
        &self,
        out: &mut Output<'_>,
        command: &CStr,
        key: StringRef<'_>,
    ) -> bool {
        match &self.some {
            None => out.replicate(),
            Some(some) if some.len() == self.before => return false,
            Some(some) => out.replicate_as(command, key, some),
        }
        true
    }
}
