//! The inside of a DUMP payload of a module's value: taken apart into fields, and put
//! together again. Strings are expected as they are (`rdbcompression no`).

/// One field of a module's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// An unsigned number.
    Unsigned(u64),
    /// A double.
    Double(f64),
    /// A string.
    String(Vec<u8>),
}

/// A module's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Payload {
    /// Nine letters of six bits, and the encoding version in the last ten.
    pub(crate) type_id: u64,
    /// The fields in order.
    pub(crate) parts: Vec<Part>,
}

/// The type of a module's value in RDB.
const MODULE_2: u8 = 7;
const END: u64 = 0;
const UNSIGNED: u64 = 2;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

impl Payload {
    /// Reads a value without the footer; `None` where it is none, or has compressed
    /// strings.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Self> {
        if take(&mut bytes, 1)? != [MODULE_2] {
            return None;
        }
        let type_id = length(&mut bytes)?;
        let mut parts = Vec::new();
        loop {
            parts.push(match length(&mut bytes)? {
                END => return Some(Self { type_id, parts }),
                UNSIGNED => Part::Unsigned(length(&mut bytes)?),
                DOUBLE => Part::Double(f64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?)),
                STRING => {
                    let length = length(&mut bytes)?;
                    Part::String(take(&mut bytes, usize::try_from(length).ok()?)?.to_vec())
                }
                _ => return None,
            });
        }
    }

    /// The value's bytes, without a footer.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = vec![MODULE_2];
        put_length(&mut out, self.type_id);
        for part in &self.parts {
            match part {
                Part::Unsigned(number) => {
                    put_length(&mut out, UNSIGNED);
                    put_length(&mut out, *number);
                }
                Part::Double(number) => {
                    put_length(&mut out, DOUBLE);
                    out.extend(number.to_le_bytes());
                }
                Part::String(string) => {
                    put_length(&mut out, STRING);
                    put_length(&mut out, string.len() as u64);
                    out.extend(string);
                }
            }
        }
        put_length(&mut out, END);
        out
    }

    /// The type's name.
    pub(crate) fn type_name(&self) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let letter = |place: u32| LETTERS[(self.type_id >> (10 + 6 * place) & 63) as usize] as char;
        (0..9).rev().map(letter).collect()
    }

    /// The encoding version.
    pub(crate) fn version(&self) -> u64 {
        self.type_id & 1023
    }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(first)
}

/// A length as RDB writes it; `None` for the special encodings.
fn length(bytes: &mut &[u8]) -> Option<u64> {
    let first = take(bytes, 1)?[0];
    match (first >> 6, first) {
        (0, _) => Some(first.into()),
        (1, _) => Some(u64::from(first & 63) << 8 | u64::from(take(bytes, 1)?[0])),
        (2, 0x80) => Some(u32::from_be_bytes(take(bytes, 4)?.try_into().ok()?).into()),
        (2, 0x81) => Some(u64::from_be_bytes(take(bytes, 8)?.try_into().ok()?)),
        _ => None,
    }
}

fn put_length(out: &mut Vec<u8>, length: u64) {
    if length < 1 << 6 {
        out.push(length as u8);
    } else if length < 1 << 14 {
        out.extend((length as u16 | 1 << 14).to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        out.push(0x80);
        out.extend(length.to_be_bytes());
    } else {
        out.push(0x81);
        out.extend(length.to_be_bytes());
    }
}
