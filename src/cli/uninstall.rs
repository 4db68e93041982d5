//! `portcullis uninstall`.

use serde_json::json;

use super::{args::UninstallOptions, client, client::Client, exit::Failure, mutate, output::Output};
use crate::{api::dto, domain::error::ErrorCode};

pub(super) async fn run(client: &Client, output: Output, options: UninstallOptions) -> Result<(), Failure> {
    let accepted = accept(client, &options.key).await?;
    let operation = mutate::follow(client, output, accepted.operation, options.wait).await?;
    output.document(&json!({ "operation": operation }));
    if operation.state == "completed" {
        output.line(format!("uninstalled {}", options.key));
    }
    Ok(())
}

/// Repeated once when only the connector's revision moved on: what is to be
/// removed is whatever is installed.
pub(super) async fn accept(client: &Client, key: &str) -> Result<dto::Mutation, Failure> {
    let client_request_id = mutate::client_request_id()?;
    match try_accept(client, key, &client_request_id).await {
        Err(failure) if failure.is(ErrorCode::RevisionConflict) => {
            try_accept(client, key, &client_request_id).await
        }
        other => other,
    }
}

async fn try_accept(client: &Client, key: &str, client_request_id: &str) -> Result<dto::Mutation, Failure> {
    let (expected_revision, expected_connector_revision) = match client.connector(key).await {
        Ok(connector) if connector.installation.state == "not_installed" => {
            return Err(Failure::coded(
                ErrorCode::NotFound.as_str().to_owned(),
                format!("{key} is not installed"),
                false,
            ));
        }
        Ok(connector) => (connector.revision, Some(connector.revision)),
        // No catalog lists it, which hides it; what is installed can go all the same.
        Err(failure) if failure.is(ErrorCode::NotFound) => (client.snapshot().await?.revision, None),
        Err(failure) => return Err(failure),
    };
    let body = dto::MutationBody {
        client_request_id: client_request_id.to_owned(),
        expected_revision,
        expected_connector_revision,
    };
    let target = format!("{key}:uninstall");
    client::parse(client.post(&["v1", "connector-market", "connectors", &target], &body).await?)
}
