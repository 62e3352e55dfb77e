//! What users may do to which keys: the server decides it by what the module says of
//! its commands.

mod common;

use std::collections::BTreeSet;

use common::{Reply, RespConnection, Server, own_server, skip};

const READS: &[&str] = &[
    "BF.EXISTS k a",
    "BF.MEXISTS k a b",
    "BF.INFO k",
    "BF.CARD k",
    "BF.DEBUG k",
    "BF.SCANDUMP k 0",
];

const WRITES: &[&str] = &[
    "BF.RESERVE k 0.01 10",
    "BF.ADD k a",
    "BF.MADD k a b",
    "BF.INSERT k ITEMS a",
    "BF.LOADCHUNK k 1 data",
];

#[test]
fn a_user_who_may_read_a_key_cannot_write_it() {
    let Some(server) = server_with_key_permissions() else { return };
    let mut connection = log_in(&server, "%R~k +@all");
    for command in READS {
        assert!(!is_denied(&mut connection, command), "{command}");
    }
    for command in WRITES {
        assert!(is_denied(&mut connection, command), "{command}");
    }
}

#[test]
fn a_user_who_may_write_a_key_cannot_read_it() {
    let Some(server) = server_with_key_permissions() else { return };
    let mut connection = log_in(&server, "%W~k +@all");
    for command in WRITES {
        assert!(!is_denied(&mut connection, command), "{command}");
    }
    for command in READS {
        assert!(is_denied(&mut connection, command), "{command}");
    }
}

#[test]
fn a_user_is_held_to_the_keys_given() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = log_in(&server, "~d* +@all");
    for command in READS.iter().chain(WRITES) {
        assert!(is_denied(&mut connection, command), "{command}");
        let allowed = command.replacen(" k", " d", 1);
        assert!(!is_denied(&mut connection, &allowed), "{allowed}");
    }
}

#[test]
fn the_category_of_a_family_grants_its_commands() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    if !server.kind().has_module_acl_categories() {
        return skip("the server does not let modules add ACL categories");
    }
    let mut connection = server.resp2();
    let commands = connection.line("ACL CAT bloom");
    let commands = commands.array().expect("a list of commands").iter();
    let commands: BTreeSet<_> = commands.filter_map(|name| name.text()).collect();
    let names = READS.iter().chain(WRITES).filter_map(|command| command.split(' ').next());
    let names: Vec<_> = names.map(str::to_lowercase).collect();
    assert_eq!(commands, names.iter().map(String::as_str).collect());

    for (rules, allowed) in [
        ("~* -@all +@bloom", [true, true]),
        ("~* +@all -@bloom", [false, false]),
        ("~* -@all +@read", [true, false]),
        ("~* -@all +@write", [false, true]),
    ] {
        let mut connection = log_in(&server, rules);
        for (commands, allowed) in [READS, WRITES].into_iter().zip(allowed) {
            for command in commands {
                assert_eq!(!is_denied(&mut connection, command), allowed, "{rules}: {command}");
            }
        }
    }
}

#[test]
fn commands_are_granted_by_name_on_every_server() {
    if !own_server() {
        return;
    }
    let server = Server::start();
    let mut connection = log_in(&server, "~* -@all +bf.exists");
    assert!(!is_denied(&mut connection, "BF.EXISTS k a"));
    for command in READS[1..].iter().chain(WRITES) {
        assert!(is_denied(&mut connection, command), "{command}");
    }
}

#[test]
fn a_script_is_held_to_the_rules_of_its_caller() {
    let Some(server) = server_with_key_permissions() else { return };
    let mut connection = log_in(&server, "%R~k +@all");
    let script = "return redis.call('BF.ADD', 'k', 'secret')";
    let reply = connection.call(&["EVAL", script, "0"]);
    assert!(reply.error().is_some(), "{reply}");
    assert_eq!(connection.line("BF.EXISTS k secret"), Reply::Int(0));
}

#[test]
fn the_key_of_every_command_is_known() {
    let server = Server::start();
    let mut connection = server.resp2();
    for command in READS.iter().chain(WRITES) {
        let reply = connection.line(&format!("COMMAND GETKEYS {command}"));
        assert_eq!(reply, Reply::Array(vec![Reply::Bulk(b"k".to_vec())]), "{command}");
    }
}

/// A server that knows `%R~` and `%W~`.
fn server_with_key_permissions() -> Option<Server> {
    if !own_server() {
        return None;
    }
    let server = Server::start();
    if server.kind().is_redis_6() {
        skip("the server has no permissions to read or to write a key");
        return None;
    }
    Some(server)
}

/// A connection of a user with these rules, and filters `k` and `d` to work on.
fn log_in(server: &Server, rules: &str) -> RespConnection {
    let mut connection = server.resp2();
    connection.line("BF.ADD k a");
    connection.line("BF.ADD d a");
    let setuser = format!("ACL SETUSER someone reset on nopass {rules} +auth");
    assert_eq!(connection.line(&setuser), Reply::ok(), "{rules}");
    assert_eq!(connection.line("AUTH someone any"), Reply::ok());
    connection
}

fn is_denied(connection: &mut RespConnection, command: &str) -> bool {
    let reply = connection.line(command);
    reply.error().is_some_and(|text| text.starts_with("NOPERM"))
}
