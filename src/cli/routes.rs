//! `portcullis routes`.

use serde_json::Value;

use super::{client::Client, exit::Failure, output::Output};

pub(super) async fn run(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get(&["v1", "routes"]).await?;
    output.document(&answer);
    let routes = answer["routes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if routes.is_empty() {
        output.note("no routes; a route starts when a connector is installed");
        return Ok(());
    }
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows: Vec<[String; 6]> = routes
        .iter()
        .map(|route| {
            [
                text(&route["connectorKey"]),
                text(&route["version"]),
                text(&route["status"]),
                text(&route["generation"]["generation"]),
                text(&route["callsInFlight"]),
                text(&route["connectionId"]),
            ]
        })
        .collect();
    output.table(["CONNECTOR", "VERSION", "STATUS", "GENERATION", "IN FLIGHT", "CONNECTION"], &rows);
    Ok(())
}
