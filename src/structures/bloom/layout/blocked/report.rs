//! What a chain tells of itself.

#![forbid(unsafe_code)]

use super::super::super::{LayerInfo, Params};
use super::layer::Layer;
use super::sizing::{self, Shape};
use super::{Chain, Fill, Node};
use crate::structures::buffer::Line;
use crate::structures::thin::{bytes_of, bytes_of_mut};

/// A layer as it is stored, but for its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Where the bits of an item lie.
    pub shape: Shape,
    /// Items that the layer is made for.
    pub capacity: u64,
    /// Items in it.
    pub size: u64,
}

impl Chain {
    /// The layers as stored, oldest first, without their bits.
    pub fn records(&self) -> impl Iterator<Item = Record> + use<> {
        let free = Shape::Free { words: self.0.words().len() as u64, probes: self.0.note().probes };
        let shapes = self.further().map(Layer::shape).chain([free]);
        let record = |(shape, Fill { capacity, size })| Record { shape, capacity, size };
        let newest_first: Vec<Record> = shapes.zip(self.fills()).map(record).collect();
        newest_first.into_iter().rev()
    }

    /// The layers, oldest first.
    pub fn layer_infos(&self) -> impl Iterator<Item = LayerInfo> + '_ {
        self.records().enumerate().map(|(index, record)| LayerInfo {
            bytes: record.shape.bytes(),
            bits: record.shape.bytes() * 8,
            hashes: record.shape.hashes(),
            hash_width: 128,
            capacity: record.capacity,
            size: record.size,
            rate: sizing::budget(self.error_rate(), index, self.scaling()),
        })
    }

    /// The bits of the layers as stored, oldest first.
    pub fn layer_bytes(&self) -> impl Iterator<Item = &[u8]> {
        let inline = Some(self.0.words()).filter(|words| !words.is_empty()).map(bytes_of);
        let further: Vec<&[u8]> = self.further().map(|layer| layer.bits.as_bytes()).collect();
        inline.into_iter().chain(further.into_iter().rev())
    }

    /// As [`layer_bytes`](Self::layer_bytes), to write into.
    pub fn layer_bytes_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (head, _, words) = self.0.parts_mut();
        let inline = Some(words).filter(|words| !words.is_empty()).map(bytes_of_mut);
        let mut further = Vec::new();
        let mut next = head.newest.as_deref_mut();
        while let Some(Node { layer, older }) = next {
            further.push(layer.bits.as_bytes_mut());
            next = older.as_deref_mut();
        }
        inline.into_iter().chain(further.into_iter().rev())
    }

    /// Items that were added.
    pub fn items(&self) -> u64 {
        self.fills().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }

    /// Items that the filter is made for so far, as RedisBloom counts them.
    pub fn capacity(&self) -> u64 {
        let all = self.fills().fold(0u64, |sum, layer| sum.saturating_add(layer.capacity));
        all - self.unused_layers() * u64::from(self.0.head().capacity)
    }

    /// Layers, as RedisBloom counts them.
    pub fn layers(&self) -> u64 {
        let one = u64::from(self.0.head().capacity).max(1);
        let all = self.fills().map(|layer| if self.merges() { layer.capacity / one } else { 1 });
        all.sum::<u64>() - self.unused_layers()
    }

    /// Whether a layer may stand for many.
    fn merges(&self) -> bool {
        self.0.note().expansion == 1
    }

    /// Of the layers that the newest stands for, those that RedisBloom would not
    /// have made yet.
    fn unused_layers(&self) -> u64 {
        let one = u64::from(self.0.head().capacity).max(1);
        let newest = self.newest();
        match self.merges() {
            true => newest.capacity / one - newest.size.div_ceil(one).max(1),
            false => 0,
        }
    }

    /// The capacity of a further layer as a multiple of the one before.
    pub fn expansion(&self) -> u32 {
        self.0.note().expansion.into()
    }

    /// Whether a full filter gets a further layer.
    pub fn scaling(&self) -> bool {
        self.0.note().scaling
    }

    /// The false positive rate asked for.
    pub fn error_rate(&self) -> f64 {
        self.0.head().error_rate
    }

    /// The key's secret.
    #[inline(always)]
    pub fn seed(&self) -> u64 {
        self.0.head().seed
    }

    /// What the filter was made for.
    pub fn params(&self) -> Params {
        Params {
            capacity: self.0.head().capacity.into(),
            error_rate: self.error_rate(),
            expansion: self.expansion(),
            scaling: self.scaling(),
        }
    }

    /// The false positive rate that is to be expected now, from the number of items
    /// in each layer: 0 while empty, at most the rate asked for.
    pub fn estimated_rate(&self) -> f64 {
        let none = self.records().map(|layer| 1.0 - layer.shape.rate(layer.size));
        1.0 - none.product::<f64>()
    }

    /// The part of the bits that is set, 0 to 1; of large layers by a sample.
    pub fn fill_ratio(&self) -> f64 {
        let all: usize = self.layer_bytes().map(<[u8]>::len).sum();
        let set = self.layer_bytes().map(|bytes| fill_of(bytes) * bytes.len() as f64);
        set.sum::<f64>() / all.max(1) as f64
    }

    /// The number of distinct items that the set bits speak for.
    pub fn estimated_items(&self) -> f64 {
        let of_layer = |(bytes, record): (&[u8], Record)| {
            let bits = bytes.len() as f64 * 8.0;
            // Of a layer that is full to the last bit all that is known is a bound.
            let clear = (1.0 - fill_of(bytes)).max(1.0 / bits);
            -clear.ln() * bits / f64::from(record.shape.hashes())
        };
        self.layer_bytes().zip(self.records()).map(of_layer).sum()
    }

    /// Bytes that the filter takes: its block, its layers and their table.
    pub fn heap_bytes(&self) -> u64 {
        let further = self.further().map(|layer| layer.bits.as_bytes().len() + size_of::<Node>());
        (further.sum::<usize>() + self.0.block().1.size()) as u64
    }
}

/// The part of the bits that is set. Every bit of up to 1 MiB is looked at, and an even
/// sample of more, by whole lines.
fn fill_of(bytes: &[u8]) -> f64 {
    const SAMPLE: usize = 1 << 20;
    const LINE: usize = size_of::<Line>();
    let step = bytes.len().div_ceil(SAMPLE).max(1);
    let (mut looked_at, mut ones) = (0, 0);
    for line in bytes.chunks(LINE).step_by(step) {
        looked_at += line.len();
        ones += line.iter().map(|byte| byte.count_ones()).sum::<u32>();
    }
    f64::from(ones) / (looked_at.max(1) * 8) as f64
}
