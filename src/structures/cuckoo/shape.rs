//! The fixed numbers of a cuckoo filter, and the sizes of sub-filters that follow.

#![forbid(unsafe_code)]

use super::{CreateError, Params};

/// Most sub-filters of one filter: RedisBloom counts them in 16 bits.
pub const MAX_SUB_FILTERS: usize = u16::MAX as usize;

/// Largest factor between the sizes of two sub-filters (RedisBloom's).
pub const MAX_EXPANSION: u16 = 32768;

/// Buckets of a sub-filter must be below 2 to this power (RedisBloom's).
const MAX_LOG2_BUCKETS: u32 = 56;

/// The numbers that a filter never changes, in ranges that make sense together.
///
/// Sub-filter `k` has `buckets * expansion^k` buckets. Both are powers of two, so
/// two hashes that share a bucket share one in every older sub-filter too, which is
/// what makes deletion and compaction safe (see [`Filter`](super::Filter)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    log2_buckets: u8,
    bucket_size: u8,
    max_iterations: u16,
    expansion: u16,
}

impl Shape {
    /// A shape of numbers from anywhere.
    ///
    /// # Errors
    ///
    /// Says which number is out of its range: buckets of the first sub-filter (a
    /// power of two below 2^56), slots of a bucket (1 to 255), evictions per insertion
    /// (1 to 65535), expansion (0, or a power of two up to 32768).
    pub fn new(
        buckets: u64,
        bucket_size: u64,
        max_iterations: u64,
        expansion: u64,
    ) -> Result<Self, &'static str> {
        let log2_buckets = buckets.checked_ilog2().ok_or("no buckets")?;
        if !buckets.is_power_of_two() || log2_buckets >= MAX_LOG2_BUCKETS {
            return Err("the number of buckets is not a power of two below 2^56");
        }
        if expansion > u64::from(MAX_EXPANSION) || (expansion & expansion.wrapping_sub(1)) != 0 {
            return Err("the expansion is not a power of two up to 32768");
        }
        let bucket_size = u8::try_from(bucket_size).unwrap_or(0);
        if bucket_size == 0 {
            return Err("the bucket size is not in 1 to 255");
        }
        let max_iterations = u16::try_from(max_iterations).unwrap_or(0);
        if max_iterations == 0 {
            return Err("the number of iterations is not in 1 to 65535");
        }
        Ok(Self {
            log2_buckets: log2_buckets as u8,
            bucket_size,
            max_iterations,
            expansion: expansion as u16,
        })
    }

    /// The shape that RedisBloom gives to a filter with these parameters: capacity
    /// and expansion are rounded up to powers of two.
    pub(super) fn of(params: Params) -> Result<Self, CreateError> {
        let buckets = params.capacity.checked_div(u64::from(params.bucket_size));
        let buckets = buckets.and_then(u64::checked_next_power_of_two);
        let expansion = match params.expansion {
            0 => 0,
            given => u64::from(given).next_power_of_two(),
        };
        Self::new(
            buckets.ok_or(CreateError::Impossible)?,
            params.bucket_size.into(),
            params.max_iterations.into(),
            expansion,
        )
        .map_err(|_| CreateError::Impossible)
    }

    /// Buckets of the first sub-filter.
    pub fn buckets(self) -> u64 {
        1 << self.log2_buckets
    }

    /// Slots of a bucket.
    pub fn bucket_size(self) -> u8 {
        self.bucket_size
    }

    /// Most fingerprints that one insertion moves.
    pub fn max_iterations(self) -> u16 {
        self.max_iterations
    }

    /// Buckets of a sub-filter as a multiple of those of the one before; 0 where the
    /// filter never grows.
    pub fn expansion(self) -> u16 {
        self.expansion
    }

    /// Slots of sub-filter `number`, counted from 0. `None` if there can be none.
    pub fn slots(self, number: usize) -> Option<usize> {
        if number > 0 && self.expansion == 0 || number >= MAX_SUB_FILTERS {
            return None;
        }
        let log2_expansion = self.expansion.checked_ilog2().unwrap_or(0);
        let log2_buckets = u32::from(self.log2_buckets) + number as u32 * log2_expansion;
        if log2_buckets >= MAX_LOG2_BUCKETS {
            return None;
        }
        usize::try_from(u64::from(self.bucket_size) << log2_buckets).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(capacity: u64, bucket_size: u8, expansion: u16) -> (u64, u16) {
        let params = Params { capacity, bucket_size, max_iterations: 20, expansion };
        let shape = Shape::of(params).unwrap();
        (shape.buckets(), shape.expansion())
    }

    #[test]
    fn capacity_and_expansion_are_rounded_up_to_powers_of_two() {
        assert_eq!(of(8, 2, 1), (4, 1));
        assert_eq!(of(12, 3, 3), (4, 4));
        assert_eq!(of(1, 2, 0), (1, 0));
        assert_eq!(of(1000, 1, 32768), (1024, 32768));
        assert_eq!(of(1001, 1, 20000), (1024, 32768));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let sound = Params { capacity: 8, bucket_size: 2, max_iterations: 20, expansion: 1 };
        for params in [
            Params { bucket_size: 0, ..sound },
            Params { max_iterations: 0, ..sound },
            Params { expansion: 32769, ..sound },
            Params { capacity: u64::MAX, bucket_size: 1, ..sound },
            Params { capacity: (1 << 55) + 1, bucket_size: 1, ..sound },
        ] {
            assert_eq!(Shape::of(params), Err(CreateError::Impossible), "{params:?}");
        }
    }

    #[test]
    fn sub_filters_are_bounded_in_size_and_number() {
        let shape = Shape::new(2, 1, 1, 32768).unwrap();
        assert_eq!(shape.slots(0), Some(2));
        assert_eq!(shape.slots(3), Some(1 << 46));
        assert_eq!(shape.slots(4), None);
        assert_eq!(shape.slots(usize::MAX), None);
        let shape = Shape::new(1 << 55, 255, 65535, 1).unwrap();
        assert_eq!(shape.slots(65534), Some(255 << 55));
        assert_eq!(shape.slots(65535), None);
        assert_eq!(Shape::new(4, 2, 20, 0).unwrap().slots(1), None);
    }
}
