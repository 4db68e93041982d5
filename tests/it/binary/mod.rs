//! The real program: a daemon as a process of its own, and the command line as
//! its client.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod artifacts;
mod calls;
mod catalog;
mod cli;
mod commands;
mod compile;
mod crash;
mod demo;
mod http;
mod neighbor;
mod postgres;
mod shop;
mod site;
mod stop;
mod store;
mod wire;

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// What one command did.
struct Ran {
    exit: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    #[track_caller]
    fn ok(&self) -> &str {
        assert_eq!(self.exit, 0, "{}{}", self.stdout, self.stderr);
        &self.stdout
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(self.ok()).unwrap()
    }

    /// Asserts how it failed: the exit code, and what it says to people.
    #[track_caller]
    fn failed(&self, exit: i32, says: &str) {
        assert_eq!(self.exit, exit, "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.contains(says), "{says:?} is not in {}", self.stderr);
    }
}

/// Runs the program with nothing of this machine's settings.
fn portcullis(args: &[&str], input: &str) -> Ran {
    let mut child =
        program(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that reads no input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        exit: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PORTCULLIS_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

fn fixtures(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path).display().to_string()
}

/// What must come true comes true within this, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `look` sees something; `what` tells what was waited for.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "it did not come true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The names in a folder, sorted; none where there is no folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// One daemon for the tests that run at the same time; it goes with the last of them.
struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start());
            *held = Arc::downgrade(&started);
            started
        })
    }
}

/// A daemon on a directory of its own; killed when dropped.
struct Daemon {
    process: Child,
    folder: TempDir,
}

impl Daemon {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Self::spawn(&folder, more);
        let mut daemon = Self { process, folder };
        daemon.await_announcement();
        daemon
    }

    /// Starts again on the same directory, after the process before it has ended.
    fn start_again(&mut self, more: &[&str]) {
        self.process = Self::spawn(&self.folder, more);
        self.await_announcement();
    }

    fn spawn(folder: &TempDir, more: &[&str]) -> Child {
        let data_dir = folder.path().join("data");
        let catalog = fixtures("catalog/v1");
        let mut args = vec!["serve", "--data-dir", data_dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        args.extend(["--catalog-refresh-interval", "0"]);
        if !more.contains(&"--catalog") {
            args.extend(["--catalog", &catalog]);
        }
        args.extend(more);
        let log = File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
        program(&args).stdin(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// A daemon that was killed leaves its announcement behind; only the own one counts.
    fn await_announcement(&mut self) {
        let started = Instant::now();
        while self.announced().is_none_or(|announced| announced["pid"] != self.process.id()) {
            assert!(self.process.try_wait().unwrap().is_none(), "{}", self.log());
            assert!(started.elapsed() < PATIENCE, "{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn announced(&self) -> Option<Value> {
        let text = std::fs::read(self.data_dir().join("daemon.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// A daemon that has read its catalog.
    fn with_catalog() -> Self {
        let daemon = Self::start(&[]);
        daemon.run(&["refresh"]).ok();
        daemon
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    fn run_with(&self, args: &[&str], input: &str) -> Ran {
        let data_dir = self.data_dir();
        let mut all = vec!["--data-dir", data_dir.to_str().unwrap()];
        all.extend(args);
        portcullis(&all, input)
    }

    fn endpoint(&self) -> String {
        self.announced().unwrap()["endpoint"].as_str().unwrap().to_owned()
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.data_dir().join("token")).unwrap().trim().to_owned()
    }

    /// Asks it to stop, and waits; its exit code.
    fn stop(&mut self) -> i32 {
        self.terminate();
        self.process.wait().unwrap().code().unwrap()
    }

    /// Asks it to stop.
    fn terminate(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid]).status().unwrap().success());
    }

    /// Ends it as a power cut would: it does nothing more.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// What the data directory holds of artifacts, below `path`.
    fn artifacts(&self, path: &str) -> Vec<String> {
        names(&self.data_dir().join("artifacts").join(path))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
