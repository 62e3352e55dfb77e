//! Two hundred connections with pipelines of 1 to 64 commands of all families, while a
//! replica follows and the server saves: no error, memory stays where it is, and all
//! of it comes back in the end.
//!
//! `FERROBLOOM_LOAD_SECONDS` is how long the load lasts, 5 if not set. The latencies are
//! printed: `cargo test --test many_connections -- --nocapture`.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Reply, RespConnection, Server, own_arguments, wait_until};

const CONNECTIONS: u64 = 200;
const DEEPEST_PIPELINE: u64 = 64;
/// Different items, all of which are there from the start: so nothing has to grow.
const ITEMS: u64 = 20_000;
/// Keys of each family.
const KEYS: u64 = 8;
/// Between two snapshots.
const PAUSE: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;

#[test]
fn two_hundred_connections_meet_no_error_and_leave_no_memory_behind() {
    if !own_arguments() {
        return;
    }
    let seconds = std::env::var("FERROBLOOM_LOAD_SECONDS");
    let seconds = seconds.map_or(5, |seconds| seconds.parse().expect("a number of seconds"));
    let (server, replica) = (Server::start(), Server::start());
    replica.replica_of(&server);
    // Once for what the server keeps: the backlog of replication, statistics of commands.
    load(&server, 1);
    let at_start = memory_when_empty(&server, &replica);
    let (mut latencies, filled, most) = load(&server, seconds);
    print_latencies(&mut latencies);
    println!("keys of {filled} bytes when filled, of {most} at most");
    assert!(most < filled + filled / 100, "grew from {filled} to {most} bytes");
    replica.wait_for_sync(&server);
    assert!(replica.dump_all() == server.dump_all(), "the replica holds the same");
    let at_end = memory_when_empty(&server, &replica);
    println!("{at_start} bytes when empty before, {at_end} after");
    assert!(at_end < at_start + MIB / 2, "{at_end} bytes are left of {at_start}");
}

/// Fills the server and runs all connections for a time, with a snapshot now and then.
/// The latencies, and the bytes of all keys at the start and at most.
fn load(server: &Server, seconds: u64) -> (Vec<(u64, u32)>, u64, u64) {
    fill(&mut server.resp2());
    let filled = memory_of_keys(server);
    let stop = AtomicBool::new(false);
    let (mut latencies, mut most) = (Vec::new(), 0);
    thread::scope(|scope| {
        let stop = &stop;
        let worker = |number| scope.spawn(move || work(server, stop, number));
        let workers: Vec<_> = (0..CONNECTIONS).map(worker).collect();
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < deadline {
            server.bgsave();
            most = most.max(memory_of_keys(server));
            thread::sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now())));
        }
        stop.store(true, Ordering::SeqCst);
        for worker in workers {
            latencies.extend(worker.join().expect("no failure"));
        }
    });
    (latencies, filled, most)
}

/// Bytes that the keys of all families take. The server's own count of data has what
/// commands under way hold in it.
fn memory_of_keys(server: &Server) -> u64 {
    let families = ["bf_bloom", "bf_cuckoo", "bf_cms", "bf_topk", "bf_tdigest"];
    families.map(|name| server.info_number(name, &format!("{name}_memory_bytes"))).iter().sum()
}

/// Bytes in use without any key, once the connections are gone.
fn memory_when_empty(server: &Server, replica: &Server) -> u64 {
    assert_eq!(server.resp2().line("FLUSHALL"), Reply::ok());
    replica.wait_for_sync(server);
    let clients = || server.info_number("clients", "connected_clients");
    wait_until("the connections are closed", || clients() == 1);
    let mut last = server.used_memory();
    // Some servers free in the background.
    wait_until("the memory is at rest", || {
        thread::sleep(Duration::from_millis(300));
        let now = server.used_memory();
        std::mem::replace(&mut last, now) <= now + MIB / 16
    });
    last
}

/// Sends pipelines until `stop`; how long each reply took from the first byte sent, in
/// microseconds, with the length of its pipeline.
fn work(server: &Server, stop: &AtomicBool, number: u64) -> Vec<(u64, u32)> {
    let mut connection = if number.is_multiple_of(2) { server.resp2() } else { server.resp3() };
    connection.set_timeout(Duration::from_secs(30));
    let mut random = Random(number + 1);
    let mut latencies = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let length = 1 + random.below(DEEPEST_PIPELINE);
        let commands: Vec<_> = (0..length).map(|_| command(&mut random)).collect();
        let start = Instant::now();
        for command in &commands {
            connection.send(command).expect("the server takes commands");
        }
        for command in &commands {
            let reply = connection.read().expect("a reply");
            assert_eq!(reply.error(), None, "{command:?}");
        }
        let micros = start.elapsed().as_micros().try_into().unwrap_or(u32::MAX);
        latencies.push((length, micros));
    }
    latencies
}

fn command(random: &mut Random) -> Vec<String> {
    let key = random.below(KEYS);
    let line = match random.below(16) {
        0 => format!("BF.ADD bf{key} {}", item(random)),
        1 => format!("BF.EXISTS bf{key} {}", item(random)),
        2 => format!("BF.MADD bf{key} {}", items(random)),
        3 => format!("BF.MEXISTS bf{key} {}", items(random)),
        4 => format!("CF.ADDNX cf{key} {}", item(random)),
        5 => format!("CF.INSERTNX cf{key} ITEMS {}", items(random)),
        6 => format!("CF.DEL cf{key} {}", item(random)),
        7 => format!("CF.MEXISTS cf{key} {}", items(random)),
        8 => format!("CMS.QUERY cms{key} {}", items(random)),
        9 => format!("CMS.INCRBY cms{key} {} 1", item(random)),
        10 => format!("TOPK.ADD top{key} {}", items(random)),
        11 => format!("TOPK.QUERY top{key} {}", items(random)),
        12 => format!("TDIGEST.ADD td{key} {}", numbers(random)),
        13 => format!("TDIGEST.QUANTILE td{key} 0.5 0.9 0.99"),
        14 => format!("TDIGEST.RANK td{key} {}", numbers(random)),
        _ => format!("BF.INFO bf{key} ITEMS"),
    };
    line.split(' ').map(str::to_owned).collect()
}

fn item(random: &mut Random) -> String {
    format!("item-{}", random.below(ITEMS))
}

fn items(random: &mut Random) -> String {
    let count = 1 + random.below(20);
    (0..count).map(|_| item(random)).collect::<Vec<_>>().join(" ")
}

fn numbers(random: &mut Random) -> String {
    let count = 1 + random.below(20);
    (0..count).map(|_| random.below(ITEMS).to_string()).collect::<Vec<_>>().join(" ")
}

/// Makes all keys, with all items in them.
fn fill(connection: &mut RespConnection) {
    let mut line = |command: String| {
        let reply = connection.line(&command);
        assert_eq!(reply.error(), None, "{command}");
    };
    for key in 0..KEYS {
        line(format!("CMS.INITBYDIM cms{key} 100000 5"));
        line(format!("TOPK.RESERVE top{key} 50"));
        line(format!("TDIGEST.CREATE td{key}"));
    }
    let all: Vec<_> = (0..ITEMS).collect();
    for numbers in all.chunks(500) {
        let join =
            |text: &dyn Fn(&u64) -> String| numbers.iter().map(text).collect::<Vec<_>>().join(" ");
        let items = join(&|number| format!("item-{number}"));
        for key in 0..KEYS {
            line(format!("BF.MADD bf{key} {items}"));
            line(format!("CF.INSERTNX cf{key} ITEMS {items}"));
            line(format!("CMS.INCRBY cms{key} {}", join(&|number| format!("item-{number} 1"))));
            line(format!("TOPK.ADD top{key} {items}"));
            line(format!("TDIGEST.ADD td{key} {}", join(&u64::to_string)));
        }
    }
}

fn print_latencies(latencies: &mut [(u64, u32)]) {
    let commands: u64 = latencies.iter().map(|(length, _)| length).sum();
    println!("{commands} commands in {} pipelines; milliseconds for a pipeline:", latencies.len());
    println!("| pipeline | 50% | 90% | 99% | 99.9% | most |");
    println!("|---|---|---|---|---|---|");
    for (least, most) in [(1, 4), (5, 16), (17, 64)] {
        let of_length = latencies.iter().filter(|(length, _)| (least..=most).contains(length));
        let mut micros: Vec<_> = of_length.map(|(_, micros)| *micros).collect();
        micros.sort_unstable();
        let Some(last) = micros.len().checked_sub(1) else { continue };
        let at = |share: f64| f64::from(micros[(share * last as f64) as usize]) / 1000.0;
        let row = [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| format!("{:.1}", at(share)));
        println!("| {least} to {most} | {} |", row.join(" | "));
    }
}

/// Numbers that look random, the same in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % end
    }
}
