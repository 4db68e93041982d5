//! `portcullis refresh`.

use serde_json::json;

use super::{
    args::WaitOptions, client, client::Client, exit::Failure, list::EMPTY, mutate, output::Output,
    standing::Offer,
};
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
    let offered = |what: Offer| -> Vec<&str> {
        let connectors = snapshot.connectors.iter().filter(|one| Offer::of(one) == what);
        connectors.map(|connector| connector.key.as_str()).collect()
    };
    let (updates, downgrades) = (offered(Offer::Update), offered(Offer::Downgrade));
    let other_bytes = offered(Offer::OtherBytes);
    output.document(&json!({
        "operation": operation,
        "catalogState": snapshot.catalog_state,
        "connectors": snapshot.connectors.len(),
        "updates": updates,
        "downgrades": downgrades,
        "otherBytes": other_bytes,
    }));
    let count = snapshot.connectors.len();
    output.line(format!("{count} connector{} in the catalog", if count == 1 { "" } else { "s" }));
    for (what, keys) in
        [("updates", updates), ("downgrades", downgrades), ("same version, other bytes", other_bytes)]
    {
        if !keys.is_empty() {
            output.line(format!("{what}: {}", keys.join(", ")));
        }
    }
    output.note(if count == 0 { EMPTY.to_owned() } else { format!("next: {}", client.command("list")) });
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
