//! The stored form of a count-min sketch, RedisBloom's type `CMSk-TYPE`.
//!
//! ```text
//! unsigned  width
//! unsigned  depth
//! unsigned  count
//! string    cells, 32 bits each, little-endian, row by row
//! ```

#![forbid(unsafe_code)]

use super::{LoadError, Sink, Source, require};
use crate::structures::buffer::Buffer;
use crate::structures::cms::{Dimensions, Sketch};

/// The encoding version that is written, and the newest that is read.
pub const VERSION: i32 = 0;

/// Writes a sketch.
pub fn save(sketch: &Sketch, sink: &mut impl Sink) {
    sink.unsigned(sketch.dimensions().width());
    sink.unsigned(sketch.dimensions().depth());
    sink.unsigned(sketch.count());
    sink.string(sketch.cells().as_bytes());
}

/// Reads a sketch of encoding `version`.
///
/// # Errors
///
/// [`LoadError`] where the version is unknown, a field is missing, or there are not
/// exactly as many cells as width and depth say.
pub fn load(source: &mut impl Source, version: i32) -> Result<Sketch, LoadError> {
    if version != VERSION {
        return Err(LoadError::UnknownVersion(version));
    }
    let width = source.unsigned()?;
    let depth = source.unsigned()?;
    let count = source.unsigned()?;
    let bytes = source.string()?;
    let dimensions =
        Dimensions::new(width, depth).ok_or(LoadError::Inconsistent("width and depth"))?;
    let size = dimensions.cells().checked_mul(4);
    require(size == Some(bytes.len() as u64), "number of cells")?;
    let cells = Buffer::from_bytes(bytes).ok_or(LoadError::OutOfMemory)?;
    Sketch::from_parts(dimensions, count, cells).ok_or(LoadError::Inconsistent("number of cells"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Field, Fields};
    use crate::structures::quota::Quota;

    fn fields(width: u64, depth: u64, count: u64, cells: &[u8]) -> Fields {
        let numbers = [width, depth, count].map(Field::Unsigned);
        Fields(numbers.into_iter().chain([Field::String(cells.to_vec())]).collect())
    }

    #[test]
    fn a_sketch_is_stored_as_redisbloom_stores_it() {
        let dimensions = Dimensions::new(5, 2).unwrap();
        let mut sketch = Sketch::new(dimensions, Quota::UNLIMITED).unwrap();
        sketch.increment(&[(b"a", 3), (b"b", 4)], |_| ());
        let row = [0, 4, 0, 0, 3].map(u32::to_le_bytes).concat();
        let mut stored = Fields::default();
        save(&sketch, &mut stored);
        assert_eq!(stored, fields(5, 2, 7, &[&row[..], &row].concat()));
        assert_eq!(load(&mut stored, VERSION), Ok(sketch));
    }

    #[test]
    fn contradictory_data_are_refused() {
        for (width, depth, len) in [
            (0, 1, 0),
            (1, 0, 0),
            (2, 2, 15),
            (2, 2, 17),
            (4, 2, 16),
            (1 << 31, 1 << 31, 0),
            (1 << 62, 1, 0),
            (1 << 63, 2, 0),
            (u64::MAX, u64::MAX, 4),
        ] {
            let loaded = load(&mut fields(width, depth, 0, &vec![0; len]), VERSION);
            assert!(matches!(loaded, Err(LoadError::Inconsistent(_))), "{width} {depth} {len}");
        }
    }

    #[test]
    fn other_versions_and_short_data_are_refused() {
        for version in [-1, 1, 2] {
            let loaded = load(&mut fields(1, 1, 0, &[0; 4]), version);
            assert_eq!(loaded, Err(LoadError::UnknownVersion(version)));
        }
        let mut short = fields(1, 1, 0, &[0; 4]);
        short.0.pop_back();
        assert_eq!(load(&mut short, VERSION), Err(LoadError::ShortRead));
    }
}
