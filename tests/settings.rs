//! The module's settings: load arguments on every server, CONFIG where it has it.

mod common;

use std::fs;

use common::{Reply, RespConnection, Server, own_arguments, own_server, skip};

/// The settings of every family that the module has had from the start, with their defaults.
const DEFAULTS: &[(&str, &str)] = &[
    ("bf-error-rate", "0.01"),
    ("bf-initial-size", "100"),
    ("bf-expansion-factor", "2"),
    ("cf-bucket-size", "2"),
    ("cf-initial-size", "1024"),
    ("cf-max-iterations", "20"),
    ("cf-expansion-factor", "1"),
    ("cf-max-expansions", "32"),
];

/// The settings that RedisBloom does not have, with their defaults.
const OWN_DEFAULTS: &[(&str, &str)] = &[
    ("bf-layout", "blocked"),
    ("bf-max-memory-per-key", "34359738368"),
    ("bf-huge-pages-limit", "134217728"),
];

#[test]
fn load_arguments_set_what_new_filters_get() {
    if !own_arguments() {
        return;
    }
    let arguments = ["bf-initial-size", "5000", "BF-Error-Rate", "0.2", "bf-expansion-factor", "3"];
    let server = Server::builder().module_args(&arguments).start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(5000));
    assert_eq!(info(&mut connection, "EXPANSION"), Reply::Int(3));
    let size = info(&mut connection, "SIZE").int().expect("a number");
    // 0.2 takes some 3 to 5 bits per item, the default of 0.01 more than 9.
    assert!((1500..5000).contains(&size), "{size}");
    let log = server.log();
    assert!(log.contains("Setting 'bf-initial-size' to 5000"), "{log}");
}

#[test]
fn of_repeated_load_arguments_the_last_holds_and_old_names_are_known() {
    if !own_arguments() {
        return;
    }
    let arguments = ["INITIAL_SIZE", "5", "bf-initial-size", "6", "initial_size", "7"];
    let arguments =
        [arguments.as_slice(), &["ERROR_RATE", "0.1", "CF_MAX_EXPANSIONS", "3"]].concat();
    let server = Server::builder().module_args(&arguments).start();
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(7));
    let log = server.log();
    for (old, new) in [
        ("INITIAL_SIZE", "bf-initial-size"),
        ("ERROR_RATE", "bf-error-rate"),
        ("CF_MAX_EXPANSIONS", "cf-max-expansions"),
    ] {
        let line = format!("The '{old}' configuration is deprecated. Please use '{new}' instead");
        assert!(log.contains(&line), "{line}: {log}");
    }
}

#[test]
fn an_error_rate_above_a_quarter_is_capped_with_a_warning() {
    if !own_arguments() {
        return;
    }
    let server = Server::builder().module_args(&["bf-error-rate", "0.9"]).start();
    let log = server.log();
    assert!(log.contains("bf-error-rate is capped at 0.250000"), "{log}");
    let mut connection = server.resp2();
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    if server.kind().has_module_settings() {
        let name = server.kind().setting("bf-error-rate");
        assert_eq!(get(&mut connection, &name).as_deref(), Some("0.25"));
    }
}

#[test]
fn one_empty_load_argument_counts_as_none() {
    if !own_arguments() {
        return;
    }
    let server = Server::builder().module_args(&[""]).start();
    assert_eq!(server.resp2().line("BF.ADD k a"), Reply::Int(1));
}

#[test]
fn wrong_load_arguments_refuse_the_module_and_the_log_says_why() {
    if !own_arguments() {
        return;
    }
    let range = |name: &str, range: &str| format!("'{name}' must be in the range {range}");
    let no_value =
        |name: &str| format!("Invalid number of arguments passed: '{name}' has no value");
    let cases: &[(&[&str], String)] = &[
        (&["bf-error-rate"], no_value("bf-error-rate")),
        (&["bf-error-rate", "0.1", "x"], no_value("x")),
        (&["bogus", "1"], "Unrecognized option 'bogus'".into()),
        (&["bf-initial-size", "5", "", "1"], "Unrecognized option ''".into()),
        (&["bf-error-rate", "x"], "Invalid argument for 'bf-error-rate'".into()),
        (&["ERROR_RATE", "nan"], "Invalid argument for 'bf-error-rate'".into()),
        (&["INITIAL_SIZE", "1k"], "Invalid argument for 'bf-initial-size'".into()),
        (&["bf-initial-size", ""], "Invalid argument for 'bf-initial-size'".into()),
        (&["bf-error-rate", "0"], range("bf-error-rate", "(0.000000, 1.000000)")),
        (&["bf-error-rate", "1"], range("bf-error-rate", "(0.000000, 1.000000)")),
        (&["bf-error-rate", "-inf"], range("bf-error-rate", "(0.000000, 1.000000)")),
        (&["bf-initial-size", "0"], range("bf-initial-size", "[1, 1073741824]")),
        (&["INITIAL_SIZE", "1073741825"], range("bf-initial-size", "[1, 1073741824]")),
        (&["bf-expansion-factor", "32769"], range("bf-expansion-factor", "[0, 32768]")),
        (&["cf-max-expansions", "0"], range("cf-max-expansions", "[1, 65536]")),
        (&["CF_MAX_EXPANSIONS", "65537"], range("cf-max-expansions", "[1, 65536]")),
        (&["bf-layout", "round"], "bf-layout".into()),
    ];
    for (arguments, text) in cases {
        let started = Server::builder().module_args(arguments).try_start();
        let log = started.err().unwrap_or_else(|| panic!("{arguments:?} are accepted"));
        assert!(log.contains(text.as_str()), "{arguments:?}: no {text:?} in\n{log}");
    }
}

#[test]
fn a_module_is_refused_in_a_running_server_too_and_can_be_loaded_after() {
    if !own_arguments() {
        return;
    }
    let server = Server::builder().without_module().start();
    let mut connection = server.resp2();
    let module = common::module();
    let path = module.to_str().expect("a path in UTF-8");
    let refused = connection.call(&["MODULE", "LOAD", path, "bf-initial-size", "0"]);
    assert!(refused.error().is_some(), "{refused}");
    assert!(connection.line("BF.ADD k a").error().is_some_and(|e| e.contains("unknown command")));
    assert_eq!(connection.line("SET k 1"), Reply::ok());
    let loaded = connection.call(&["MODULE", "LOAD", path, "bf-initial-size", "7"]);
    assert_eq!(loaded, Reply::ok(), "{}", server.log());
    assert_eq!(connection.line("DEL k"), Reply::Int(1));
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(7));
    let unloaded = connection.line("MODULE UNLOAD bf");
    assert!(unloaded.error().is_some_and(|text| text.contains("can't unload")), "{unloaded}");
}

/// A server that cannot finish loading a module keeps its ACL categories.
#[test]
fn a_module_can_be_loaded_after_a_setting_that_it_does_not_have() {
    let server = Server::builder().without_module();
    if !own_arguments() || !server.kind().redis_at_least(7, 4) {
        return skip("Redis 7.0 keeps such a module loaded, and Valkey's MODULE LOADEX crashes");
    }
    let server = server.start();
    let mut connection = server.resp2();
    let module = common::module();
    let path = module.to_str().expect("a path in UTF-8");
    for _ in 0..2 {
        let refused = connection.call(&["MODULE", "LOADEX", path, "CONFIG", "nope", "7"]);
        assert!(refused.error().is_some(), "{refused}");
    }
    let loaded = connection.call(&["MODULE", "LOADEX", path, "CONFIG", "bf-initial-size", "7"]);
    assert_eq!(loaded, Reply::ok(), "{}", server.log());
    assert_eq!(connection.line("ACL SETUSER u on nopass ~* +@bloom"), Reply::ok());
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(7));
    assert_eq!(connection.line("ACL DRYRUN u BF.ADD k b"), Reply::ok());
    assert!(connection.line("ACL DRYRUN u CF.ADD k b").text() != Some("OK"));
}

#[test]
fn settings_show_their_defaults_and_take_new_values() {
    let Some(server) = server_with_settings() else { return };
    let kind = server.kind();
    let mut connection = server.resp2();
    for (name, default) in DEFAULTS.iter().chain(OWN_DEFAULTS) {
        assert_eq!(get(&mut connection, &kind.setting(name)).as_deref(), Some(*default), "{name}");
        // Under the other spelling there is no setting.
        let other =
            if kind.has_unprefixed_settings() { format!("bf.{name}") } else { (*name).into() };
        assert_eq!(get(&mut connection, &other), None, "{other}");
    }
    for (name, value) in [
        ("bf-initial-size", "5000"),
        ("bf-expansion-factor", "0"),
        ("bf-error-rate", "0.010"),
        ("bf-max-memory-per-key", "9223372036854775807"),
    ] {
        assert_eq!(set(&mut connection, &kind.setting(name), value), Reply::ok(), "{name}");
        assert_eq!(get(&mut connection, &kind.setting(name)).as_deref(), Some(value), "{name}");
    }
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(5000));
    assert_eq!(info(&mut connection, "EXPANSION"), Reply::Null);
    // What exists stays as it is.
    assert_eq!(set(&mut connection, &kind.setting("bf-initial-size"), "50"), Reply::ok());
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(5000));
    assert_eq!(set(&mut connection, &kind.setting("bf-error-rate"), "0.9"), Reply::ok());
    let capped = get(&mut connection, &kind.setting("bf-error-rate"));
    assert_eq!(capped.as_deref(), Some("0.25"));
}

#[test]
fn wrong_values_are_refused_with_redisblooms_texts_and_change_nothing() {
    let Some(server) = server_with_settings() else { return };
    let kind = server.kind();
    let mut connection = server.resp2();
    let range =
        |name: &str, range: &str| format!("Value for `{name}` must be in the range {range}");
    let invalid = |name: &str| format!("Invalid value for `{name}`");
    for (name, value, text) in [
        ("bf-initial-size", "x", invalid("bf-initial-size")),
        ("bf-initial-size", "1k", invalid("bf-initial-size")),
        ("bf-initial-size", "007", invalid("bf-initial-size")),
        ("bf-initial-size", "", invalid("bf-initial-size")),
        ("bf-initial-size", "0", range("bf-initial-size", "[1, 1073741824]")),
        ("bf-initial-size", "-1", range("bf-initial-size", "[1, 1073741824]")),
        ("bf-initial-size", "1073741825", range("bf-initial-size", "[1, 1073741824]")),
        ("bf-error-rate", "nan", invalid("bf-error-rate")),
        ("bf-error-rate", "0", range("bf-error-rate", "(0.000000, 1.000000)")),
        ("bf-error-rate", "1", range("bf-error-rate", "(0.000000, 1.000000)")),
        ("bf-expansion-factor", "32769", range("bf-expansion-factor", "[0, 32768]")),
        ("cf-bucket-size", "0", range("cf-bucket-size", "[1, 255]")),
        ("cf-initial-size", "3", range("cf-initial-size", "[4, 1073741824]")),
        ("cf-max-iterations", "65536", range("cf-max-iterations", "[1, 65535]")),
        ("cf-expansion-factor", "32769", range("cf-expansion-factor", "[0, 32768]")),
        ("cf-max-expansions", "65537", range("cf-max-expansions", "[1, 65536]")),
        ("bf-max-memory-per-key", "-1", range("bf-max-memory-per-key", "[0, 9223372036854775807]")),
        ("bf-huge-pages-limit", "-1", range("bf-huge-pages-limit", "[0, 9223372036854775807]")),
    ] {
        let typed = kind.setting(name);
        let before = get(&mut connection, &typed);
        let error =
            format!("ERR CONFIG SET failed (possibly related to argument '{typed}') - {text}");
        assert_eq!(set(&mut connection, &typed, value), Reply::Error(error), "{name} {value}");
        assert_eq!(get(&mut connection, &typed), before, "{name} {value}");
    }
}

#[test]
fn several_settings_change_together_or_not_at_all() {
    let Some(server) = server_with_settings() else { return };
    let kind = server.kind();
    let mut connection = server.resp2();
    let (size, growth) = (kind.setting("bf-initial-size"), kind.setting("bf-expansion-factor"));
    let reply = connection.call(&["CONFIG", "SET", &size, "77", &growth, "99999"]);
    assert!(reply.error().is_some(), "{reply}");
    assert_eq!(get(&mut connection, &size).as_deref(), Some("100"));
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(100));
    let reply = connection.call(&["CONFIG", "SET", &size, "77", &growth, "4"]);
    assert_eq!(reply, Reply::ok());
    assert_eq!(connection.line("DEL k"), Reply::Int(1));
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(77));
    assert_eq!(info(&mut connection, "EXPANSION"), Reply::Int(4));
}

#[test]
fn settings_survive_a_rewrite_of_the_configuration_file() {
    let Some(mut server) = server_with_settings() else { return };
    let name = server.kind().setting("bf-initial-size");
    let mut connection = server.resp2();
    assert_eq!(set(&mut connection, &name, "4321"), Reply::ok());
    assert_eq!(connection.line("CONFIG REWRITE"), Reply::ok());
    let file = fs::read_to_string(server.folder().join("server.conf")).expect("a configuration");
    let line = file.lines().find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{file}")).to_owned();
    assert!(line.contains("4321"), "{line}");
    // The file's line is read back, and stands above a load argument.
    server.restart_with(|builder| builder.module_args(&["bf-initial-size", "55"]).config(&line));
    let mut connection = server.resp2();
    assert_eq!(get(&mut connection, &name).as_deref(), Some("4321"));
    assert_eq!(connection.line("BF.ADD k a"), Reply::Int(1));
    assert_eq!(info(&mut connection, "CAPACITY"), Reply::Int(4321));
}

#[test]
fn a_wrong_value_in_the_configuration_file_stops_the_start() {
    let Some(server) = server_with_settings() else { return };
    let name = server.kind().setting("bf-initial-size");
    let started = Server::builder().config(&format!("{name} 0")).try_start();
    let log = started.err().expect("the server starts");
    let text = "Value for `bf-initial-size` must be in the range [1, 1073741824]";
    assert!(log.contains(text), "{log}");
}

#[test]
fn reading_and_setting_settings_takes_no_memory() {
    let Some(server) = server_with_settings() else { return };
    let mut connection = server.resp2();
    let name = server.kind().setting("bf-initial-size");
    let rate = server.kind().setting("bf-error-rate");
    let mut rounds = |count: u32| {
        for i in 0..count {
            assert!(connection.line("CONFIG GET *f-*").array().is_some_and(|all| all.len() >= 20));
            set(&mut connection, &name, &format!("{}", 1000 + i));
            set(&mut connection, &name, "refused");
            set(&mut connection, &rate, "0.5");
            connection.line("CONFIG GET maxmemory");
        }
    };
    rounds(50);
    let before = server.used_memory();
    rounds(1000);
    let after = server.used_memory();
    assert!(after < before + 16 * 1024, "used memory rose from {before} to {after}");
}

#[test]
fn a_server_without_settings_of_modules_takes_load_arguments_alone() {
    if !own_server() {
        return;
    }
    let server = Server::builder().start();
    if server.kind().has_module_settings() {
        return skip("the server has settings of modules");
    }
    let mut connection = server.resp2();
    assert_eq!(get(&mut connection, "*bf-*"), None);
    let log = server.log();
    assert!(log.contains("settings come from the load arguments alone"), "{log}");
}

/// A server with nothing set, if it has settings of modules.
fn server_with_settings() -> Option<Server> {
    if !own_arguments() {
        return None;
    }
    let server = Server::start();
    if !server.kind().has_module_settings() {
        skip("the server has no settings of modules");
        return None;
    }
    Some(server)
}

/// The value of a setting in RESP2, `None` where there is no such setting.
fn get(connection: &mut RespConnection, name: &str) -> Option<String> {
    let reply = connection.call(&["CONFIG", "GET", name]);
    let pair = reply.array().unwrap_or_else(|| panic!("CONFIG GET {name}: {reply}"));
    pair.get(1).map(|value| value.text().expect("text").to_owned())
}

fn set(connection: &mut RespConnection, name: &str, value: &str) -> Reply {
    connection.call(&["CONFIG", "SET", name, value])
}

/// A field of the filter `k`.
fn info(connection: &mut RespConnection, field: &str) -> Reply {
    let reply = connection.call(&["BF.INFO", "k", field]);
    let value = reply.array().and_then(|values| values.first());
    value.unwrap_or_else(|| panic!("BF.INFO k {field}: {reply}")).clone()
}
