//! Numbers as text, where the server does not format them.

/// A number as C's `%g` prints it: six significant digits, without trailing zeros.
pub(super) fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return format!("{value}").to_lowercase();
    }
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        return trimmed(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize)).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// `number` without zeros behind the point, and without a point behind nothing.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_c_prints_them() {
        for (value, text) in [
            (0.05, "0.05"),
            (0.000125, "0.000125"),
            (5e-10, "5e-10"),
            (0.00001, "1e-05"),
            (0.0001, "0.0001"),
            (0.123456789, "0.123457"),
            (123456.0, "123456"),
            (1234567.0, "1.23457e+06"),
            (0.9999999, "1"),
            (2.5e-310, "2.5e-310"),
            (100.0, "100"),
            (0.0, "0"),
        ] {
            assert_eq!(general(value), text);
        }
    }
}
