//! `make bench`: this module and the real RedisBloom in the same server binary, in
//! turn, by the CPU time that the server's main thread takes per item.
//!
//! CPU time is steadier than wall time on a shared machine, and a run that was
//! disturbed only takes longer: so the two sides alternate within seconds, several
//! times, and the least of each counts. The floor is the same command on a key that
//! does not exist: parsing and replying without a filter.

mod cases;
mod report;
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cases::{Case, Stage};
use report::Row;
use server::Server;

/// What one side took for a case, in nanoseconds per item.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spread {
    /// The least of all rounds.
    pub(crate) least: f64,
    /// The median of all rounds.
    pub(crate) median: f64,
}

struct Options {
    server: PathBuf,
    module: PathBuf,
    peer: PathBuf,
    rounds: usize,
    only: String,
    out: Option<PathBuf>,
    scale: u64,
}

fn options() -> Result<Options, String> {
    let path = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .ok_or(format!("{name} is not set; use `make bench`"))
    };
    let number = |name: &str, otherwise| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    Ok(Options {
        server: path("FERROBLOOM_SERVER")?,
        module: path("FERROBLOOM_MODULE")?,
        peer: path("FERROBLOOM_PEER")?,
        rounds: number("ROUNDS", 12) as usize,
        only: std::env::var("ONLY").unwrap_or_default(),
        out: std::env::var_os("OUT").map(PathBuf::from),
        scale: number("SCALE", 1),
    })
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let mut rows = Vec::new();
    for stage in cases::stages(options.scale) {
        if stage.cases.iter().any(|case| case.name.contains(&options.only)) {
            rows.extend(run_stage(options, &stage)?);
        }
    }
    let memory = if options.only.is_empty() || "memory".contains(&options.only) {
        report::memory(&options.server, &options.module, &options.peer)?
    } else {
        Vec::new()
    };
    let markdown = report::markdown(&rows, &memory);
    println!("{markdown}");
    if let Some(out) = &options.out {
        let place = format!(
            "{}, {}, {} rounds",
            processor(),
            server_version(&options.server)?,
            options.rounds
        );
        report::write(out, &place, &markdown, &rows)?;
    }
    Ok(())
}

/// The make of the processor, and how many of it.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut names = info.lines().filter(|line| line.starts_with("model name"));
    let name = names.next().and_then(|line| line.split(": ").nth(1)).unwrap_or("a processor");
    format!("{} x {name}", 1 + names.count())
}

/// The server's make and version, as in `Redis server v=8.2.3`.
fn server_version(server: &Path) -> Result<String, String> {
    let output = Command::new(server).arg("--version").output();
    let output = output.map_err(|error| format!("{}: {error}", server.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

/// Prepares both sides alike, then runs the stage's cases on them in turn.
fn run_stage(options: &Options, stage: &Stage) -> Result<Vec<Row>, String> {
    let mut ours = Server::start(&options.server, &options.module)?;
    let mut peer = Server::start(&options.server, &options.peer)?;
    eprintln!("preparing: {}", stage.name);
    let prepare = &*stage.prepare;
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| prepare(&mut peer));
        prepare(&mut ours).and(theirs.join().map_err(|_| "preparing failed")?)
    })?;
    let mut rows = Vec::new();
    for case in stage.cases.iter().filter(|case| case.name.contains(&options.only)) {
        let row = run_case(options.rounds, case, &mut ours, &mut peer)?;
        eprintln!("  {}", row.line());
        rows.push(row);
    }
    Ok(rows)
}

fn run_case(
    rounds: usize,
    case: &Case,
    ours: &mut Server,
    peer: &mut Server,
) -> Result<Row, String> {
    let (mut our_times, mut peer_times, mut floor_times) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds as u64 {
        our_times.push((case.measure)(ours, case.key, round)?);
        peer_times.push((case.measure)(peer, case.key, round)?);
        if case.has_floor {
            floor_times.push((case.measure)(ours, "missing", round)?);
        }
    }
    Ok(Row {
        name: case.name,
        goal: case.goal,
        ours: spread(our_times),
        peer: spread(peer_times),
        floor: case.has_floor.then(|| spread(floor_times)),
    })
}

fn spread(mut times: Vec<f64>) -> Spread {
    times.sort_by(f64::total_cmp);
    Spread { least: times[0], median: times[times.len() / 2] }
}
