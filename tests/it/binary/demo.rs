//! The demo: ends well, tells every step, leaves nothing behind.

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
