//! How many bits a layer has, and where an item's bits lie in it: exact formulas,
//! and the choice between what they allow.
//!
//! Every figure is made of `+ - * /` alone, which IEEE 754 defines to the last bit,
//! and never of a math library: so every machine gives a layer the same size, and
//! a replica stays equal to its primary.

#![forbid(unsafe_code)]

/// Bits of a cache line.
const LINE_BITS: f64 = 512.0;
/// Bytes of a cache line, and of what aligning to one may waste.
const LINE_BYTES: u64 = 64;
/// Layers of up to so many bytes have no lines: they are in the cache anyway.
const FREE_BYTES: u64 = 4096;
/// Layers of up to so many bytes may do without lines where lines cost too much.
const FREE_BYTES_AT_MOST: u64 = 64 * 1024;
/// Most bits of an item in one line: seven from one word of the hash, and three
/// from the bits of another that its line's number leaves.
pub const MOST_PROBES_IN_A_LINE: u8 = 10;
/// Most lines of an item.
pub const MOST_REGIONS: u8 = 8;
/// Most bits of an item in a layer without lines.
pub const MOST_FREE_PROBES: u8 = 80;
/// Stricter rates are taken as this one: no measurement tells them apart, and the
/// number of probes stays bounded.
const STRICTEST: f64 = 1.0 / (1u64 << 63) as f64;

/// Where the bits of an item lie in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The layer is cut into `probes` slices of equal length, rounded down; an item
    /// has one bit in each.
    Free {
        /// 64-bit words of the layer.
        words: u64,
        /// Bits of an item, 1 to [`MOST_FREE_PROBES`].
        probes: u8,
    },
    /// The layer is cut into `regions` of `lines` cache lines each; an item has one
    /// line in each region, and up to `probes` bits in each of its lines.
    Lines {
        /// Cache lines of one region.
        lines: u64,
        /// Lines of an item, 1 to [`MOST_REGIONS`].
        regions: u8,
        /// Probes in a line, 1 to [`MOST_PROBES_IN_A_LINE`].
        probes: u8,
    },
}

impl Shape {
    /// Bytes of the layer's bits; saturates.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Free { words, .. } => words.saturating_mul(8),
            Self::Lines { lines, regions, .. } => {
                lines.saturating_mul(LINE_BYTES).saturating_mul(u64::from(regions))
            }
        }
    }

    /// Bits of an item.
    pub fn hashes(self) -> u32 {
        match self {
            Self::Free { probes, .. } => probes.into(),
            Self::Lines { regions, probes, .. } => u32::from(regions) * u32::from(probes),
        }
    }

    /// Whether a layer for `capacity` items may look like this: what a stored form
    /// has to satisfy. Wider than what [`shape`] gives, so that a release with
    /// other choices can be read.
    pub fn is_plausible(self, capacity: u64) -> bool {
        let parts = match self {
            Self::Free { words, probes } => {
                let slice = words.saturating_mul(64) / u64::from(probes).max(1);
                (1..=MOST_FREE_PROBES).contains(&probes)
                    && (1..=u64::from(u32::MAX)).contains(&words)
                    && slice >= 1
                    && slice <= u64::from(u32::MAX)
            }
            Self::Lines { lines, regions, probes } => {
                (1..=MOST_PROBES_IN_A_LINE).contains(&probes)
                    && (1..=MOST_REGIONS).contains(&regions)
                    && (1..=u64::from(u32::MAX)).contains(&lines)
            }
        };
        // 256 bits an item are more than the strictest rate takes.
        let most = capacity.saturating_mul(32).saturating_add(1024);
        parts && self.bytes() <= most.min(isize::MAX as u64)
    }

    /// The false positive rate of a layer that holds `items` items.
    pub fn rate(self, items: u64) -> f64 {
        match self {
            Self::Free { words, probes } => free_rate(words, probes, items),
            Self::Lines { lines, regions, probes } => {
                power(Line::new(probes).rate(items as f64 / lines as f64), regions.into())
            }
        }
    }
}

/// The part of the rate asked for that layer `index` of a chain may take. All parts
/// of a chain without end sum up to 1.
///
/// RedisBloom gives its layers 1/2, 1/4, 1/8, ... A first layer with a little more
/// has room for lines in the same memory; those after it get a little less and
/// take up to 3% more memory. From the eleventh layer on halving would waste bits:
/// the rest is shared by inverse squares.
fn share(rate: f64, index: usize) -> f64 {
    const HALVED: usize = 10;
    // The sum of 1 / i^2 over all i from 3 on, which is pi^2/6 - 1 - 1/4.
    const SQUARES: f64 = 0.394_934_066_848_226_4;
    // Strict rates need a large first part, lax ones have no room for it: found by
    // trying which keep both limits on memory, see the tests.
    let (first, then) = match rate {
        0.07.. => (0.51, 0.93),
        0.04.. => (0.518, 0.91),
        0.0011.. => (0.53, 0.88),
        _ => (0.6, 0.785),
    };
    if index == 0 {
        return first;
    }
    if index < HALVED {
        return then / (2u64 << index) as f64;
    }
    let rest = 1.0 - first - then * (0.5 - 1.0 / (1u64 << HALVED) as f64);
    let i = (index - HALVED + 3) as f64;
    rest / (SQUARES * 1.000_001) / (i * i)
}

/// The rate that layer `index` of a chain keeps to, of the `rate` asked for.
pub fn budget(rate: f64, index: usize, scaling: bool) -> f64 {
    let part = if scaling { rate * share(rate, index) } else { rate };
    part.max(STRICTEST)
}

/// The shape of layer `index` for `capacity` items, in a chain that keeps to `rate`.
/// `None` where it exceeds the address space.
///
/// A layer counts the items that were new to it. One that a filter takes for present is
/// not counted, and sets no bit: when the layer has counted `capacity` items, it has the
/// bits of a few items more. In a chain that goes on, the rates of the layers to come
/// leave room for that; a filter that ends there is made for those items too.
pub fn shape(rate: f64, capacity: u64, index: usize, scaling: bool) -> Option<Shape> {
    let limit = most_bits(rate, capacity, index, scaling) / 8.0;
    let budget = budget(rate, index, scaling);
    let shape = shape_within(capacity, budget, limit)?;
    if scaling {
        return Some(shape);
    }
    let offered = capacity as f64 / (1.0 - mean_rate(shape, capacity));
    shape_within(offered.ceil() as u64, budget, limit * offered / capacity as f64)
}

/// The mean rate of a layer while it is filled with `items` items.
fn mean_rate(shape: Shape, items: u64) -> f64 {
    const PARTS: u64 = 16;
    let at_middle =
        |part: u64| shape.rate((items as f64 * (part as f64 + 0.5) / PARTS as f64) as u64);
    (0..PARTS).map(at_middle).sum::<f64>() / PARTS as f64
}

/// The shape for `items` items that keeps to `budget`, in `limit` bytes if that can be.
///
/// The least number of lines an item that takes no more memory than RedisBloom's
/// layer: each line of an item is a miss of the cache, and more lines even out the
/// loads, so that fewer bits do.
fn shape_within(items: u64, budget: f64, limit: f64) -> Option<Shape> {
    if limit > (1u64 << 60) as f64 {
        return None;
    }
    if items as f64 * log2(1.0 / budget) < 8.0 * FREE_BYTES_AT_MOST as f64 {
        let free = free(items, budget);
        if free.bytes() <= FREE_BYTES {
            return Some(free);
        }
        let lines = (1..=MOST_REGIONS).find_map(|s| lines(items, budget, s, limit));
        return Some(lines.unwrap_or(free));
    }
    let fitting = (1..=MOST_REGIONS).find_map(|s| lines(items, budget, s, limit));
    fitting.or_else(|| {
        let all = (1..=MOST_REGIONS).filter_map(|s| lines(items, budget, s, limit * 2.0));
        all.min_by_key(|shape| shape.bytes())
    })
}

/// Bits that layer `index` may take: those of RedisBloom's (compatibility
/// specification, "Sizing of a link"), 3% more where it is not the first, and 3.5%
/// more in a filter that does not scale, as RedisBloom gives that its whole rate.
/// But not more than a tenth above what the least Bloom filter takes: far down a
/// chain RedisBloom's layers are much larger than need be.
fn most_bits(rate: f64, capacity: u64, index: usize, scaling: bool) -> f64 {
    let halvings = if scaling { index as f64 + 1.0 } else { 0.0 };
    let allowance = match (scaling, index) {
        (false, _) => 1.035,
        (true, 0) => 1.0,
        (true, _) => 1.03,
    };
    let redisbloom = least_bits(1.0 / rate) + halvings / std::f64::consts::LN_2;
    let least = least_bits(1.0 / budget(rate, index, scaling));
    capacity as f64 * (redisbloom * allowance).min(least * 1.1)
}

/// Bits an item of the best possible Bloom filter that errs once in `one_in`.
fn least_bits(one_in: f64) -> f64 {
    log2(one_in) / std::f64::consts::LN_2
}

/// The smallest layer without lines: words, then probes.
fn free(capacity: u64, budget: f64) -> Shape {
    let binary = log2(1.0 / budget);
    // No Bloom filter does with less than log2(1/p)/ln(2) bits an item.
    let least = capacity as f64 * binary / std::f64::consts::LN_2 / 64.0;
    let first_probes = (binary * 0.6) as u8;
    let last_probes = (binary as u8).saturating_add(3);
    let mut words = (least as u64).max(1);
    loop {
        for probes in first_probes.max(1)..=last_probes.min(MOST_FREE_PROBES) {
            if free_rate(words, probes, capacity) <= budget {
                return Shape::Free { words, probes };
            }
        }
        words += 1;
    }
}

/// The rate of a layer of slices.
///
/// Slices are independent, and of `slice` bits a given one is still 0 after `n`
/// items with probability (1 - 1/slice)^n: so (1 - (1 - 1/slice)^n)^probes is not an
/// approximation, however small the layer (Almeida et al. 2007, section 2).
fn free_rate(words: u64, probes: u8, items: u64) -> f64 {
    let slice = words.saturating_mul(64) / u64::from(probes).max(1);
    if slice == 0 {
        return 1.0;
    }
    power(1.0 - power(1.0 - 1.0 / slice as f64, items), probes.into())
}

/// The smallest layer with `regions` lines an item within `limit` bytes, if any.
fn lines(capacity: u64, budget: f64, regions: u8, limit: f64) -> Option<Shape> {
    let per_region = limit / f64::from(regions) / LINE_BYTES as f64;
    let least_load = capacity as f64 / per_region;
    // The optimum is one bit a halving of the rate, shared by the lines.
    let best = log2(1.0 / budget) / f64::from(regions);
    let probes = (best as u8).clamp(1, MOST_PROBES_IN_A_LINE);
    let candidates = [probes, (probes + 1).min(MOST_PROBES_IN_A_LINE)];
    let loads = candidates.into_iter().filter_map(|probes| {
        let line = Line::new(probes);
        line.most_items(budget, regions, least_load).map(|load| (load, probes))
    });
    let (load, probes) = loads.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let lines = (capacity as f64 / load) as u64 + 1;
    let shape = Shape::Lines { lines, regions, probes };
    if lines > u32::MAX.into() {
        return None;
    }
    (shape.bytes() as f64 + LINE_BYTES as f64 <= limit).then_some(shape)
}

/// The false positive rate in one line, by its mean number of items.
///
/// Of `probes` random bits of an absent item, d are distinct; all of d given bits
/// are set after `n` bits with probability sum (-1)^i C(d,i) (1 - i/512)^n. A line
/// holds L items and so `probes * L` set bits, and L is Poisson-distributed with
/// mean m: the mean of t^L is exp(-m (1 - t)). So the rate is a sum of one
/// exponential for each i, with coefficients that depend on `probes` only.
/// (Putze, Sanders, Singler 2007 sum over L numerically and take bits for
/// independent.)
struct Line {
    probes: usize,
    coefficient: [f64; MOST_PROBES_IN_A_LINE as usize + 1],
    exponent: [f64; MOST_PROBES_IN_A_LINE as usize + 1],
}

impl Line {
    fn new(probes: u8) -> Self {
        const N: usize = MOST_PROBES_IN_A_LINE as usize + 1;
        let probes = usize::from(probes.min(MOST_PROBES_IN_A_LINE));
        // distinct[d]: probability that so many of the probes are distinct bits.
        let mut distinct = [0.0; N];
        distinct[0] = 1.0;
        for _ in 0..probes {
            for d in (0..N).rev() {
                let new = if d == 0 { 0.0 } else { distinct[d - 1] * (513.0 - d as f64) };
                distinct[d] = (distinct[d] * d as f64 + new) / LINE_BITS;
            }
        }
        let (mut coefficient, mut exponent) = ([0.0; N], [0.0; N]);
        for (d, probability) in distinct.into_iter().enumerate() {
            // The term of the sum for i: (-1)^i C(d,i), which is 0 beyond d.
            let mut term = probability;
            for (i, coefficient) in coefficient.iter_mut().enumerate() {
                *coefficient += term;
                term *= -(d.saturating_sub(i) as f64) / (i + 1) as f64;
            }
        }
        for (i, exponent) in exponent.iter_mut().enumerate() {
            *exponent = 1.0 - power(1.0 - i as f64 / LINE_BITS, probes as u64);
        }
        Self { probes, coefficient, exponent }
    }

    fn rate(&self, mean: f64) -> f64 {
        let terms = self.coefficient.iter().zip(&self.exponent).take(self.probes + 1);
        let sum: f64 = terms.map(|(c, e)| c * exp_minus(mean * e)).sum();
        // Cancellation leaves an error of about 1e-14.
        sum.max(0.0)
    }

    /// The largest mean number of items with which `regions` such lines keep to
    /// `budget`, if it is at least `least`.
    fn most_items(&self, budget: f64, regions: u8, least: f64) -> Option<f64> {
        // Below this the sum of `rate` loses its digits to cancellation.
        const RELIABLE: f64 = 1e-9;
        let keeps = |mean: f64| power(self.rate(mean).max(RELIABLE), regions.into()) <= budget;
        if !keeps(least) {
            return None;
        }
        let bits = least_bits(1.0 / budget) / f64::from(regions);
        let (mut low, mut high) = (least, (LINE_BITS / bits).max(least));
        // Leaves less than a line of a region of 2^30.
        for _ in 0..30 {
            let middle = (low + high) / 2.0;
            if keeps(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }
}

/// `base` to the power of `exponent`, by squaring.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// e to the power of `-x`, for `x` not negative.
fn exp_minus(mut x: f64) -> f64 {
    if x > 700.0 {
        return 0.0;
    }
    let mut squarings = 0;
    while x > 0.0625 {
        x *= 0.5;
        squarings += 1;
    }
    // The series of e^x to x^8/8!, by Horner: the rest is below 1e-16.
    let series = (1..=8).rev().fold(1.0, |sum, i| 1.0 + sum * x / f64::from(i));
    let mut result = 1.0 / series;
    for _ in 0..squarings {
        result *= result;
    }
    result
}

/// The binary logarithm of a positive normal number.
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as f64 - 1023.0;
    let mantissa = f64::from_bits(bits & (u64::MAX >> 12) | 1023 << 52);
    // ln(m) = 2 artanh((m-1)/(m+1)), whose series has t of at most 1/3.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let series = (0..18).rev().fold(0.0, |sum, i| sum * square + 1.0 / f64::from(2 * i + 1));
    exponent + 2.0 * t * series / std::f64::consts::LN_2
}
