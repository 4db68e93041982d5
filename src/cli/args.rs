//! The grammar: one place for every command and flag.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::{
    call, capabilities,
    catalog::CatalogCommand,
    client::Client,
    connector::ConnectorCommand,
    exit::{EXIT_CODES, Failure},
    install, list, operations,
    output::Output,
    refresh, routes, show,
    store::StoreCommand,
    switch, uninstall,
};
use crate::{config::ServeArgs, domain::digest::Sha256Digest};

/// A fail-closed host for third-party connectors shipped as WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, about, after_help = EXIT_CODES)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) client: ClientOptions,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Commands that ask no running daemon: what finds one is taken everywhere, so
/// that it may stand before the command, but says nothing to them.
const WITHOUT_DAEMON: [&str; 4] = ["demo", "connector", "catalog", "store"];

impl Arguments {
    /// What this process was started with; ends it where that is wrong.
    pub(super) fn of_this_process() -> Self {
        let matches = Self::grammar().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    fn grammar() -> clap::Command {
        let mut grammar = Self::command();
        let hidden: Vec<clap::Arg> = grammar
            .get_arguments()
            .filter(|arg| arg.is_global_set() && arg.get_id() != "json")
            .map(|arg| arg.clone().hide(true))
            .collect();
        for name in WITHOUT_DAEMON {
            grammar = grammar.mut_subcommand(name, |command| command.args(hidden.clone()));
        }
        grammar
    }
}

/// How a command finds the daemon, and how it speaks.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Daemon and output")]
pub(super) struct ClientOptions {
    /// The daemon's address, as http://ip:port; needs --token-file [default: as the data directory says]
    #[arg(long, global = true, env = "PORTCULLIS_ENDPOINT", value_name = "URL")]
    pub(super) endpoint: Option<String>,

    /// The file that holds the daemon's token [default: token in the data directory]
    #[arg(long, global = true, env = "PORTCULLIS_TOKEN_FILE", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// The daemon's data directory [default: `$XDG_DATA_HOME/portcullis` or ~/.local/share/portcullis]
    #[arg(long, global = true, env = "PORTCULLIS_DATA_DIR", value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the daemon
    Serve(Box<ServeArgs>),
    /// Show the whole story in one minute, on a temporary directory
    Demo(DemoOptions),
    #[command(flatten)]
    Client(ClientCommand),
    /// Build, pack and inspect connectors, without a daemon
    #[command(subcommand)]
    Connector(ConnectorCommand),
    /// Make catalogs of releases, without a daemon
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Check what a database must keep, without a daemon
    #[command(subcommand)]
    Store(StoreCommand),
    /// Compile one component; the daemon starts this in a limited process
    #[command(hide = true)]
    CompileComponent(CompileOptions),
}

/// What is asked of a running daemon.
#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    /// Read the catalogs again
    Refresh(WaitOptions),
    /// List connectors, and what the catalog has newer
    List(ListOptions),
    /// Show a connector: what it reaches and takes, digest, versions, runtime
    Show {
        /// The connector's key
        key: String,
    },
    /// Install or update connectors; shows what they reach and take first
    Install(InstallOptions),
    /// Remove a connector
    Uninstall(UninstallOptions),
    /// Switch an installed connector on
    Enable(SwitchOptions),
    /// Switch an installed connector off; it stays installed
    Disable(SwitchOptions),
    /// List operations, or show one
    Operations {
        /// The operation's id
        id: Option<String>,
    },
    /// List what can be called, of one connector or of all; or show one capability
    Capabilities {
        /// A connector's key, or a capability's id
        name: Option<String>,
    },
    /// Call a capability
    Call(CallOptions),
    /// List routes with their generations
    Routes,
}

impl ClientCommand {
    pub(super) async fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        match self {
            Self::Refresh(options) => refresh::run(client, output, options).await,
            Self::List(options) => list::run(client, output, options).await,
            Self::Show { key } => show::run(client, output, &key).await,
            Self::Install(options) => install::run(client, output, options).await,
            Self::Uninstall(options) => uninstall::run(client, output, options).await,
            Self::Enable(options) => switch::run(client, output, options, true).await,
            Self::Disable(options) => switch::run(client, output, options, false).await,
            Self::Operations { id } => operations::run(client, output, id.as_deref()).await,
            Self::Capabilities { name } => capabilities::run(client, output, name.as_deref()).await,
            Self::Call(options) => call::run(client, output, options).await,
            Self::Routes => routes::run(client, output).await,
        }
    }
}

#[derive(Args, Debug)]
pub(super) struct CompileOptions {
    /// The SHA-256 that the component was verified under
    #[arg(long)]
    pub(super) digest: Sha256Digest,

    /// The fingerprint of the engine that will run it
    #[arg(long)]
    pub(super) engine: String,

    /// The component
    pub(super) component: PathBuf,

    /// Where the code goes
    pub(super) out: PathBuf,
}

#[derive(Args, Clone, Copy, Debug)]
pub(super) struct DemoOptions {
    /// Leave everything up until Ctrl-C, to play with
    #[arg(long)]
    pub(super) keep: bool,
}

/// How long to wait for an operation.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct WaitOptions {
    /// Return as soon as the command is accepted
    #[arg(long)]
    pub(super) no_wait: bool,

    /// Stop waiting after so many seconds; the operation goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 120, conflicts_with = "no_wait")]
    pub(super) timeout: u64,
}

#[derive(Args, Debug)]
pub(super) struct ListOptions {
    /// Only what is installed
    #[arg(long)]
    pub(super) installed: bool,
}

#[derive(Args, Debug)]
pub(super) struct InstallOptions {
    /// The keys of the connectors
    #[arg(value_name = "KEY", required = true)]
    pub(super) keys: Vec<String>,

    /// Agree to what they reach and take without being asked; needed where there is no terminal
    #[arg(long, short)]
    pub(super) yes: bool,

    /// Install even when this very release is in place, or other bytes of the same version
    #[arg(long)]
    pub(super) reinstall: bool,

    /// Install even when the catalog offers an older version than the one in place
    #[arg(long)]
    pub(super) downgrade: bool,

    #[command(flatten)]
    pub(super) wait: WaitOptions,
}

#[derive(Args, Debug)]
pub(super) struct SwitchOptions {
    /// The connector's key
    pub(super) key: String,

    #[command(flatten)]
    pub(super) wait: WaitOptions,
}

#[derive(Args, Debug)]
pub(super) struct UninstallOptions {
    /// The connector's key
    pub(super) key: String,

    #[command(flatten)]
    pub(super) wait: WaitOptions,
}

#[derive(Args, Debug)]
pub(super) struct CallOptions {
    /// The capability's id, as in echo.echo
    pub(super) id: String,

    /// The input as a JSON object; - reads it from standard input
    #[arg(value_name = "JSON", conflicts_with = "input")]
    pub(super) json_input: Option<String>,

    /// One field of the input; read as JSON where the capability's schema asks for
    /// anything but text
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(super) input: Vec<String>,

    /// How long to wait for the answer, in milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(super) deadline_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_holds_together() {
        Arguments::grammar().debug_assert();
    }
}
