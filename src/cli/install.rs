//! `portcullis install`: shows what is asked for, asks back, installs exactly that.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::{Value, json};

use super::{
    access,
    args::InstallOptions,
    client,
    client::Client,
    exit::{Exit, Failure},
    mutate,
    output::Output,
    progress::word,
    standing::{Offer, Standing, authorization_warning, lacks_authorization},
};
use crate::{api::dto, domain::error::ErrorCode};

/// Everything is agreed to before anything is installed.
pub(super) async fn run(client: &Client, output: Output, options: InstallOptions) -> Result<(), Failure> {
    let mut offers: Vec<dto::Connector> = Vec::new();
    for key in &options.keys {
        if !offers.iter().any(|offered| offered.key == *key) {
            offers.push(client.connector(key).await?);
        }
    }
    for offered in offers.iter().filter(|offered| !is_in_place(offered) || options.reinstall) {
        refuse_unasked(client, offered, &options)?;
        consent(client, output, offered, options.yes)?;
    }
    let mut results = Vec::new();
    for offered in offers {
        results.push(install(client, output, offered, &options).await?);
    }
    match results.as_slice() {
        [one] => output.document(one),
        several => output.document(&json!({ "results": several })),
    }
    Ok(())
}

fn is_in_place(offered: &dto::Connector) -> bool {
    offered.installation.state == "installed"
        && Offer::of(offered) == Offer::Same
        && offered.installation.failure_code.is_none()
}

/// What is no plain update happens only where it was asked for by name.
fn refuse_unasked(
    client: &Client,
    offered: &dto::Connector,
    options: &InstallOptions,
) -> Result<(), Failure> {
    let (key, version) = (&offered.key, &offered.release.version);
    let installed = offered.installation.installed_version.as_deref().unwrap_or_default();
    let with = |option: &str| client.command(&format!("install {key} {option}"));
    match Offer::of(offered) {
        Offer::Downgrade if !options.downgrade => Err(Failure::new(
            Exit::Refused,
            format!("the catalog offers {key} {version}, which is older than {installed} that is installed"),
        )
        .with_hint(format!("go back to it with: {}", with("--downgrade")))),
        Offer::OtherBytes if !options.reinstall => Err(Failure::new(
            Exit::Refused,
            format!(
                "the catalog offers other bytes as {key} {version}, the version that is installed; \
                 a released version should never change"
            ),
        )
        .with_hint(format!("take them all the same with: {}", with("--reinstall")))),
        _ => Ok(()),
    }
}

async fn install(
    client: &Client,
    output: Output,
    offered: dto::Connector,
    options: &InstallOptions,
) -> Result<Value, Failure> {
    if is_in_place(&offered) && !options.reinstall {
        output.line(format!("{} {} is installed already", offered.key, offered.release.version));
        next(client, output, &offered);
        return Ok(json!({ "connector": offered }));
    }
    let accepted = accept(client, &offered).await?;
    let operation = mutate::follow(client, output, accepted.operation, options.wait).await?;
    let connector = client.connector(&offered.key).await?;
    if operation.state == "completed" {
        let stopped = match Standing::of(&connector) {
            Standing::NotAuthorized => format!(
                "; it is stopped: it needs an authorization ({}), which this version cannot give",
                word(&connector.release.manifest.authorization_kind)
            ),
            Standing::SwitchedOff => "; it is switched off".to_owned(),
            _ => String::new(),
        };
        output.line(format!(
            "installed {} {}, verified sha256:{}{stopped}",
            connector.key, offered.release.version, offered.release.artifact.sha256
        ));
        next(client, output, &connector);
    }
    Ok(json!({ "operation": operation, "connector": connector }))
}

fn next(client: &Client, output: Output, connector: &dto::Connector) {
    let key = &connector.key;
    let standing = Standing::of(connector);
    match standing.obstacle(client, key) {
        Some((_, hint)) if standing != Standing::NotAuthorized => output.note(hint),
        Some(_) => {}
        None => output.note(format!("next: {}", client.command(&format!("capabilities {key}")))),
    }
}

fn consent(client: &Client, output: Output, offered: &dto::Connector, yes: bool) -> Result<(), Failure> {
    let key = &offered.key;
    output.note(format!("{key} {}", Offer::of(offered).describe(offered)));
    for line in access::lines(offered) {
        output.note(line);
    }
    if lacks_authorization(offered) {
        output.note(authorization_warning(offered));
    }
    if yes {
        return Ok(());
    }
    if output.is_json() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let show = client.command(&format!("show {key}"));
        return Err(Failure::usage(format!("nobody is there to agree to what {key} reaches and takes"))
            .with_hint(format!("agree with --yes, after reading it with: {show}")));
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
    // What is installed counts as well: against it a newer release may be an older one.
    let same = |of: fn(&dto::Connector) -> &str| of(&current) == of(offered);
    if !same(|one| &one.release.release_digest)
        || !same(|one| one.installation.installed_release_digest.as_deref().unwrap_or_default())
    {
        return Err(Failure { retryable: true, ..refused }
            .with_hint("it is not what you agreed to any more: look at it and decide again"));
    }
    client::parse(client.post(&path, &body(&current)).await?)
}
