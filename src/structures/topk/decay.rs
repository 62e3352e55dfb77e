//! Decay: how an item wears down a cell that another one holds, and the random
//! draws for it.
//!
//! Each unit of an increment lowers the cell's count c by one with the chance
//! decay^c; who brings it to 0 takes the cell over. The draws come from a counter
//! that is part of the sketch's stored state, and all arithmetic is of the kind that
//! IEEE 754 defines to the last bit (no logarithms or powers of a C library). So a
//! replica, or a server that loads the sketch, goes the way its primary goes.
//!
//! An increment of n units costs a bounded number of draws, not n: see
//! [`Decay::contest`].

#![forbid(unsafe_code)]

/// Base of the two digits that the tables of powers are indexed with.
const DIGIT: usize = 16;

/// Chances below this one are below the resolution of a draw, and taken for none.
const RESOLUTION: f64 = 1.0 / (1u64 << 53) as f64;

/// The chances of decay, for one base.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decay {
    base: f64,
    /// base^i.
    low: [f64; DIGIT],
    /// base^(16 i).
    high: [f64; DIGIT],
    /// base^256.
    beyond: f64,
    /// The least count that does not decay any more.
    settled: u64,
}

/// What became of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contest {
    /// The holder keeps it, with this count, at least 1.
    Held(u32),
    /// The newcomer takes it, with this count, at least 1: the units left, the one
    /// that emptied the cell included.
    TakenOver(u32),
}

impl Decay {
    /// For a base above 0 and at most 1.
    pub(super) fn new(base: f64) -> Self {
        let low = powers(base);
        let high = powers(low[DIGIT - 1] * base);
        let beyond = high[DIGIT - 1] * high[1];
        let mut decay = Self { base, low, high, beyond, settled: 1 << 32 };
        // Bisection: `settled` has no chance (or is no 32-bit count), `open` has.
        let mut open = 0;
        while open + 1 < decay.settled {
            let middle = open + (decay.settled - open) / 2;
            if decay.chance(middle as u32) < RESOLUTION {
                decay.settled = middle;
            } else {
                open = middle;
            }
        }
        decay
    }

    /// The chance that one unit lowers a cell of `count`: base^count.
    #[inline]
    fn chance(&self, count: u32) -> f64 {
        let digits = count as usize;
        let chance = self.high[digits / DIGIT % DIGIT] * self.low[digits % DIGIT];
        if digits < DIGIT * DIGIT { chance } else { chance * power(self.beyond, count >> 8) }
    }

    /// Whether a cell of `count` decays at all.
    #[inline(always)]
    pub(super) fn can_lose(&self, count: u32) -> bool {
        u64::from(count) < self.settled
    }

    /// `units` of another item against a cell of `count`, both at least 1.
    ///
    /// Distributed as one draw per unit would be, but for the bulk steps, which
    /// replace many by one of nearly their distribution (see [`bulk`](Self::bulk)).
    /// Draws are bounded by some ten thousand whatever the base and the numbers,
    /// and are fewer than two hundred for bases up to 0.9.
    #[inline]
    pub(super) fn contest(&self, count: u32, units: u32, random: &mut Random<'_>) -> Contest {
        if !self.can_lose(count) {
            return Contest::Held(count);
        }
        if units == 1 && count > 1 {
            let hit = random.uniform() < self.chance(count);
            return Contest::Held(count - u32::from(hit));
        }
        self.long_contest(count, units, random)
    }

    fn long_contest(&self, mut count: u32, units: u32, random: &mut Random<'_>) -> Contest {
        if self.base == 1.0 {
            return match count.checked_sub(units) {
                None | Some(0) => Contest::TakenOver(units - count + 1),
                Some(rest) => Contest::Held(rest),
            };
        }
        let mut left = units;
        while left > 0 {
            if let Some((trials, hits)) = self.bulk(count, left, random) {
                left -= trials;
                count -= hits;
                continue;
            }
            let chance = self.chance(count);
            let misses = random.misses(chance, left);
            left -= misses;
            if left == 0 {
                break;
            }
            count -= 1;
            if count == 0 {
                return Contest::TakenOver(left);
            }
            left -= 1;
        }
        Contest::Held(count)
    }

    /// One step for many units at once, where the chance is nearly the same for all
    /// of them: how many units, and how many of them hit. `None` where single hits
    /// are few enough to be drawn one by one.
    ///
    /// The number of hits is binomial, and normal to a good approximation from some
    /// dozens on. During a step the chance grows by a 16th at most; it is taken in
    /// the middle, which puts the mean off by less than (1/16)^2 / 24, a 6000th.
    fn bulk(&self, count: u32, left: u32, random: &mut Random<'_>) -> Option<(u32, u32)> {
        const FEWEST_HITS: f64 = 64.0;
        let steepness = 1.0 - self.base;
        let wanted = (1.0 / (16.0 * steepness)).min(f64::from(count / 4));
        if wanted < FEWEST_HITS {
            return None;
        }
        let chance = self.chance(count);
        let hits = wanted.min(f64::from(left) * chance);
        if hits < FEWEST_HITS {
            return None;
        }
        let trials = (hits / chance).floor().min(left.into());
        let middle = |hits: f64| self.chance(count - (hits / 2.0) as u32);
        let chance = middle(trials * middle(hits));
        let mean = trials * chance;
        let deviation = (mean * (1.0 - chance)).sqrt();
        let hits = (mean + deviation * random.normal()).round();
        // Below the count: a step never empties a cell.
        let most = trials.min(f64::from(count - 1));
        Some((trials as u32, hits.clamp(0.0, most) as u32))
    }
}

/// A source of draws: a counter of the sketch, and the item that is added.
pub(super) struct Random<'a> {
    /// Draws made so far, modulo 2^32.
    pub(super) draws: &'a mut u32,
    /// Makes different items draw differently.
    pub(super) salt: u32,
}

impl Random<'_> {
    /// A number from 0 up to, not including, 1.
    ///
    /// The output function of SplitMix64 (Steele, Lea, Flood 2014) on the counter
    /// and the salt.
    #[inline]
    fn uniform(&mut self) -> f64 {
        *self.draws = self.draws.wrapping_add(1);
        let state = u64::from(*self.draws) << 32 | u64::from(self.salt);
        let mut z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 * RESOLUTION
    }

    /// A number of about the standard normal distribution, from -6 to 6: the sum of
    /// twelve uniform ones has the variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// How many of at most `most` trials miss before the first that hits with
    /// `chance`.
    fn misses(&mut self, chance: f64, most: u32) -> u32 {
        // At least t trials miss with the chance (1 - chance)^t. So the greatest t
        // for which that is above a uniform draw has the right distribution.
        let drawn = self.uniform();
        let miss = 1.0 - chance;
        // Where a hit comes soon, counting up is the shortest way to it.
        if chance > 1.0 / 16.0 || most < 8 {
            let (mut misses, mut all_miss) = (0, miss);
            while misses < most && all_miss > drawn {
                misses += 1;
                all_miss *= miss;
            }
            return misses;
        }
        // Else it is put together from its binary digits.
        let digits = u32::BITS - most.leading_zeros();
        let mut powers = [miss; u32::BITS as usize];
        for digit in 1..digits as usize {
            powers[digit] = powers[digit - 1] * powers[digit - 1];
        }
        let (mut misses, mut all_miss) = (0, 1.0);
        for digit in (0..digits).rev() {
            let next = all_miss * powers[digit as usize];
            if next > drawn && misses + (1 << digit) <= most {
                misses += 1 << digit;
                all_miss = next;
            }
        }
        misses
    }
}

/// base^0, base^1, ...
fn powers(base: f64) -> [f64; DIGIT] {
    let mut powers = [1.0; DIGIT];
    for i in 1..DIGIT {
        powers[i] = powers[i - 1] * base;
    }
    powers
}

/// base^exponent, by squaring.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut power = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: one draw per unit.
    fn unit_by_unit(decay: f64, mut count: u32, units: u32, random: &mut Random<'_>) -> Contest {
        for left in (1..=units).rev() {
            if random.uniform() < decay.powi(count as i32) {
                count -= 1;
                if count == 0 {
                    return Contest::TakenOver(left);
                }
            }
        }
        Contest::Held(count)
    }

    /// Mean and standard deviation of the outcome as one number: the count, negative
    /// once it is the newcomer's.
    fn moments(runs: u32, mut run: impl FnMut(&mut Random<'_>) -> Contest) -> (f64, f64) {
        let (mut sum, mut squares, mut draws) = (0.0, 0.0, 0);
        for salt in 0..runs {
            let outcome = match run(&mut Random { draws: &mut draws, salt }) {
                Contest::Held(count) => f64::from(count),
                Contest::TakenOver(count) => -f64::from(count),
            };
            sum += outcome;
            squares += outcome * outcome;
        }
        let mean = sum / f64::from(runs);
        (mean, (squares / f64::from(runs) - mean * mean).max(0.0).sqrt())
    }

    #[test]
    fn chances_are_powers_of_the_base() {
        for base in [1.0, 0.999_999, 0.9, 0.5, 1e-5] {
            let decay = Decay::new(base);
            for count in [0, 1, 15, 16, 17, 255, 256, 257, 1000, 65_536, 1_000_003] {
                let expected = base.powi(count as i32);
                let chance = decay.chance(count);
                assert!((chance - expected).abs() <= 1e-9 * expected, "{base}^{count}: {chance}");
            }
        }
    }

    #[test]
    fn counts_settle_where_the_chance_is_below_a_draw() {
        assert_eq!(Decay::new(1.0).settled, 1 << 32);
        assert_eq!(Decay::new(0.5).settled, 54);
        assert_eq!(Decay::new(5e-324).settled, 1);
    }

    #[test]
    fn without_randomness_every_unit_hits() {
        let decay = Decay::new(1.0);
        let mut draws = 0;
        for (count, units, expected) in [
            (3, 10, Contest::TakenOver(8)),
            (3, 3, Contest::TakenOver(1)),
            (3, 2, Contest::Held(1)),
            (1, 1, Contest::TakenOver(1)),
            (u32::MAX, 100_000, Contest::Held(u32::MAX - 100_000)),
            (1, u32::MAX, Contest::TakenOver(u32::MAX)),
        ] {
            let mut random = Random { draws: &mut draws, salt: 1 };
            assert_eq!(decay.contest(count, units, &mut random), expected);
        }
    }

    #[test]
    fn many_units_at_once_are_distributed_as_one_by_one() {
        for (base, count, units) in [
            (0.9, 1, 1),
            (0.9, 5, 3),
            (0.9, 20, 40),
            (0.9, 40, 700),
            (0.9, 60, 10_000),
            (0.5, 10, 5000),
            (0.99, 300, 1500),
            (0.999, 1000, 900),
            (0.9999, 8000, 3000),
            (0.9999, 2000, 3000),
            (0.999_99, 5000, 5000),
            (0.999_999, 100_000, 20_000),
        ] {
            let runs = 300;
            let decay = Decay::new(base);
            let (mean, deviation) = moments(runs, |random| decay.contest(count, units, random));
            let (expected, spread) =
                moments(runs, |random| unit_by_unit(base, count, units, random));
            // Five standard errors of the difference of two means, and of two
            // deviations; half a unit where nothing varies.
            let error = spread.max(deviation) / f64::from(runs).sqrt();
            let case =
                format!("{base} {count} {units}: {mean} ± {deviation}, {expected} ± {spread}");
            assert!((mean - expected).abs() <= 7.1 * error + 0.5, "{case}");
            assert!((deviation - spread).abs() <= 7.1 * error + 0.5, "{case}");
        }
    }

    #[test]
    fn a_large_increment_makes_few_draws() {
        for (base, bound) in [
            (1e-9, 1),
            (0.5, 20),
            (0.9, 200),
            (0.99, 3000),
            (0.998, 20_000),
            (0.999, 20_000),
            (0.999_9, 20_000),
            (0.999_999, 20_000),
            (0.999_999_999, 20_000),
        ] {
            let decay = Decay::new(base);
            for count in [1, 10, 100, 1000, 10_000, 50_000, 90_000, 1_000_000, u32::MAX] {
                let mut draws = 0;
                decay.contest(count, 100_000, &mut Random { draws: &mut draws, salt: 7 });
                assert!(draws <= bound, "{base} {count}: {draws} draws");
            }
        }
    }
}
