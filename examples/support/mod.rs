//! What the examples share: a server to talk to, numbers from the command line and
//! a count of what is done.
//!
//! Every example takes the server of `FERROBLOOM_URL` (`redis://host:port`), or
//! starts one of its own: the program of `FERROBLOOM_SERVER`, `redis-server` if
//! unset, with the module of `FERROBLOOM_MODULE` or the one that `make build` made.

#![allow(dead_code, reason = "each example uses the part it needs")]

use std::env;
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What an example's functions fail with.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A running server with the module; one that was started here ends with this value.
pub(crate) struct Server {
    client: redis::Client,
    own: Option<(Child, tempfile::TempDir)>,
}

impl Server {
    /// The server of `FERROBLOOM_URL`, or a new one.
    ///
    /// # Errors
    ///
    /// Where the program or the module is missing, or no server answers.
    pub(crate) fn find() -> Result<Self, Failure> {
        if let Some(url) = env::var("FERROBLOOM_URL").ok().filter(|url| !url.is_empty()) {
            return Ok(Self { client: redis::Client::open(url)?, own: None });
        }
        let program = env::var("FERROBLOOM_SERVER").ok().filter(|program| !program.is_empty());
        let program = program.unwrap_or_else(|| "redis-server".to_owned());
        let module = module()?;
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new(&program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
            .arg(folder.path())
            .arg("--loadmodule")
            .arg(module)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
        let mut server = Self { client, own: Some((process, folder)) };
        server.wait()?;
        Ok(server)
    }

    /// A client of the server; it opens as many connections as wanted.
    pub(crate) fn client(&self) -> &redis::Client {
        &self.client
    }

    fn wait(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if self.client.get_connection().is_ok() {
                return Ok(());
            }
            let ended = match &mut self.own {
                Some((process, _)) => process.try_wait()?,
                None => None,
            };
            if let Some(status) = ended {
                return Err(format!("the server did not start: {status}").into());
            }
            if Instant::now() > deadline {
                return Err("the server does not answer".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.own {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The module of `FERROBLOOM_MODULE`, or the one built beside this example:
/// Cargo's target folder has the example in `debug/examples` or `release/examples`.
fn module() -> Result<PathBuf, Failure> {
    let path = match env::var_os("FERROBLOOM_MODULE") {
        Some(path) => PathBuf::from(path),
        None => {
            let example = env::current_exe()?;
            let target = example.ancestors().nth(3).ok_or("the example has no target folder")?;
            target.join("release/libferrobloom.so")
        }
    };
    let found = path.canonicalize();
    found.map_err(|_| format!("no module at {}: run `make build`", path.display()).into())
}

/// The number that is argument `position` (from 1) of the command line, or `default`.
///
/// # Errors
///
/// Where the argument is no number.
pub(crate) fn number(position: usize, default: u64) -> Result<u64, Failure> {
    let Some(word) = env::args().nth(position) else {
        return Ok(default);
    };
    word.replace(['_', ','], "").parse().map_err(|_| format!("not a number: {word}").into())
}

/// `number` with commas between the thousands.
pub(crate) fn commas(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Tells on standard error how much of a long task is done; silent where nobody reads.
pub(crate) struct Progress {
    task: &'static str,
    total: u64,
    shown: Instant,
    visible: bool,
}

impl Progress {
    /// Of a task of `total` steps.
    pub(crate) fn new(task: &'static str, total: u64) -> Self {
        let visible = std::io::stderr().is_terminal();
        Self { task, total, shown: Instant::now(), visible }
    }

    /// Says that `done` steps are done, ten times a second at most.
    pub(crate) fn at(&mut self, done: u64) {
        let due = self.shown.elapsed() > Duration::from_millis(100) || done == self.total;
        if !self.visible || !due {
            return;
        }
        self.shown = Instant::now();
        let end = if done == self.total { "\n" } else { "" };
        eprint!("\r{}: {} of {}{end}", self.task, commas(done), commas(self.total));
        // Nothing depends on it.
        let _ = std::io::stderr().flush();
    }
}
