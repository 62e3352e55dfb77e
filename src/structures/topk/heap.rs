//! The list of the k heaviest items: a binary min-heap in an array of exactly k
//! entries, as RedisBloom has it.
//!
//! The order of entries decides replies (which of equal items is listed first,
//! which is expelled), so the steps are RedisBloom's to the letter, those that leave
//! the array less than a heap included: an entry whose count goes down moves only
//! downwards. Counts and names are apart, so that sifting reads little; both are
//! zero pages until used, however large k is.

#![forbid(unsafe_code)]

use super::items::{Item, Items, copy_of};
use crate::structures::buffer::{Buffer, OutOfMemory, Part};

/// The heap. Entries with an item can have count 0: see [`super::TopK`].
#[derive(Debug)]
pub(super) struct Heap {
    counts: Buffer<u32>,
    /// Numbers of items plus 1; 0 where an entry has none.
    names: Buffer<u32>,
    items: Items,
}

impl Heap {
    /// `k` empty entries.
    pub(super) fn new(k: u32) -> Result<Self, OutOfMemory> {
        let k = k as usize;
        let (counts, names) = (Buffer::zeroed(k)?, Buffer::zeroed(k)?);
        Ok(Self { counts, names, items: Items::new(k) })
    }

    pub(super) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self {
            counts: self.counts.try_clone()?,
            names: self.names.try_clone()?,
            items: self.items.try_clone()?,
        })
    }

    pub(super) fn heap_bytes(&self) -> u64 {
        (self.counts.size() + self.names.size()) as u64 + self.items.heap_bytes()
    }

    /// Shows every heap block.
    pub(super) fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(&mut self.counts);
        visit(&mut self.names);
        self.items.parts(visit);
    }

    /// The count of the root, which newcomers must reach.
    #[inline]
    pub(super) fn root(&self) -> u32 {
        self.counts.first().copied().unwrap_or(0)
    }

    /// How many entries have an item.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The items with their counts, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Item, u32)> {
        self.items.iter().map(|item| (item, self.counts[item.place as usize]))
    }

    /// Count and item of every entry, in the order of the array.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, Option<&Item>)> {
        let items = self.names.iter().map(|name| name.checked_sub(1).map(|n| self.items.get(n)));
        self.counts.iter().copied().zip(items)
    }

    /// The number of an item.
    #[inline]
    pub(super) fn find(&self, fingerprint: u32, item: &[u8]) -> Option<u32> {
        self.items.find(fingerprint, item)
    }

    /// The count of an item.
    pub(super) fn count(&self, number: u32) -> u32 {
        self.counts[self.items.get(number).place as usize]
    }

    /// Gives an item the count, which may be lower than the one it had. Whether that
    /// changed anything: an equal count can still change places with its child.
    pub(super) fn set(&mut self, number: u32, count: u32) -> bool {
        let before = self.items.get(number).place;
        let place = before as usize;
        let changes = self.counts[place] != count;
        self.counts[place] = count;
        self.sift_down(place);
        changes || self.items.get(number).place != before
    }

    /// Puts a new item in place of the root, and returns the item that was there.
    pub(super) fn replace_root(
        &mut self,
        fingerprint: u32,
        item: &[u8],
        count: u32,
    ) -> Result<Option<Box<[u8]>>, OutOfMemory> {
        let item = copy_of(item)?;
        let expelled = match self.names[0].checked_sub(1) {
            Some(number) => Some(self.items.replace(number, fingerprint, item)),
            None => {
                self.names[0] = self.items.insert(fingerprint, item, 0)? + 1;
                None
            }
        };
        self.counts[0] = count;
        self.sift_down(0);
        Ok(expelled)
    }

    /// Fills an empty entry with stored values, as they are. Of several entries with
    /// one item, which RedisBloom can leave behind, the last keeps it: it is the one
    /// that RedisBloom finds. The others stay without one until they are expelled.
    pub(super) fn restore(
        &mut self,
        place: u32,
        count: u32,
        item: Option<(u32, Box<[u8]>)>,
    ) -> Result<(), OutOfMemory> {
        self.counts[place as usize] = count;
        let Some((fingerprint, bytes)) = item else { return Ok(()) };
        let number = match self.items.find(fingerprint, &bytes) {
            Some(number) => {
                let earlier = self.items.get(number).place;
                self.names[earlier as usize] = 0;
                self.items.set_place(number, place);
                number
            }
            None => self.items.insert(fingerprint, bytes, place)?,
        };
        self.names[place as usize] = number + 1;
        Ok(())
    }

    /// Moves an entry down to where its count belongs. The first step is also made
    /// where counts are equal, further ones only to smaller counts.
    fn sift_down(&mut self, mut place: usize) {
        let (count, name) = (self.counts[place], self.names[place]);
        let mut next = self.child(place).filter(|&child| self.counts[child] <= count);
        if next.is_none() {
            return;
        }
        while let Some(child) = next {
            self.put(place, self.counts[child], self.names[child]);
            place = child;
            next = self.child(place).filter(|&child| self.counts[child] < count);
        }
        self.put(place, count, name);
    }

    /// The child with the smaller count, the left one where they are equal.
    fn child(&self, place: usize) -> Option<usize> {
        let left = 2 * place + 1;
        let left_count = *self.counts.get(left)?;
        let right_is_smaller = self.counts.get(left + 1).is_some_and(|&right| right < left_count);
        Some(left + usize::from(right_is_smaller))
    }

    fn put(&mut self, place: usize, count: u32, name: u32) {
        self.counts[place] = count;
        self.names[place] = name;
        if let Some(number) = name.checked_sub(1) {
            self.items.set_place(number, place as u32); // below k, which has 32 bits
        }
    }
}

impl PartialEq for Heap {
    /// Equal as stored, whatever numbers the items have.
    fn eq(&self, other: &Self) -> bool {
        fn stored((count, item): (u32, Option<&Item>)) -> (u32, Option<(u32, &[u8])>) {
            (count, item.map(|item| (item.fingerprint, &*item.bytes)))
        }
        self.entries().map(stored).eq(other.entries().map(stored))
    }
}
