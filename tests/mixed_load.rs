//! Random commands of all families on two servers that copy each other, save, rewrite
//! their files and change places meanwhile: in the end both hold the same, and no
//! command met an error that its writer did not ask for.
//!
//! `FERROBLOOM_LOAD_SECONDS` is how long the load lasts, 5 if not set.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Reply, RespConnection, Server, own_arguments, wait_until};

/// The databases that are written to.
const DATABASES: [u32; 2] = [0, 3];
/// Keys of each family, and as many more that all families use.
const KEYS: u64 = 6;
/// Different items.
const ITEMS: u64 = 5000;
/// Between two steps of the operator.
const PAUSE: Duration = Duration::from_millis(300);

/// How errors begin that the load provokes: it uses keys that may be missing, there
/// already, full or of another family, and writes to a server that has just become a
/// replica.
const EXPECTED: &[&str] = &[
    "READONLY",
    "LOADING",
    "EXECABORT",
    "WRONGTYPE",
    "ERR no such key",
    "ERR source and destination objects are the same",
    "ERR item exists",
    "ERR not found",
    "ERR non scaling filter is full",
    "Not found",
    "Filter is full",
    "Maximum expansions reached",
    "Cuckoo filter was not found",
    "ERR received bad data",
    "ERR invalid offset - no link found",
    "ERR invalid chunk - Too big for current filter",
    "Couldn't load chunk!",
    "CMS: key does not exist",
    "CMS: key already exists",
    "CMS: width/depth is not equal",
    "TopK: key does not exist",
    "TopK: key already exists",
    "ERR T-Digest: key does not exist",
    "ERR T-Digest: key already exists",
];

#[test]
fn two_servers_hold_the_same_after_a_mixed_load_with_saves_and_failovers() {
    if !own_arguments() {
        return;
    }
    let seconds = std::env::var("FERROBLOOM_LOAD_SECONDS");
    let seconds = seconds.map_or(5, |seconds| seconds.parse().expect("a number of seconds"));
    let mut servers = [
        start(&["bf-layout", "blocked"]),
        start(&["bf-layout", "redisbloom", "bf-initial-size", "17", "cf-initial-size", "64"]),
    ];
    servers[1].replica_of(&servers[0]);
    let primary = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let mut totals = Totals::default();
    let mut failovers = 0;
    thread::scope(|scope| {
        let (servers, primary, stop) = (&servers, &primary, &stop);
        let writers = (1..=3).map(|seed| scope.spawn(move || write(servers, primary, stop, seed)));
        let readers = servers.each_ref().map(|server| scope.spawn(move || read(server, stop)));
        let workers: Vec<_> = writers.chain(readers).collect();
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while failovers == 0 || Instant::now() < deadline {
            let at = primary.load(Ordering::SeqCst);
            operate(&servers[at], &servers[1 - at], || primary.store(1 - at, Ordering::SeqCst));
            failovers += 1;
        }
        stop.store(true, Ordering::SeqCst);
        workers.into_iter().for_each(|worker| totals.add(worker.join().expect("no failure")));
    });
    println!("{failovers} failovers; {totals:?}");
    let at = primary.load(Ordering::SeqCst);
    compare(&servers[at], &servers[1 - at]);
    let before = DATABASES.map(|database| servers[1 - at].dump_database(database));
    wait_until_idle(&servers[1 - at]);
    servers[1 - at].restart();
    let after = DATABASES.map(|database| servers[1 - at].dump_database(database));
    assert!(after == before, "the replica's append-only file holds the same");
    for server in &servers {
        let log = server.log();
        let alarm = log.lines().find(|line| line.contains("CRITICAL") || line.contains("panic"));
        assert_eq!(alarm, None);
    }
    assert!(totals.done > 1000 && totals.unexpected.is_empty(), "{totals:?}");
}

fn start(arguments: &[&str]) -> Server {
    Server::builder().module_args(arguments).config("appendonly yes").start()
}

/// Saves on the one server and the other, rewrites the append-only files and lets the
/// replica take over.
fn operate(primary: &Server, replica: &Server, promoted: impl FnOnce()) {
    in_background(primary, "BGSAVE");
    in_background(replica, "BGREWRITEAOF");
    thread::sleep(PAUSE);
    in_background(primary, "BGREWRITEAOF");
    in_background(replica, "BGSAVE");
    thread::sleep(PAUSE);
    assert_eq!(primary.resp2().line("CLIENT KILL TYPE replica").error(), None);
    thread::sleep(PAUSE);
    replica.wait_for_sync(primary);
    // In the middle of the load: what reaches the old primary only is lost, with it.
    assert_eq!(replica.resp2().line("REPLICAOF NO ONE"), Reply::ok());
    promoted();
    thread::sleep(PAUSE);
    primary.replica_of(replica);
}

/// Starts a background job when no other runs, and waits for its end.
fn in_background(server: &Server, command: &str) {
    let mut connection = server.resp2();
    wait_until("the job begins", || connection.line(command).error().is_none());
    wait_until_idle(server);
    for field in ["rdb_last_bgsave_status", "aof_last_bgrewrite_status"] {
        assert_eq!(server.info("persistence", field).as_deref(), Some("ok"), "{command}");
    }
}

/// Waits for the end of background jobs. (A server whose first append-only file is being
/// written does not shut down.)
fn wait_until_idle(server: &Server) {
    let mut connection = server.resp2();
    wait_until("background jobs end", || {
        let info = connection.line("INFO persistence");
        let info = info.text().expect("a text");
        ["rdb_bgsave_in_progress:0", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
            .iter()
            .all(|field| info.contains(field))
    });
}

/// Asserts that the replica holds what the primary holds.
fn compare(primary: &Server, replica: &Server) {
    // The last keys that expire.
    thread::sleep(Duration::from_millis(200));
    replica.wait_for_sync(primary);
    let mut keys = 0;
    for database in DATABASES {
        let want = primary.dump_database(database);
        keys += want.len();
        let got = replica.dump_database(database);
        let name = |(key, _): &(Vec<u8>, Vec<u8>)| key.escape_ascii().to_string();
        let other = |(a, b): (&_, &_)| (a != b).then(|| (name(a), name(b)));
        let others: Vec<_> = want.iter().zip(&got).filter_map(other).collect();
        assert!(got == want, "database {database}: DUMP differs: {others:?}");
        let names: Vec<_> = want.into_iter().map(|(key, _)| key).collect();
        let digests = |server: &Server| {
            let mut connection = server.resp2();
            connection.line(&format!("SELECT {database}"));
            let command = [&[b"DEBUG".to_vec(), b"DIGEST-VALUE".to_vec()], &names[..]].concat();
            connection.call(&command)
        };
        assert_eq!(digests(replica), digests(primary), "digests in database {database}");
    }
    assert!(keys > 20, "{keys} keys are compared");
}

/// What the workers did.
#[derive(Debug, Default)]
struct Totals {
    done: u64,
    /// Errors in replies, by their text.
    expected: BTreeMap<&'static str, u64>,
    unexpected: BTreeMap<String, u64>,
    by_command: BTreeMap<String, u64>,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.done += other.done;
        other.expected.into_iter().for_each(|(k, n)| *self.expected.entry(k).or_default() += n);
        other.unexpected.into_iter().for_each(|(k, n)| *self.unexpected.entry(k).or_default() += n);
        other.by_command.into_iter().for_each(|(k, n)| *self.by_command.entry(k).or_default() += n);
    }

    fn count(&mut self, command: &str, reply: &Reply) {
        self.done += 1;
        let name = command.split(' ').next().unwrap_or_default();
        *self.by_command.entry(name.to_owned()).or_default() += 1;
        self.count_errors(name, reply);
    }

    fn count_errors(&mut self, name: &str, reply: &Reply) {
        match reply {
            Reply::Array(elements) => elements.iter().for_each(|e| self.count_errors(name, e)),
            Reply::Error(text) => {
                // Errors of scripts have the command's own inside.
                let script = ["EVAL", "EXEC"].contains(&name);
                let known =
                    |begin: &&&str| text.starts_with(**begin) || script && text.contains(**begin);
                match EXPECTED.iter().find(known) {
                    Some(begin) => *self.expected.entry(begin).or_default() += 1,
                    None => *self.unexpected.entry(format!("{name}: {text}")).or_default() += 1,
                }
            }
            _ => {}
        }
    }
}

/// A source of random commands.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    /// A key of the family, or now and then one that all families use.
    fn key(&mut self, family: &str) -> String {
        let family = if self.below(50) == 0 { "any" } else { family };
        format!("{family}:{}", self.below(KEYS))
    }

    fn item(&mut self) -> String {
        format!("item-{}", self.below(ITEMS))
    }

    fn items(&mut self) -> String {
        let count = 1 + self.below(60);
        (0..count).map(|_| self.item()).collect::<Vec<_>>().join(" ")
    }

    /// Items with numbers below the limit.
    fn pairs(&mut self, limit: u64) -> String {
        let count = 1 + self.below(40);
        let pair = |_| format!("{} {}", self.item(), self.below(limit));
        (0..count).map(pair).collect::<Vec<_>>().join(" ")
    }

    fn values(&mut self) -> String {
        let count = 1 + self.below(60);
        let value = |_| format!("{}.{}", self.below(1000), self.below(100));
        (0..count).map(value).collect::<Vec<_>>().join(" ")
    }

    fn any_key(&mut self) -> String {
        let family = ["bf", "cf", "cms", "topk", "td"][self.below(5) as usize];
        self.key(family)
    }

    fn write(&mut self) -> String {
        match self.below(6) {
            0 => self.write_bloom(),
            1 => self.write_cuckoo(),
            2 => self.write_count_min(),
            3 => self.write_top_k(),
            4 => self.write_t_digest(),
            _ => self.write_any(),
        }
    }

    fn write_bloom(&mut self) -> String {
        let (key, items) = (self.key("bf"), self.items());
        let n = self.below(300);
        match self.below(8) {
            0 => format!("BF.RESERVE {key} 0.00{} {}", 1 + n % 9, 1 + n),
            1 => format!("BF.RESERVE {key} 0.1 {} NONSCALING", 1 + n),
            2 => format!("BF.INSERT {key} CAPACITY {} EXPANSION 1 ITEMS {items}", 1 + n),
            3 => format!("BF.INSERT {key} NOCREATE ITEMS {items}"),
            4..=5 => format!("BF.ADD {key} {}", self.item()),
            _ => format!("BF.MADD {key} {items}"),
        }
    }

    fn write_cuckoo(&mut self) -> String {
        let (key, items) = (self.key("cf"), self.items());
        let n = self.below(300);
        match self.below(10) {
            0 => format!("CF.RESERVE {key} {} BUCKETSIZE {}", 20 + n, 1 + n % 4),
            1 => format!("CF.RESERVE {key} {} EXPANSION 0 MAXITERATIONS 5", 8 + n),
            2 => format!("CF.INSERT {key} CAPACITY {} ITEMS {items}", 10 + n),
            3 => format!("CF.INSERTNX {key} ITEMS {items}"),
            4 => format!("CF.ADDNX {key} {}", self.item()),
            5 => format!("CF.COMPACT {key}"),
            6..=7 => format!("CF.ADD {key} {}", self.item()),
            _ => format!("CF.DEL {key} {}", self.item()),
        }
    }

    fn write_count_min(&mut self) -> String {
        let (key, other) = (self.key("cms"), self.key("cms"));
        match self.below(8) {
            0 => format!("CMS.INITBYDIM {key} {} 4", [50, 200][self.below(2) as usize]),
            1 => format!("CMS.INITBYPROB {key} 0.0{} 0.01", 1 + self.below(2)),
            2 => format!("CMS.MERGE {key} 1 {other}"),
            3 => format!("CMS.MERGE {key} 2 {key} {other} WEIGHTS 1 0"),
            _ => format!("CMS.INCRBY {key} {}", self.pairs(5)),
        }
    }

    fn write_top_k(&mut self) -> String {
        let key = self.key("topk");
        match self.below(8) {
            0 => format!("TOPK.RESERVE {key} {} 20 5 0.9", 1 + self.below(30)),
            1 => format!("TOPK.RESERVE {key} {}", 1 + self.below(300)),
            2 => format!("TOPK.INCRBY {key} {}", self.pairs(300)),
            // Increments of 0, which can change the order of equal counts.
            3 => format!("TOPK.INCRBY {key} {}", self.pairs(1)),
            _ => format!("TOPK.ADD {key} {}", self.items()),
        }
    }

    fn write_t_digest(&mut self) -> String {
        let (key, other) = (self.key("td"), self.key("td"));
        // No source of others: weights would grow as Fibonacci's numbers do.
        let sum = format!("sum:{}", self.below(KEYS));
        match self.below(10) {
            0..=1 => format!("TDIGEST.CREATE {key} COMPRESSION {}", 20 + self.below(200)),
            2 => format!("TDIGEST.MERGE {sum} 1 {other}"),
            3 => format!("TDIGEST.MERGE {sum} 2 {key} {other} COMPRESSION 50 OVERRIDE"),
            4 if self.below(10) == 0 => format!("TDIGEST.RESET {key}"),
            _ => format!("TDIGEST.ADD {key} {}", self.values()),
        }
    }

    fn write_any(&mut self) -> String {
        let (key, number) = (self.any_key(), self.below(KEYS));
        let family = key.split(':').next().unwrap_or_default();
        match self.below(12) {
            0 => format!("DEL {key}"),
            1 => format!("UNLINK {key}"),
            2 => format!("COPY {key} {family}:{number} REPLACE"),
            3 => format!("RENAME {key} {family}:{number}"),
            4 => format!("MOVE {key} {}", DATABASES[self.below(2) as usize]),
            5 => format!("PEXPIRE {key} {}", self.below(100)),
            6 => format!("PEXPIRE {key} 100000000"),
            7 => format!("PERSIST {key}"),
            _ => format!(
                "EVAL {SCRIPT} 3 {} {} {} {} {}",
                self.key("bf"),
                self.key("cms"),
                self.key("topk"),
                self.item(),
                self.below(9)
            ),
        }
    }

    fn read(&mut self) -> String {
        match self.below(20) {
            0 => format!("BF.EXISTS {} {}", self.key("bf"), self.item()),
            1 => format!("BF.MEXISTS {} {}", self.key("bf"), self.items()),
            2 => format!("BF.INFO {} ALL", self.key("bf")),
            3 => format!("BF.CARD {}", self.key("bf")),
            4 => format!("CF.MEXISTS {} {}", self.key("cf"), self.items()),
            5 => format!("CF.COUNT {} {}", self.key("cf"), self.item()),
            6 => format!("CF.INFO {}", self.key("cf")),
            7 => format!("CMS.QUERY {} {}", self.key("cms"), self.items()),
            8 => format!("CMS.INFO {}", self.key("cms")),
            9 => format!("TOPK.QUERY {} {}", self.key("topk"), self.items()),
            10 => format!("TOPK.COUNT {} {}", self.key("topk"), self.items()),
            11 => format!("TOPK.LIST {} WITHCOUNT", self.key("topk")),
            12 => format!("TDIGEST.QUANTILE {} 0 0.5 0.99 1", self.key("td")),
            13 => format!("TDIGEST.CDF {} {}", self.key("td"), self.values()),
            14 => format!("TDIGEST.RANK {} {}", self.key("td"), self.values()),
            15 => format!("TDIGEST.TRIMMED_MEAN {} 0.1 0.9", self.key("td")),
            16 => format!("TDIGEST.INFO {}", self.key("td")),
            17 => format!("MEMORY USAGE {}", self.any_key()),
            18 => format!("BF.SCANDUMP {} 0", self.key("bf")),
            _ => format!("DUMP {}", self.any_key()),
        }
    }
}

/// Without blanks, as commands here are split at them.
const SCRIPT: &str = "redis.call('BF.ADD',KEYS[1],ARGV[1])\
                      redis.pcall('TOPK.INCRBY',KEYS[3],ARGV[1],ARGV[2])\
                      return(redis.call('CMS.INCRBY',KEYS[2],ARGV[1],ARGV[2]))";

/// Writes to whichever server is the primary until it is time to stop.
fn write(servers: &[Server; 2], primary: &AtomicUsize, stop: &AtomicBool, seed: u64) -> Totals {
    let mut connections = servers.each_ref().map(Server::resp2);
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut totals = Totals::default();
    while !stop.load(Ordering::SeqCst) {
        let connection = &mut connections[primary.load(Ordering::SeqCst)];
        match random.below(400) {
            0 => select(connection, &mut random),
            1 => transfer(connection, &mut random, seed, &mut totals),
            2 => transact(connection, &mut random, &mut totals),
            _ => run(connection, &random.write(), &mut totals),
        }
    }
    totals
}

/// Reads from one server until it is time to stop.
fn read(server: &Server, stop: &AtomicBool) -> Totals {
    let mut connection = server.resp2();
    let mut random = Random(u64::from(server.port()));
    let mut totals = Totals::default();
    while !stop.load(Ordering::SeqCst) {
        if random.below(100) == 0 {
            select(&mut connection, &mut random);
        }
        run(&mut connection, &random.read(), &mut totals);
    }
    totals
}

fn run(connection: &mut RespConnection, command: &str, totals: &mut Totals) {
    let reply = connection.line(command);
    totals.count(command, &reply);
}

fn select(connection: &mut RespConnection, random: &mut Random) {
    connection.line(&format!("SELECT {}", DATABASES[random.below(2) as usize]));
}

/// A few commands as one transaction.
fn transact(connection: &mut RespConnection, random: &mut Random, totals: &mut Totals) {
    connection.line("MULTI");
    for _ in 0..5 {
        run(connection, &random.write(), totals);
    }
    run(connection, "EXEC", totals);
}

/// Brings a key to a name of the writer's own, by RESTORE and by chunks.
fn transfer(
    connection: &mut RespConnection,
    random: &mut Random,
    writer: u64,
    totals: &mut Totals,
) {
    let from = random.any_key();
    if let Reply::Bulk(payload) = connection.call(&["DUMP", &from]) {
        let to = format!("restored:{writer}");
        let command = [b"RESTORE", to.as_bytes(), b"0", payload.as_slice(), b"REPLACE"];
        totals.count("RESTORE", &connection.call(&command));
    }
    let Some((family, _)) =
        from.split_once(':').filter(|(family, _)| ["bf", "cf"].contains(family))
    else {
        return;
    };
    let (scan, load) = (format!("{family}.scandump"), format!("{family}.loadchunk"));
    let to = format!("loaded:{family}:{writer}");
    connection.call(&["DEL", &to]);
    let mut iterator = "0".to_owned();
    loop {
        let reply = connection.call(&[&scan, &from, &iterator]);
        totals.count(&scan, &reply);
        let Some([Reply::Int(next @ 1..), Reply::Bulk(data)]) = reply.array() else { return };
        iterator = next.to_string();
        let command = [load.as_bytes(), to.as_bytes(), iterator.as_bytes(), data];
        totals.count(&load, &connection.call(&command));
    }
}
