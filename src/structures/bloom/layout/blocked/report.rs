//! What a chain tells of itself.

#![forbid(unsafe_code)]

use super::super::super::Params;
use super::layer::{Bits, Layer};
use super::sizing::{self, Shape};
use super::{Chain, Fill, Node};
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

/// What there is to tell about a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerInfo {
    /// What is stored of it.
    pub record: Record,
    /// The false positive rate that it keeps to when it is full.
    pub error_rate: f64,
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
            record,
            error_rate: sizing::budget(self.error_rate(), index, self.scaling()),
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

    /// The memory of the layers outside the chain's own block, newest first.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut Bits> {
        self.further_mut().map(|layer| &mut layer.bits)
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

    /// The part of the bits that is set, 0 to 1. Looks at each bit of up to 1 MiB,
    /// and at an even sample of larger filters.
    pub fn fill_ratio(&self) -> f64 {
        const SAMPLE: usize = 1 << 17;
        let all: usize = self.layer_bytes().map(|bytes| bytes.len() / 8).sum();
        // Chunks of a line, so that the sample of a lined layer is one of lines.
        let step = all.div_ceil(SAMPLE).max(1);
        let (mut words, mut ones) = (0u64, 0u64);
        for view in self.views() {
            for word in view.words().step_by(step).flatten() {
                words += 1;
                ones += u64::from(word.count_ones());
            }
        }
        ones as f64 / (words.max(1) * 64) as f64
    }

    /// Bytes that the filter takes: its block, its layers and their table.
    pub fn heap_bytes(&self) -> u64 {
        let further = self.further().map(|layer| layer.bits.as_bytes().len() + size_of::<Node>());
        (further.sum::<usize>() + self.0.block().1.size()) as u64
    }
}
