//! The data directory: private, and one daemon's at a time.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use portcullis::{
    daemon::{DataDir, Endpoint, read_token},
    domain::error::ErrorCode,
    ports::RandomIds,
};
use secrecy::ExposeSecret;
use tempfile::TempDir;

fn fresh() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("data");
    (parent, path)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_new_directory_and_its_token_are_private() {
    let (_parent, path) = fresh();
    let directory = DataDir::open(&path).expect("opened");
    let token = directory.token().expect("a token");
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("token")), 0o600);
    assert_eq!(token.expose_secret().len(), 43, "32 bytes in base64url");
    assert_eq!(fs::read_to_string(path.join("token")).expect("readable"), token.expose_secret());
    assert!(!format!("{token:?} {directory:?}").contains(token.expose_secret()));
}

#[test]
fn token_and_node_id_survive_a_restart() {
    let (_parent, path) = fresh();
    let first = DataDir::open(&path).expect("opened");
    let (token, node) = (first.token().expect("a token"), first.node_id(&RandomIds).expect("an id"));
    drop(first);
    let second = DataDir::open(&path).expect("opened again");
    assert_eq!(second.token().expect("a token").expose_secret(), token.expose_secret());
    assert_eq!(second.node_id(&RandomIds).expect("an id"), node);
    assert_eq!(read_token(&path).expect("clients read it too").expose_secret(), token.expose_secret());
}

#[test]
fn a_second_daemon_on_the_same_directory_is_refused_by_name_and_changes_nothing() {
    let (_parent, path) = fresh();
    let first = DataDir::open(&path).expect("opened");
    let token = first.token().expect("a token");
    let endpoint = Endpoint::of_this_process("127.0.0.1:7480".parse().expect("an address"));
    first.announce(&endpoint).expect("announced");
    let error = DataDir::open(&path).expect_err("it is held");
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, false));
    let named = path.canonicalize().expect("it is there");
    assert!(error.message.contains(&named.display().to_string()), "{}", error.message);
    assert!(error.message.contains(&std::process::id().to_string()), "{}", error.message);
    assert_eq!(Endpoint::read(&path).expect("readable"), Some(endpoint));
    assert_eq!(first.token().expect("a token").expose_secret(), token.expose_secret());
    drop(first);
    DataDir::open(&path).expect("free again");
}

#[test]
fn a_token_that_others_can_read_is_refused() {
    let (_parent, path) = fresh();
    let directory = DataDir::open(&path).expect("opened");
    directory.token().expect("a token");
    fs::set_permissions(path.join("token"), fs::Permissions::from_mode(0o644)).expect("loosened");
    for refused in [directory.token(), read_token(&path)] {
        let error = refused.expect_err("others can read it");
        assert!(error.message.contains("other users"), "{}", error.message);
    }
}

#[test]
fn a_damaged_token_or_node_id_is_refused_and_kept() {
    let (_parent, path) = fresh();
    let directory = DataDir::open(&path).expect("opened");
    directory.token().expect("a token");
    fs::write(path.join("token"), "short").expect("damaged");
    assert!(directory.token().expect_err("too short").message.contains("holds no token"));
    assert_eq!(fs::read_to_string(path.join("token")).expect("kept"), "short");
    fs::write(path.join("node"), "\n").expect("damaged");
    assert!(directory.node_id(&RandomIds).expect_err("blank").message.contains("node"));
}

#[test]
fn an_empty_open_directory_is_made_private_and_one_with_other_files_is_refused() {
    let (_parent, path) = fresh();
    fs::create_dir(&path).expect("made");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("opened up");
    drop(DataDir::open(&path).expect("it is empty"));
    assert_eq!(mode(&path), 0o700);

    let (_parent, other) = fresh();
    fs::create_dir(&other).expect("made");
    fs::write(other.join("photo.jpg"), "").expect("a file");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("opened up");
    let error = DataDir::open(&other).expect_err("it is someone else's");
    assert!(error.message.contains("--data-dir"), "{}", error.message);
    assert_eq!(mode(&other), 0o755);
    assert_eq!(fs::read_dir(&other).expect("readable").count(), 1, "nothing was put there");
}

#[test]
fn the_endpoint_is_announced_and_taken_back() {
    let (_parent, path) = fresh();
    assert_eq!(Endpoint::read(&path).expect("readable"), None);
    let directory = DataDir::open(&path).expect("opened");
    let everywhere = Endpoint::of_this_process("0.0.0.0:99".parse().expect("an address"));
    assert_eq!(everywhere.endpoint, "http://127.0.0.1:99");
    directory.announce(&everywhere).expect("announced");
    assert_eq!(mode(&path.join("daemon.json")), 0o600);
    assert_eq!(Endpoint::read(&path).expect("readable"), Some(everywhere.clone()));
    drop(directory);
    let next = DataDir::open(&path).expect("opened after a crash");
    assert_eq!(Endpoint::read(&path).expect("readable"), None, "what a crash left is gone");
    next.announce(&everywhere).expect("announced");
    next.retract().expect("taken back");
    next.retract().expect("and again");
    assert_eq!(Endpoint::read(&path).expect("readable"), None);
}
