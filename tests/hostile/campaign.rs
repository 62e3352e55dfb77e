//! Many cases in turn against one server, and what became of it.

use std::fmt;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crate::common::golden::{FOOTER, shorten};
use crate::common::payload::Payload;
use crate::common::server::Builder;
use crate::common::{Reply, RespConnection, Server};
use crate::family::{FAMILIES, FILL, Family, words};
use crate::random::Random;
use crate::{mutate, number};

/// Processor time that one case may take.
fn slow() -> Duration {
    Duration::from_secs(number("FERROBLOOM_HOSTILE_SECONDS", 1))
}

/// A server that does not answer for so long hangs.
fn hang() -> Duration {
    10 * slow()
}

/// Memory that may be in use after a case beyond what was before all.
const LEFT_OVER: u64 = 64 << 20;

/// Cases between two looks at the memory.
const BETWEEN_LOOKS: u64 = 16;

/// The server's `maxmemory`: what is larger has to be refused.
const MAX_MEMORY: &str = "512mb";

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A changed payload is restored, and every command used on the key.
    Payload,
    /// A changed header and changed chunks of a dump are loaded, then the same.
    Chunks,
    /// Commands with bad arguments.
    Arguments,
}

/// All kinds.
const KINDS: [Kind; 3] = [Kind::Payload, Kind::Chunks, Kind::Arguments];

/// What became of the cases of one kind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    cases: u64,
    /// Payloads or headers that were taken.
    accepted: u64,
    crashes: u64,
    hangs: u64,
    slow: u64,
    memory: u64,
}

/// What became of all cases.
pub(crate) struct Outcome {
    family: &'static str,
    seed: u64,
    tallies: [Tally; 3],
    /// The first cases that failed, and how.
    failed: Vec<String>,
    most_memory: u64,
}

impl Outcome {
    /// Whether nothing went wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.tallies.iter().all(|t| t.crashes + t.hangs + t.slow + t.memory == 0)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, tally) in KINDS.iter().zip(self.tallies).filter(|(_, tally)| tally.cases > 0) {
            let Tally { cases, accepted, crashes, hangs, slow, memory } = tally;
            let (family, kind) = (self.family, format!("{kind:?}"));
            write!(f, "{family:8} {kind:10} {cases:6} cases, {accepted:6} accepted, ")?;
            write!(f, "{crashes} crashes, {hangs} hangs, {slow} slow, {memory} left memory")?;
            writeln!(f)?;
        }
        let peak = self.most_memory >> 20;
        writeln!(f, "{:8} seed {}, peak of used memory {peak} MiB", self.family, self.seed)?;
        self.failed.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// How a case can fail.
enum Failure {
    Crash,
    Hang,
}

/// A server under attack, with what is known of it.
struct Target {
    server: Server,
    connection: RespConnection,
    /// Memory in use before all cases.
    start: u64,
    payloads: Vec<Payload>,
    chunks: Vec<Chunked>,
}

/// A dump of one key in chunks: the header, then chunks with their iterators.
struct Chunked(Vec<(i64, Vec<u8>)>);

/// Runs `cases` on a family. `None` where the server lacks it.
pub(crate) fn run(builder: &Builder, family: &Family, seed: u64, cases: u64) -> Option<Outcome> {
    let mut target = Target::start(builder, family)?;
    let mut outcome = Outcome {
        family: family.name,
        seed,
        tallies: Default::default(),
        failed: Vec::new(),
        most_memory: 0,
    };
    for case in 0..cases {
        let mut random = Random::new(seed, case);
        let kind = match random.below(10) {
            0..=5 => Kind::Payload,
            6 | 7 if family.chunks.is_some() => Kind::Chunks,
            6 | 7 => Kind::Payload,
            _ => Kind::Arguments,
        };
        let commands = match kind {
            Kind::Payload => payload_case(&mut random, family, &target.payloads),
            Kind::Chunks => chunks_case(&mut random, family, &target.chunks),
            Kind::Arguments => arguments_case(&mut random, family),
        };
        let before = target.processor_time();
        let begin = Instant::now();
        let result = target.carry_out(&commands);
        let tally = &mut outcome.tallies[kind as usize];
        tally.cases += 1;
        let mut failed = |what: &str| {
            if outcome.failed.len() < 5 {
                let first: Vec<_> =
                    commands[0].iter().map(|word| word.escape_ascii().to_string()).collect();
                let first = shorten(&first.join(" "), 300);
                outcome.failed.push(format!("case {case} ({kind:?}): {what}: {first}"));
            }
        };
        match result {
            Ok(accepted) => {
                tally.accepted += u64::from(accepted);
                let used = target.processor_time().saturating_sub(before);
                if begin.elapsed() > slow() && used > slow() {
                    tally.slow += 1;
                    failed(&format!("took {used:?}"));
                }
                if case % BETWEEN_LOOKS == 0 || case + 1 == cases {
                    outcome.most_memory = outcome.most_memory.max(target.peak());
                    if target.server.used_memory() > target.start + LEFT_OVER {
                        tally.memory += 1;
                        failed("left memory in use");
                        target = Target::start(builder, family)?;
                    }
                }
            }
            Err(failure) => {
                match failure {
                    Failure::Crash => tally.crashes += 1,
                    Failure::Hang => tally.hangs += 1,
                }
                failed(match failure {
                    Failure::Crash => "crash",
                    Failure::Hang => "hang",
                });
                target = Target::start(builder, family)?;
            }
        }
    }
    Some(outcome)
}

impl Target {
    fn start(builder: &Builder, family: &Family) -> Option<Self> {
        let server = builder.clone().start();
        let mut connection = server.resp2();
        connection.set_timeout(hang());
        let of_family = |command: &&&str| command.starts_with(family.name);
        for seed in family.seeds.iter().chain(FILL.iter().filter(of_family)) {
            if let Reply::Error(text) = connection.call(&words(seed)) {
                assert!(text.starts_with("ERR unknown command"), "{seed}: {text}");
                return None;
            }
        }
        let mut payloads = Vec::new();
        let mut chunks = Vec::new();
        for seed in family.seeds {
            let key = words(seed)[1].clone();
            let dump = connection.call(&[b"DUMP".as_slice(), &key]);
            let dump = dump.bytes().expect("a payload");
            let value = Payload::parse(&dump[..dump.len() - FOOTER]);
            payloads.push(value.expect("a value without compression"));
            if let Some((scan, _)) = family.chunks {
                chunks.push(chunked(&mut connection, scan, &key));
            }
        }
        let start = server.used_memory();
        Some(Self { server, connection, start, payloads, chunks })
    }

    /// Sends the commands and reads all replies; whether the first was no error.
    fn carry_out(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<bool, Failure> {
        let mut first = None;
        for part in commands.chunks(16) {
            let sent = part.iter().try_for_each(|command| self.connection.send(command));
            if let Err(error) = sent {
                return Err(self.failure(&error));
            }
            for _ in part {
                let reply = self.connection.read().map_err(|error| self.failure(&error))?;
                first.get_or_insert(reply.error().is_none());
            }
        }
        Ok(first.unwrap_or(false))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::Hang,
            _ => Failure::Crash,
        }
    }

    fn peak(&self) -> u64 {
        self.server.info_number("memory", "used_memory_peak")
    }

    /// Processor time of the server so far.
    fn processor_time(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.server.pid());
        let stat = fs::read_to_string(path).unwrap_or_default();
        // Behind the name in brackets, the 12th and 13th field: user and system time
        // in hundredths of a second.
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(10 * ticks)
    }
}

fn chunked(connection: &mut RespConnection, scan: &str, key: &[u8]) -> Chunked {
    let mut parts = Vec::new();
    let mut iterator = 0_i64;
    loop {
        let reply = connection.call(&[scan.as_bytes(), key, iterator.to_string().as_bytes()]);
        let pair = reply.array().expect("iterator and chunk");
        iterator = pair[0].int().expect("an iterator");
        if iterator == 0 {
            return Chunked(parts);
        }
        parts.push((iterator, pair[1].bytes().expect("a chunk").to_vec()));
    }
}

fn payload_case(random: &mut Random, family: &Family, seeds: &[Payload]) -> Vec<Vec<Vec<u8>>> {
    let seed = &seeds[random.below(seeds.len())];
    let payload = mutate::payload(random, seed);
    let mut commands = vec![vec![b"RESTORE".to_vec(), b"k".to_vec(), b"0".to_vec(), payload]];
    use_and_delete(random, family, &mut commands);
    commands
}

fn chunks_case(random: &mut Random, family: &Family, seeds: &[Chunked]) -> Vec<Vec<Vec<u8>>> {
    let (_, load) = family.chunks.expect("a family with dump chunks");
    let dump = &seeds[random.below(seeds.len())];
    let mut commands = Vec::new();
    for (index, (iterator, chunk)) in dump.0.iter().enumerate() {
        let mut data = chunk.clone();
        let mut at = iterator.to_string().into_bytes();
        match (index, random.below(3)) {
            (0, 0 | 1) => data = mutate::header(random, data),
            (0, _) => {}
            (_, 0) => data = mutate::changed_bytes(random, data),
            (_, 1) => data.truncate(random.below(chunk.len() + 1)),
            _ => at = mutate::iterator(random, *iterator),
        }
        commands.push(vec![load.as_bytes().to_vec(), b"k".to_vec(), at, data]);
    }
    use_and_delete(random, family, &mut commands);
    commands
}

fn arguments_case(random: &mut Random, family: &Family) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    for _ in 0..1 + random.below(4) {
        let form = words(any_form(random, family));
        commands.push(mutate::command(random, form));
    }
    if random.once_in(2) {
        commands.extend(family.uses.iter().map(|command| words(command)));
    }
    // Keys by other names would stay, and be saved again and again.
    let keys = commands.iter().filter_map(|command| command.get(1));
    let mut delete = words("DEL k other");
    delete.extend(keys.filter(|key| !key.starts_with(b"seed:")).cloned());
    commands.push(delete);
    commands.push(words("PING"));
    commands
}

/// A sound command of the family.
pub(crate) fn any_form(random: &mut Random, family: &Family) -> &'static str {
    let forms = if random.once_in(3) { family.uses } else { family.forms };
    random.of(forms)
}

/// Every command of the family on the key, then what the server does with values.
fn use_and_delete(random: &mut Random, family: &Family, commands: &mut Vec<Vec<Vec<u8>>>) {
    commands.extend(family.uses.iter().map(|command| words(command)));
    commands.extend(["MEMORY USAGE k", "DUMP k", "COPY k other REPLACE"].map(words));
    if random.once_in(50) {
        commands.push(words("DEBUG RELOAD"));
    }
    commands.push(words("DEBUG DIGEST"));
    let uses = family.uses.iter().map(|command| words(command));
    commands.extend(uses.map(|mut words| {
        if words[1] == b"k" {
            words[1] = b"other".to_vec();
        }
        words
    }));
    commands.push(words(random.of(&["DEL k other", "UNLINK k other"])));
    commands.push(words("PING"));
}

/// How servers under attack are started.
pub(crate) fn builder() -> Builder {
    let builder = Server::builder();
    builder.config("rdbcompression no").config(&format!("maxmemory {MAX_MEMORY}"))
}

/// All families by name.
pub(crate) fn family(name: &str) -> &'static Family {
    FAMILIES.iter().find(|family| family.name == name).expect("a family")
}
