//! What is raced: how a key is prepared, and what a case sends.

use crate::server::{Server, encode};

/// Measures one round of a case on a key, in nanoseconds per item.
pub(crate) type Measure = Box<dyn Fn(&mut Server, &str, u64) -> Result<f64, String>>;
/// Prepares the keys of a stage.
pub(crate) type Prepare = Box<dyn Fn(&mut Server) -> Result<(), String> + Sync>;

/// Cases on the same prepared keys.
pub(crate) struct Stage {
    /// Shown while it is prepared.
    pub(crate) name: &'static str,
    /// Prepares the keys, on both sides alike.
    pub(crate) prepare: Prepare,
    /// What is measured then, in this order.
    pub(crate) cases: Vec<Case>,
}

/// One row of the table.
pub(crate) struct Case {
    /// What is measured.
    pub(crate) name: &'static str,
    /// How many times faster than the peer it has to be.
    pub(crate) goal: f64,
    /// The prepared key.
    pub(crate) key: &'static str,
    /// Whether the same command on a missing key is the floor.
    pub has_floor: bool,
    /// Runs one round.
    pub(crate) measure: Measure,
}

/// Commands of many items in one pipeline.
const MANY: usize = 10;
/// Items of such a command.
const ITEMS: usize = 100;
/// Single-item commands in one pipeline.
const SINGLE: usize = 500;
/// Pipelines of a round.
const REPEATS: usize = 10;

/// Items of 21 bytes: those that were added.
fn member(number: u64) -> [u8; 21] {
    item(b"item-", number)
}

/// Items of 21 bytes that never were.
fn stranger(number: u64) -> [u8; 21] {
    item(b"none-", number)
}

fn item(prefix: &[u8; 5], mut number: u64) -> [u8; 21] {
    let mut bytes = [b'0'; 21];
    bytes[..5].copy_from_slice(prefix);
    for digit in bytes[5..].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    bytes
}

/// The `n`-th number of a sequence without pattern, below `below`.
fn scattered(n: u64, below: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 29)) % below
}

/// One round of `REPEATS` pipelines of `commands` commands with `items` items each,
/// written by `write(command number of all rounds, key)`.
fn pipelines(
    commands: usize,
    items: usize,
    write: impl Fn(&mut Vec<u8>, &str, u64) + 'static,
) -> Measure {
    Box::new(move |server, key, round| {
        let mut total = 0.0;
        let mut bytes = Vec::new();
        for repeat in 0..REPEATS as u64 {
            bytes.clear();
            for command in 0..commands as u64 {
                let number = (round * REPEATS as u64 + repeat) * commands as u64 + command;
                write(&mut bytes, key, number);
            }
            total += server.timed(&bytes, commands)?;
        }
        Ok(total / (REPEATS * commands * items) as f64)
    })
}

/// `command key [words] item*100`, items of number `command * 100 ..`.
fn many(
    command: &'static str,
    words: &'static [&'static str],
    item: impl Fn(u64) -> [u8; 21] + 'static,
) -> Measure {
    pipelines(MANY, ITEMS, move |out, key, number| {
        let items: Vec<[u8; 21]> =
            (0..ITEMS as u64).map(|index| item(number * ITEMS as u64 + index)).collect();
        let mut all: Vec<&[u8]> = vec![command.as_bytes(), key.as_bytes()];
        all.extend(words.iter().map(|word| word.as_bytes()));
        all.extend(items.iter().map(|item| item.as_slice()));
        encode(out, &all);
    })
}

/// `command key item`.
fn single(command: &'static str, item: impl Fn(u64) -> [u8; 21] + 'static) -> Measure {
    pipelines(SINGLE, 1, move |out, key, number| {
        encode(out, &[command.as_bytes(), key.as_bytes(), &item(number)]);
    })
}

fn case(name: &'static str, goal: f64, key: &'static str, measure: Measure) -> Case {
    Case { name, goal, key, has_floor: false, measure }
}

/// A case whose floor is the command on a missing key, which it does not create.
fn floored(name: &'static str, goal: f64, key: &'static str, measure: Measure) -> Case {
    Case { has_floor: true, ..case(name, goal, key, measure) }
}

/// Adds the members `0..count` with many-item commands.
fn fill(server: &mut Server, command: &[&str], count: u64) -> Result<(), String> {
    const AT_ONCE: u64 = 1000;
    let mut bytes = Vec::new();
    let (mut next, mut pending) = (0, 0);
    while next < count {
        let end = count.min(next + AT_ONCE);
        let items: Vec<[u8; 21]> = (next..end).map(member).collect();
        let mut all: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        all.extend(items.iter().map(|item| item.as_slice()));
        encode(&mut bytes, &all);
        pending += 1;
        next = end;
        if pending == 20 || next == count {
            server.pipeline(&bytes, pending)?;
            bytes.clear();
            pending = 0;
        }
    }
    Ok(())
}

fn reserve(server: &mut Server, words: &[&str]) -> Result<(), String> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    server.command(&words).map(|_| ())
}

/// All stages. `scale` divides the sizes, for a quick look.
pub(crate) fn stages(scale: u64) -> Vec<Stage> {
    let large = 50_000_000 / scale;
    let million = 1_000_000 / scale;
    let cuckoo = 32_000_000 / scale;
    vec![
        large_bloom(large),
        strict_bloom(large),
        grown_bloom(million),
        cuckoo_filter(cuckoo),
        count_min(scale),
        top_k(),
        digest(),
    ]
}

fn large_bloom(large: u64) -> Stage {
    let capacity = large.to_string();
    let below = large;
    Stage {
        name: "Bloom, 50M items at 1%",
        prepare: Box::new(move |server| {
            reserve(server, &["BF.RESERVE", "large", "0.01", &capacity])?;
            reserve(server, &["BF.RESERVE", "empty", "0.01", &capacity])?;
            fill(server, &["BF.MADD", "large"], large)
        }),
        cases: vec![
            floored(
                "BF.MEXISTS x100, 50M items 1%, absent",
                2.8,
                "large",
                many("BF.MEXISTS", &[], stranger),
            ),
            floored(
                "BF.MEXISTS x100, 50M items 1%, present",
                2.4,
                "large",
                many("BF.MEXISTS", &[], move |n| member(scattered(n, below))),
            ),
            floored("BF.EXISTS, 50M items 1%, absent", 1.4, "large", single("BF.EXISTS", stranger)),
            floored(
                "BF.EXISTS, 50M items 1%, present",
                1.4,
                "large",
                single("BF.EXISTS", move |n| member(scattered(n, below))),
            ),
            case(
                "BF.MADD x100 new items, reserved 50M 1%",
                2.2,
                "empty",
                many("BF.MADD", &[], member),
            ),
            case("BF.ADD new", 1.4, "empty", single("BF.ADD", stranger)),
        ],
    }
}

fn strict_bloom(large: u64) -> Stage {
    let capacity = large.to_string();
    Stage {
        name: "Bloom, 50M items at 0.1%",
        prepare: Box::new(move |server| {
            reserve(server, &["BF.RESERVE", "strict", "0.001", &capacity])?;
            fill(server, &["BF.MADD", "strict"], large)
        }),
        cases: vec![floored(
            "BF.MEXISTS x100, 50M items 0.1%, absent",
            2.4,
            "strict",
            many("BF.MEXISTS", &[], stranger),
        )],
    }
}

fn grown_bloom(million: u64) -> Stage {
    Stage {
        name: "Bloom, a default key grown to 1M items",
        prepare: Box::new(move |server| fill(server, &["BF.MADD", "grown"], million)),
        cases: vec![
            Case {
                measure: Box::new(move |server, _, round| {
                    // A key of its own each time, filled from nothing.
                    let key = format!("fresh{round}");
                    let mut total = 0.0;
                    let mut bytes = Vec::new();
                    let commands = million as usize / ITEMS;
                    for command in 0..commands as u64 {
                        let items: Vec<[u8; 21]> = (0..ITEMS as u64)
                            .map(|index| member(command * ITEMS as u64 + index))
                            .collect();
                        let mut all: Vec<&[u8]> = vec![b"BF.MADD", key.as_bytes()];
                        all.extend(items.iter().map(|item| item.as_slice()));
                        encode(&mut bytes, &all);
                        if command % 10 == 9 {
                            total += server.timed(&bytes, 10)?;
                            bytes.clear();
                        }
                    }
                    server.command(&[b"DEL", key.as_bytes()])?;
                    Ok(total / million as f64)
                }),
                ..case(
                    "BF.MADD x100 of 1M items into a default key",
                    2.5,
                    "",
                    single("PING", member),
                )
            },
            floored("BF.EXISTS on it, absent", 1.8, "grown", single("BF.EXISTS", stranger)),
            floored(
                "BF.MEXISTS x100 on it, absent",
                3.0,
                "grown",
                many("BF.MEXISTS", &[], stranger),
            ),
        ],
    }
}

fn cuckoo_filter(cuckoo: u64) -> Stage {
    let capacity = cuckoo.to_string();
    Stage {
        name: "cuckoo, reserved for 32M",
        prepare: Box::new(move |server| {
            reserve(server, &["CF.RESERVE", "cuckoo", &capacity])?;
            fill(server, &["CF.INSERT", "cuckoo", "ITEMS"], cuckoo / 2)
        }),
        cases: vec![
            case(
                "CF.INSERT x100 new, reserved 32M",
                2.0,
                "cuckoo",
                many("CF.INSERT", &["ITEMS"], |n| member(1_000_000_000 + n)),
            ),
            floored(
                "CF.MEXISTS x100 absent, 32M",
                2.2,
                "cuckoo",
                many("CF.MEXISTS", &[], stranger),
            ),
            case("CF.ADD, 32M", 1.3, "cuckoo", single("CF.ADD", |n| member(2_000_000_000 + n))),
            floored("CF.EXISTS, 32M, absent", 1.3, "cuckoo", single("CF.EXISTS", stranger)),
            case(
                "CF.ADD + CF.DEL, 32M",
                1.3,
                "cuckoo",
                pipelines(SINGLE, 1, |out, key, number| {
                    let item = member(3_000_000_000 + number / 2);
                    let command = if number % 2 == 0 { "CF.ADD" } else { "CF.DEL" };
                    encode(out, &[command.as_bytes(), key.as_bytes(), &item]);
                }),
            ),
        ],
    }
}

fn count_min(scale: u64) -> Stage {
    let width = (4_000_000 / scale).to_string();
    let increments = |out: &mut Vec<u8>, key: &str, number: u64| {
        let items: Vec<[u8; 21]> = (0..ITEMS as u64)
            .map(|index| member(scattered(number * ITEMS as u64 + index, 10_000_000)))
            .collect();
        let mut all: Vec<&[u8]> = vec![b"CMS.INCRBY", key.as_bytes()];
        for item in &items {
            all.push(item);
            all.push(b"1");
        }
        encode(out, &all);
    };
    Stage {
        name: "count-min, 4M x 7",
        prepare: Box::new(move |server| {
            reserve(server, &["CMS.INITBYDIM", "cms", &width, "7"])?;
            let mut bytes = Vec::new();
            for number in 0..20_000 {
                increments(&mut bytes, "cms", number);
                if number % 10 == 9 {
                    server.pipeline(&bytes, 10)?;
                    bytes.clear();
                }
            }
            Ok(())
        }),
        cases: vec![
            case("CMS.INCRBY x100, 4M x 7", 3.0, "cms", pipelines(MANY, ITEMS, increments)),
            case(
                "CMS.QUERY x100, 4M x 7",
                3.5,
                "cms",
                many("CMS.QUERY", &[], |n| member(scattered(n, 10_000_000))),
            ),
        ],
    }
}

fn top_k() -> Stage {
    // Zipf with exponent 1 by inversion: rank = N^u.
    let zipf = |n: u64| {
        let u = scattered(n, 1 << 53) as f64 / (1u64 << 53) as f64;
        member(1_000_000f64.powf(u) as u64)
    };
    Stage {
        name: "Top-K, k = 100, Zipf",
        prepare: Box::new(move |server| {
            reserve(server, &["TOPK.RESERVE", "topk", "100", "1000", "5", "0.9"])?;
            for round in 0..20 {
                many("TOPK.ADD", &[], zipf)(server, "topk", 1000 + round)?;
            }
            Ok(())
        }),
        cases: vec![case("TOPK.ADD x100, zipf, k=100", 1.2, "topk", many("TOPK.ADD", &[], zipf))],
    }
}

fn digest() -> Stage {
    let add = |out: &mut Vec<u8>, key: &str, number: u64| {
        let values: Vec<String> = (0..ITEMS as u64)
            .map(|index| {
                let scattered = scattered(number * ITEMS as u64 + index, 1_000_000_000);
                format!("{}.{:03}", scattered / 1000, scattered % 1000)
            })
            .collect();
        let mut all: Vec<&[u8]> = vec![b"TDIGEST.ADD", key.as_bytes()];
        all.extend(values.iter().map(|value| value.as_bytes()));
        encode(out, &all);
    };
    Stage {
        name: "t-digest, compression 100",
        prepare: Box::new(move |server| {
            reserve(server, &["TDIGEST.CREATE", "digest"])?;
            let mut bytes = Vec::new();
            (0..100).for_each(|number| add(&mut bytes, "digest", number));
            server.pipeline(&bytes, 100)
        }),
        cases: vec![
            case("TDIGEST.ADD x100", 1.2, "digest", pipelines(MANY, ITEMS, add)),
            case(
                "TDIGEST.QUANTILE x5",
                1.2,
                "digest",
                pipelines(SINGLE, 5, |out, key, _| {
                    let words: [&[u8]; 7] = [
                        b"TDIGEST.QUANTILE",
                        key.as_bytes(),
                        b"0.01",
                        b"0.5",
                        b"0.9",
                        b"0.99",
                        b"0.999",
                    ];
                    encode(out, &words);
                }),
            ),
        ],
    }
}
