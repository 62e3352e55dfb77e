//! Files that a server starts on: changed RDB files are refused with a message or
//! loaded, and an AOF of hostile commands is carried out.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::campaign::{any_form, builder};
use crate::common::{Reply, Server, own_server};
use crate::family::{FAMILIES, Family, words};
use crate::random::Random;
use crate::{mutate, number};

/// Changed RDB files that are tried.
const FILES: u64 = 12;

/// Hostile commands in an AOF.
const COMMANDS: usize = 2000;

/// Words in the log of a server that fell, as opposed to one that refused.
const SIGNS_OF_A_FALL: [&str; 4] = ["crashed by signal", "BUG REPORT", "panicked", "Assertion"];

/// Makes a few keys of every family that the server has; returns those.
fn known_families(server: &Server) -> Vec<&'static Family> {
    let mut connection = server.resp2();
    let mut makes = |seed: &&str| connection.call(&words(seed)).error().is_none();
    FAMILIES.iter().filter(|family| family.seeds.iter().all(&mut makes)).collect()
}

/// How many words each command takes, as the server says it: at least so many where
/// the number is negative.
fn arities(server: &Server, families: &[&Family]) -> HashMap<Vec<u8>, i64> {
    let mut connection = server.resp2();
    let commands = families.iter().flat_map(|family| family.uses.iter().chain(family.forms));
    let names = commands.map(|command| words(command).swap_remove(0));
    let arity = |name: Vec<u8>| {
        let info = connection.call(&[b"COMMAND".as_slice(), b"INFO", &name]);
        let arity = info.array().and_then(|all| all[0].array()?.get(1)?.int());
        (name, arity.expect("the command has an arity"))
    };
    names.map(arity).collect()
}

/// The file that the server appends commands to.
fn newest_aof(folder: &Path) -> PathBuf {
    // Before 7.0 it is one file; from then on a folder of several.
    let parts = fs::read_dir(folder.join("appendonlydir")).into_iter().flatten();
    let parts = parts.filter_map(|entry| Some(entry.ok()?.path()));
    let part = parts.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max();
    part.unwrap_or_else(|| folder.join("appendonly.aof"))
}

/// Appends a command as servers write them.
fn append(file: &mut Vec<u8>, words: &[Vec<u8>]) {
    file.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        file.extend(format!("${}\r\n", word.len()).bytes());
        file.extend(word);
        file.extend(b"\r\n");
    }
}

#[test]
fn a_changed_rdb_file_is_refused_with_a_message_or_loaded() {
    if !own_server() {
        return;
    }
    let seed = number("FERROBLOOM_HOSTILE_SEED", 1);
    let mut server = builder().config("rdbchecksum no").start();
    assert!(!known_families(&server).is_empty());
    server.save();
    let path = server.folder().join("dump.rdb");
    let sound = fs::read(&path).unwrap();
    server.kill9();
    let mut refused = 0;
    for case in 0..FILES {
        let mut random = Random::new(seed, case);
        // The values lie behind the header of the file.
        let mut bytes = sound.clone();
        let values = bytes.split_off(100.min(bytes.len()));
        bytes.extend(mutate::changed_bytes(&mut random, values));
        fs::write(&path, bytes).unwrap();
        if let Err(log) = server.try_start_again() {
            refused += 1;
            // After the refusal the server looks for the fault in the file, without the
            // module, and can fall over it: Redis 6.2 asks for any length that it reads.
            let (loading, _) = log.split_once("Checking RDB file").unwrap_or((&log, ""));
            let fell = SIGNS_OF_A_FALL.iter().find(|sign| loading.contains(**sign));
            // A server may call its own assertion a refusal; a signal is none.
            assert_eq!(fell, None, "seed {seed}, case {case}:\n{log}");
            fs::write(&path, &sound).unwrap();
            fs::remove_file(server.folder().join("server.log")).unwrap();
        } else {
            assert_eq!(server.resp2().line("PING"), Reply::Simple("PONG".into()));
            server.resp2().line("DEBUG DIGEST");
            server.kill9();
        }
    }
    crate::report(&format!("RDB files: {FILES} changed, {refused} refused, no fall\n"));
}

#[test]
fn an_append_only_file_of_hostile_commands_is_carried_out() {
    if !own_server() {
        return;
    }
    let seed = number("FERROBLOOM_HOSTILE_SEED", 1);
    let mut server = builder().config("appendonly yes").config("aof-use-rdb-preamble no").start();
    // So that the file is there, with its SELECT.
    assert_eq!(server.resp2().line("SET key value"), Reply::ok());
    let path = newest_aof(server.folder());
    let known = known_families(&server);
    assert!(!known.is_empty());
    // Valkey refuses a file with a command of too few words. Redis carries it out: the
    // module has to count by itself.
    let arities = if server.kind().valkey { arities(&server, &known) } else { HashMap::new() };
    server.kill9();
    let mut file = fs::read(&path).unwrap();
    let mut random = Random::new(seed, u64::MAX);
    for _ in 0..COMMANDS {
        let family = random.of(&known);
        let form = words(any_form(&mut random, family));
        let command = mutate::command(&mut random, form);
        let arity = arities.get(&command[0]).copied().unwrap_or(-1);
        let length = command.len() as i64;
        let fits = if arity < 0 { length >= -arity } else { length == arity };
        if fits {
            append(&mut file, &command);
        }
        append(&mut file, &words("DEL k"));
    }
    fs::write(&path, file).unwrap();
    if let Err(log) = server.try_start_again() {
        panic!("seed {seed}:\n{log}");
    }
    assert_eq!(server.resp2().line("PING"), Reply::Simple("PONG".into()));
}
