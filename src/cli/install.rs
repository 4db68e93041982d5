//! `portcullis install`: shows what is asked for, asks back, installs exactly that.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::json;

use super::{
    args::InstallOptions,
    client,
    client::Client,
    exit::{Exit, Failure},
    mutate,
    output::Output,
    refresh::has_update,
    show,
};
use crate::{api::dto, domain::error::ErrorCode};

pub(super) async fn run(client: &Client, output: Output, options: InstallOptions) -> Result<(), Failure> {
    let offered = client.connector(&options.key).await?;
    let in_place = offered.installation.state == "installed"
        && !has_update(&offered)
        && offered.installation.failure_code.is_none();
    if in_place && !options.reinstall {
        output.document(&json!({ "connector": offered }));
        output.line(format!("{} {} is installed already", offered.key, offered.release.version));
        output.note(format!("next: portcullis capabilities {}", offered.key));
        return Ok(());
    }
    consent(output, &offered, options.yes)?;
    let accepted = accept(client, &offered).await?;
    let operation = mutate::follow(client, output, accepted.operation, options.wait).await?;
    let connector = client.connector(&offered.key).await?;
    output.document(&json!({ "operation": operation, "connector": connector }));
    if operation.state == "completed" {
        output.line(format!(
            "installed {} {}, verified sha256:{}",
            connector.key, offered.release.version, offered.release.artifact.sha256
        ));
        output.note(format!("next: portcullis capabilities {}", connector.key));
    }
    Ok(())
}

fn consent(output: Output, offered: &dto::Connector, yes: bool) -> Result<(), Failure> {
    let (key, version) = (&offered.key, &offered.release.version);
    let what = match &offered.installation.installed_version {
        Some(installed) if has_update(offered) => format!("{key} {installed} → {version}"),
        _ => format!("{key} {version}"),
    };
    output.note(&what);
    for line in show::permission_lines(&offered.release) {
        output.note(line);
    }
    if yes {
        return Ok(());
    }
    if output.is_json() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage("nobody is there to agree to the permissions")
            .with_hint("agree with --yes, after reading them with: portcullis show"));
    }
    let _ = write!(io::stderr(), "Install it? [y/N] ");
    let _ = io::stderr().flush();
    let mut line = String::new();
    io::stdin()
        .read_line(&mut line)
        .map_err(|cause| Failure::unexpected(format!("the answer cannot be read: {cause}")))?;
    if matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(Failure::new(Exit::Refused, "not installed: you did not agree"))
    }
}

/// Sends the command at the revision at which the permissions were read. A
/// connector that changed since is tried once more if it offers the same release.
pub(super) async fn accept(client: &Client, offered: &dto::Connector) -> Result<dto::Mutation, Failure> {
    let client_request_id = mutate::client_request_id()?;
    let target = format!("{}:install", offered.key);
    let path = ["v1", "connector-market", "connectors", target.as_str()];
    let body = |connector: &dto::Connector| dto::MutationBody {
        client_request_id: client_request_id.clone(),
        expected_revision: connector.revision,
        expected_connector_revision: Some(connector.revision),
    };
    let refused = match client.post(&path, &body(offered)).await {
        Err(failure) if failure.is(ErrorCode::RevisionConflict) => failure,
        other => return client::parse(other?),
    };
    let current = client.connector(&offered.key).await?;
    if current.release.release_digest != offered.release.release_digest {
        return Err(Failure { retryable: true, ..refused }
            .with_hint("the catalog offers another release now: look at it and decide again"));
    }
    client::parse(client.post(&path, &body(&current)).await?)
}
