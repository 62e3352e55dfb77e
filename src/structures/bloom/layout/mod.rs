//! The two layouts of a chain's bits: [`redisbloom`], compatible to the bit, and
//! [`blocked`], our own.

pub mod blocked;
pub mod redisbloom;
