//! The contract goes where the author works, and a build that lacks it says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis::{
    authoring::{
        component::ComponentInterface,
        wit::{self, SOURCES},
    },
    domain::error::ErrorCode,
};

use super::{component, fixture, says, tree};

fn contract() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("wit").join(wit::VERSION)
}

#[test]
fn the_contract_is_written_as_the_repository_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("deep/wit");
    let first = wit::write(&out).expect("a new folder");
    assert_eq!(first.written.len(), SOURCES.len());
    let names = |root: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        tree(root)
            .into_iter()
            .map(|(path, bytes)| (path.strip_prefix(root).expect("below").to_owned(), bytes))
            .collect()
    };
    assert_eq!(names(&out), names(&contract()), "every file of the contract, and nothing else");

    assert_eq!(wit::write(&out).expect("the same again").written, [""; 0]);
    fs::remove_file(out.join("host.wit")).expect("removed");
    fs::write(out.join("README.md"), "the author's").expect("written");
    assert_eq!(wit::write(&out).expect("a gap is filled").written, ["host.wit"]);
}

#[test]
fn what_an_author_changed_is_never_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["types.wit", "worlds.wit", "mine.wit"] {
        fs::write(folder.path().join(name), "package mine:own;").expect("written");
    }
    let before = tree(folder.path());
    let error = wit::write(folder.path()).expect_err("it is refused");
    says(&error, ErrorCode::InvalidRequest, &["mine.wit, types.wit, worlds.wit", "empty folder"]);
    assert_eq!(tree(folder.path()), before);
    let error = wit::write(&folder.path().join("mine.wit")).expect_err("a file is no folder");
    says(&error, ErrorCode::InvalidRequest, &["cannot read the folder"]);
    assert_eq!(tree(folder.path()), before);
}

#[test]
fn a_copy_of_echo_elsewhere_builds_by_what_the_error_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let krate = folder.path().join("echo");
    fs::create_dir_all(krate.join("src")).expect("a folder");
    for file in ["Cargo.toml", "Cargo.lock", "connector.json", "src/lib.rs"] {
        fs::copy(fixture("connectors/echo").join(file), krate.join(file)).expect("copied");
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    let portcullis = |arguments: &[&str]| -> Output {
        Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .current_dir(&krate)
            .arg("connector")
            .args(arguments)
            .output()
            .expect("the program starts")
    };
    let build = || {
        portcullis(&[
            "build",
            "--locked",
            "--out",
            "echo.wasm",
            "--target-dir",
            target.to_str().expect("text"),
        ])
    };

    let refused = build();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    for part in
        ["../../../wit/0.1.0", "`portcullis connector wit --out wit`", "`path: \"wit\"` in src/lib.rs"]
    {
        assert!(said.contains(part), "{said}");
    }
    assert!(!krate.join("echo.wasm").exists());

    let written = portcullis(&["wit", "--out", "wit"]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let source = fs::read_to_string(krate.join("src/lib.rs")).expect("the source");
    let moved = source.replace(r#"path: "../../../wit/0.1.0""#, r#"path: "wit""#);
    assert_ne!(moved, source);
    fs::write(krate.join("src/lib.rs"), moved).expect("written");
    let built = build();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert_eq!(
        ComponentInterface::read(&fs::read(krate.join("echo.wasm")).expect("built")).expect("a component"),
        ComponentInterface::read(&component("echo", "1.0.0", "v1")).expect("a component"),
    );
}
