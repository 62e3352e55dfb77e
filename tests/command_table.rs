//! What the server tells about the commands: clients, proxies and ACL rules read
//! arity, flags, keys and categories from it, so they are as RedisBloom's.

mod common;

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use common::{Reply, Server, golden, skip};

/// Fields of entries that are not RedisBloom's: command, field, and why.
const ACCEPTED: &[(&str, &str, &str)] = &[
    ("bf.scandump", "flags", "copies up to 16 MiB, so it is not flagged fast"),
    ("cf.compact", "arity", "takes one key and no more"),
    ("cf.compact", "flags", "changes the filter, so it is a write command"),
    ("cf.compact", "acl_categories", "changes the filter, so it is in @write"),
    ("cms.merge", "flags", "declares its source keys, so ACL rules and clusters see them"),
];

#[test]
fn every_command_of_redisbloom_is_there() {
    let server = Server::start();
    let mut connection = server.resp2();
    for (name, _) in commands() {
        let reply = connection.call(&["COMMAND", "INFO", &name]);
        let entry = reply.array().and_then(|entries| entries.first());
        assert!(matches!(entry, Some(Reply::Array(_))), "{name}: {reply}");
    }
}

#[test]
fn arity_flags_and_keys_are_redisblooms() {
    let server = Server::start();
    if !server.kind().has_command_docs() {
        return skip("the server does not let modules describe commands");
    }
    let mut connection = server.resp2();
    let mut different = Vec::new();
    for (name, want) in &commands() {
        let entry = entry(&connection.call(&["COMMAND", "INFO", name]));
        let numbers = [("arity", 1), ("first_key", 3), ("last_key", 4), ("step", 5)];
        for (field, index) in numbers {
            if entry[index].int() != want[field].as_i64() {
                different.push((name.clone(), field));
            }
        }
        if words(&entry[2]) != golden_words(&want["flags"]) {
            different.push((name.clone(), "flags"));
        }
    }
    assert_accepted(different, &["arity", "first_key", "last_key", "step", "flags"]);
}

#[test]
fn acl_categories_are_redisblooms() {
    let server = Server::start();
    if !server.kind().has_module_acl_categories() {
        return skip("the server does not let modules add ACL categories");
    }
    let mut connection = server.resp2();
    let mut different = Vec::new();
    for (name, want) in &commands() {
        let entry = entry(&connection.call(&["COMMAND", "INFO", name]));
        if words(&entry[6]) != golden_words(&want["acl_categories"]) {
            different.push((name.clone(), "acl_categories"));
        }
    }
    assert_accepted(different, &["acl_categories"]);
}

#[test]
fn commands_are_documented() {
    let server = Server::start();
    if !server.kind().has_command_docs() {
        return skip("the server does not let modules describe commands");
    }
    let mut connection = server.resp3();
    for (name, want) in &commands() {
        let reply = connection.call(&["COMMAND", "DOCS", name]);
        let Reply::Map(docs) = &reply else { panic!("{name}: {reply}") };
        let Some((_, Reply::Map(fields))) = docs.first() else { panic!("{name}: {reply}") };
        let field = |wanted: &str| {
            let found = fields.iter().find(|(key, _)| key.text() == Some(wanted));
            found.and_then(|(_, value)| value.text())
        };
        assert!(field("summary").is_some_and(|text| !text.is_empty()), "{name}: summary");
        assert_eq!(field("module"), Some("bf"), "{name}: module");
        if let Some(since) = want["since"].as_str() {
            assert_eq!(field("since"), Some(since), "{name}: since");
        }
    }
}

/// RedisBloom's commands with their entries.
fn commands() -> Vec<(String, Value)> {
    let files = ["bf_cf_command_info.json", "cms_topk_tdigest_command_info.json"];
    let read = |file: &str| {
        let text = fs::read(golden::path(file)).expect("a golden command table");
        let table: Value = serde_json::from_slice(&text).expect("a table in JSON");
        // One of the files has a note on its source around the commands.
        table.get("commands").unwrap_or(&table).as_object().expect("commands").clone()
    };
    files.iter().flat_map(|file| read(file)).collect()
}

/// The fields that differ are the accepted ones of these fields, no more and no less.
fn assert_accepted(mut different: Vec<(String, &'static str)>, fields: &[&str]) {
    let accepted = ACCEPTED.iter().filter(|(_, field, _)| fields.contains(field));
    let mut accepted: Vec<_> =
        accepted.map(|(name, field, _)| ((*name).to_owned(), *field)).collect();
    different.sort_unstable();
    accepted.sort_unstable();
    assert_eq!(different, accepted);
}

/// The one entry of a reply to COMMAND INFO.
fn entry(reply: &Reply) -> Vec<Reply> {
    let entry = reply.array().and_then(|entries| entries.first()?.array());
    entry.unwrap_or_else(|| panic!("no entry: {reply}")).to_vec()
}

fn words(reply: &Reply) -> BTreeSet<String> {
    let elements = reply.array().expect("a list of words").iter();
    elements.map(|word| word.text().expect("a word").to_owned()).collect()
}

fn golden_words(value: &Value) -> BTreeSet<String> {
    let elements = value.as_array().expect("a list of words").iter();
    elements.map(|word| word.as_str().expect("a word").to_owned()).collect()
}
