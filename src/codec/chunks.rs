//! Dumps in pieces (`SCANDUMP` and `LOADCHUNK`): packed headers, and where a chunk
//! lies in the arrays of a filter.
//!
//! An iterator is one more than an offset into the arrays of a filter, oldest first
//! and thought of as one. The numbers are RedisBloom's, see the specification,
//! "SCANDUMP layout".
#![forbid(unsafe_code)]

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest chunk, in bytes (RedisBloom's).
pub const MAX_CHUNK: usize = 16 * 1024 * 1024;

/// Why a chunk was refused; nothing has been changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// The iterator cannot be the one behind data of this length.
    BadData,
    /// The chunk begins behind the last array.
    NoSuchPlace,
    /// The chunk is longer than what is left of the array that it begins in.
    TooLong,
}

/// The chunk that iterator `iterator` asks for, with the iterator to go on with.
/// It ends with the array that it begins in. `None` behind the end, and for an
/// iterator below 1.
pub fn chunk_at<'a>(
    arrays: impl Iterator<Item = &'a [u8]>,
    iterator: i64,
) -> Option<(i64, &'a [u8])> {
    let mut offset = usize::try_from(iterator.checked_sub(1)?).ok()?;
    for array in arrays {
        if offset < array.len() {
            let end = array.len().min(offset + MAX_CHUNK);
            let chunk = &array[offset..end];
            return Some((iterator.checked_add(chunk.len() as i64)?, chunk));
        }
        offset -= array.len();
    }
    None
}

/// Where a chunk of `length` bytes belongs whose iterator afterwards is `iterator`:
/// the number of the array and the offset in it.
///
/// # Errors
///
/// As [`ChunkError`] says.
pub fn place_of(
    lengths: impl Iterator<Item = usize>,
    iterator: i64,
    length: usize,
) -> Result<(usize, usize), ChunkError> {
    let behind = u64::try_from(iterator).ok().filter(|behind| *behind > 0);
    let first = behind.and_then(|behind| behind.checked_sub(length as u64));
    let first = first.ok_or(ChunkError::BadData)?;
    let offset = first.checked_sub(1).ok_or(ChunkError::NoSuchPlace)?;
    let mut offset = usize::try_from(offset).map_err(|_| ChunkError::NoSuchPlace)?;
    for (index, array) in lengths.enumerate() {
        if offset < array {
            let fits = length <= array - offset;
            return if fits { Ok((index, offset)) } else { Err(ChunkError::TooLong) };
        }
        offset -= array;
    }
    Err(ChunkError::NoSuchPlace)
}

/// How headers are packed: little-endian, fixed width, no padding, as C's packed
/// structs. bincode is used here alone; the bytes are pinned by tests.
fn packing() -> impl bincode::config::Config {
    bincode::config::standard().with_little_endian().with_fixed_int_encoding()
}

/// Puts `header` at the front of `room` and returns what is left of that.
///
/// # Panics
///
/// Where there is not room enough.
pub fn pack<'a>(header: &impl Serialize, room: &'a mut [u8]) -> &'a mut [u8] {
    let length = bincode::serde::encode_into_slice(header, room, packing());
    &mut room[length.expect("room for a header of fixed size")..]
}

/// Takes a header off the front of `bytes`; `None` where they are too short.
pub fn unpack<T: DeserializeOwned>(bytes: &mut &[u8]) -> Option<T> {
    let (header, length) = bincode::serde::decode_from_slice(bytes, packing()).ok()?;
    *bytes = bytes.get(length..)?;
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_end_with_their_array_and_cover_everything() {
        let arrays: [&[u8]; 3] = [&[1, 2], &[], &[3]];
        let at = |iterator| chunk_at(arrays.into_iter(), iterator);
        assert_eq!(at(1), Some((3, [1, 2].as_slice())));
        assert_eq!(at(2), Some((3, [2].as_slice())));
        assert_eq!(at(3), Some((4, [3].as_slice())));
        for outside in [4, 0, -1, i64::MIN, i64::MAX] {
            assert_eq!(at(outside), None);
        }
    }

    #[test]
    fn a_chunk_is_placed_by_its_end_and_never_beyond_an_array() {
        let place = |iterator, length| place_of([2usize, 3].into_iter(), iterator, length);
        assert_eq!(place(3, 2), Ok((0, 0)));
        assert_eq!(place(6, 3), Ok((1, 0)));
        assert_eq!(place(6, 1), Ok((1, 2)));
        assert_eq!(place(4, 2), Err(ChunkError::TooLong));
        assert_eq!(place(7, 1), Err(ChunkError::NoSuchPlace));
        assert_eq!(place(1, 1), Err(ChunkError::NoSuchPlace));
        assert_eq!(place(i64::MAX, 1), Err(ChunkError::NoSuchPlace));
        for (iterator, length) in [(0, 0), (-1, 0), (1, 2), (i64::MIN, 5)] {
            assert_eq!(place(iterator, length), Err(ChunkError::BadData));
        }
    }
}
