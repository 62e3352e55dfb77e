//! A bare RESP client that keeps the exact type of every reply: clients made for
//! applications turn booleans into integers and errors into exceptions, and so
//! cannot show that a reply has the right form.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

/// How long a reply may take before the server counts as hanging.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// The protocol version that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// RESP2, what a connection speaks before `HELLO 3`.
    Resp2,
    /// RESP3: booleans, doubles, maps and nulls have forms of their own.
    Resp3,
}

/// One reply, in the types of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// `$-1`, `*-1` or `_`.
    Null,
    /// `+text`.
    Simple(String),
    /// `-text`, without the dash.
    Error(String),
    /// `:number`.
    Int(i64),
    /// `$length` or a verbatim string.
    Bulk(Vec<u8>),
    /// `*count` or a push message.
    Array(Vec<Reply>),
    /// `%count`, in the order sent.
    Map(Vec<(Reply, Reply)>),
    /// `~count`, in the order sent.
    Set(Vec<Reply>),
    /// `#t` or `#f`.
    Bool(bool),
    /// `,text`: the text, since formatting is part of the protocol.
    Double(String),
    /// `(digits`.
    Big(String),
}

impl Reply {
    /// The `+OK` of a command that has nothing to tell.
    pub(crate) fn ok() -> Self {
        Self::Simple("OK".into())
    }

    /// The bytes of a bulk string, `None` for any other type.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a simple or bulk string, `None` for any other type or bytes that are not UTF-8.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Simple(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The value of an integer reply, `None` for any other type.
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array, `None` for any other type.
    pub(crate) fn array(&self) -> Option<&[Reply]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text of an error reply, `None` for any other type.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }

    /// The reply with each of its elements, and key or value of a map, changed.
    pub(crate) fn map_elements(self, change: impl Fn(Self) -> Self) -> Self {
        match self {
            Self::Array(elements) => Self::Array(elements.into_iter().map(change).collect()),
            Self::Set(elements) => Self::Set(elements.into_iter().map(change).collect()),
            Self::Map(pairs) => {
                Self::Map(pairs.into_iter().map(|(k, v)| (change(k), change(v))).collect())
            }
            other => other,
        }
    }

    /// Reads a reply as the golden files spell it (see `tests/golden/README.md`).
    ///
    /// # Panics
    /// On a spelling that the golden files do not have.
    pub(crate) fn from_golden(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => Self::Int(number.as_i64().expect("integers fit 64 bits")),
            Value::String(text) => Self::Bulk(text.clone().into_bytes()),
            Value::Array(elements) => Self::Array(elements.iter().map(Self::from_golden).collect()),
            Value::Object(object) => {
                let (kind, inner) = object.iter().next().expect("a typed reply has a kind");
                let text = || inner.as_str().expect("text").to_owned();
                match kind.as_str() {
                    "ok" => Self::Simple(text()),
                    "error" => Self::Error(text()),
                    "double" => Self::Double(text()),
                    "big" => Self::Big(text()),
                    "b64" => Self::Bulk(BASE64.decode(text()).expect("base64")),
                    "set" => Self::Set(golden_list(inner)),
                    "map" => Self::Map(golden_pairs(inner)),
                    other => panic!("unknown kind of reply in a golden file: {other}"),
                }
            }
        }
    }

    /// Whether the two replies are the same to a client. Doubles are compared by
    /// value; with `loose_numbers` so are bulk strings that are numbers, because
    /// servers up to 7.0 print a double with other digits.
    pub(crate) fn same(&self, other: &Self, loose_numbers: bool) -> bool {
        let all = |a: &[Self], b: &[Self]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b, loose_numbers))
        };
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => a == b || same_number(a, b),
            (Self::Bulk(_), Self::Bulk(_)) if loose_numbers => {
                self == other
                    || matches!((self.text(), other.text()), (Some(a), Some(b)) if same_number(a, b))
            }
            (Self::Array(a), Self::Array(b)) | (Self::Set(a), Self::Set(b)) => all(a, b),
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|(a, b)| {
                        a.0.same(&b.0, loose_numbers) && a.1.same(&b.1, loose_numbers)
                    })
            }
            _ => self == other,
        }
    }
}

fn golden_list(value: &Value) -> Vec<Reply> {
    value.as_array().expect("a list").iter().map(Reply::from_golden).collect()
}

fn golden_pairs(value: &Value) -> Vec<(Reply, Reply)> {
    let pair = |pair: &Value| (Reply::from_golden(&pair[0]), Reply::from_golden(&pair[1]));
    value.as_array().expect("a list of pairs").iter().map(pair).collect()
}

/// A command's argument as the golden files spell it: text, a number or `{"b64": ...}`.
///
/// # Panics
/// On anything else.
pub(crate) fn golden_argument(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        Value::Number(number) => number.to_string().into_bytes(),
        Value::Object(object) => {
            BASE64.decode(object["b64"].as_str().expect("base64 text")).expect("base64")
        }
        other => panic!("unknown kind of argument in a golden file: {other}"),
    }
}

fn same_number(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b || (a.is_nan() && b.is_nan()),
        _ => false,
    }
}

/// Prints a reply in one line, much like the golden files do.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Bool(flag) => write!(f, "#{flag}"),
            Self::Double(text) => write!(f, ",{text}"),
            Self::Big(text) => write!(f, "({text}"),
            Self::Array(elements) => list(f, "[", elements),
            Self::Set(elements) => list(f, "~[", elements),
            Self::Map(pairs) => {
                f.write_str("{")?;
                for (key, value) in pairs {
                    write!(f, "{key}: {value}, ")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, open: &str, elements: &[Reply]) -> fmt::Result {
    f.write_str(open)?;
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{element}")?;
    }
    f.write_str("]")
}

/// A connection that sends commands as given and reads replies as sent.
pub(crate) struct RespConnection {
    stream: BufReader<TcpStream>,
    /// The bytes of the reply read last.
    raw: Vec<u8>,
}

impl RespConnection {
    /// Connects to `address` (`host:port`) and switches to the protocol asked for.
    ///
    /// # Errors
    /// When nobody listens, or the server does not know the protocol.
    pub(crate) fn open(address: &str, protocol: Protocol) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream: BufReader::new(stream), raw: Vec::new() };
        if protocol == Protocol::Resp3 {
            let reply = connection.command(&["HELLO", "3"])?;
            if let Reply::Error(text) = reply {
                return Err(io::Error::other(text));
            }
        }
        Ok(connection)
    }

    /// How long to wait for replies from now on, in place of a minute.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        let set = self.stream.get_ref().set_read_timeout(Some(timeout));
        set.expect("a timeout can be set on a socket");
    }

    /// Sends one command and reads its reply; an error reply is a reply.
    ///
    /// # Errors
    /// When the server closes the connection, does not answer in time or breaks the protocol.
    pub(crate) fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        self.send(arguments)?;
        self.read()
    }

    /// As [`command`](Self::command), for tests in which the connection never fails.
    ///
    /// # Panics
    /// When the server closes the connection or does not answer in time.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.command(arguments).unwrap_or_else(|error| {
            let words: Vec<_> =
                arguments.iter().map(|a| a.as_ref().escape_ascii().to_string()).collect();
            panic!("no reply to {}: {error}", words.join(" "))
        })
    }

    /// The command of a test in one string, split at spaces: `line("BF.ADD key a")`.
    ///
    /// # Panics
    /// As [`call`](Self::call).
    pub(crate) fn line(&mut self, command: &str) -> Reply {
        let words: Vec<&str> = command.split_whitespace().collect();
        self.call(&words)
    }

    /// Sends one command and does not wait, for pipelines.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// When the server closes the connection, does not answer in time or breaks the protocol.
    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        self.raw.clear();
        self.read_value()
    }

    /// The bytes of the reply read last, as they came.
    pub(crate) fn last_bytes(&self) -> &[u8] {
        &self.raw
    }

    fn read_value(&mut self) -> io::Result<Reply> {
        let start = self.raw.len();
        if self.stream.read_until(b'\n', &mut self.raw)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&self.raw[start..]).into_owned();
        let Some(line) = line.strip_suffix("\r\n").filter(|line| !line.is_empty()) else {
            return Err(io::Error::other(format!("not a reply: {line:?}")));
        };
        let (kind, rest) = line.split_at(1);
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(rest.parse().map_err(io::Error::other)?),
            "," => Reply::Double(rest.to_owned()),
            "(" => Reply::Big(rest.to_owned()),
            "#" => Reply::Bool(rest == "t"),
            "_" => Reply::Null,
            "$" | "=" => match length(rest)? {
                None => Reply::Null,
                Some(length) => Reply::Bulk(self.read_bulk(length)?),
            },
            "*" | ">" => match length(rest)? {
                None => Reply::Null,
                Some(count) => Reply::Array(self.read_values(count)?),
            },
            "~" => Reply::Set(self.read_values(length(rest)?.unwrap_or(0))?),
            "%" => {
                let flat = self.read_values(2 * length(rest)?.unwrap_or(0))?;
                let mut flat = flat.into_iter();
                let mut pairs = Vec::new();
                while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                    pairs.push((key, value));
                }
                Reply::Map(pairs)
            }
            _ => return Err(io::Error::other(format!("not a reply: {line:?}"))),
        })
    }

    fn read_values(&mut self, count: usize) -> io::Result<Vec<Reply>> {
        (0..count).map(|_| self.read_value()).collect()
    }

    fn read_bulk(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let start = self.raw.len();
        self.raw.resize(start + length + 2, 0);
        self.stream.read_exact(&mut self.raw[start..])?;
        Ok(self.raw[start..start + length].to_vec())
    }
}

/// The count after `$`, `*`, `~` or `%`; `None` for the null of RESP2.
fn length(text: &str) -> io::Result<Option<usize>> {
    let number: i64 = text.parse().map_err(io::Error::other)?;
    Ok(usize::try_from(number).ok())
}
