//! Guest crate to component.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde::{Deserialize, Serialize};
use wit_component::ComponentEncoder;

use super::{
    component::ComponentInterface,
    contract::{self, Problem},
    files,
    toolchain::{Installed, TARGET, Toolchain},
    wit,
};
use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
};

/// What to build.
#[derive(Clone, Debug)]
pub struct BuildRequest {
    /// The folder of the guest crate.
    pub folder: PathBuf,
    /// Cargo features to switch on.
    pub features: Vec<String>,
    /// Whether the default features are off.
    pub no_default_features: bool,
    /// Whether `Cargo.lock` must be as it is.
    pub locked: bool,
    /// Where cargo builds; its own choice when not said.
    pub target_dir: Option<PathBuf>,
    /// Where the component goes; beside cargo's own output when not said.
    pub out: Option<PathBuf>,
}

/// A component that was built.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Built {
    /// Where it lies.
    pub component: PathBuf,
    /// How large it is.
    pub size_bytes: u64,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// The world it fits by its exports, where there is one.
    pub world: Option<String>,
    /// What it imports and exports.
    #[serde(flatten)]
    pub interface: ComponentInterface,
    /// Why a host would not take it; empty when it would.
    pub problems: Vec<Problem>,
}

/// Builds a guest crate and makes a component of it. Cargo's messages go to
/// standard error as they come.
///
/// # Errors
/// [`ErrorCode::Unavailable`] without a toolchain, [`ErrorCode::ComponentInvalid`]
/// when the crate does not build or makes no component.
pub fn build(request: &BuildRequest) -> Result<Built, Error> {
    let folder = request.folder.canonicalize().ok().filter(|folder| folder.join("Cargo.toml").is_file());
    let folder = folder.ok_or_else(|| {
        Error::invalid_request(format!(
            "{} holds no Cargo.toml; name the guest crate",
            request.folder.display()
        ))
    })?;
    let toolchain = Toolchain::choose(Installed::probe(&folder))?;
    let module_path = compile(toolchain, &folder, request)?;
    let component = componentize(&files::read(&module_path)?)?;
    let path = request.out.clone().unwrap_or_else(|| module_path.with_extension("component.wasm"));
    files::write_atomically(&path, &component)?;

    let interface = ComponentInterface::read(&component)?;
    let world = contract::likely_world(&interface)?;
    let problems = contract::problems(&interface, world.unwrap_or(crate::domain::manifest::WORLD_CONNECTOR))?;
    Ok(Built {
        component: path,
        size_bytes: component.len() as u64,
        sha256: Sha256Digest::of(&component),
        world: world.map(str::to_owned),
        interface,
        problems,
    })
}

/// Makes a component of a core module that `wit-bindgen` left its types in.
///
/// # Errors
/// [`ErrorCode::ComponentInvalid`], saying what is missing.
pub fn componentize(module: &[u8]) -> Result<Vec<u8>, Error> {
    let encode = || ComponentEncoder::default().validate(true).module(module)?.encode();
    encode().map_err(|cause| {
        Error::new(
            ErrorCode::ComponentInvalid,
            format!(
                "no component can be made of this module: {cause:#}; \
                 does the crate call wit_bindgen::generate! and export! its connector?"
            ),
        )
    })
}

/// A line of `cargo build --message-format=json`, as far as it matters here.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum CargoMessage {
    CompilerArtifact {
        manifest_path: PathBuf,
        target: CargoTarget,
        filenames: Vec<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
}

fn compile(toolchain: Toolchain, folder: &Path, request: &BuildRequest) -> Result<PathBuf, Error> {
    let failed = |message: String| Error::new(ErrorCode::ComponentInvalid, message);
    let not_started =
        |cause: std::io::Error| failed(format!("cargo cannot be started: {cause}")).with_cause(cause);

    let mut fetch = toolchain.fetch(folder);
    if request.locked {
        fetch.arg("--locked");
    }
    let fetched = fetch.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(not_started)?;
    if !fetched.success() {
        return Err(failed(format!(
            "the guest crate's dependencies cannot be fetched ({fetched}); cargo's messages stand above"
        )));
    }

    let mut command = toolchain.build(folder);
    command.args(["--lib", "--message-format=json-render-diagnostics"]);
    if !request.features.is_empty() {
        command.arg("--features").arg(request.features.join(","));
    }
    if request.no_default_features {
        command.arg("--no-default-features");
    }
    if request.locked {
        command.arg("--locked");
    }
    if let Some(target_dir) = &request.target_dir {
        command
            .arg("--target-dir")
            .arg(std::path::absolute(target_dir).unwrap_or_else(|_| target_dir.clone()));
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(not_started)?;
    if !output.status.success() {
        let mut message = format!(
            "the guest crate does not build for {TARGET} ({}); cargo's messages stand above",
            output.status
        );
        if let Some(missing) = wit::missing(folder) {
            let near = request.folder.join("wit");
            let _ = write!(
                message,
                "; the WIT folder {} that it names is not there: write the contract with \
                 `portcullis connector wit --out {}` and set `path: \"wit\"` in src/lib.rs",
                missing.display(),
                near.strip_prefix(".").unwrap_or(&near).display(),
            );
        }
        return Err(failed(message));
    }
    let manifest = fs::canonicalize(folder.join("Cargo.toml")).unwrap_or_else(|_| folder.join("Cargo.toml"));
    output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<CargoMessage>(line).ok())
        .filter_map(|message| match message {
            CargoMessage::CompilerArtifact { manifest_path, target, filenames }
                if manifest_path == manifest && target.kind.iter().any(|kind| kind == "cdylib") =>
            {
                filenames.into_iter().find(|file| file.extension().is_some_and(|end| end == "wasm"))
            }
            _ => None,
        })
        .next_back()
        .ok_or_else(|| {
            failed(format!(
                "{} makes no WebAssembly module; its Cargo.toml needs [lib] with crate-type = [\"cdylib\"]",
                folder.display()
            ))
        })
}
