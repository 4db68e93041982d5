//! What an operator can say, and what it means.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, FromArgMatches};
use portcullis::{
    config::{CatalogLocation, ServeArgs, ServeSettings},
    domain::{error::Error, error::ErrorCode},
    sandbox::SandboxSettings,
};
use secrecy::ExposeSecret as _;

/// The variables that these tests themselves may run under say nothing here.
fn resolve(flags: &[&str]) -> Result<ServeSettings, Error> {
    let command = ServeArgs::augment_args(clap::Command::new("serve")).mut_args(|arg| arg.env(None));
    let matches =
        command.try_get_matches_from([&["serve"], flags].concat()).expect("flags that clap accepts");
    let args = ServeArgs::from_arg_matches(&matches).expect("arguments");
    ServeSettings::resolve_in(args, |name| (name == "HOME").then(|| OsString::from("/home/one")))
}

fn refused(flags: &[&str], part_of_message: &str) {
    let error = resolve(flags).expect_err(part_of_message);
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    assert!(error.message.contains(part_of_message), "{:?} does not say {part_of_message:?}", error.message);
}

#[test]
fn nothing_need_be_said() {
    let settings = resolve(&[]).expect("the defaults are valid");
    assert_eq!(settings.data_dir, PathBuf::from("/home/one/.local/share/portcullis"));
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7480");
    assert_eq!(settings.scope.account_id.expect("an account").as_str(), "local");
    assert_eq!(settings.catalog_refresh_interval, Some(Duration::from_secs(60)));
    assert_eq!(settings.drain_deadline, Duration::from_secs(10));
    assert!(settings.catalogs.is_empty() && settings.development_hosts.is_empty());
}

#[test]
fn the_data_directory_follows_the_environment() {
    let args = || {
        let matches = ServeArgs::augment_args(clap::Command::new("serve"))
            .mut_args(|arg| arg.env(None))
            .get_matches_from(["serve"]);
        ServeArgs::from_arg_matches(&matches).expect("arguments")
    };
    let both = |name: &str| match name {
        "XDG_DATA_HOME" => Some(OsString::from("/xdg")),
        "HOME" => Some(OsString::from("/home/one")),
        _ => None,
    };
    let settings = ServeSettings::resolve_in(args(), both).expect("valid");
    assert_eq!(settings.data_dir, PathBuf::from("/xdg/portcullis"));
    let relative = |name: &str| (name == "XDG_DATA_HOME").then(|| OsString::from("relative"));
    let error = ServeSettings::resolve_in(args(), relative).expect_err("a relative one does not count");
    assert!(error.message.contains("--data-dir"), "{}", error.message);
}

#[test]
fn a_further_host_name_is_exact() {
    let settings = resolve(&["--allow-host", "Gate.Example,gate.example:8443"]).expect("two names");
    assert_eq!(settings.allowed_hosts, ["gate.example", "gate.example:8443"]);
    for wrong in ["*.example", "https://gate.example", "gate.example:", "gate.example:0", "10.0.0.1", "a b"] {
        refused(&["--allow-host", wrong], "--allow-host");
    }
}

#[test]
fn an_address_that_others_can_reach_must_be_asked_for() {
    refused(&["--listen", "0.0.0.0:80"], "--allow-remote");
    refused(&["--listen", "192.0.2.1:80"], "--allow-remote");
    refused(&["--listen", "here"], "ip:port");
    resolve(&["--listen", "0.0.0.0:80", "--allow-remote"]).expect("asked for");
    resolve(&["--listen", "[::1]:80"]).expect("loopback");
    let named = resolve(&["--listen", "localhost:0"]).expect("loopback by name");
    assert_eq!(named.listen.to_string(), "127.0.0.1:0");
}

#[test]
fn a_blank_account_is_signed_out() {
    assert_eq!(resolve(&["--account", "  "]).expect("valid").scope.account_id, None);
    refused(&["--account", "a\u{7}b"], "account");
}

#[test]
fn catalogs_are_directories_and_web_addresses() {
    let settings = resolve(&["--catalog", "./mine", "--catalog", "https://example.org/c"]).expect("valid");
    let web = CatalogLocation::Http("https://example.org/c".parse().expect("a URL"));
    assert_eq!(settings.catalogs, [CatalogLocation::Directory("./mine".into()), web]);
    refused(&["--catalog", "ftp://example.org/"], "https://");
    refused(&["--catalog", "https://:0:/"], "cannot be read");
    let error = resolve(&["--catalog", "https://user:hunter2@example.org/"]).expect_err("a password");
    assert!(!format!("{error:?}").contains("hunter2"), "the message does not repeat it");
}

#[test]
fn a_development_host_is_a_name_and_an_address() {
    let settings = resolve(&["--development-host", "Feed.test=127.0.0.1:8080"]).expect("valid");
    let host = &settings.development_hosts[0];
    assert_eq!((host.name.as_str(), host.address.port()), ("feed.test", 8080));
    for wrong in
        ["feed.test", "feed.test=localhost:80", "*.test=127.0.0.1:80", "feed.test=127.0.0.1:0", "=1.2.3.4:5"]
    {
        refused(&["--development-host", wrong], "name=ip:port");
    }
}

#[test]
fn an_unreadable_log_filter_is_refused() {
    refused(&["--log-filter", "portcullis=loud"], "log filter");
    resolve(&["--log-filter", "warn,portcullis::daemon=debug"]).expect("valid");
}

#[test]
fn no_refresh_interval_means_on_command_only() {
    assert_eq!(resolve(&["--catalog-refresh-interval", "0"]).expect("valid").catalog_refresh_interval, None);
}

#[test]
fn a_database_url_is_checked_and_never_shown() {
    assert!(resolve(&[]).expect("valid").database_url.is_none(), "SQLite, unless asked for");
    let url = "postgres://me:hunter2@db.example/market?sslmode=require";
    let settings = resolve(&["--database-url", url]).expect("valid");
    assert_eq!(settings.database_url.as_ref().map(|url| url.expose_secret()), Some(url));
    assert!(!format!("{settings:?}").contains("hunter2"));
    for (wrong, part_of_message) in [
        ("mysql://me:hunter2@db.example/market", "must start with postgres://"),
        ("sqlite:market.db", "must start with postgres://"),
        ("me:hunter2@db.example", "must start with postgres://"),
        ("postgres://me:hunter2@db.example:hunter2/", "cannot be read"),
        ("postgres:me:hunter2@db.example", "is not postgres://"),
        ("postgres:/me:hunter2@db.example/market", "is not postgres://"),
        ("postgres:///me:hunter2@db.example/market", "is not postgres://"),
        ("postgres://me:42/hunter2@db.example:1/market", "is not postgres://"),
        ("postgres://me:hunter2@db.example/market?sslmod=require", "parameter that is not known"),
        ("postgres://me:hunter2@db.example/market?sslmode=hunter2", "sslmode is disable"),
    ] {
        refused(&["--database-url", wrong], part_of_message);
        let error = resolve(&["--database-url", wrong]).expect_err("as before");
        assert!(!error.message.contains("hunter2"), "{}", error.message);
    }
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let mut args = command.get_arguments();
    let option = args.find(|arg| arg.get_long() == Some("database-url")).expect("the flag");
    assert_eq!(option.get_env(), Some("PORTCULLIS_DATABASE_URL".as_ref()));
    assert!(option.is_hide_env_values_set(), "--help shows no value of the environment");
}

#[test]
fn the_help_tells_the_defaults_that_the_sandbox_decides() {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let sandbox = SandboxSettings::new("");
    let most = sandbox.ceilings;
    for (flag, default) in [
        ("max-memory-mib", most.memory_bytes >> 20),
        ("max-table-elements", most.table_elements),
        ("max-cpu-ms", most.cpu_ms),
        ("max-wall-ms", most.wall_ms),
        ("max-concurrent-calls", u64::from(most.concurrent_calls)),
        ("max-response-kib", most.response_bytes >> 10),
        ("pool-size", u64::from(sandbox.pool_instances)),
    ] {
        let option = command.get_arguments().find(|arg| arg.get_long() == Some(flag)).expect(flag);
        let help = option.get_help().expect(flag).to_string();
        assert!(help.ends_with(&format!("[default: {default}]")), "--{flag}: {help}");
    }
}
