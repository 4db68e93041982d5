//! The daemon of the demo: this same program, run as a process of its own.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::process::Command;

use super::{
    super::{
        client::{Client, announced},
        exit::{Exit, Failure},
    },
    site::{HOST, Site},
};
use crate::daemon;

/// How long the daemon may take to answer, and to go.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);
const LOG: &str = "daemon.log";

/// A running daemon; killed when dropped.
pub(super) struct Child {
    process: tokio::process::Child,
    data_dir: PathBuf,
}

impl Child {
    pub(super) fn start(folder: &Path, site: &Site) -> Result<Self, Failure> {
        let failed =
            |cause: std::io::Error| Failure::unexpected(format!("the daemon does not start: {cause}"));
        let data_dir = folder.join("data");
        let log = File::create(folder.join(LOG)).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // The demo's daemon is the demo's alone, whatever is set for another one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PORTCULLIS_") {
                command.env_remove(name);
            }
        }
        let process = command
            .arg("serve")
            .arg("--data-dir")
            .arg(&data_dir)
            .args(["--listen", "127.0.0.1:0", "--catalog-refresh-interval", "0"])
            .args(["--catalog", &site.catalog_url()])
            .arg("--development-host")
            .arg(format!("{HOST}={}", site.address()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is for the demo, which then stops the daemon in good order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self { process, data_dir })
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A client, once the daemon says where it listens.
    pub(super) async fn client(&mut self) -> Result<Client, Failure> {
        let started = Instant::now();
        loop {
            match announced(&self.data_dir, "") {
                Ok(endpoint) => return Client::new(&endpoint, daemon::read_token(&self.data_dir)?),
                Err(failure) if failure.exit != Exit::Unreachable => return Err(failure),
                Err(_) => {}
            }
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(Failure::unexpected(format!("the daemon ended at once, with {status}")));
            }
            if started.elapsed() >= START {
                return Err(Failure::unexpected("the daemon does not answer"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns when the process has ended.
    pub(super) async fn ended(&mut self) {
        let _ = self.process.wait().await;
    }

    /// Asks it to stop, and sees that it ends well.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        if let Some(id) = self.process.id() {
            // The shell's own kill is everywhere, and asks for no unsafe code here.
            // In a group of its own, for the same Ctrl-C must not end it either.
            let asked = Command::new("sh")
                .args(["-c", "kill -TERM \"$0\"", &id.to_string()])
                .process_group(0)
                .status()
                .await;
            if !asked.is_ok_and(|status| status.success()) {
                return Err(Failure::unexpected("the daemon could not be asked to stop"));
            }
        }
        match tokio::time::timeout(STOP, self.process.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Failure::unexpected(format!("the daemon did not stop well: {status}"))),
            Ok(Err(cause)) => Err(Failure::unexpected(format!("the daemon cannot be waited for: {cause}"))),
            Err(_) => Err(Failure::unexpected("the daemon does not stop")),
        }
    }
}

/// The end of the daemon's log.
pub(super) fn last_lines(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join(LOG)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
