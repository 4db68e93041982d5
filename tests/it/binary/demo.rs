//! The demo: ends well, tells every step, leaves nothing behind.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use super::{portcullis, program};

#[test]
fn the_demo_plays_to_its_end_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = program(&["demo"]).env("TMPDIR", folder.path()).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}{said}");
    for promised in [
        "verified sha256:",
        "Hello, gate.",
        "4 entries",
        "[capability_input_invalid]",
        "[artifact_digest_mismatch]",
        "feeds 1.0.0 still answers",
        "[capability_fenced]",
        "feeds.search, new in 1.1.0",
        "[capability_not_found]",
        "Try next",
    ] {
        assert!(told.contains(promised), "{promised:?} is not in\n{told}{said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something is left in {folder:?}");
}

#[test]
fn the_demo_is_for_people() {
    portcullis(&["--json", "demo"], "").failed(2, "people");
}

#[test]
fn a_demo_that_is_kept_ends_with_ctrl_c_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = program(&["demo", "--keep"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let hint = lines.find(|line| line.as_ref().unwrap().contains("call echo.echo")).unwrap().unwrap();
    // The command that is told works while the demo is up.
    let told = Command::new("sh").args(["-c", &hint]).output().unwrap();
    assert_eq!(String::from_utf8(told.stdout).unwrap(), "hello\n");
    let pid = demo.id().to_string();
    assert!(Command::new("sh").args(["-c", "kill -INT \"$0\"", &pid]).status().unwrap().success());
    assert!(demo.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something is left in {folder:?}");
}
