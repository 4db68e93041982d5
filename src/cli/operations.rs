//! `portcullis operations`.

use serde_json::json;

use super::{
    client,
    client::Client,
    exit::Failure,
    output::{Output, cell},
    progress::word,
};
use crate::{api::dto, domain::timestamp::Timestamp};

pub(super) async fn run(client: &Client, output: Output, id: Option<&str>) -> Result<(), Failure> {
    match id {
        Some(id) => show(client, output, id).await,
        None => list(client, output).await,
    }
}

async fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let mut operations = client.snapshot().await?.operations;
    operations.sort_by_key(|operation| std::cmp::Reverse(operation.created_at));
    output.document(&json!({ "operations": operations }));
    let rows: Vec<[String; 7]> = operations
        .iter()
        .map(|operation| {
            [
                operation.operation_id.clone(),
                word(&operation.kind),
                operation.connector_key.clone().unwrap_or_else(|| "-".into()),
                operation.target.as_ref().map_or_else(|| "-".into(), |target| target.version.clone()),
                state(operation),
                minute(operation.updated_at),
                operation.failure.as_ref().map(|one| cell(&one.message, 60)).unwrap_or_default(),
            ]
        })
        .collect();
    if rows.is_empty() {
        output.note("no operations; an ended one is kept for a day");
    } else {
        output.table(["ID", "KIND", "CONNECTOR", "VERSION", "STATE", "CHANGED (UTC)", "FAILURE"], &rows);
    }
    Ok(())
}

async fn show(client: &Client, output: Output, id: &str) -> Result<(), Failure> {
    let answer = client.get(&["v1", "connector-market", "operations", id]).await?;
    output.document(&answer);
    let operation: dto::Operation = client::parse(answer)?;
    output.line(format!("operation  {}", operation.operation_id));
    output.line(format!("kind       {}", word(&operation.kind)));
    if let Some(key) = &operation.connector_key {
        output.line(format!("connector  {key}"));
    }
    if let Some(target) = &operation.target {
        output.line(format!("release    {} sha256:{}", target.release_id, target.release_digest));
    }
    output.line(format!("state      {}", state(&operation)));
    output.line(format!("attempt    {}", operation.attempt));
    output.line(format!("accepted   {}", operation.created_at));
    output.line(format!("changed    {}", operation.updated_at));
    if let Some(code) = &operation.failure_code {
        output.line(format!("ended with {code}"));
    }
    if let Some(failure) = &operation.failure {
        output.line(format!("failure    {} [{}]", failure.message, failure.code));
    }
    Ok(())
}

/// Where it stands; the stage of one that has ended says nothing more.
fn state(operation: &dto::Operation) -> String {
    let stage = word(&operation.stage);
    if operation.is_active() && stage != operation.state {
        format!("{}, {stage}", operation.state)
    } else {
        operation.state.clone()
    }
}

/// A moment to the minute, in UTC.
fn minute(moment: Timestamp) -> String {
    moment.to_string().chars().take(16).map(|one| if one == 'T' { ' ' } else { one }).collect()
}
