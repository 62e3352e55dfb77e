//! The table and the chart of a race, and the memory that keys take.

use std::fmt::Write as _;
use std::path::Path;

use crate::Spread;
use crate::server::{Server, encode};

/// A measured case.
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: &'static str,
    /// How many times faster than the peer it has to be.
    pub(crate) goal: f64,
    /// This module.
    pub(crate) ours: Spread,
    /// RedisBloom.
    pub(crate) peer: Spread,
    /// The command without a filter, where there is such a thing.
    pub(crate) floor: Option<Spread>,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.peer.least / self.ours.least
    }

    /// The row as a line of text.
    pub(crate) fn line(&self) -> String {
        let floor = self.floor.map_or(String::new(), |floor| format!(", floor {:.0}", floor.least));
        format!(
            "{}: {:.0} ns against {:.0} ns{floor}: {:.2} times as fast (goal {})",
            self.name,
            self.ours.least,
            self.peer.least,
            self.ratio(),
            self.goal
        )
    }
}

/// A measured memory case.
pub(crate) struct MemoryRow {
    name: String,
    goal: f64,
    ours: u64,
    peer: u64,
}

/// Measures what keys take, by `used_memory` before and after.
pub(crate) fn memory(server: &Path, module: &Path, peer: &Path) -> Result<Vec<MemoryRow>, String> {
    eprintln!("measuring memory");
    let mut rows = Vec::new();
    let reserves: [(&str, &str); 4] =
        [("0.01", "1000000"), ("0.001", "1000000"), ("0.0001", "1000000"), ("0.01", "10000000")];
    for (rate, capacity) in reserves {
        let take = |module: &Path| {
            let mut server = Server::start(server, module)?;
            // What the server makes for a connection at its first commands is no part of it.
            server.command(&[b"BF.RESERVE", b"first", rate.as_bytes(), b"1"])?;
            server.command(&[b"DEL", b"first"])?;
            let before = server.used_memory()?;
            server.command(&[b"BF.RESERVE", b"k", rate.as_bytes(), capacity.as_bytes()])?;
            Ok::<_, String>(server.used_memory()? - before)
        };
        let name = format!("BF.RESERVE {rate} {capacity}");
        rows.push(MemoryRow { name, goal: 1.0, ours: take(module)?, peer: take(peer)? });
    }
    let small: [(&str, f64, &[&str]); 3] = [
        ("per key: 50,000 x BF.RESERVE 0.01 60", 0.85, &["BF.RESERVE", "", "0.01", "60"]),
        ("per key: 50,000 x BF.ADD of one item", 0.85, &["BF.ADD", "", "item"]),
        ("per key: 50,000 x CF.ADD of one item", 1.0, &["CF.ADD", "", "item"]),
    ];
    for (name, goal, words) in small {
        let take = |module: &Path| {
            let mut server = Server::start(server, module)?;
            let before = server.used_memory()?;
            let mut bytes = Vec::new();
            for key in 0..50_000 {
                let key = format!("user:{key}");
                let words: Vec<&[u8]> = words
                    .iter()
                    .map(|word| if word.is_empty() { key.as_bytes() } else { word.as_bytes() })
                    .collect();
                encode(&mut bytes, &words);
                if key.ends_with("99") {
                    server.pipeline(&bytes, 100)?;
                    bytes.clear();
                }
            }
            Ok::<_, String>((server.used_memory()? - before) / 50_000)
        };
        rows.push(MemoryRow { name: name.into(), goal, ours: take(module)?, peer: take(peer)? });
    }
    Ok(rows)
}

/// The tables in Markdown.
pub(crate) fn markdown(rows: &[Row], memory: &[MemoryRow]) -> String {
    let mut out = String::from(
        "| case | ferrobloom, ns/item (median) | RedisBloom 2.8.2 | floor | times as fast | goal |\n\
         |---|---|---|---|---|---|\n",
    );
    for row in rows {
        let floor = row.floor.map_or("".into(), |floor| format!("{:.0}", floor.least));
        let verdict = if row.ratio() >= row.goal { "" } else { " (missed)" };
        _ = writeln!(
            out,
            "| {} | {:.0} ({:.0}) | {:.0} ({:.0}) | {floor} | **{:.2}** | {}{verdict} |",
            row.name,
            row.ours.least,
            row.ours.median,
            row.peer.least,
            row.peer.median,
            row.ratio(),
            row.goal
        );
    }
    if !memory.is_empty() {
        out.push_str("\n| memory, bytes of `used_memory` | ferrobloom | RedisBloom 2.8.2 | ratio | goal |\n|---|---|---|---|---|\n");
    }
    for row in memory {
        let ratio = row.ours as f64 / row.peer as f64;
        let verdict = if ratio <= row.goal { "" } else { " (missed)" };
        _ = writeln!(
            out,
            "| {} | {} | {} | **{ratio:.2}** | {:.2}{verdict} |",
            row.name, row.ours, row.peer, row.goal
        );
    }
    out
}

/// Writes `bench.md` and `bench.svg` into the folder `out`. `place` tells where and how it
/// was measured.
pub(crate) fn write(out: &Path, place: &str, markdown: &str, rows: &[Row]) -> Result<(), String> {
    let intro = format!(
        "# Speed and memory beside RedisBloom\n\n\
        CPU time of the server's main thread per item, in nanoseconds: the least of several\n\
        rounds in which the two modules take turns in the same server binary. The floor is\n\
        the same command on a key that does not exist. The goals are what this project set itself\n\
        before it was written. To get it again: `make bench`, or with another server\n\
        `make bench SERVER=...`.\n\n\
        {place}.\n\n\
        ![Times as fast as RedisBloom](bench.svg)\n\n"
    );
    std::fs::create_dir_all(out)
        .and_then(|()| std::fs::write(out.join("bench.md"), format!("{intro}{markdown}")))
        .and_then(|()| std::fs::write(out.join("bench.svg"), svg(rows)))
        .map_err(|error| format!("{}: {error}", out.display()))
}

/// A bar per case: how many times as fast as the peer.
fn svg(rows: &[Row]) -> String {
    const LINE: usize = 26;
    const LEFT: usize = 330;
    const WIDTH: f64 = 380.0;
    let most = rows.iter().map(Row::ratio).fold(2.0, f64::max);
    let height = LINE * (rows.len() + 2);
    let unit = WIDTH / most;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"780\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"18\" font-weight=\"bold\">Times as fast as RedisBloom 2.8.2 \
         (server CPU time per item)</text>\n"
    );
    for (index, row) in rows.iter().enumerate() {
        let y = LINE * (index + 1);
        _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{}\" width=\"{:.0}\" height=\"16\" fill=\"#b7410e\"/>\
             <text x=\"{:.0}\" y=\"{}\">{:.1}</text>",
            LEFT - 8,
            y + 18,
            row.name,
            y + 5,
            row.ratio() * unit,
            LEFT as f64 + row.ratio() * unit + 6.0,
            y + 18,
            row.ratio()
        );
    }
    let bottom = LINE * (rows.len() + 1);
    _ = writeln!(
        out,
        "<line x1=\"{x:.0}\" y1=\"{LINE}\" x2=\"{x:.0}\" y2=\"{bottom}\" stroke=\"#444\" \
         stroke-dasharray=\"3 3\"/><text x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\">RedisBloom</text>\n</svg>",
        bottom + 16,
        x = LEFT as f64 + unit
    );
    out
}
