//! The items in the list, found by their content.
//!
//! Items have numbers, 0 and up without gaps, which they keep; a hash table with
//! linear probing, at most half full, maps content to number. All memory is allocated
//! fallibly and grows with the items that are there, not with how many there may be.

#![forbid(unsafe_code)]

use crate::structures::buffer::{Buffer, OutOfMemory, Part};
use crate::structures::hash::seeded128;

/// An item of the list.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) bytes: Box<[u8]>,
    pub(super) fingerprint: u32,
    /// Where in the heap its entry is.
    pub(super) place: u32,
    hash: u32,
}

/// All items of a list.
#[derive(Debug)]
pub(super) struct Items {
    /// How many there can be.
    most: usize,
    items: Vec<Item>,
    /// Numbers of items plus 1, 0 where free. The length is a power of two, or 0.
    table: Buffer<u32>,
    /// Bytes of all items together.
    bytes: u64,
}

impl Items {
    /// No item, and room for `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, items: Vec::new(), table: Buffer::empty(), bytes: 0 }
    }

    pub(super) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut items = Vec::new();
        items.try_reserve_exact(self.items.len()).map_err(|_| OutOfMemory)?;
        for item in &self.items {
            items.push(Item { bytes: copy_of(&item.bytes)?, ..*item });
        }
        Ok(Self { items, table: self.table.try_clone()?, ..*self })
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Item> {
        self.items.iter()
    }

    /// Shows every heap block.
    pub(super) fn parts(&mut self, visit: &mut dyn FnMut(&mut dyn Part)) {
        visit(&mut self.table);
        visit(&mut self.items);
        self.items.iter_mut().for_each(|item| visit(&mut item.bytes));
    }

    pub(super) fn heap_bytes(&self) -> u64 {
        (self.items.capacity() * size_of::<Item>() + self.table.size()) as u64 + self.bytes
    }

    pub(super) fn get(&self, number: u32) -> &Item {
        &self.items[number as usize]
    }

    pub(super) fn set_place(&mut self, number: u32, place: u32) {
        self.items[number as usize].place = place;
    }

    /// The number of an item.
    pub(super) fn find(&self, fingerprint: u32, bytes: &[u8]) -> Option<u32> {
        if self.items.is_empty() {
            return None;
        }
        let hash = hash(fingerprint, bytes);
        let mut at = self.home(hash);
        while let Some(number) = self.table[at].checked_sub(1) {
            let item = self.get(number);
            if item.hash == hash && item.fingerprint == fingerprint && *item.bytes == *bytes {
                return Some(number);
            }
            at = self.after(at);
        }
        None
    }

    /// Adds an item that is not there yet; there must be room for it. Returns its
    /// number.
    pub(super) fn insert(
        &mut self,
        fingerprint: u32,
        bytes: Box<[u8]>,
        place: u32,
    ) -> Result<u32, OutOfMemory> {
        let number = self.items.len() as u32; // at most k, which has 32 bits
        if self.items.len() == self.items.capacity() {
            // Doubles, but to no more than can be used.
            let more = self.items.len().max(4).min(self.most - self.items.len());
            self.items.try_reserve_exact(more).map_err(|_| OutOfMemory)?;
        }
        if self.table.len() < 2 * (self.items.len() + 1) {
            self.grow()?;
        }
        let hash = hash(fingerprint, &bytes);
        self.bytes += bytes.len() as u64;
        self.items.push(Item { bytes, fingerprint, place, hash });
        self.enter(hash, number);
        Ok(number)
    }

    /// Puts an item that is not there yet in the stead of `number`, and returns the
    /// old one.
    pub(super) fn replace(&mut self, number: u32, fingerprint: u32, bytes: Box<[u8]>) -> Box<[u8]> {
        self.leave(number);
        let hash = hash(fingerprint, &bytes);
        self.bytes += bytes.len() as u64;
        let item = &mut self.items[number as usize];
        let old = std::mem::replace(&mut item.bytes, bytes);
        (item.fingerprint, item.hash) = (fingerprint, hash);
        self.bytes -= old.len() as u64;
        self.enter(hash, number);
        old
    }

    /// Doubles the table.
    fn grow(&mut self) -> Result<(), OutOfMemory> {
        self.table = Buffer::zeroed((2 * self.table.len()).max(2))?;
        for number in 0..self.items.len() as u32 {
            self.enter(self.get(number).hash, number);
        }
        Ok(())
    }

    /// Enters a number that is not in the table.
    fn enter(&mut self, hash: u32, number: u32) {
        let mut at = self.home(hash);
        while self.table[at] != 0 {
            at = self.after(at);
        }
        self.table[at] = number + 1;
    }

    /// Takes a number out of the table.
    fn leave(&mut self, number: u32) {
        let mut hole = self.position(number);
        self.table[hole] = 0;
        // What follows moves up, unless that would put it before its home.
        let mut at = self.after(hole);
        while let Some(number) = self.table[at].checked_sub(1) {
            let home = self.home(self.get(number).hash);
            if self.distance(home, at) >= self.distance(hole, at) {
                self.table[hole] = number + 1;
                self.table[at] = 0;
                hole = at;
            }
            at = self.after(at);
        }
    }

    /// Where in the table a number is, which is in it.
    fn position(&self, number: u32) -> usize {
        let mut at = self.home(self.get(number).hash);
        while self.table[at] != number + 1 {
            at = self.after(at);
        }
        at
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.table.len() - 1)
    }
}

/// The fingerprint is 32 bits that anyone can aim at; this is for the table alone.
fn hash(fingerprint: u32, bytes: &[u8]) -> u32 {
    seeded128(bytes, fingerprint.into()).0 as u32
}

/// A copy on the heap.
pub(super) fn copy_of(bytes: &[u8]) -> Result<Box<[u8]>, OutOfMemory> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| OutOfMemory)?;
    copy.extend_from_slice(bytes);
    Ok(copy.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn items_are_found_as_in_a_map(
            steps in prop::collection::vec(("[a-z]{0,2}", "[a-z]{0,2}"), 0..300),
        ) {
            // Item to place; the place tells entries apart as their numbers change.
            let mut model = HashMap::<String, u32>::new();
            let mut items = Items::new(300);
            for (place, (name, other)) in (0..).zip(steps) {
                let number = items.find(7, name.as_bytes());
                prop_assert_eq!(number.map(|n| items.get(n).place), model.get(&name).copied());
                match number {
                    None => {
                        let number = items.insert(7, name.as_bytes().into(), place).unwrap();
                        prop_assert_eq!(number as usize, model.len());
                        model.insert(name, place);
                    }
                    Some(number) if !model.contains_key(&other) => {
                        let place = model.remove(&name).unwrap();
                        let old = items.replace(number, 7, other.as_bytes().into());
                        prop_assert_eq!(&*old, name.as_bytes());
                        model.insert(other, place);
                    }
                    Some(_) => prop_assert_eq!(items.find(8, name.as_bytes()), None),
                }
                prop_assert_eq!(items.len(), model.len());
                let bytes = model.keys().map(String::len).sum::<usize>();
                prop_assert_eq!(items.bytes, bytes as u64);
            }
        }
    }
}
