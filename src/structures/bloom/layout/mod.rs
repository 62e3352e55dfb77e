//! The two layouts of a chain's bits.

pub mod blocked;
