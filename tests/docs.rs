//! The examples of the README and of `docs/`, run on a real server: what they show is
//! what a reader gets.
//!
//! An example is a fenced block marked `redis`, or `redis resp3` for what `redis-cli -3`
//! shows. Lines that begin with the prompt are sent, the lines behind them are the
//! reply as `redis-cli` prints it. `...` in a reply stands for any text in its line:
//! what is random, or depends on the server. The blocks of a file are one session with a
//! new server.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Protocol, Reply, RespConnection, Server, own_arguments, skip};

const PROMPT: &str = "127.0.0.1:6379> ";

/// A command and the reply that is shown for it.
#[derive(Debug, PartialEq)]
struct Example {
    /// Where the command is, counted from 1.
    line: usize,
    protocol: Protocol,
    command: String,
    reply: Vec<String>,
}

#[test]
fn examples_in_the_documentation_get_the_replies_that_they_show() {
    if !own_arguments() {
        return;
    }
    let mut differences = Vec::new();
    let mut compared = 0;
    for path in files() {
        let server = Server::start();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("the file can be read");
        let mut resp2 = server.resp2();
        let has_resp3 = server.kind().has_resp3_forms();
        let mut resp3 = has_resp3.then(|| server.connect(Protocol::Resp3));
        for example in examples(&text) {
            let connection = match (example.protocol, &mut resp3) {
                (Protocol::Resp2, _) => &mut resp2,
                (Protocol::Resp3, Some(connection)) => connection,
                (Protocol::Resp3, None) => {
                    skip(&format!("{name}:{}: no RESP3 forms here", example.line));
                    // The examples behind it may build on it.
                    run(&mut resp2, &example.command);
                    continue;
                }
            };
            let got = run(connection, &example.command);
            compared += 1;
            let same = got.len() == example.reply.len()
                && got.iter().zip(&example.reply).all(|(got, shown)| is_shown(got, shown));
            if !same {
                differences.push(format!(
                    "{name}:{}: {}\n  shown:\n    {}\n  got:\n    {}",
                    example.line,
                    example.command,
                    example.reply.join("\n    "),
                    got.join("\n    ")
                ));
            }
        }
    }
    assert!(compared > 100, "only {compared} examples were found");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn blocks_of_other_languages_are_no_examples() {
    let text = "```sh\n127.0.0.1:6379> PING\nPONG\n```\n\
                ```redis\n127.0.0.1:6379> GET a\n(nil)\n\n127.0.0.1:6379> KEYS *\n1) \"a\"\n2) ...\n```\n\
                ```redis resp3\n127.0.0.1:6379> PING\nPONG\n```\n";
    let example = |line, protocol, command: &str, reply: &[&str]| Example {
        line,
        protocol,
        command: command.into(),
        reply: reply.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(
        examples(text),
        [
            example(6, Protocol::Resp2, "GET a", &["(nil)"]),
            example(9, Protocol::Resp2, "KEYS *", &["1) \"a\"", "2) ..."]),
            example(14, Protocol::Resp3, "PING", &["PONG"]),
        ]
    );
}

#[test]
fn replies_are_printed_as_redis_cli_prints_them() {
    let bulk = |text: &str| Reply::Bulk(text.into());
    for (reply, lines) in [
        (Reply::ok(), vec!["OK"]),
        (Reply::Error("ERR no".into()), vec!["(error) ERR no"]),
        (Reply::Int(-1), vec!["(integer) -1"]),
        (Reply::Null, vec!["(nil)"]),
        (Reply::Bool(true), vec!["(true)"]),
        (Reply::Double("0.5".into()), vec!["(double) 0.5"]),
        (Reply::Bulk(b"a\"\\\n\x00\xff".into()), vec![r#""a\"\\\n\x00\xff""#]),
        (Reply::Array(vec![]), vec!["(empty array)"]),
        (
            Reply::Array(vec![
                Reply::Int(1),
                Reply::Array(vec![bulk("a"), Reply::Null]),
                bulk("b"),
            ]),
            vec!["1) (integer) 1", "2) 1) \"a\"", "   2) (nil)", "3) \"b\""],
        ),
        (Reply::Map(vec![(Reply::Simple("k".into()), Reply::Int(3))]), vec!["1# k => (integer) 3"]),
    ] {
        assert_eq!(printed(&reply), lines);
    }
    let ten = printed(&Reply::Array(vec![Reply::Int(0); 10]));
    assert_eq!((ten[0].as_str(), ten[9].as_str()), (" 1) (integer) 0", "10) (integer) 0"));
}

#[test]
fn a_reply_that_differs_from_what_is_shown_is_noticed() {
    for (got, shown, same) in [
        ("(integer) 1", "(integer) 1", true),
        ("(integer) 1", "(integer) 0", false),
        ("(integer) 12", "(integer) 1", false),
        ("1) \"ferrobloom\\x00\"", "1) \"ferro...\"", true),
        ("1) \"other\"", "1) \"ferro...\"", false),
        ("abcabd", "...abd", true),
        ("abcabde", "...abd", false),
        ("2) \"0.10000000000000001\"", "2) \"0.1\"", true),
        ("2) \"0.11\"", "2) \"0.1\"", false),
        ("3) \"0.1\"", "2) \"0.1\"", false),
    ] {
        assert_eq!(is_shown(got, shown), same, "{got} {shown}");
    }
}

/// The README files and those of `docs/`, in order of their names.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_folder = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("the folder can be read");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let is_readme = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("README"))
    };
    let mut files: Vec<PathBuf> = in_folder(root).into_iter().filter(is_readme).collect();
    files.extend(in_folder(&root.join("docs")));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    files
}

/// The examples of a file.
fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    // What the block that a line is in is marked with.
    let mut mark: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(after) = line.strip_prefix("```") {
            mark = if mark.is_some() { None } else { Some(after.trim()) };
            continue;
        }
        let protocol = match mark {
            Some("redis") => Protocol::Resp2,
            Some("redis resp3") => Protocol::Resp3,
            _ => continue,
        };
        if let Some(command) = line.strip_prefix(PROMPT) {
            let command = command.to_owned();
            examples.push(Example { line: index + 1, protocol, command, reply: Vec::new() });
        } else if !line.is_empty() {
            let example = examples.last_mut().expect("a reply comes after a command");
            example.reply.push(line.to_owned());
        }
    }
    examples
}

/// Sends a command as it is typed at the prompt, and prints its reply.
fn run(connection: &mut RespConnection, command: &str) -> Vec<String> {
    let words = words(command);
    let reply = connection.call(&words);
    // The one reply that `redis-cli` prints as it is.
    match reply.text() {
        Some(text) if words[0].eq_ignore_ascii_case(b"INFO") => {
            text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
        }
        _ => printed(&reply),
    }
}

/// The words of a command line: separated by blanks, or in double quotes with the
/// escapes of `redis-cli`.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (word, after) = unquoted(quoted);
            words.push(word);
            rest = after.trim_start();
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            words.push(word.into());
            rest = after.trim_start();
        }
    }
    words
}

/// The bytes up to the closing quote, and what follows it.
fn unquoted(text: &str) -> (Vec<u8>, &str) {
    let mut word = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (word, &text[at + 1..]),
            '\\' => match chars.next().expect("a character after the backslash").1 {
                'n' => word.push(b'\n'),
                'r' => word.push(b'\r'),
                't' => word.push(b'\t'),
                'x' => {
                    let digits = &text[at + 2..at + 4];
                    word.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
                    chars.next();
                    chars.next();
                }
                other => word.extend(other.to_string().bytes()),
            },
            other => word.extend(other.to_string().bytes()),
        }
    }
    panic!("no closing quote: {text}");
}

/// A reply in the lines that `redis-cli` prints.
fn printed(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Null => vec!["(nil)".into()],
        // Texts of several lines are printed as they are.
        Reply::Simple(text) => text.lines().map(str::to_owned).collect(),
        Reply::Error(text) => vec![format!("(error) {text}")],
        Reply::Int(number) => vec![format!("(integer) {number}")],
        Reply::Bulk(bytes) => vec![quoted(bytes)],
        Reply::Bool(flag) => vec![format!("({flag})")],
        Reply::Double(text) => vec![format!("(double) {text}")],
        Reply::Big(text) => vec![text.clone()],
        Reply::Array(elements) => list(')', "(empty array)", elements.iter().map(printed)),
        Reply::Set(elements) => list('~', "(empty set)", elements.iter().map(printed)),
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| {
                let mut lines = printed(value);
                lines[0] = format!("{} => {}", printed(key).concat(), lines[0]);
                lines
            };
            list('#', "(empty hash)", pairs.iter().map(pair))
        }
    }
}

/// Elements with their numbers in front, and further lines of an element indented.
fn list(
    mark: char,
    empty: &str,
    elements: impl ExactSizeIterator<Item = Vec<String>>,
) -> Vec<String> {
    if elements.len() == 0 {
        return vec![empty.into()];
    }
    let width = elements.len().to_string().len();
    let mut lines = Vec::new();
    for (index, element) in elements.enumerate() {
        for (line, text) in element.into_iter().enumerate() {
            lines.push(match line {
                0 => format!("{:>width$}{mark} {text}", index + 1),
                _ => format!("{:width$}  {text}", ""),
            });
        }
    }
    lines
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', byte.into()]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            7 => text.push_str("\\a"),
            8 => text.push_str("\\b"),
            b' '..=b'~' => text.push(byte.into()),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text + "\""
}

/// Whether a line of a reply is what the documentation shows. A number that ends it may
/// have other digits: servers before Redis 7.2 print more of them.
fn is_shown(got: &str, shown: &str) -> bool {
    let mut parts = shown.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = got.strip_prefix(first) else {
        return same_number(got, shown);
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() || same_number(got, shown) };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn same_number(got: &str, shown: &str) -> bool {
    let split = |line: &str| {
        let (before, last) = line.rsplit_once(' ').unwrap_or(("", line));
        let number = last.trim_matches('"').parse::<f64>().ok()?;
        Some((before.to_owned(), number))
    };
    // Whole numbers are printed alike by all servers.
    let fraction = |line: &str| line.contains(['.', 'e']);
    (fraction(got) || fraction(shown)) && split(got).is_some() && split(got) == split(shown)
}
