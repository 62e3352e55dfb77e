//! How often filters report items that they do not hold.

use ferrobloom::structures::bloom::{Filter, Params};
use ferrobloom::structures::quota::Quota;

/// Items that are added or looked up by one call.
const CHUNK: u64 = 1024;

/// A kind of filter, and how it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) params: Params,
    /// Distinct items that it is filled with. It counts a few less, as it takes some
    /// for present when they are added.
    pub(crate) items: u64,
    /// Whether it is given more items, until it refuses one.
    pub(crate) until_full: bool,
    /// Filters that are filled, each with a seed and items of its own.
    pub(crate) fills: u64,
    /// Absent items that are looked up in each.
    pub(crate) queries: u64,
}

impl Setting {
    /// A filter that scales, by its rate, capacity and expansion.
    pub(crate) fn scaling(error_rate: f64, capacity: u64, expansion: u32, items: u64) -> Self {
        let params = Params { capacity, error_rate, expansion, scaling: true };
        Self { params, items, until_full: false, fills: 1, queries: 0 }
    }

    /// A filter that does not scale, given as many items as it is made for.
    pub(crate) fn nonscaling(error_rate: f64, capacity: u64) -> Self {
        let params = Params { capacity, error_rate, expansion: 2, scaling: false };
        Self { params, items: capacity, until_full: false, fills: 1, queries: 0 }
    }

    /// A filter that does not scale, given items until it refuses one.
    pub(crate) fn full(error_rate: f64, capacity: u64) -> Self {
        Self { until_full: true, ..Self::nonscaling(error_rate, capacity) }
    }

    /// With so many filters, and so many queries of each.
    pub(crate) fn sampled(self, fills: u64, queries: u64) -> Self {
        Self { fills, queries, ..self }
    }

    /// Fills and queries filters of our own layout.
    pub(crate) fn measure_blocked(&self) -> Sample {
        self.measure(|seed| Filter::blocked(self.params, seed, Quota::UNLIMITED))
    }

    /// Fills and queries filters of RedisBloom's layout, which has no seed.
    pub(crate) fn measure_redisbloom(&self) -> Sample {
        self.measure(|_| Filter::redisbloom(self.params, Quota::UNLIMITED))
    }

    fn measure<E: std::fmt::Debug>(&self, new: impl Fn(u64) -> Result<Filter, E>) -> Sample {
        let mut sample = Sample { queries: self.queries, false_positives: vec![], bits: 0.0 };
        for fill in 0..self.fills {
            let mut filter = new(fill).expect("memory for a filter");
            // Items of this fill; those that are looked up have the highest bit.
            let first = fill << 40;
            add(&mut filter, first, self.items);
            if self.until_full {
                fill_up(&mut filter, first + self.items);
            }
            sample.false_positives.push(count_present(&filter, 1 << 63 | first, self.queries));
            sample.bits += (filter.heap_bytes() * 8) as f64 / (self.items * self.fills) as f64;
        }
        sample
    }
}

/// What came out for a [`Setting`].
pub(crate) struct Sample {
    queries: u64,
    /// For each filter, how many of its queries were answered with yes.
    false_positives: Vec<u64>,
    /// Bits of memory an item, of the average filter.
    pub(crate) bits: f64,
}

impl Sample {
    /// Queries of all filters.
    pub(crate) fn all_queries(&self) -> u64 {
        self.queries * self.false_positives.len() as u64
    }

    /// The measured rate.
    pub(crate) fn rate(&self) -> f64 {
        self.false_positives.iter().sum::<u64>() as f64 / self.all_queries() as f64
    }

    /// The standard deviation of the measured rate of filters that err at `rate`:
    /// the binomial one, or where that is greater, the one that the differences
    /// between the filters show. (Filters of few items differ in how many of their
    /// bits coincide.)
    pub(crate) fn deviation(&self, rate: f64) -> f64 {
        let binomial = rate * (1.0 - rate) / self.all_queries() as f64;
        let fills = self.false_positives.len() as f64;
        let rates = self.false_positives.iter().map(|&count| count as f64 / self.queries as f64);
        let squares: f64 = rates.map(|of_one| (of_one - self.rate()).powi(2)).sum();
        let between = if fills > 1.0 { squares / (fills - 1.0) / fills } else { 0.0 };
        binomial.max(between).sqrt()
    }

    /// Whether the measured rate is the `asked` one or less, as far as the sample can
    /// tell: within four standard deviations.
    pub(crate) fn keeps(&self, asked: f64) -> bool {
        self.rate() <= asked + 4.0 * self.deviation(asked)
    }
}

/// Adds `count` numbers from `first` on.
fn add(filter: &mut Filter, first: u64, count: u64) {
    for start in (0..count).step_by(CHUNK as usize) {
        let numbers = numbers(first + start, CHUNK.min(count - start));
        let slices: Vec<&[u8]> = numbers.iter().map(|number| number.as_slice()).collect();
        let mut outcomes = vec![Ok(false); slices.len()];
        filter.insert_batch(&slices, Quota::UNLIMITED, &mut outcomes);
        assert!(outcomes.iter().all(Result::is_ok), "an item was refused");
    }
}

/// Adds numbers from `first` on until one is refused.
fn fill_up(filter: &mut Filter, first: u64) {
    let mut numbers = first..;
    let mut accepts = |number: u64| filter.insert(&number.to_le_bytes(), Quota::UNLIMITED).is_ok();
    while numbers.next().is_some_and(&mut accepts) {}
}

/// How many of `count` numbers from `first` on the filter reports.
fn count_present(filter: &Filter, first: u64, count: u64) -> u64 {
    let mut present = 0;
    for start in (0..count).step_by(CHUNK as usize) {
        let numbers = numbers(first + start, CHUNK.min(count - start));
        let slices: Vec<&[u8]> = numbers.iter().map(|number| number.as_slice()).collect();
        let mut found = vec![false; slices.len()];
        filter.contains_batch(&slices, &mut found);
        present += found.into_iter().filter(|&found| found).count() as u64;
    }
    present
}

/// `count` items: numbers from `first` on, as 8 bytes.
fn numbers(first: u64, count: u64) -> Vec<[u8; 8]> {
    (first..first + count).map(u64::to_le_bytes).collect()
}
