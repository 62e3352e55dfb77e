//! Requests for too much: on a server whose address space is almost used up, and for
//! sketches that would keep any server busy.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Reply, Server, own_server};
use crate::family::words;

/// Kilobytes of address space that the server may have.
const ADDRESS_SPACE: u64 = 2_000_000;

/// Keys of 4 GB and more.
const TOO_LARGE: [&str; 8] = [
    "BF.RESERVE k 0.001 5000000000",
    "BF.RESERVE k 0.001 5000000000 NONSCALING",
    "BF.INSERT k CAPACITY 5000000000 ERROR 0.001 ITEMS a",
    "CF.RESERVE k 8000000000",
    "CF.INSERT k CAPACITY 8000000000 ITEMS a",
    "CMS.INITBYDIM k 1000000 1000",
    "CMS.INITBYPROB k 0.000000001 0.001",
    "TOPK.RESERVE k 10 100000 10000 0.9",
];

#[test]
fn a_server_without_memory_answers_with_an_error_and_makes_no_key() {
    if !own_server() {
        return;
    }
    let program = env::var_os("FERROBLOOM_SERVER").filter(|program| !program.is_empty());
    let program = program.unwrap_or_else(|| OsString::from("redis-server"));
    let folder = tempfile::tempdir().unwrap();
    let limited = folder.path().join("limited-server");
    let script = format!(
        "#!/bin/sh\nulimit -v {ADDRESS_SPACE}\nexec '{}' \"$@\"\n",
        program.to_str().expect("a path in UTF-8")
    );
    fs::write(&limited, script).unwrap();
    fs::set_permissions(&limited, fs::Permissions::from_mode(0o755)).unwrap();

    let server = Server::builder().program(&limited).start();
    let mut connection = server.resp2();
    for command in TOO_LARGE {
        let reply = connection.call(&words(command));
        let nothing_added = |reply: &Reply| {
            reply.array().is_some_and(|outcomes| outcomes.iter().all(|one| one.error().is_some()))
        };
        assert!(reply.error().is_some() || nothing_added(&reply), "{command}: {reply}");
        assert_eq!(connection.line("EXISTS k"), Reply::Int(0), "{command}");
    }
    // A dump's header: counters, buckets, deletions, sub-filters; then three numbers of
    // 16 bits.
    let mut header = [0, 1 << 32, 0, 1].map(u64::to_le_bytes).concat();
    header.extend([2_u16, 20, 1].map(u16::to_le_bytes).concat());
    let reply = connection.call(&[b"CF.LOADCHUNK".as_slice(), b"k", b"1", &header]);
    assert!(reply.error().is_some(), "{reply}");
    assert_eq!(connection.line("EXISTS k"), Reply::Int(0));
    assert_eq!(connection.line("BF.ADD small item"), Reply::Int(1));
}

#[test]
fn a_sketch_of_more_rows_than_any_use_has_is_refused() {
    let server = Server::start();
    let mut connection = server.resp2();
    let refused = [
        ("CMS.INITBYDIM k 1 65537", "CMS: invalid depth"),
        ("TOPK.RESERVE k 1 1 65537 0.9", "TopK: invalid depth"),
    ];
    for (command, error) in refused {
        assert_eq!(connection.line(command), Reply::Error(error.into()));
        assert_eq!(connection.line("EXISTS k"), Reply::Int(0));
    }
    for command in ["CMS.INITBYDIM cms 1 65536", "TOPK.RESERVE topk 1 1 65536 0.9"] {
        assert_eq!(connection.line(command), Reply::ok());
    }
}
