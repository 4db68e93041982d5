//! `portcullis refresh`.

use serde_json::json;

use super::{args::WaitOptions, client, client::Client, exit::Failure, mutate, output::Output};
use crate::{api::dto, domain::error::ErrorCode};

/// How often a refresh is asked for again because the revision moved on: reading
/// the catalog is as right at the next revision.
const TRIES: u32 = 3;

pub(super) async fn run(client: &Client, output: Output, options: WaitOptions) -> Result<(), Failure> {
    let accepted = accept(client).await?;
    let operation = mutate::follow(client, output, accepted.operation, options).await?;
    if options.no_wait {
        output.document(&json!({ "operation": operation }));
        return Ok(());
    }
    let snapshot = client.snapshot().await?;
    let updates: Vec<&str> = snapshot
        .connectors
        .iter()
        .filter(|connector| has_update(connector))
        .map(|connector| connector.key.as_str())
        .collect();
    output.document(&json!({
        "operation": operation,
        "catalogState": snapshot.catalog_state,
        "connectors": snapshot.connectors.len(),
        "updates": updates,
    }));
    output.line(format!("{} connectors in the catalog", snapshot.connectors.len()));
    if !updates.is_empty() {
        output.line(format!("updates: {}", updates.join(", ")));
    }
    output.note("next: portcullis list");
    Ok(())
}

pub(super) async fn accept(client: &Client) -> Result<dto::Mutation, Failure> {
    let client_request_id = mutate::client_request_id()?;
    for _ in 1..TRIES {
        match try_accept(client, &client_request_id).await {
            Err(failure) if failure.is(ErrorCode::RevisionConflict) => {}
            other => return other,
        }
    }
    try_accept(client, &client_request_id).await
}

async fn try_accept(client: &Client, client_request_id: &str) -> Result<dto::Mutation, Failure> {
    let body = dto::RefreshBody {
        client_request_id: client_request_id.to_owned(),
        expected_revision: client.snapshot().await?.revision,
    };
    client::parse(client.post(&["v1", "connector-market:refresh"], &body).await?)
}

/// Whether the catalog offers another release than the one in place.
pub(super) fn has_update(connector: &dto::Connector) -> bool {
    connector
        .installation
        .installed_release_digest
        .as_ref()
        .is_some_and(|installed| *installed != connector.release.release_digest)
}
