//! Stored bytes: the order of fields in RDB by version, dump headers and chunks,
//! and what must hold before a structure is made of them.
//!
//! A codec never decides anything but "well formed or not", and every number it
//! reads is hostile until checked. The server's RDB stream is one implementation of
//! [`Source`] and [`Sink`]; tests and fuzz targets use [`Fields`].

use std::collections::VecDeque;
use std::fmt;

use crate::structures::buffer::OutOfMemory;

pub mod blocked;
pub mod bloom;
pub mod chunks;
pub mod cms;
pub mod cuckoo;
pub mod tdigest;
pub mod topk;

#[cfg(test)]
mod out_of_memory;

/// Takes the fields of a value, in order.
pub trait Sink {
    /// A module unsigned.
    fn unsigned(&mut self, value: u64);
    /// A module double.
    fn double(&mut self, value: f64);
    /// A module string buffer.
    fn string(&mut self, value: &[u8]);
}

/// Gives the fields of a value, in order.
pub trait Source {
    /// A module unsigned.
    ///
    /// # Errors
    ///
    /// [`LoadError::ShortRead`] at the end of the stream or on another field type.
    fn unsigned(&mut self) -> Result<u64, LoadError>;

    /// A module double.
    ///
    /// # Errors
    ///
    /// As [`unsigned`](Self::unsigned).
    fn double(&mut self) -> Result<f64, LoadError>;

    /// A module string buffer, owned, so that a large one need not be copied.
    ///
    /// # Errors
    ///
    /// As [`unsigned`](Self::unsigned).
    fn string(&mut self) -> Result<Box<[u8]>, LoadError>;
}

/// Why stored bytes were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadError {
    /// The stream ended or broke, or held a field of another type.
    ShortRead,
    /// Written by a newer module: the encoding version.
    UnknownVersion(i32),
    /// The parts contradict each other, or a value makes no sense; says which.
    Inconsistent(&'static str),
    /// No memory for what the data claim.
    OutOfMemory,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortRead => f.write_str("short read"),
            Self::UnknownVersion(version) => write!(f, "unknown encoding version {version}"),
            Self::Inconsistent(what) => write!(f, "inconsistent data: {what}"),
            Self::OutOfMemory => f.write_str("insufficient memory"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<OutOfMemory> for LoadError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// `Ok` where `holds`, else the error that names `what`.
///
/// # Errors
///
/// [`LoadError::Inconsistent`].
pub(crate) fn require(holds: bool, what: &'static str) -> Result<(), LoadError> {
    if holds { Ok(()) } else { Err(LoadError::Inconsistent(what)) }
}

/// One field of a stored value.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// A module unsigned.
    Unsigned(u64),
    /// A module double.
    Double(f64),
    /// A module string buffer.
    String(Vec<u8>),
}

/// A stored value in memory: what was saved into it is what loads from it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(pub VecDeque<Field>);

impl Sink for Fields {
    fn unsigned(&mut self, value: u64) {
        self.0.push_back(Field::Unsigned(value));
    }

    fn double(&mut self, value: f64) {
        self.0.push_back(Field::Double(value));
    }

    fn string(&mut self, value: &[u8]) {
        self.0.push_back(Field::String(value.to_vec()));
    }
}

impl Source for Fields {
    fn unsigned(&mut self) -> Result<u64, LoadError> {
        match self.0.pop_front() {
            Some(Field::Unsigned(value)) => Ok(value),
            _ => Err(LoadError::ShortRead),
        }
    }

    fn double(&mut self) -> Result<f64, LoadError> {
        match self.0.pop_front() {
            Some(Field::Double(value)) => Ok(value),
            _ => Err(LoadError::ShortRead),
        }
    }

    fn string(&mut self) -> Result<Box<[u8]>, LoadError> {
        match self.0.pop_front() {
            Some(Field::String(value)) => Ok(value.into()),
            _ => Err(LoadError::ShortRead),
        }
    }
}
