//! `make bench-core`: the cores without a server, per item.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use ferrobloom::structures::bloom::{Filter, Params};
use ferrobloom::structures::cms::{Dimensions, Sketch};
use ferrobloom::structures::cuckoo;
use ferrobloom::structures::quota::Quota;
use ferrobloom::structures::tdigest::TDigest;
use ferrobloom::structures::topk::{Params as TopKParams, TopK};

/// Items of a many-item operation, as in the race of the servers.
const BATCH: usize = 100;

fn items(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number:016}")).collect()
}

fn bytes(items: &[String]) -> Vec<&[u8]> {
    items.iter().map(String::as_bytes).collect()
}

/// The two layouts, one large layer and a chain grown from a small one.
fn bloom(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bloom");
    group.throughput(Throughput::Elements(BATCH as u64));
    let members = items("item-", 1_000_000);
    let strangers = items("none-", 100_000);
    for (shape, capacity) in [("one layer", 1_000_000), ("14 layers", 100)] {
        let params = Params { capacity, error_rate: 0.01, expansion: 2, scaling: true };
        for layout in ["blocked", "redisbloom"] {
            let empty = || match layout {
                "blocked" => Filter::blocked(params, 1, Quota::UNLIMITED),
                _ => Filter::redisbloom(params, Quota::UNLIMITED),
            };
            let mut filter = empty().expect("the parameters are valid");
            for batch in bytes(&members).chunks(BATCH) {
                filter.insert_batch(batch, Quota::UNLIMITED, &mut [Ok(false); BATCH]);
            }
            for (name, asked) in [("absent", &strangers), ("present", &members)] {
                let mut batches = bytes(asked);
                batches.truncate(100_000);
                let mut batches = batches.chunks(BATCH).cycle();
                group.bench_function(format!("{layout}, {shape}: contains, {name}"), |bencher| {
                    bencher.iter(|| {
                        let mut found = [false; BATCH];
                        filter.contains_batch(batches.next().unwrap_or(&[]), &mut found);
                        black_box(found)
                    });
                });
            }
            let batch = bytes(&members[..BATCH]);
            group.bench_function(
                format!("{layout}, {shape}: insert into an empty one"),
                |bencher| {
                    bencher.iter_batched_ref(
                        || empty().expect("the parameters are valid"),
                        |filter| {
                            filter.insert_batch(&batch, Quota::UNLIMITED, &mut [Ok(false); BATCH])
                        },
                        BatchSize::LargeInput,
                    );
                },
            );
        }
    }
    group.finish();
}

fn cuckoo(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cuckoo");
    group.throughput(Throughput::Elements(BATCH as u64));
    let members = items("item-", 1_000_000);
    let strangers = items("none-", 100_000);
    let params =
        cuckoo::Params { capacity: 2_000_000, bucket_size: 2, max_iterations: 20, expansion: 1 };
    let limits = || cuckoo::Limits { sub_filters: 32, quota: Quota::UNLIMITED, lifted: &|| false };
    let mut filter =
        cuckoo::Filter::new(params, Quota::UNLIMITED).expect("the parameters are valid");
    for batch in bytes(&members).chunks(BATCH) {
        let mut outcomes = [cuckoo::Outcome::Inserted; BATCH];
        filter.insert_batch(batch, cuckoo::Insertion::Every, limits(), &mut outcomes);
    }
    for (name, asked) in [("absent", &strangers), ("present", &members)] {
        let asked = bytes(&asked[..100_000]);
        let mut batches = asked.chunks(BATCH).cycle();
        group.bench_function(format!("contains, {name}"), |bencher| {
            bencher.iter(|| {
                let mut found = [false; BATCH];
                filter.contains_batch(batches.next().unwrap_or(&[]), &mut found);
                black_box(found)
            });
        });
    }
    group.finish();
}

fn count_min(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("count-min, 4M x 7");
    group.throughput(Throughput::Elements(BATCH as u64));
    let members = items("item-", 100_000);
    let dimensions = Dimensions::new(4_000_000, 7).expect("the dimensions are valid");
    let mut sketch = Sketch::new(dimensions, Quota::UNLIMITED).expect("112 MB are there");
    let pairs: Vec<(&[u8], u64)> = bytes(&members).into_iter().map(|item| (item, 1)).collect();
    let mut batches = pairs.chunks(BATCH).cycle();
    group.bench_function("increment", |bencher| {
        bencher.iter(|| {
            let mut sum = 0u64;
            let batch = batches.next().unwrap_or(&[]);
            sketch.increment(batch, |estimate| sum += u64::from(estimate));
            black_box(sum)
        });
    });
    let asked = bytes(&members);
    let mut batches = asked.chunks(BATCH).cycle();
    group.bench_function("query", |bencher| {
        bencher.iter(|| {
            let mut sum = 0u64;
            sketch.query(batches.next().unwrap_or(&[]), |estimate| sum += u64::from(estimate));
            black_box(sum)
        });
    });
    group.finish();
}

/// Ranks of a Zipf distribution with exponent 1, by inversion.
fn zipf(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1_000_000f64.powf((mixed >> 11) as f64 / (1u64 << 53) as f64) as u64
}

fn top_k(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("top-k, k = 100, Zipf");
    group.throughput(Throughput::Elements(BATCH as u64));
    let stream: Vec<String> = (0..100_000).map(|n| format!("item-{:016}", zipf(n))).collect();
    let pairs: Vec<(&[u8], u32)> = bytes(&stream).into_iter().map(|item| (item, 1)).collect();
    let params = TopKParams::new(100, 1000, 5, 0.9).expect("the parameters are valid");
    let mut top = TopK::new(params, Quota::UNLIMITED).expect("some KB are there");
    let mut batches = pairs.chunks(BATCH).cycle();
    group.bench_function("add", |bencher| {
        bencher.iter(|| {
            let mut expelled = 0;
            let batch = batches.next().unwrap_or(&[]);
            top.add(batch, Quota::UNLIMITED, |one| expelled += usize::from(one != Ok(None)));
            black_box(expelled)
        });
    });
    group.finish();
}

fn t_digest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("t-digest, compression 100");
    group.throughput(Throughput::Elements(BATCH as u64));
    let values: Vec<f64> =
        (0..100_000u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64).collect();
    let mut digest = TDigest::new(100, Quota::UNLIMITED).expect("the compression is valid");
    let mut batches = values.chunks(BATCH).cycle();
    group.bench_function("add", |bencher| {
        bencher.iter(|| digest.add_all(batches.next().unwrap_or(&[]), Quota::UNLIMITED));
    });
    group.throughput(Throughput::Elements(5));
    group.bench_function("quantile x5", |bencher| {
        bencher.iter(|| {
            let view = digest.view().expect("some KB are there");
            black_box([0.01, 0.5, 0.9, 0.99, 0.999].map(|q| view.quantile(q)))
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    for family in [bloom, cuckoo, count_min, top_k, t_digest] {
        family(&mut criterion);
    }
    criterion.final_summary();
}
