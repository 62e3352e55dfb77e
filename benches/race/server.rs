//! A server with one module, driven over a pipeline, and the CPU time of its main
//! thread.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server without persistence on a free port of the loopback.
    pub(crate) fn start(server: &Path, module: &Path) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| error.to_string())?
            .port();
        let child = Command::new(server)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--dir"])
            .arg(folder.path())
            .arg("--loadmodule")
            .arg(module)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", server.display()))?;
        let stream = connect(port)?;
        let replies = BufReader::with_capacity(
            1 << 20,
            stream.try_clone().map_err(|error| error.to_string())?,
        );
        let mut server = Self { child, stream, replies, _folder: folder };
        server.command(&[b"PING"])?;
        Ok(server)
    }

    /// Sends one command and reads its reply.
    pub(crate) fn command(&mut self, words: &[&[u8]]) -> Result<String, String> {
        let mut bytes = Vec::new();
        encode(&mut bytes, words);
        self.send(&bytes)?;
        self.last_reply()
    }

    /// Sends encoded commands and reads as many replies.
    pub(crate) fn pipeline(&mut self, bytes: &[u8], commands: usize) -> Result<(), String> {
        self.send(bytes)?;
        for _ in 0..commands {
            self.last_reply()?;
        }
        Ok(())
    }

    /// [`pipeline`](Self::pipeline), with the CPU time that the server took for it,
    /// in nanoseconds.
    pub(crate) fn timed(&mut self, bytes: &[u8], commands: usize) -> Result<f64, String> {
        let before = self.cpu_time()?;
        self.pipeline(bytes, commands)?;
        Ok((self.cpu_time()? - before) as f64)
    }

    /// A number of `INFO memory`.
    pub(crate) fn used_memory(&mut self) -> Result<u64, String> {
        let info = self.command(&[b"INFO", b"memory"])?;
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|value| value.trim().parse().ok()).ok_or("no used_memory".into())
    }

    /// CPU time of the server's main thread so far, in nanoseconds.
    fn cpu_time(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/schedstat", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let first = text.split_whitespace().next().and_then(|field| field.parse().ok());
        first.ok_or(format!("{path} is not understood"))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| error.to_string())
    }

    /// Reads one reply whole; of an array the last element is returned.
    fn last_reply(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.replies.read_line(&mut line).map_err(|error| error.to_string())?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or("the server closed the connection")?;
        match kind {
            "-" => Err(format!("the server answered: {rest}")),
            "*" => {
                let mut last = String::new();
                for _ in 0..rest.parse().unwrap_or(0) {
                    last = self.last_reply()?;
                }
                Ok(last)
            }
            "$" => {
                let Ok(length) = rest.parse::<usize>() else { return Ok(String::new()) };
                let mut bytes = vec![0; length + 2];
                self.replies.read_exact(&mut bytes).map_err(|error| error.to_string())?;
                bytes.truncate(length);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => Ok(rest.to_owned()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| error.to_string())?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > deadline => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Appends a command in RESP.
pub(crate) fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
