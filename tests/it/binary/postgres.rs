//! The daemon on a PostgreSQL database.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Daemon, Ran, program};
use crate::store::postgres::{Schema, server_url};

fn schema() -> Schema {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Schema::new())
}

fn password() -> String {
    let server: url::Url = server_url().parse().unwrap();
    server.password().unwrap().to_owned()
}

fn echoes(daemon: &Daemon, message: &str) {
    let answer = daemon.run(&["--json", "call", "echo.echo", "--input", &format!("message={message}")]);
    assert!(answer.json().to_string().contains(message), "{}", answer.stdout);
}

#[test]
fn a_daemon_that_is_killed_goes_on_from_the_server() {
    let schema = schema();
    let url = schema.url();
    let more = ["--database-url", url.as_str()];
    let mut daemon = Daemon::start(&more);
    daemon.run(&["refresh"]).ok();
    daemon.install("echo");
    echoes(&daemon, "before");
    let installed: Value = daemon.connector("echo")["installation"].clone();
    daemon.kill();
    daemon.start_again(&more);
    assert_eq!(daemon.connector("echo")["installation"], installed);
    super::eventually("echo runs again", || {
        (daemon.connector("echo")["runtime"]["state"] == "started").then_some(())
    });
    echoes(&daemon, "after");

    let (status, accepted) = daemon.command("feeds", "install", "cut off");
    assert_eq!(status, 202, "{accepted}");
    daemon.kill();
    daemon.start_again(&more);
    let ended = daemon.ended(&accepted["operation"]["operationId"]);
    assert_eq!(ended["state"], json!("completed"), "{ended}");
    assert_eq!(daemon.stop(), 0);

    assert!(!daemon.data_dir().join("portcullis.db").exists(), "nothing is kept beside the server");
    assert!(daemon.log().contains("PostgreSQL"), "{}", daemon.log());
    assert!(!daemon.log().contains(&password()), "the password is in the log");
}

#[test]
fn a_second_daemon_on_the_same_database_refuses_until_the_first_has_ended() {
    let schema = schema();
    let url = schema.url();
    let more = ["--database-url", url.as_str()];
    let mut first = Daemon::start(&more);
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let args = ["serve", "--data-dir", data_dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut second = program(&args).args(more).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while second.try_wait().unwrap().is_none() {
        if Instant::now() > patience {
            second.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let second = second.wait_with_output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(second.status.code().is_some_and(|code| code != 0), "{said}");
    assert!(said.contains("another daemon uses"), "{said}");
    assert!(said.contains("search_path") && !said.contains(&password()), "{said}");
    first.run(&["refresh"]).ok();

    // Its connection is lost, and taken again before anybody else has it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(schema.disconnect("idle"));
    first.run(&["refresh"]).ok();

    first.kill();
    let third = Daemon::start(&more);
    third.run(&["refresh"]).ok();
}

#[test]
fn a_server_that_cannot_be_used_is_named_and_the_password_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let serve = |url: &str| -> Ran {
        let args = ["serve", "--data-dir", data_dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let output = program(&args)
            .env("PORTCULLIS_DATABASE_URL", url)
            .env("PORTCULLIS_LOG", "trace")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ran {
            exit: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    };
    let mut wrong: url::Url = server_url().parse().unwrap();
    wrong.set_password(Some("hunter2")).unwrap();
    for (url, says) in [
        ("postgres://me:hunter2@127.0.0.1:1/market", "127.0.0.1:1 (database market) cannot be reached"),
        (wrong.as_str(), "correct user and password"),
        ("mysql://me:hunter2@127.0.0.1:1/market", "must start with postgres://"),
        ("postgres://me:hunter2@127.0.0.1:hunter2/market", "cannot be read"),
    ] {
        let ran = serve(url);
        assert_ne!(ran.exit, 0, "{url}");
        assert!(ran.stderr.contains(says), "{says:?} is not in {}", ran.stderr);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("hunter2"), "{}", ran.stderr);
    }
    let help = program(&["serve", "--help"])
        .env("PORTCULLIS_DATABASE_URL", "postgres://me:hunter2@host/")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("PORTCULLIS_DATABASE_URL") && !help.contains("hunter2"), "{help}");
}
