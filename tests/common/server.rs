//! A server process with the module, in a folder of its own, gone when dropped.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::kind::Kind;
use super::resp::{Protocol, Reply, RespConnection};
use super::{external_address, module, module_args, wait_until};

/// How long a server may take until it answers PING.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Held by whoever uses the server of `FERROBLOOM_URL`: tests empty its keyspace.
static EXTERNAL: Mutex<()> = Mutex::new(());

/// How a server is to be started. It saves, logs commands, replicates and clusters
/// only as far as the test says.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    program: PathBuf,
    /// The arguments of the module under test, if it is loaded.
    under_test: Option<Vec<String>>,
    modules: Vec<(PathBuf, Vec<String>)>,
    config: Vec<String>,
    arguments: Vec<String>,
}

impl Builder {
    fn new() -> Self {
        let program = env::var_os("FERROBLOOM_SERVER").filter(|program| !program.is_empty());
        Self {
            program: program.map_or_else(|| PathBuf::from("redis-server"), PathBuf::from),
            under_test: Some(Vec::new()),
            modules: Vec::new(),
            config: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Takes another server program than the one of `FERROBLOOM_SERVER`.
    pub(crate) fn program(mut self, program: &Path) -> Self {
        self.program = program.to_owned();
        self
    }

    /// The make and version of the server to be started.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of_program(&self.program)
    }

    /// Loads the module under test and no other, with these arguments, as in
    /// `["bf-error-rate", "0.02"]`.
    pub(crate) fn module_args(mut self, arguments: &[&str]) -> Self {
        self.modules.clear();
        self.under_test = Some(owned(arguments));
        self
    }

    /// Loads this module in place of the one under test.
    pub(crate) fn with_module(self, path: &Path, arguments: &[&str]) -> Self {
        self.without_module().and_module(path, arguments)
    }

    /// Loads this module too.
    pub(crate) fn and_module(mut self, path: &Path, arguments: &[&str]) -> Self {
        self.modules.push((path.to_owned(), owned(arguments)));
        self
    }

    /// Loads no module.
    pub(crate) fn without_module(mut self) -> Self {
        self.modules.clear();
        self.under_test = None;
        self
    }

    /// Adds a line to the configuration file, as in `appendonly yes`.
    pub(crate) fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// Adds arguments to the command line, as in `--cluster-enabled yes`.
    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(owned(arguments));
        self
    }

    /// Starts the server in a new folder and waits until it answers.
    ///
    /// # Panics
    /// With the server's log when it does not come up.
    pub(crate) fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server in a new folder that holds `dump` as `dump.rdb`.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub(crate) fn start_on(self, dump: &Path) -> Server {
        let folder = new_folder();
        fs::copy(dump, folder.path().join("dump.rdb")).expect("the dump can be copied");
        self.try_start_in(folder).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server in a new folder and waits until it answers.
    ///
    /// # Errors
    /// With the server's log when it refuses to start.
    pub(crate) fn try_start(self) -> Result<Server, String> {
        match external_address() {
            Some(address) => Ok(Server::external(address, &self)),
            None => self.try_start_in(new_folder()),
        }
    }

    fn try_start_in(self, mut folder: TempDir) -> Result<Server, String> {
        let kind = self.kind();
        let mut last_log = String::new();
        // Another process may take the port between the look and the start.
        for _ in 0..5 {
            let port = free_port();
            let mut server = Server {
                address: format!("127.0.0.1:{port}"),
                kind,
                own: Some(Own { builder: self.clone(), folder, port, process: None }),
                external: None,
            };
            match server.start_again_or_log() {
                Ok(()) => return Ok(server),
                Err(log) => last_log = log,
            }
            if !last_log.contains("Address already in use") {
                break;
            }
            let _ = fs::remove_file(server.own().folder.path().join("server.log"));
            let own = server.own.take().expect("the server is our own");
            Server::kill(own.process);
            folder = own.folder;
        }
        Err(last_log)
    }

    fn config_file(&self, kind: Kind, port: u16, folder: &Path) -> String {
        let mut lines = vec![
            format!("port {port}"),
            "bind 127.0.0.1".into(),
            format!("dir \"{}\"", folder.display()),
            "save \"\"".into(),
            "repl-diskless-sync-delay 0".into(),
        ];
        if !kind.is_redis_6() {
            lines.push("enable-debug-command yes".into());
            lines.push("enable-module-command yes".into());
        }
        let under_test = self.under_test.iter().map(|wanted| (module(), module_args(wanted)));
        for (path, arguments) in under_test.chain(self.modules.iter().cloned()) {
            let quoted: Vec<_> = arguments.iter().map(|a| format!(" \"{a}\"")).collect();
            lines.push(format!("loadmodule \"{}\"{}", path.display(), quoted.concat()));
        }
        lines.extend(self.config.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// A running server; killed, and its folder removed, when dropped.
pub(crate) struct Server {
    address: String,
    kind: Kind,
    /// `None` for the server of `FERROBLOOM_URL`.
    own: Option<Own>,
    external: Option<External>,
}

struct Own {
    builder: Builder,
    folder: TempDir,
    port: u16,
    process: Option<Child>,
}

struct External {
    /// The layout to set back, where the test changed it.
    layout: Option<String>,
    _turn: MutexGuard<'static, ()>,
}

impl Server {
    /// A server with the module under test and its defaults.
    ///
    /// # Panics
    /// With the server's log when it does not come up.
    pub(crate) fn start() -> Self {
        Self::builder().start()
    }

    /// How to start a server, with the module under test unless said otherwise.
    pub(crate) fn builder() -> Builder {
        Builder::new()
    }

    fn external(address: String, builder: &Builder) -> Self {
        let plain =
            builder.modules.is_empty() && builder.config.is_empty() && builder.arguments.is_empty();
        let arguments = builder.under_test.as_deref().filter(|_| plain);
        let layout = match arguments {
            Some([]) => None,
            Some([name, layout]) if name == "bf-layout" => Some(layout.clone()),
            _ => panic!("this test needs a server of its own: it must ask `own_server` first"),
        };
        let turn = EXTERNAL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = RespConnection::open(&address, Protocol::Resp2)
            .unwrap_or_else(|error| panic!("FERROBLOOM_URL: no server at {address}: {error}"));
        let info = connection.line("INFO server");
        let kind = Kind::of_info(info.text().expect("INFO is text"));
        assert_eq!(connection.line("FLUSHALL"), Reply::ok());
        let before = layout.map(|layout| {
            let name = kind.setting("bf-layout");
            let before = connection.call(&["CONFIG", "GET", &name]);
            let before = before.array().and_then(|pair| pair.get(1)?.text()).map(str::to_owned);
            assert_eq!(connection.call(&["CONFIG", "SET", &name, &layout]), Reply::ok());
            before.expect("the server has the setting bf-layout")
        });
        let external = External { layout: before, _turn: turn };
        Self { address, kind, own: None, external: Some(external) }
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The port on 127.0.0.1.
    ///
    /// # Panics
    /// For the server of `FERROBLOOM_URL`, as every method that needs the process.
    pub(crate) fn port(&self) -> u16 {
        self.own().port
    }

    /// The server's make and version.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The server's working folder, where `dump.rdb` lies.
    pub(crate) fn folder(&self) -> &Path {
        self.own().folder.path()
    }

    /// The process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.own().process.as_ref().expect("the server runs").id()
    }

    /// All that the server has logged since its folder was made.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(self.folder().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the process runs: `false` after a crash.
    pub(crate) fn is_alive(&mut self) -> bool {
        match &mut self.own {
            None => RespConnection::open(&self.address, Protocol::Resp2)
                .and_then(|mut connection| connection.command(&["PING"]))
                .is_ok(),
            Some(own) => {
                own.process.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
            }
        }
    }

    /// A connection with exact reply types.
    ///
    /// # Panics
    /// When the server does not answer.
    pub(crate) fn connect(&self, protocol: Protocol) -> RespConnection {
        RespConnection::open(&self.address, protocol)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.address))
    }

    /// A RESP2 connection with exact reply types.
    pub(crate) fn resp2(&self) -> RespConnection {
        self.connect(Protocol::Resp2)
    }

    /// A RESP3 connection with exact reply types.
    pub(crate) fn resp3(&self) -> RespConnection {
        self.connect(Protocol::Resp3)
    }

    /// A connection of the `redis` crate, RESP2.
    ///
    /// # Panics
    /// When the server does not answer.
    pub(crate) fn redis(&self) -> redis::Connection {
        self.redis_at("")
    }

    /// A connection of the `redis` crate, RESP3.
    ///
    /// # Panics
    /// When the server does not answer.
    pub(crate) fn redis_resp3(&self) -> redis::Connection {
        self.redis_at("/?protocol=resp3")
    }

    fn redis_at(&self, options: &str) -> redis::Connection {
        let client = redis::Client::open(format!("redis://{}{options}", self.address));
        let connection = client.and_then(|client| client.get_connection());
        connection.unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.address))
    }

    /// A field of an INFO section, `None` where the server has no such field.
    pub(crate) fn info(&self, section: &str, field: &str) -> Option<String> {
        info_field(&self.resp2().call(&["INFO", section]), field)
    }

    /// A field of an INFO section that is a number.
    ///
    /// # Panics
    /// When there is no such field or it is no number.
    pub(crate) fn info_number(&self, section: &str, field: &str) -> u64 {
        let value = self.info(section, field);
        let number = value.as_deref().and_then(|value| value.parse().ok());
        number.unwrap_or_else(|| panic!("INFO {section} has no number {field}: {value:?}"))
    }

    /// Bytes that the server's allocator has handed out (`used_memory`).
    pub(crate) fn used_memory(&self) -> u64 {
        self.info_number("memory", "used_memory")
    }

    /// Bytes of memory that the process really holds.
    pub(crate) fn rss(&self) -> u64 {
        if self.own.is_none() {
            return self.info_number("memory", "used_memory_rss");
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.expect("the status has VmRSS") * 1024
    }

    /// Shuts down in good order, saving as configured; the folder stays.
    ///
    /// # Panics
    /// When the server does not stop.
    pub(crate) fn stop(&mut self) {
        // The server closes the connection instead of answering.
        let _ = self.resp2().command(&["SHUTDOWN"]);
        let mut process = self.own_mut().process.take().expect("the server runs");
        let deadline = Instant::now() + START_TIMEOUT;
        while matches!(process.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                Self::kill(Some(process));
                panic!("the server did not shut down:\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the process at once (SIGKILL), as a power cut would; the folder stays.
    pub(crate) fn kill9(&mut self) {
        Self::kill(self.own_mut().process.take());
    }

    /// Starts the stopped server again, on the data and the port it had.
    ///
    /// # Panics
    /// With the server's log when it does not come up.
    pub(crate) fn start_again(&mut self) {
        self.start_again_or_log().unwrap_or_else(|log| panic!("the server did not start:\n{log}"));
    }

    /// Starts the stopped server again, on the data and the port it had.
    ///
    /// # Errors
    /// With the server's log when it refuses to start.
    pub(crate) fn try_start_again(&mut self) -> Result<(), String> {
        self.start_again_or_log()
    }

    /// Saves, shuts down and starts again on the saved data.
    ///
    /// # Panics
    /// When saving or starting fails.
    pub(crate) fn restart(&mut self) {
        self.restart_with(|builder| builder);
    }

    /// As [`restart`](Self::restart), with other modules or settings.
    pub(crate) fn restart_with(&mut self, change: impl FnOnce(Builder) -> Builder) {
        if self.info("persistence", "aof_enabled").as_deref() != Some("1") {
            self.save();
        }
        self.stop();
        self.change(change);
        self.start_again();
    }

    /// Changes how the stopped server will start.
    pub(crate) fn change(&mut self, change: impl FnOnce(Builder) -> Builder) {
        let own = self.own_mut();
        own.builder = change(own.builder.clone());
    }

    /// Writes `dump.rdb` and waits for it.
    ///
    /// # Panics
    /// When the server cannot save.
    pub(crate) fn save(&self) {
        assert_eq!(self.resp2().line("SAVE"), Reply::ok());
    }

    /// Writes `dump.rdb` in a forked child and waits until that is done.
    ///
    /// # Panics
    /// When the child fails.
    pub(crate) fn bgsave(&self) {
        let mut connection = self.resp2();
        let reply = connection.line("BGSAVE");
        assert!(reply.text().is_some(), "BGSAVE says {reply}");
        wait_until("BGSAVE ends", || {
            let info = connection.line("INFO persistence");
            info_field(&info, "rdb_bgsave_in_progress").as_deref() == Some("0")
        });
        assert_eq!(self.info("persistence", "rdb_last_bgsave_status").as_deref(), Some("ok"));
    }

    /// Rewrites the append-only file and waits until that is done.
    ///
    /// # Panics
    /// When the rewrite fails.
    pub(crate) fn rewrite_aof(&self) {
        let mut connection = self.resp2();
        // Turning the AOF on starts a rewrite of its own.
        let idle = |connection: &mut RespConnection| {
            let info = connection.line("INFO persistence");
            let zero = |field| info_field(&info, field).as_deref() == Some("0");
            zero("aof_rewrite_in_progress") && zero("aof_rewrite_scheduled")
        };
        wait_until("an AOF rewrite that runs already ends", || idle(&mut connection));
        let reply = connection.line("BGREWRITEAOF");
        assert!(reply.text().is_some(), "BGREWRITEAOF says {reply}");
        wait_until("BGREWRITEAOF ends", || idle(&mut connection));
        assert_eq!(self.info("persistence", "aof_last_bgrewrite_status").as_deref(), Some("ok"));
    }

    /// Saves, empties and loads the keyspace in the running server (`DEBUG RELOAD`).
    ///
    /// # Panics
    /// When the server refuses.
    pub(crate) fn debug_reload(&self) {
        assert_eq!(self.resp2().line("DEBUG RELOAD"), Reply::ok());
    }

    /// Makes the server a replica and waits until it has the primary's data.
    ///
    /// # Panics
    /// When it does not get there.
    pub(crate) fn replica_of(&self, primary: &Self) {
        let port = primary.port().to_string();
        assert_eq!(self.resp2().call(&["REPLICAOF", "127.0.0.1", &port]), Reply::ok());
        self.wait_for_sync(primary);
    }

    /// Waits until the replica has carried out all that its primary has done so far.
    ///
    /// # Panics
    /// When it does not get there.
    pub(crate) fn wait_for_sync(&self, primary: &Self) {
        let goal = primary.info_number("replication", "master_repl_offset");
        let mut connection = self.resp2();
        wait_until("the replica is in step", || {
            let info = connection.line("INFO replication");
            let offset = info_field(&info, "slave_repl_offset").and_then(|o| o.parse().ok());
            info_field(&info, "master_link_status").as_deref() == Some("up")
                && offset.is_some_and(|offset: u64| offset >= goal)
        });
    }

    /// The DUMP of every key of database 0, sorted by name, without the payloads' footers.
    ///
    /// # Panics
    /// When a key cannot be dumped.
    pub(crate) fn dump_all(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.dump_database(0)
    }

    /// As [`dump_all`](Self::dump_all), of another database.
    ///
    /// # Panics
    /// When there is no such database or a key cannot be dumped.
    pub(crate) fn dump_database(&self, number: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut connection = self.resp2();
        assert_eq!(connection.line(&format!("SELECT {number}")), Reply::ok());
        let keys = connection.line("KEYS *");
        let keys = keys.array().expect("KEYS is a list");
        let mut keys: Vec<_> = keys.iter().filter_map(|key| Some(key.bytes()?.to_vec())).collect();
        keys.sort();
        let mut dump = |key: Vec<u8>| {
            let payload = connection.call(&[b"DUMP".as_slice(), &key]);
            let payload = payload.bytes().unwrap_or_else(|| panic!("no DUMP: {payload}"));
            (key, payload[..payload.len() - super::golden::FOOTER].to_vec())
        };
        keys.into_iter().map(&mut dump).collect()
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("this test needs a server of its own: ask `own_server` first")
    }

    fn own_mut(&mut self) -> &mut Own {
        self.own.as_mut().expect("this test needs a server of its own: ask `own_server` first")
    }

    fn start_again_or_log(&mut self) -> Result<(), String> {
        let kind = self.kind;
        let address = self.address.clone();
        let own = self.own_mut();
        assert!(own.process.is_none(), "the server runs already");
        let folder = own.folder.path();
        let config = own.builder.config_file(kind, own.port, folder);
        fs::write(folder.join("server.conf"), config).expect("the configuration can be written");
        let process = Command::new(&own.builder.program)
            .arg(folder.join("server.conf"))
            .args(&own.builder.arguments)
            .stdin(Stdio::null())
            .stdout(log_file(folder))
            .stderr(log_file(folder))
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run {}: {error}", own.builder.program.display())
            });
        let pid = process.id();
        own.process = Some(process);
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if !self.is_alive() {
                self.own_mut().process = None;
                return Err(self.log());
            }
            if answers(&address, pid) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.kill9();
        Err(format!("{}\n(no answer in time)", self.log()))
    }

    fn kill(process: Option<Child>) {
        if let Some(mut process) = process {
            // It may be gone already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(External { layout: Some(layout), .. }) = &self.external {
            let name = self.kind.setting("bf-layout");
            let connection = RespConnection::open(&self.address, Protocol::Resp2);
            let _ = connection.and_then(|mut c| c.command(&["CONFIG", "SET", &name, layout]));
        }
        if self.own.is_some() {
            if thread::panicking() {
                let log = self.log();
                let lines: Vec<_> = log.lines().collect();
                let tail = &lines[lines.len().saturating_sub(15)..];
                eprintln!("the end of the server's log:\n{}", tail.join("\n"));
            }
            self.kill9();
        }
    }
}

/// A field of a reply to INFO.
fn info_field(info: &Reply, field: &str) -> Option<String> {
    let value = |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned);
    info.text()?.lines().find_map(|line| value(line.trim_end()))
}

/// Whether the process `pid`, and no other, answers at the address and has loaded its data.
fn answers(address: &str, pid: u32) -> bool {
    let Ok(mut connection) = RespConnection::open(address, Protocol::Resp2) else {
        return false;
    };
    let Ok(Reply::Simple(pong)) = connection.command(&["PING"]) else {
        return false;
    };
    let Ok(info) = connection.command(&["INFO", "server"]) else {
        return false;
    };
    pong == "PONG" && info_field(&info, "process_id") == Some(pid.to_string())
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn new_folder() -> TempDir {
    tempfile::Builder::new().prefix("ferrobloom-").tempdir().expect("a temporary folder")
}

fn log_file(folder: &Path) -> File {
    let path = folder.join("server.log");
    OpenOptions::new().create(true).append(true).open(path).expect("a log file")
}

/// A port that nobody listens on, below those that the system hands out for
/// outgoing connections, and low enough for a cluster bus 10,000 above.
fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let offset = id().wrapping_mul(37).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + offset % COUNT).expect("ports fit 16 bits");
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port + 10_000) {
            return port;
        }
    }
    panic!("no free port");
}
