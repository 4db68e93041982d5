//! Which cargo can build for WebAssembly here, and what to install where none can.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::domain::error::{Error, ErrorCode};

/// The target that guests are built for.
pub const TARGET: &str = "wasm32-unknown-unknown";

const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_LINKER: &str = "/usr/bin/wasm-ld-19";
const DEBIAN_SOURCE: &str = "/usr/lib/rustlib/src/rust/library/Cargo.toml";
const WITH_RUSTUP: &str = "rustup target add wasm32-unknown-unknown";
const WITH_APT: &str = "apt-get install rustc-web cargo-web rust-web-src lld-19";

/// What is installed here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// The `rustc` on the path has the standard library of [`TARGET`].
    pub target: bool,
    /// There is a `rustc` on the path.
    pub rustc: bool,
    /// Debian's toolchain for the web: compiler, sources and linker.
    pub debian_web: bool,
    /// There is a `rustup` on the path.
    pub rustup: bool,
    /// There is an `apt-get` on the path.
    pub apt: bool,
}

/// A cargo that can build guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toolchain {
    /// The cargo on the path.
    OnPath,
    /// Debian's, which builds the standard library along.
    DebianWeb,
}

impl Installed {
    /// Looks around, as a build in `folder` would.
    #[must_use]
    pub fn probe(folder: &Path) -> Self {
        let libdir = ask_rustc(folder, &["--print", "target-libdir", "--target", TARGET]);
        let has_core = |libdir: &String| {
            std::fs::read_dir(libdir).is_ok_and(|mut entries| {
                entries.any(|entry| {
                    entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
                })
            })
        };
        let debian = [DEBIAN_CARGO, DEBIAN_RUSTC, DEBIAN_LINKER, DEBIAN_SOURCE];
        Self {
            target: libdir.as_ref().is_some_and(has_core),
            rustc: on_path("rustc"),
            debian_web: debian.iter().all(|file| Path::new(file).exists()),
            rustup: on_path("rustup"),
            apt: on_path("apt-get"),
        }
    }
}

impl Toolchain {
    /// Chooses among what is installed.
    ///
    /// # Errors
    /// [`ErrorCode::Unavailable`], saying what to run, when nothing can build guests.
    pub fn choose(installed: Installed) -> Result<Self, Error> {
        if installed.target {
            return Ok(Self::OnPath);
        }
        if installed.debian_web {
            return Ok(Self::DebianWeb);
        }
        let advice = match installed {
            Installed { rustup: true, .. } => format!("run `{WITH_RUSTUP}` in the crate's folder"),
            Installed { apt: true, .. } => format!("run `{WITH_APT}`"),
            Installed { rustc: true, .. } => {
                format!(
                    "this rustc came without rustup: install rustup (https://rustup.rs), then run `{WITH_RUSTUP}`"
                )
            }
            _ => format!("install Rust with rustup (https://rustup.rs), then run `{WITH_RUSTUP}`"),
        };
        Err(Error::new(
            ErrorCode::Unavailable,
            format!("no Rust toolchain here can build for {TARGET}; {advice}"),
        )
        .with_retryable(false))
    }

    /// Fetches the dependencies of the crate in `folder`.
    #[must_use]
    pub fn fetch(self, folder: &Path) -> Command {
        let mut command = self.cargo(folder);
        command.args(["fetch", "--target", TARGET]);
        command
    }

    /// A release build of the crate in `folder`, whose dependencies were fetched.
    #[must_use]
    pub fn build(self, folder: &Path) -> Command {
        let mut command = self.cargo(folder);
        command.args(["build", "--release", "--target", TARGET]);
        if self == Self::DebianWeb {
            command.arg("-Zbuild-std=std,panic_abort");
        }
        self.forget_paths(folder, &mut command);
        command
    }

    fn cargo(self, folder: &Path) -> Command {
        let mut command = match self {
            Self::OnPath => Command::new("cargo"),
            Self::DebianWeb => {
                let mut command = Command::new(DEBIAN_CARGO);
                let path = env::var_os("PATH").unwrap_or_default();
                let first = std::iter::once(PathBuf::from("/usr/bin"));
                if let Ok(path) = env::join_paths(first.chain(env::split_paths(&path))) {
                    command.env("PATH", path);
                }
                command
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", DEBIAN_LINKER);
                command
            }
        };
        command.current_dir(folder);
        command
    }

    /// Keeps the folders of this machine out of the component: a panic's location
    /// would name the home of whoever built it, and the same source would give
    /// other bytes elsewhere.
    fn forget_paths(self, folder: &Path, command: &mut Command) {
        // The last prefix that fits wins.
        let mut prefixes = vec![(folder.to_owned(), ".")];
        if self == Self::OnPath
            && let Some(sysroot) = ask_rustc(folder, &["--print", "sysroot"])
        {
            prefixes.push((PathBuf::from(sysroot), "/rust"));
        }
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
        if let Some(cargo) = env::var_os("CARGO_HOME").map(PathBuf::from).or(home) {
            let registries = std::fs::read_dir(cargo.join("registry/src")).into_iter().flatten().flatten();
            let mut registries: Vec<PathBuf> = registries.map(|entry| entry.path()).collect();
            registries.sort();
            prefixes.push((cargo, "/cargo"));
            prefixes.extend(registries.into_iter().map(|registry| (registry, "/crates")));
        }
        let flags: Vec<String> = prefixes
            .iter()
            .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
            .collect();
        // Flags of the environment replace those of every configuration file, so
        // ours join whichever kind is in use.
        let separator = "\u{1f}";
        let inherited = env::var("CARGO_ENCODED_RUSTFLAGS").ok().or_else(|| {
            env::var("RUSTFLAGS")
                .ok()
                .map(|flags| flags.split_whitespace().collect::<Vec<_>>().join(separator))
        });
        match inherited.filter(|flags| !flags.is_empty()) {
            Some(inherited) => {
                command.env(
                    "CARGO_ENCODED_RUSTFLAGS",
                    [&[inherited], flags.as_slice()].concat().join(separator),
                );
            }
            None => {
                let list = serde_json::Value::from(flags);
                command.arg("--config").arg(format!("target.{TARGET}.rustflags={list}"));
            }
        }
    }
}

fn ask_rustc(folder: &Path, arguments: &[&str]) -> Option<String> {
    let folder = if folder.is_dir() { folder } else { Path::new(".") };
    let answer = Command::new("rustc")
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    answer.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
