//! A fuzzer's bytes as a stream of numbers and strings, and the way back, by which
//! the seeds are made.
//!
//! | what | bytes |
//! |---|---|
//! | version | 1 |
//! | unsigned, double | 8, little-endian |
//! | string | 3 of length, then its bytes; with the top bit set, zeros without bytes |
//!
//! The order of the fields is that of the loader, so that a change of one byte is a
//! change of one value and never shifts the types of those behind it.

use ferrobloom::codec::{LoadError, Sink, Source};

/// Most zeros of a string without bytes.
const MOST_ZEROS: u32 = 1 << 19;

/// Top bit of a string's length.
const ZEROS: u32 = 1 << 23;

/// What is left of an input.
#[derive(Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether all has been taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, 0 behind the end.
    pub fn byte(&mut self) -> u8 {
        self.bytes::<1>().unwrap_or_default()[0]
    }

    /// The next `N` bytes.
    pub fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next number of 64 bits, 0 behind the end.
    pub fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes().unwrap_or_default())
    }

    /// A number whose first byte is how many bytes of it follow: small ones are
    /// likely, every one is possible.
    pub fn size(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let count = usize::from(self.byte()) % 9;
        bytes[..count].fill_with(|| self.byte());
        u64::from_le_bytes(bytes)
    }

    /// A short string: a byte of length, up to 31, and its bytes as far as they go.
    pub fn item(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte() % 32).min(self.0.len());
        let (item, rest) = self.0.split_at(length);
        self.0 = rest;
        item
    }

    /// Up to 39 items: around the size of a batch, and more.
    pub fn items(&mut self) -> Vec<&'a [u8]> {
        (0..self.byte() % 40).map(|_| self.item()).collect()
    }
}

impl Source for Input<'_> {
    fn unsigned(&mut self) -> Result<u64, LoadError> {
        self.bytes().map(u64::from_le_bytes).ok_or(LoadError::ShortRead)
    }

    fn double(&mut self) -> Result<f64, LoadError> {
        self.unsigned().map(f64::from_bits)
    }

    fn string(&mut self) -> Result<Box<[u8]>, LoadError> {
        let [a, b, c] = self.bytes().ok_or(LoadError::ShortRead)?;
        let length = u32::from_le_bytes([a, b, c, 0]);
        if length & ZEROS != 0 {
            return Ok(vec![0; (length & (ZEROS - 1)).min(MOST_ZEROS) as usize].into());
        }
        let (string, rest) =
            self.0.split_at_checked(length as usize).ok_or(LoadError::ShortRead)?;
        self.0 = rest;
        Ok(string.into())
    }
}

/// Writes what [`Input`] reads.
#[derive(Default)]
pub struct Output(pub Vec<u8>);

impl Sink for Output {
    fn unsigned(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn double(&mut self, value: f64) {
        self.0.extend(value.to_le_bytes());
    }

    fn string(&mut self, value: &[u8]) {
        let length = value.len() as u32;
        let zeros = length > 64 && value.iter().all(|&byte| byte == 0);
        let stored = if zeros { length | ZEROS } else { length };
        self.0.extend(&stored.to_le_bytes()[..3]);
        if !zeros {
            self.0.extend(value);
        }
    }
}
