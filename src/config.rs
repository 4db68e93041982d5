//! The daemon's settings: read from flags and environment once, checked once,
//! typed from then on.
//!
//! What lives here: [`ServeArgs`], what an operator can say, and
//! [`ServeSettings`], what it means. What may not: anything that opens a file or
//! a socket, or a default that another module decides as well.

use std::{
    ffi::OsString,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::{
    domain::{
        error::Error,
        id::AccountId,
        manifest::{EffectiveLimits, HostName},
        operation::OperationScope,
    },
    sandbox::SandboxSettings,
    store::check_postgres_url,
    telemetry::{LogFormat, LogSettings},
};

/// The port of a daemon whose operator chose none.
pub const DEFAULT_PORT: u16 = 7480;

/// What `portcullis serve` can be told. Every flag has a variable of the
/// environment; a flag wins over its variable.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Where the daemon keeps everything; by default `portcullis` in `$XDG_DATA_HOME` or `~/.local/share`
    #[arg(long, env = "PORTCULLIS_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// A PostgreSQL database to keep everything but files in, as `postgres://user@host/database`; by default an
    /// SQLite file in the data directory. A password is better given by the variable: others see flags
    #[arg(long, env = "PORTCULLIS_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<SecretString>,

    /// The address to listen on, as ip:port; port 0 picks a free one
    #[arg(long, env = "PORTCULLIS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:7480")]
    pub listen: String,

    /// Allow an address that other machines can reach; the connection is not encrypted
    #[arg(long, env = "PORTCULLIS_ALLOW_REMOTE", value_parser = clap::builder::BoolishValueParser::new())]
    pub allow_remote: bool,

    /// A further host name that requests may be addressed to, behind a proxy say; without a port, any port
    #[arg(
        long = "allow-host",
        env = "PORTCULLIS_ALLOWED_HOSTS",
        value_name = "NAME[:PORT]",
        value_delimiter = ',',
        num_args = 1
    )]
    pub allowed_hosts: Vec<String>,

    /// A catalog: a directory, or an http(s) URL; can be given several times
    #[arg(
        long = "catalog",
        env = "PORTCULLIS_CATALOGS",
        value_name = "DIR|URL",
        value_delimiter = ',',
        num_args = 1
    )]
    pub catalogs: Vec<String>,

    /// Seconds between two catalog refreshes; 0 refreshes on command only
    #[arg(
        long,
        env = "PORTCULLIS_CATALOG_REFRESH_INTERVAL",
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(0..=86_400)
    )]
    pub catalog_refresh_interval: u64,

    /// The account the daemon acts for; empty is signed out, and then no operation is visible
    #[arg(long, env = "PORTCULLIS_ACCOUNT", value_name = "ACCOUNT", default_value = "local")]
    pub account: String,

    /// Let connectors reach NAME at a private address over plain HTTP; for development only
    #[arg(
        long = "development-host",
        env = "PORTCULLIS_DEVELOPMENT_HOSTS",
        value_name = "NAME=IP:PORT",
        value_delimiter = ',',
        num_args = 1
    )]
    pub development_hosts: Vec<String>,

    /// The most memory one call may use, in MiB, whatever its connector asks for [default: 512]
    #[arg(
        long,
        env = "PORTCULLIS_MAX_MEMORY_MIB",
        value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(1..=4096)
    )]
    pub max_memory_mib: Option<u64>,

    /// The most table elements one call may use [default: 100000]
    #[arg(
        long,
        env = "PORTCULLIS_MAX_TABLE_ELEMENTS",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    pub max_table_elements: Option<u64>,

    /// The most CPU time one call may use, in milliseconds [default: 60000]
    #[arg(
        long,
        env = "PORTCULLIS_MAX_CPU_MS",
        value_name = "MS",
        value_parser = clap::value_parser!(u64).range(1..=120_000)
    )]
    pub max_cpu_ms: Option<u64>,

    /// The longest one call may take, in milliseconds [default: 120000]
    #[arg(
        long,
        env = "PORTCULLIS_MAX_WALL_MS",
        value_name = "MS",
        value_parser = clap::value_parser!(u64).range(100..=120_000)
    )]
    pub max_wall_ms: Option<u64>,

    /// The most calls of one connector at the same time [default: 256]
    #[arg(
        long,
        env = "PORTCULLIS_MAX_CONCURRENT_CALLS",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub max_concurrent_calls: Option<u32>,

    /// The largest answer of one call, in KiB [default: 10240]
    #[arg(
        long,
        env = "PORTCULLIS_MAX_RESPONSE_KIB",
        value_name = "KIB",
        value_parser = clap::value_parser!(u64).range(1..=10_240)
    )]
    pub max_response_kib: Option<u64>,

    /// The most instances, and so calls, of all connectors at the same time [default: 1000]
    #[arg(
        long,
        env = "PORTCULLIS_POOL_SIZE",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(8..=10_000)
    )]
    pub pool_size: Option<u32>,

    /// Seconds that running calls get to end when the daemon stops
    #[arg(
        long,
        env = "PORTCULLIS_DRAIN_DEADLINE",
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=600)
    )]
    pub drain_deadline: u64,

    /// How the log looks
    #[arg(long, env = "PORTCULLIS_LOG_FORMAT", value_enum, default_value_t = LogFormat::Human)]
    pub log_format: LogFormat,

    /// What is logged, as in `info,portcullis::daemon=debug`
    #[arg(long, env = "PORTCULLIS_LOG", value_name = "FILTER", default_value = "info")]
    pub log_filter: String,
}

/// Where a catalog is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogLocation {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A static catalog on a web server.
    Http(Url),
}

impl FromStr for CatalogLocation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::invalid_request("a catalog is a directory or an http(s) URL, not nothing"));
        }
        if !text.contains("://") {
            return Ok(Self::Directory(PathBuf::from(text)));
        }
        // The text is not repeated: a URL may bear a password.
        let url = Url::parse(text).map_err(|cause| {
            Error::invalid_request("a catalog's URL cannot be read; write https://host/path")
                .with_cause(cause)
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::invalid_request(format!(
                "a catalog's URL starts with https:// or http://, not {}://",
                url.scheme()
            )));
        }
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(Error::invalid_request(
                "a catalog's URL must not contain a user, a password or a fragment",
            ));
        }
        Ok(Self::Http(url))
    }
}

impl fmt::Display for CatalogLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Http(url) => url.fmt(f),
        }
    }
}

/// A host that connectors may reach although its address is private.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevelopmentHost {
    /// The name that connectors use.
    pub name: HostName,
    /// Where it is.
    pub address: SocketAddr,
}

impl FromStr for DevelopmentHost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::invalid_request(format!(
                "development host {text:?} cannot be read; write name=ip:port, as in feed.test=127.0.0.1:8080"
            ))
        };
        let (name, address) = text.trim().split_once('=').ok_or_else(wrong)?;
        let name = HostName::parse(name.trim()).map_err(|cause| wrong().with_cause(cause))?;
        let address: SocketAddr = address.trim().parse().map_err(|_| wrong())?;
        if address.port() == 0 { Err(wrong()) } else { Ok(Self { name, address }) }
    }
}

/// What the daemon runs with.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// Where it keeps everything.
    pub data_dir: PathBuf,
    /// The PostgreSQL database in place of one in the data directory.
    pub database_url: Option<SecretString>,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Host names that requests may be addressed to, beside its own address.
    pub allowed_hosts: Vec<String>,
    /// The catalogs, in order of precedence.
    pub catalogs: Vec<CatalogLocation>,
    /// The time between two refreshes; none refreshes on command only.
    pub catalog_refresh_interval: Option<Duration>,
    /// For which account it acts.
    pub scope: OperationScope,
    /// Hosts with private addresses that connectors may reach.
    pub development_hosts: Vec<DevelopmentHost>,
    /// What caps the limits that connectors ask for.
    pub ceiling: EffectiveLimits,
    /// Instances in the pool.
    pub pool_size: u32,
    /// How long running calls get to end.
    pub drain_deadline: Duration,
    /// How it logs.
    pub log: LogSettings,
    /// The program that compiles components in a process of its own; none compiles
    /// in this process. No flag: it is the program that runs.
    pub compiler: Option<PathBuf>,
}

impl ServeSettings {
    /// Checks what the operator said, once.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::InvalidRequest`] with the flag and what to write instead.
    pub fn resolve(args: ServeArgs) -> Result<Self, Error> {
        Self::resolve_in(args, |name| std::env::var_os(name))
    }

    /// As [`resolve`](Self::resolve), with the variables of `environment`.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_in(
        args: ServeArgs,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Error> {
        let data_dir = match args.data_dir {
            Some(dir) if dir.as_os_str().is_empty() => {
                return Err(Error::invalid_request("--data-dir must not be empty"));
            }
            Some(dir) => dir,
            None => default_data_dir(environment)?,
        };
        // What the operator leaves open, the sandbox decides.
        let sandbox = SandboxSettings::new(PathBuf::new());
        let most = sandbox.ceilings;
        let account = args.account.trim();
        let scope = if account.is_empty() {
            OperationScope::default()
        } else {
            OperationScope::account(AccountId::parse(account)?)
        };
        if let Some(url) = &args.database_url {
            check_postgres_url(url.expose_secret())?;
        }
        Ok(Self {
            data_dir,
            database_url: args.database_url,
            listen: listen_address(&args.listen, args.allow_remote)?,
            allowed_hosts: allowed_hosts(&args.allowed_hosts)?,
            catalogs: parse_list(&args.catalogs)?,
            catalog_refresh_interval: (args.catalog_refresh_interval > 0)
                .then(|| Duration::from_secs(args.catalog_refresh_interval)),
            scope,
            development_hosts: parse_list(&args.development_hosts)?,
            ceiling: EffectiveLimits {
                memory_bytes: args.max_memory_mib.map_or(most.memory_bytes, |mib| mib << 20),
                table_elements: args.max_table_elements.unwrap_or(most.table_elements),
                cpu_ms: args.max_cpu_ms.unwrap_or(most.cpu_ms),
                wall_ms: args.max_wall_ms.unwrap_or(most.wall_ms),
                concurrent_calls: args.max_concurrent_calls.unwrap_or(most.concurrent_calls),
                response_bytes: args.max_response_kib.map_or(most.response_bytes, |kib| kib << 10),
            },
            pool_size: args.pool_size.unwrap_or(sandbox.pool_instances),
            drain_deadline: Duration::from_secs(args.drain_deadline),
            log: LogSettings { format: args.log_format, filter: args.log_filter.parse()? },
            compiler: None,
        })
    }
}

/// The data directory of an operator who chose none; the client commands look
/// for a running daemon there too.
///
/// # Errors
/// [`crate::domain::error::ErrorCode::InvalidRequest`] where the environment names no home.
pub fn default_data_dir(environment: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    let absolute = |name: &str| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|base| base.join("portcullis"))
        .ok_or_else(|| {
            Error::invalid_request("neither XDG_DATA_HOME nor HOME is set; say where with --data-dir")
        })
}

/// The data directory as given, or the default.
///
/// # Errors
/// As [`default_data_dir`].
pub fn data_dir_or_default(given: Option<&Path>) -> Result<PathBuf, Error> {
    match given {
        Some(dir) => Ok(dir.to_owned()),
        None => default_data_dir(|name| std::env::var_os(name)),
    }
}

/// Exact names, each with a port or without: a wildcard would undo the check.
fn allowed_hosts(texts: &[String]) -> Result<Vec<String>, Error> {
    let check = |text: &str| {
        let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        let port_ok = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        match HostName::parse(name) {
            Ok(name) if port_ok => Ok(port.map_or_else(|| name.to_string(), |port| format!("{name}:{port}"))),
            _ => Err(Error::invalid_request(format!(
                "--allow-host {text:?} is no host name; write gate.example or gate.example:8443"
            ))),
        }
    };
    texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).map(check).collect()
}

fn listen_address(text: &str, allow_remote: bool) -> Result<SocketAddr, Error> {
    let text = text.trim();
    let address = match text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        Some(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
        None => text.parse().map_err(|_| {
            Error::invalid_request(format!(
                "--listen {text:?} is no address; write ip:port, as in 127.0.0.1:{DEFAULT_PORT}"
            ))
        })?,
    };
    if !address.ip().is_loopback() && !allow_remote {
        return Err(Error::invalid_request(format!(
            "--listen {address} can be reached from other machines, without encryption; \
             add --allow-remote if that is meant"
        )));
    }
    Ok(address)
}

fn parse_list<T: FromStr<Err = Error>>(texts: &[String]) -> Result<Vec<T>, Error> {
    texts.iter().filter(|text| !text.trim().is_empty()).map(|text| text.parse()).collect()
}
