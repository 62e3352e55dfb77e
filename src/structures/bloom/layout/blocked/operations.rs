//! Looking items up and adding them, one by one and in batches.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::super::super::{Insertion, Refusal};
use super::layer::{Free, Hash, Hashes, Layer, Places, Run, View, ViewMut, slice_of};
use super::{Chain, Node, sizing};
use crate::structures::BATCH;
use crate::structures::buffer::OutOfMemory;
use crate::structures::quota::Quota;

impl Chain {
    /// Whether the item was added before; or seems so, at the rate asked for.
    #[inline]
    pub fn contains(&self, item: &[u8]) -> bool {
        let hash = Hash::of(item, self.seed());
        let mut next = self.0.head().newest.as_deref();
        if let Some(newest) = next {
            newest.layer.view().prefetch_all(hash);
        }
        while let Some(Node { layer, older }) = next {
            if layer.view().contains(hash) {
                return true;
            }
            next = older.as_deref();
        }
        self.inline().is_some_and(|first| first.contains(hash))
    }

    /// As [`contains`](Self::contains) for each of `items`, into the same places of
    /// `found`; what is longer of the two is left alone.
    pub fn contains_batch(&self, items: &[&[u8]], found: &mut [bool]) {
        let size = batch_size(items.len());
        for (items, found) in items.chunks(size).zip(found.chunks_mut(size)) {
            let hashes = self.hash(items);
            let present = find(self.views(), &hashes, Places::range(0, items.len()));
            for (place, found) in found.iter_mut().take(items.len()).enumerate() {
                *found = present.contains(place);
            }
        }
    }

    #[inline(always)]
    fn hash(&self, items: &[&[u8]]) -> Hashes {
        let seed = self.seed();
        let mut hashes = [Hash::default(); BATCH];
        for (hash, item) in hashes.iter_mut().zip(items) {
            *hash = Hash::of(item, seed);
        }
        hashes
    }

    /// Adds an item unless it is reported present.
    ///
    /// # Errors
    ///
    /// [`Refusal`], which leaves the filter as it was.
    #[inline]
    pub fn insert(&mut self, item: &[u8], quota: Quota<'_>) -> Insertion {
        let hash = Hash::of(item, self.seed());
        if self.is_in_older(hash) {
            return Ok(false);
        }
        self.insert_into_newest(hash, true, quota).outcome
    }

    /// Whether a layer before the newest reports the item. Asks for its lines in the
    /// newest.
    #[inline(always)]
    fn is_in_older(&self, hash: Hash) -> bool {
        let mut views = self.views();
        if let Some(newest) = views.next() {
            newest.prefetch_all(hash);
        }
        views.any(|older| older.contains(hash))
    }

    /// As [`insert`](Self::insert) for each of `items` in order, with the outcomes
    /// in `out`. Ends after the first [`Refusal::Full`]; goes on after
    /// [`Refusal::CannotGrow`], without asking for memory again.
    ///
    /// Returns how many items were dealt with: all that `out` has places for, or as
    /// many as came up to the one that found the filter full.
    pub fn insert_batch(
        &mut self,
        items: &[&[u8]],
        quota: Quota<'_>,
        out: &mut [Insertion],
    ) -> usize {
        let (mut done, mut stuck) = (0, false);
        let size = batch_size(items.len());
        for (items, out) in items.chunks(size).zip(out.chunks_mut(size)) {
            let len = items.len().min(out.len());
            let here = self.insert_chunk(&items[..len], quota, &mut stuck, &mut out[..len]);
            done += here;
            if here > 0 && out[here - 1] == Err(Refusal::Full) {
                break;
            }
        }
        done
    }

    fn insert_chunk(
        &mut self,
        items: &[&[u8]],
        quota: Quota<'_>,
        stuck: &mut bool,
        out: &mut [Insertion],
    ) -> usize {
        let hashes = self.hash(items);
        let mut done = 0;
        // Once more whenever a layer was added: the newest has then become one of
        // the older ones.
        while done < items.len() {
            let mut views = self.views();
            if let Some(newest) = views.next() {
                for hash in &hashes[done..items.len()] {
                    newest.prefetch_all(*hash);
                }
            }
            let present = find(views, &hashes, Places::range(done, items.len()));
            done = self.fill_newest(&hashes, present, done..items.len(), out);
            // What is left meets a full layer.
            let mut grew = false;
            while done < items.len() && !grew {
                let outcome = if present.contains(done) {
                    Ok(false)
                } else {
                    let Added { outcome, grew: now } =
                        self.insert_into_newest(hashes[done], !*stuck, quota);
                    grew = now;
                    outcome
                };
                out[done] = outcome;
                done += 1;
                match outcome {
                    Err(Refusal::Full) => return done,
                    Err(Refusal::CannotGrow) => *stuck = true,
                    Ok(_) => {}
                }
            }
        }
        done
    }

    /// Adds the items of `places` that are not `present` to the newest layer while it
    /// has room. Returns the place that it came to.
    fn fill_newest(
        &mut self,
        hashes: &Hashes,
        present: Places,
        places: Range<usize>,
        out: &mut [Insertion],
    ) -> usize {
        let (head, note, words) = self.0.parts_mut();
        let run = Run { hashes, present, places, room: 0 };
        if let Some(node) = &mut head.newest {
            let layer = &mut node.layer;
            let room = layer.capacity.saturating_sub(layer.size);
            let (end, added) = layer.view_mut().insert_run(Run { room, ..run }, out);
            layer.size += added;
            return end;
        }
        let room = u64::from(head.capacity.saturating_sub(head.size));
        let slice = slice_of(words.len(), note.probes);
        let mut view = ViewMut::Free(Free::new(words, slice, note.probes));
        let (end, added) = view.insert_run(Run { room, ..run }, out);
        // At most the room, which has 32 bits.
        head.size += added as u32;
        end
    }

    /// Adds an item that no older layer reports; to a new layer if one is needed and
    /// `may_grow`.
    #[inline(always)]
    fn insert_into_newest(&mut self, hash: Hash, may_grow: bool, quota: Quota<'_>) -> Added {
        let newest = self.newest();
        let mut grew = false;
        if newest.size >= newest.capacity {
            let outcome = if self.views().next().is_some_and(|view| view.contains(hash)) {
                Ok(false)
            } else if !self.scaling() {
                Err(Refusal::Full)
            } else if may_grow && self.grow(quota).is_ok() {
                Ok(true)
            } else {
                Err(Refusal::CannotGrow)
            };
            grew = outcome == Ok(true);
            if !grew {
                return Added { outcome, grew };
            }
        }
        Added { outcome: Ok(self.set(hash)), grew }
    }

    /// Sets the item's bits in the newest layer and counts it if one was new.
    #[inline(always)]
    fn set(&mut self, hash: Hash) -> bool {
        let (head, note, words) = self.0.parts_mut();
        if let Some(node) = &mut head.newest {
            let layer = &mut node.layer;
            let new = layer.view_mut().insert(hash);
            layer.size += u64::from(new);
            return new;
        }
        let slice = slice_of(words.len(), note.probes);
        let new = ViewMut::Free(Free::new(words, slice, note.probes)).insert(hash);
        head.size += u32::from(new);
        new
    }

    /// Adds a layer.
    #[cold]
    fn grow(&mut self, quota: Quota<'_>) -> Result<(), OutOfMemory> {
        let capacity = self.next_capacity().ok_or(OutOfMemory)?;
        let shape = sizing::shape(self.error_rate(), capacity, self.depth(), self.scaling());
        let shape = shape.ok_or(OutOfMemory)?;
        quota.ask(self.heap_bytes(), Self::further_bytes(shape))?;
        self.push(Layer::new(shape, capacity)?);
        Ok(())
    }
}

/// Items of a batch where there are `all`: equal batches, as the loads of a small one
/// overlap with few others.
fn batch_size(all: usize) -> usize {
    all.div_ceil(all.div_ceil(BATCH).max(1)).max(1)
}

/// What became of an item, and whether it took a new layer.
struct Added {
    outcome: Insertion,
    grew: bool,
}

/// Those of `items` that one of `layers` reports, which come newest first, as the
/// newest hold the most items. While one is looked at, the lines of the next are on
/// their way.
fn find<'a>(layers: impl Iterator<Item = View<'a>>, hashes: &Hashes, items: Places) -> Places {
    let (mut absent, mut present) = (items, Places::NONE);
    let mut layers = layers.peekable();
    if let Some(first) = layers.peek() {
        first.prefetch_first(hashes, absent);
    }
    while let Some(layer) = layers.next() {
        if let Some(next) = layers.peek() {
            next.prefetch_first(hashes, absent);
        }
        let here = layer.filter(hashes, absent);
        (absent, present) = (absent.without(here), present.or(here));
        if absent.is_empty() {
            break;
        }
    }
    present
}
