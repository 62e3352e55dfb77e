//! The test bench itself, on servers without a module: what the other tests rely on.

mod common;

use std::path::Path;

use common::{Reply, Server, own_server};

#[test]
fn a_killed_server_comes_back_with_what_its_append_only_file_held() {
    if !own_server() {
        return;
    }
    let builder = Server::builder().without_module();
    let mut server = builder.config("appendonly yes").config("appendfsync always").start();
    assert_eq!(server.resp2().line("SET k 1"), Reply::ok());
    server.rewrite_aof();
    assert_eq!(server.resp2().line("SET k 2"), Reply::ok());
    let pid = server.pid();
    server.kill9();
    assert!(!server.is_alive());
    server.start_again();
    assert_ne!(server.pid(), pid);
    assert_eq!(server.resp2().line("GET k"), Reply::Bulk(b"2".to_vec()));
}

#[test]
fn a_restart_keeps_the_data_and_a_replica_follows() {
    if !own_server() {
        return;
    }
    let mut primary = Server::builder().without_module().start();
    assert_eq!(primary.resp2().line("SET k before"), Reply::ok());
    primary.bgsave();
    primary.restart();
    let replica = Server::builder().without_module().start();
    replica.replica_of(&primary);
    assert_eq!(primary.resp2().line("SET l after"), Reply::ok());
    replica.wait_for_sync(&primary);
    assert_eq!(replica.dump_all(), primary.dump_all());
    assert_eq!(replica.dump_all().len(), 2);
}

#[test]
fn a_refused_start_gives_the_log() {
    if !own_server() {
        return;
    }
    let builder = Server::builder().with_module(Path::new("/nowhere/none.so"), &[]);
    let log = builder.try_start().err().expect("there is no such module");
    assert!(log.contains("none.so"), "{log}");
}

#[test]
fn nothing_is_left_of_a_dropped_server() {
    if !own_server() {
        return;
    }
    let server = Server::builder().without_module().start();
    let (folder, pid) = (server.folder().to_owned(), server.pid());
    assert!(folder.exists() && server.rss() > 0 && server.used_memory() > 0);
    drop(server);
    assert!(!folder.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn both_clients_speak_both_protocols() {
    if !own_server() {
        return;
    }
    let server = Server::builder().without_module().start();
    for mut connection in [server.redis(), server.redis_resp3()] {
        let pong: String = redis::cmd("PING").query(&mut connection).expect("a reply");
        assert_eq!(pong, "PONG");
    }
    let (mut resp2, mut resp3) = (server.resp2(), server.resp3());
    assert_eq!(resp2.line("GET none"), Reply::Null);
    assert_eq!(resp2.last_bytes(), b"$-1\r\n");
    assert_eq!(resp3.line("GET none"), Reply::Null);
    assert_eq!(resp3.last_bytes(), b"_\r\n");
    assert!(matches!(resp3.line("CONFIG GET maxmemory"), Reply::Map(_)));
}
