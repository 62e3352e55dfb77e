//! Prints the false positive rates that were asked for, and those that filters have:
//! `make fpr`.
//!
//! Beside our own layout stands RedisBloom's. Its bits are RedisBloom's own, byte for
//! byte (the golden tests show it), so its figures are those of RedisBloom itself.

#[path = "measure.rs"]
mod measure;

use std::process::ExitCode;
use std::time::Instant;

use measure::{Sample, Setting};

fn main() -> ExitCode {
    let settings = settings();
    println!("Asked and measured false positive rates; ± is one standard deviation of the sample.");
    println!("The redisbloom layout has RedisBloom's own bits, and so its rates.");
    println!();
    println!(
        "| {:>7} | {:>8} | {:>6} | {:>8} | {:>9} | {:>20} | {:>9} | {:>20} | {:>9} |",
        "asked",
        "capacity",
        "growth",
        "items",
        "queries",
        "blocked",
        "bits/item",
        "redisbloom",
        "bits/item",
    );
    println!(
        "|{:->9}|{:->10}|{:->8}|{:->10}|{:->11}|{:->22}|{:->11}|{:->22}|{:->11}|",
        ":", ":", ":", ":", ":", ":", ":", ":", ":"
    );
    let start = Instant::now();
    let mut exceeded = 0;
    for (done, setting) in settings.iter().enumerate() {
        let (params, asked) = (setting.params, setting.params.error_rate);
        let seconds = start.elapsed().as_secs();
        eprintln!("{} of {} settings, {seconds} s", done, settings.len());
        let (ours, theirs) = (setting.measure_blocked(), setting.measure_redisbloom());
        exceeded += u32::from(!ours.keeps(asked));
        println!(
            "| {:>7} | {:>8} | {:>6} | {:>8} | {:>9} | {:>20} | {:>9.2} | {:>20} | {:>9.2} |",
            scientific(asked),
            params.capacity,
            growth(setting),
            setting.items,
            ours.all_queries(),
            measured(&ours),
            ours.bits,
            measured(&theirs),
            theirs.bits,
        );
    }
    println!();
    println!("Bits an item include everything allocated; of small filters that is the header too.");
    println!("Of {} settings of the blocked layout, {exceeded} exceed the rate.", settings.len());
    if exceeded == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// From filters of one item to those of 50 million.
fn settings() -> Vec<Setting> {
    let mut settings = vec![
        Setting::scaling(1e-4, 100, 2, 20_000).sampled(20, 500_000),
        Setting::scaling(1e-4, 5, 2, 2_000).sampled(100, 50_000),
        Setting::scaling(1e-6, 10, 2, 10).sampled(2_000, 5_000),
        Setting::scaling(1e-6, 10, 2, 1_000).sampled(100, 100_000),
        Setting::scaling(0.001, 1, 1, 500).sampled(20, 20_000),
        Setting::scaling(0.001, 10, 1, 3_000).sampled(20, 20_000),
        Setting::scaling(0.01, 1, 2, 300).sampled(100, 20_000),
        Setting::scaling(0.01, 60, 4, 10_000).sampled(20, 100_000),
        Setting::scaling(0.25, 2, 2, 100).sampled(200, 5_000),
        Setting::scaling(1e-5, 1, 32_768, 20_000).sampled(20, 500_000),
    ];
    for items in [100, 1_000, 10_000, 100_000, 1_000_000] {
        settings.push(Setting::scaling(0.01, 100, 2, items).sampled(10, 200_000));
    }
    for rate in [0.05, 0.01, 1e-3, 1e-4, 1e-5] {
        // Some thousand false positives, where that takes no more than 20 million queries.
        let queries = f64::min(2_000.0 / rate, 20e6) as u64;
        settings.push(Setting::nonscaling(rate, 10).sampled(2_000, queries / 2_000));
        settings.push(Setting::nonscaling(rate, 1_000).sampled(50, queries / 50));
        settings.push(Setting::scaling(rate, 10_000, 2, 10_000).sampled(10, queries / 10));
        settings.push(Setting::nonscaling(rate, 1_000_000).sampled(1, queries));
    }
    for rate in [0.25, 0.1, 0.01] {
        settings.push(Setting::full(rate, 100).sampled(1_000, 1_000));
        settings.push(Setting::full(rate, 100_000).sampled(10, 200_000));
    }
    for rate in [0.01, 0.001] {
        settings.push(Setting::scaling(rate, 50_000_000, 2, 50_000_000).sampled(1, 5_000_000));
    }
    settings
}

/// The expansion of a filter that scales; whether another one was filled until it refused.
fn growth(setting: &Setting) -> String {
    match (setting.params.scaling, setting.until_full) {
        (true, _) => setting.params.expansion.to_string(),
        (false, false) => "none".to_owned(),
        (false, true) => "full".to_owned(),
    }
}

/// A measured rate and its standard deviation.
fn measured(sample: &Sample) -> String {
    let rate = sample.rate();
    format!("{} ± {}", scientific(rate), scientific(sample.deviation(rate)))
}

/// A rate in three digits.
fn scientific(rate: f64) -> String {
    if rate == 0.0 || rate >= 0.001 {
        // Digits after the point, for three of significance.
        let places = if rate >= 0.1 || rate == 0.0 {
            3
        } else if rate >= 0.01 {
            4
        } else {
            5
        };
        let text = format!("{rate:.places$}");
        let short = text.trim_end_matches('0').trim_end_matches('.');
        return short.to_owned();
    }
    let text = format!("{rate:.1e}");
    text.replace(".0e", "e")
}
