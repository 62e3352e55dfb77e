//! A filter errs no more often than it was asked to, whatever its rate, its capacity
//! and its growth. `make fpr` measures the same with many more queries.

#[path = "../examples/fpr/measure.rs"]
mod measure;

use measure::Setting;

#[track_caller]
fn assert_kept(settings: &[Setting]) {
    for setting in settings {
        let (sample, asked) = (setting.measure_blocked(), setting.params.error_rate);
        let measured = sample.rate();
        assert!(sample.keeps(asked), "{measured} of {} queries, {setting:?}", sample.all_queries());
    }
}

#[test]
fn chains_of_small_layers_keep_the_rate() {
    assert_kept(&[
        Setting::scaling(1e-4, 100, 2, 20_000).sampled(4, 50_000),
        Setting::scaling(1e-4, 5, 2, 2_000).sampled(10, 20_000),
        Setting::scaling(1e-6, 10, 2, 10).sampled(50, 5_000),
        Setting::scaling(1e-6, 10, 2, 1_000).sampled(10, 20_000),
        Setting::scaling(0.01, 1, 2, 300).sampled(20, 1_000),
        Setting::scaling(0.01, 60, 4, 10_000).sampled(4, 10_000),
        Setting::scaling(0.25, 2, 2, 100).sampled(20, 500),
        Setting::scaling(1e-5, 1, 32_768, 20_000).sampled(4, 20_000),
    ]);
}

#[test]
fn chains_of_many_equal_layers_keep_the_rate() {
    assert_kept(&[
        Setting::scaling(0.001, 1, 1, 500).sampled(10, 10_000),
        Setting::scaling(0.001, 10, 1, 3_000).sampled(4, 10_000),
        Setting::scaling(0.01, 3, 1, 3_000).sampled(4, 5_000),
    ]);
}

#[test]
fn the_default_filter_keeps_the_rate_while_it_grows() {
    assert_kept(&[100, 101, 300, 3_000, 100_000].map(|items| {
        let fills = 2_000 / items;
        Setting::scaling(0.01, 100, 2, items).sampled(fills.max(1), 20_000 / fills.max(1))
    }));
}

#[test]
fn filters_that_do_not_scale_keep_the_rate_at_their_capacity() {
    let settings = [0.1, 0.01, 1e-3, 1e-4].map(|rate| {
        [
            Setting::nonscaling(rate, 1).sampled(100, 500),
            Setting::nonscaling(rate, 7).sampled(100, 500),
            Setting::nonscaling(rate, 1_000).sampled(10, 5_000),
            Setting::nonscaling(rate, 20_000).sampled(1, 50_000),
        ]
    });
    assert_kept(settings.as_flattened());
}

#[test]
fn filters_that_do_not_scale_keep_the_rate_when_they_refuse_items() {
    let settings = [0.25, 0.1, 0.03, 0.01, 1e-3].map(|rate| {
        [
            Setting::full(rate, 7).sampled(200, 2_000),
            Setting::full(rate, 100).sampled(100, 5_000),
            Setting::full(rate, 2_000).sampled(20, 20_000),
            Setting::full(rate, 50_000).sampled(2, 200_000),
        ]
    });
    assert_kept(settings.as_flattened());
}

/// Otherwise the tests above could not fail: RedisBloom's layout breaks the promise by
/// these factors and more.
#[test]
fn the_measurement_finds_the_rates_that_redisblooms_layout_exceeds() {
    for (setting, factor) in [
        (Setting::scaling(1e-4, 100, 2, 20_000).sampled(4, 50_000), 2.0),
        (Setting::scaling(1e-4, 5, 2, 2_000).sampled(10, 20_000), 50.0),
        (Setting::scaling(1e-6, 10, 2, 10).sampled(50, 5_000), 100.0),
        (Setting::scaling(0.001, 1, 1, 500).sampled(1, 1_000), 100.0),
    ] {
        let (sample, asked) = (setting.measure_redisbloom(), setting.params.error_rate);
        assert!(!sample.keeps(asked), "{} {setting:?}", sample.rate());
        assert!(sample.rate() > factor * asked, "{} {setting:?}", sample.rate());
    }
}
