//! `portcullis connector`: the contract, build, pack and inspect, without a daemon.

use std::{fmt::Write as _, path::PathBuf};

use clap::{Args, Subcommand};

use super::report::{Report, shown, size};
use crate::{
    authoring::{
        build::{self, BuildRequest, Built},
        component::ComponentInterface,
        contract::Problem,
        inspect::{self, Demands, Inspection},
        pack::{self, PackRequest, Packed},
        wit::{self, WitWritten},
    },
    domain::{
        error::Error,
        id::ConnectorKey,
        manifest::{CredentialPlacement, EffectiveLimits, ImplementationKind},
        timestamp::Timestamp,
    },
    ports::Clock,
};

/// An interface with more functions is told by their number; `--json` names them all.
const FUNCTIONS_SHOWN: usize = 4;

/// What an author does with a connector.
#[derive(Clone, Debug, Subcommand)]
pub enum ConnectorCommand {
    /// Write the WIT contract that guests are built against.
    Wit(WitArgs),
    /// Build a guest crate and make a component of it.
    Build(BuildArgs),
    /// Pack a component and its manifest into a bundle with its release document.
    // `--version` is the release's here.
    #[command(disable_version_flag = true)]
    Pack(PackArgs),
    /// Show what a bundle, component or release holds, asks for and weighs.
    Inspect(InspectArgs),
}

/// Arguments of `connector wit`.
#[derive(Args, Clone, Debug)]
pub struct WitArgs {
    /// The folder for the contract: a new or empty one, or one that holds it already.
    #[arg(long, value_name = "DIR", default_value = "wit")]
    pub out: PathBuf,
}

/// Arguments of `connector build`.
#[derive(Args, Clone, Debug)]
pub struct BuildArgs {
    /// The folder of the guest crate.
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Cargo features to switch on, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub features: Vec<String>,
    /// Switch the default features off.
    #[arg(long)]
    pub no_default_features: bool,
    /// Refuse to change Cargo.lock.
    #[arg(long)]
    pub locked: bool,
    /// Where cargo builds [default: cargo's own choice].
    #[arg(long, value_name = "DIR")]
    pub target_dir: Option<PathBuf>,
    /// Where the component goes [default: beside cargo's own output].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `connector pack`.
#[derive(Args, Clone, Debug)]
pub struct PackArgs {
    /// The component; leave it out for a connector that runs elsewhere.
    pub component: Option<PathBuf>,
    /// The manifest.
    #[arg(long, value_name = "FILE")]
    pub manifest: PathBuf,
    /// The connector's key.
    #[arg(long)]
    pub key: ConnectorKey,
    /// The version of the release.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub version: semver::Version,
    /// An icon (.png, .webp or .svg, at most 128 KiB) to carry as the manifest's iconUrl.
    #[arg(long, value_name = "FILE")]
    pub icon: Option<PathBuf>,
    /// A folder of skills, each with its SKILL.md. Hidden files are left out.
    #[arg(long, value_name = "DIR")]
    pub skills: Option<PathBuf>,
    /// A further file to put beside the manifest, such as LICENSE; may be repeated.
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// When the release was published, in RFC 3339 [default: now].
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse_rfc3339)]
    pub published_at: Option<Timestamp>,
    /// The folder for the bundle and the release document.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Overwrite another release of the same version there.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `connector inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// A bundle, a component, or a release document with its artifact beside it.
    pub path: PathBuf,
}

/// Runs a `connector` command.
///
/// # Errors
/// What the verb answers.
pub fn run(command: ConnectorCommand, clock: &dyn Clock) -> Result<Report, Error> {
    match command {
        ConnectorCommand::Wit(args) => {
            let written = wit::write(&args.out)?;
            Report::new(describe_wit(&written), &written)
        }
        ConnectorCommand::Build(args) => {
            let built = build::build(&BuildRequest {
                folder: args.dir,
                features: args.features,
                no_default_features: args.no_default_features,
                locked: args.locked,
                target_dir: args.target_dir,
                out: args.out,
            })?;
            Report::new(describe_built(&built), &built)
        }
        ConnectorCommand::Pack(args) => {
            let packed = pack::pack(&PackRequest {
                component: args.component,
                manifest: args.manifest,
                key: args.key,
                version: args.version,
                icon: args.icon,
                skills: args.skills,
                files: args.files,
                published_at: args.published_at.unwrap_or_else(|| clock.now()),
                out: args.out,
                force: args.force,
            })?;
            Report::new(describe_packed(&packed), &packed)
        }
        ConnectorCommand::Inspect(args) => {
            let inspection = inspect::inspect(&args.path)?;
            Report::new(describe(&inspection), &inspection)
        }
    }
}

/// Reads a version and says how one is written.
fn version(text: &str) -> Result<semver::Version, String> {
    semver::Version::parse(text).map_err(|cause| format!("{cause}; write three numbers, as in 1.2.0"))
}

fn describe_wit(written: &WitWritten) -> String {
    let folder = written.folder.display();
    let mut text = if written.written.is_empty() {
        format!("{folder} has the contract {} already\n", written.version)
    } else {
        format!("wrote the contract {} to {folder}\n", written.version)
    };
    for name in &written.written {
        line(&mut text, "file", name);
    }
    let name = written.folder.file_name().unwrap_or_default().to_string_lossy();
    let call = format!("wit_bindgen::generate!({{ world: \"connector\", path: {name:?} }});");
    line(&mut text, "in src/lib.rs", &call);
    finish(text)
}

fn describe_built(built: &Built) -> String {
    let mut text = format!("built {}\n", built.component.display());
    line(&mut text, "size", &size(built.size_bytes));
    line(&mut text, "sha256", &built.sha256.to_string());
    line(&mut text, "world", built.world.as_deref().unwrap_or("none that this host runs"));
    outside(&mut text, &built.interface);
    verdict(&mut text, &built.problems);
    finish(text)
}

fn describe_packed(packed: &Packed) -> String {
    let release = &packed.release;
    let mut text = format!("packed {}\n", release.release_id);
    line(&mut text, "bundle", &packed.bundle.display().to_string());
    line(&mut text, "size", &size(u64::try_from(release.artifact.size_bytes).unwrap_or(0)));
    line(&mut text, "sha256", &release.artifact.sha256.to_string());
    line(&mut text, "release", &packed.release_document.display().to_string());
    line(&mut text, "release digest", &release.release_digest.to_string());
    line(&mut text, "manifest digest", &release.manifest_digest.to_string());
    finish(text)
}

fn describe(inspection: &Inspection) -> String {
    let mut text = String::new();
    if let Some(release) = &inspection.release {
        let _ = writeln!(text, "release {} {}", release.connector_key, release.version);
        line(&mut text, "release digest", &format!("{} (recomputed)", release.release_digest));
        let artifact = if release.artifact_verified {
            "beside it; size and SHA-256 are the release's"
        } else {
            "not beside the release document: NOT VERIFIED"
        };
        line(&mut text, "artifact", artifact);
    }
    // A bare component is the artifact itself, and is weighed once.
    let bare = inspection.component.as_ref().is_some_and(|component| component.path.is_none());
    if let Some(artifact) = inspection.artifact.as_ref().filter(|_| !bare) {
        let _ = writeln!(text, "artifact");
        line(&mut text, "size", &size(artifact.size_bytes));
        line(&mut text, "sha256", &artifact.sha256.to_string());
    }
    if let Some(demands) = &inspection.manifest {
        asks(&mut text, demands);
    }
    if let Some(component) = &inspection.component {
        match &component.path {
            Some(path) => drop(writeln!(text, "component {}", shown(path))),
            None => text.push_str("component\n"),
        }
        line(&mut text, "size", &size(component.weight.size_bytes));
        line(&mut text, "sha256", &component.weight.sha256.to_string());
        line(&mut text, "world", component.world.as_deref().unwrap_or("none that this host runs"));
        outside(&mut text, &component.interface);
    }
    if !inspection.files.is_empty() {
        let total = inspection.files.iter().map(|file| file.size_bytes).sum();
        let _ = writeln!(text, "files: {}, {}", inspection.files.len(), size(total));
        for file in &inspection.files {
            line(&mut text, &size(file.size_bytes), &shown(&file.path));
        }
    }
    verdict(&mut text, &inspection.problems);
    finish(text)
}

fn asks(text: &mut String, demands: &Demands) {
    let list = |items: Vec<String>| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let _ = writeln!(text, "asks for, as {}", shown(&demands.display_name));
    line(text, "manifest digest", &format!("{} (recomputed)", demands.manifest_digest));
    line(text, "runs as", demands.implementation.as_str());
    let authorization = serde_json::to_value(demands.authorization_kind).unwrap_or_default();
    line(text, "authorization", authorization.as_str().unwrap_or_default());
    line(text, "permissions", &list(demands.permissions.iter().map(ToString::to_string).collect()));
    line(text, "hosts", &list(demands.allowed_hosts.iter().map(ToString::to_string).collect()));
    let credential = demands.credential.as_ref().map_or_else(
        || "none".to_owned(),
        |credential| {
            let hosts = list(credential.hosts.iter().map(ToString::to_string).collect());
            let place = match &credential.placement {
                CredentialPlacement::Header { name, .. } => format!("header {name}"),
                CredentialPlacement::Query { name } => format!("query parameter {name}"),
            };
            format!("the host puts it into {place}, for {hosts}")
        },
    );
    line(text, "credential", &credential);
    limits(text, demands);
}

/// The limits asked for; those left out with what this host gives by default.
fn limits(text: &mut String, demands: &Demands) {
    let defaults = match demands.implementation {
        ImplementationKind::WasmComponent => {
            serde_json::to_value(EffectiveLimits::default()).unwrap_or_default()
        }
        ImplementationKind::RemoteStreamableHttp => demands.limits.clone(),
    };
    for (name, default) in defaults.as_object().into_iter().flatten() {
        let asked = demands.limits.get(name);
        let value = asked.unwrap_or(default).as_u64().unwrap_or_default();
        let amount = if name.ends_with("Bytes") {
            size(value)
        } else if name.ends_with("Ms") {
            format!("{value} ms")
        } else {
            value.to_string()
        };
        let note = if asked.is_some() { "" } else { " (the host's default)" };
        line(text, name, &format!("{amount}{note}"));
    }
}

fn outside(text: &mut String, interface: &ComponentInterface) {
    for (word, side) in [("imports", &interface.imports), ("exports", &interface.exports)] {
        if side.is_empty() {
            line(text, word, "nothing");
        }
        for (name, functions) in side {
            let names: Vec<String> = functions.keys().map(|function| shown(function)).collect();
            let functions = match names.len() {
                0 => "types only".to_owned(),
                1..=FUNCTIONS_SHOWN => names.join(", "),
                more => format!("{more} functions"),
            };
            line(text, word, &format!("{}: {functions}", shown(name)));
        }
    }
}

fn verdict(text: &mut String, problems: &[Problem]) {
    if !problems.is_empty() {
        let _ = writeln!(text, "a host REFUSES it:");
    }
    for problem in problems {
        let _ = writeln!(text, "  {}: {}", problem.code, shown(&problem.message));
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<15} {value}");
}

fn finish(mut text: String) -> String {
    text.truncate(text.trim_end().len());
    text
}
