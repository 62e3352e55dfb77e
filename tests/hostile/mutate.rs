//! How sound commands and payloads become hostile ones.

use crate::common::golden::with_footer;
use crate::common::payload::{Part, Payload};
use crate::random::Random;

/// Numbers at the borders of types and ranges.
const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    8,
    127,
    255,
    256,
    65_535,
    65_536,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    1 << 56,
    1 << 61,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX - 1,
    u64::MAX,
];

/// Doubles that computations stumble over.
const DOUBLES: [f64; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-300,
    f64::MIN_POSITIVE,
    5e-324,
    1e308,
    f64::MAX,
    f64::MIN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1e18,
    9.3e18,
    1.9e19,
    4_294_967_296.0,
];

/// Arguments that parsers stumble over.
const WORDS: [&str; 44] = [
    "",
    " ",
    "0",
    "-1",
    "1",
    "2",
    "3",
    "255",
    "256",
    "32768",
    "32769",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e308",
    "-1e308",
    "1e-320",
    "0.5",
    "0.0000001",
    "0.99999999999999999",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "0x10",
    "1e3",
    "+1",
    "01",
    "CAPACITY",
    "ERROR",
    "EXPANSION",
    "NONSCALING",
    "NOCREATE",
    "ITEMS",
    "WEIGHTS",
    "COMPRESSION",
];

/// A payload for RESTORE whose footer is right and whose value is not.
pub(crate) fn payload(random: &mut Random, seed: &Payload) -> Vec<u8> {
    let mut value = seed.clone();
    match random.below(10) {
        0 => return with_footer(&changed_bytes(random, seed.bytes())),
        1 => {
            let mut bytes = seed.bytes();
            bytes.truncate(random.below(bytes.len()));
            return with_footer(&bytes);
        }
        // Within the arrays of a value there is much that no loader can check.
        2 | 3 => {
            for part in &mut value.parts {
                if let Part::String(string) = part {
                    *string = changed_bytes(random, std::mem::take(string));
                }
            }
            return with_footer(&value.bytes());
        }
        _ => {}
    }
    for _ in 0..1 + random.below(3) {
        change_value(random, &mut value);
    }
    with_footer(&value.bytes())
}

/// The bytes with one to three of them changed.
pub(crate) fn changed_bytes(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..1 + random.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        bytes[at] = match random.below(4) {
            0 => 0,
            1 => 255,
            2 => bytes[at] ^ 1 << random.below(8),
            _ => random.next() as u8,
        };
    }
    bytes
}

fn change_value(random: &mut Random, value: &mut Payload) {
    if value.parts.is_empty() {
        return;
    }
    let at = random.below(value.parts.len());
    match random.below(12) {
        0 => {
            let other = random.below(value.parts.len());
            value.parts.swap(at, other);
        }
        1 => {
            value.parts.remove(at);
        }
        2 => {
            let part = value.parts[at].clone();
            value.parts.insert(random.below(value.parts.len() + 1), part);
        }
        3 => value.type_id = value.type_id & !1023 | random.below(6) as u64,
        _ => change_part(random, &mut value.parts[at]),
    }
}

fn change_part(random: &mut Random, part: &mut Part) {
    match part {
        Part::Unsigned(number) => {
            *number = match random.below(6) {
                0 | 1 => random.of(&NUMBERS),
                2 => number.wrapping_add(1),
                3 => number.wrapping_sub(1),
                4 => number.wrapping_mul(2),
                _ => *number ^ 1 << random.below(64),
            };
        }
        Part::Double(number) => {
            *number = match random.below(4) {
                0 | 1 => random.of(&DOUBLES),
                2 => *number * 2.0,
                _ => f64::from_bits(number.to_bits() ^ 1 << random.below(64)),
            };
        }
        Part::String(string) => match random.below(6) {
            0 => string.truncate(random.below(string.len() + 1)),
            1 => string.resize(string.len() + 1 + random.below(64), random.next() as u8),
            2 => string.fill(random.of(&[0, 1, 255])),
            3 => {
                for byte in string.iter_mut() {
                    *byte = random.next() as u8;
                }
            }
            4 => string.clear(),
            _ => *string = changed_bytes(random, std::mem::take(string)),
        },
    }
}

/// A command with bad arguments, or cut, or with too many.
pub(crate) fn command(random: &mut Random, mut words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for _ in 0..1 + random.below(3) {
        let at = random.below(words.len());
        match random.below(10) {
            0 => words.truncate(1 + at),
            1 if words.len() > 1 => {
                words.remove(at.max(1));
            }
            2 => words.insert(at + 1, word(random)),
            3 => {
                let copy = words[at].clone();
                words.push(copy);
            }
            // The key seldom: other keys do not exist.
            _ if words.len() > 1 && (at > 1 || random.once_in(8)) => {
                words[at.max(1)] = word(random)
            }
            _ => {}
        }
    }
    words
}

/// A bad argument.
fn word(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => vec![b'a' + random.below(26) as u8; 1 << random.below(14)],
        1 => (0..random.below(40)).map(|_| random.next() as u8).collect(),
        2 => random.of(&NUMBERS).to_string().into(),
        3 => random.of(&DOUBLES).to_string().into(),
        _ => random.of(&WORDS).as_bytes().to_vec(),
    }
}

/// An iterator for a chunk.
pub(crate) fn iterator(random: &mut Random, sound: i64) -> Vec<u8> {
    match random.below(6) {
        0 => word(random),
        1 => random.of(&NUMBERS).cast_signed().to_string().into(),
        2 => sound.wrapping_add(random.below(64) as i64 - 32).to_string().into(),
        _ => sound.to_string().into(),
    }
}

/// A dump's header with a number in it changed, or some bytes.
pub(crate) fn header(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    match random.below(6) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 => bytes.resize(bytes.len() + 1 + random.below(60), random.next() as u8),
        2 | 3 if bytes.len() > 8 => {
            let at = random.below(bytes.len() - 8);
            let width = random.of(&[2, 4, 8]);
            let number = match random.below(3) {
                0 => random.of(&DOUBLES).to_bits(),
                _ => random.of(&NUMBERS),
            };
            bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        }
        _ => return changed_bytes(random, bytes),
    }
    bytes
}
