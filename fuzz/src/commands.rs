//! The parsers of all commands: what they take is in range, whatever the arguments.

use ferrobloom::commands::Error;
use ferrobloom::commands::parse::{Argument, bf, cf, cms, tdigest, topk};
use ferrobloom::config::{MAX_CAPACITY, MAX_EXPANSION};
use ferrobloom::host::ErrorText;
use ferrobloom::structures::{bloom, cuckoo};

/// The arguments of a call, the name of the command first, one in a line. They go to
/// every parser, whatever the name is.
pub fn commands(data: &[u8]) {
    let args: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    args.iter().for_each(|arg| one_argument(arg));
    for expansion in [0, 2] {
        bloom_filters(&args, expansion);
    }
    cuckoo_filters(&args);
    sketches(&args);
    digests(&args);
}

/// What a parser took. An error has to be a reply of one line.
fn taken<T>(result: Result<T, Error>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let text = error.text();
    assert!(!text.is_empty() && !text.to_bytes().iter().any(|byte| b"\r\n".contains(byte)));
    None
}

fn one_argument(arg: &[u8]) {
    if let Some(value) = arg.integer() {
        assert_eq!(value.to_string().as_bytes(), arg, "one form for each integer");
        assert_eq!(arg.double(), Some(value as f64));
    }
    if let Some(value) = arg.double() {
        let again = format!("{value:e}").as_bytes().double();
        assert_eq!(again.map(f64::to_bits), Some(value.to_bits()));
    }
    taken(bf::scan_iterator(arg));
    taken(bf::load_iterator(arg));
    taken(cf::scan_iterator(arg));
    assert_ne!(taken(cf::load_iterator(arg)), Some(0));
    taken(cms::amount(arg));
    taken(cms::weight(arg));
    assert!(taken(topk::increment(arg)).is_none_or(|units| units <= topk::MAX_INCREMENT));
    assert!(taken(tdigest::observation(arg)).is_none_or(f64::is_finite));
    assert!(taken(tdigest::quantile(arg)).is_none_or(|q| (0.0..=1.0).contains(&q)));
    assert!(taken(tdigest::cdf_value(arg)).is_none_or(|value| !value.is_nan()));
    assert!(taken(tdigest::ranked_value(arg)).is_none_or(|value| !value.is_nan()));
    taken(tdigest::rank(arg));
}

fn bloom_filters(args: &[&[u8]], expansion: u32) {
    let scaling = expansion != 0;
    let defaults = bloom::Params { capacity: 100, error_rate: 0.01, expansion, scaling };
    let check = |params: bloom::Params| {
        assert!((1..=MAX_CAPACITY).contains(&params.capacity));
        assert!(params.error_rate > 0.0 && params.error_rate < 1.0);
        assert!(u64::from(params.expansion) <= MAX_EXPANSION);
        assert!(params.expansion != 0 || !params.scaling);
    };
    if let Some(Some(params)) = taken(bf::reserve(args, defaults)) {
        check(params);
    }
    if let Some(Some(insert)) = taken(bf::insert(args, defaults)) {
        check(insert.params);
        assert!(!insert.items.is_empty());
        assert!(args.ends_with(insert.items));
    }
}

fn cuckoo_filters(args: &[&[u8]]) {
    let defaults =
        cuckoo::Params { capacity: 1024, bucket_size: 2, max_iterations: 20, expansion: 1 };
    if let Some(Some(params)) = taken(cf::reserve(args, defaults, || 255)) {
        assert!((2 * u64::from(params.bucket_size)..=MAX_CAPACITY).contains(&params.capacity));
        assert!(params.bucket_size > 0 && params.max_iterations > 0);
        assert!(params.expansion <= cuckoo::MAX_EXPANSION);
    }
    if let Some(Some(insert)) = taken(cf::insert(args, defaults, || 4)) {
        let capacity = insert.params.map(|params| params.capacity);
        assert!(capacity.is_none_or(|capacity| (4..=MAX_CAPACITY).contains(&capacity)));
        assert!(insert.word_and_items.len() > 1);
        assert!(insert.word_and_items[0].eq_ignore_ascii_case(b"ITEMS"));
        assert!(args.ends_with(insert.word_and_items));
    }
}

fn sketches(args: &[&[u8]]) {
    for size in [cms::init_by_dim(args), cms::init_by_prob(args)] {
        if let Some(size) = taken(size) {
            assert!(size.width() > 0 && size.depth() > 0);
            assert_eq!(size.width().checked_mul(size.depth()), Some(size.cells()));
        }
    }
    if let Some((names, weights)) = taken(cms::sources(args)) {
        assert!(!names.is_empty() && args[3..].starts_with(names));
        assert!(weights.is_empty() || weights.len() == names.len());
    }
    if let Some(params) = topk::reserve_accepts(args).then(|| topk::reserve(args)).and_then(taken) {
        assert!(params.k() > 0 && params.width() > 0 && params.depth() > 0);
        assert!(params.decay() > 0.0 && params.decay() <= 1.0);
    }
    if let Some(Some(with_count)) = taken(topk::list(args)) {
        assert_eq!(with_count, args.len() == 3);
    }
}

fn digests(args: &[&[u8]]) {
    assert_ne!(taken(tdigest::create(args)), Some(0));
    if let Some(Some(merge)) = taken(tdigest::merge(args)) {
        assert!(!merge.sources.is_empty() && args[3..].starts_with(merge.sources));
        assert_ne!(merge.compression, Some(0));
    }
    if let Some((low, high)) = taken(tdigest::cuts(args)) {
        assert!(0.0 <= low && low < high && high <= 1.0);
    }
}
