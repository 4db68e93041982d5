//! `portcullis capabilities`.

use serde_json::{Value, json};

use super::{
    client::Client,
    exit::{Exit, Failure},
    output::{Output, cell},
    standing::Standing,
};

pub(super) async fn run(client: &Client, output: Output, name: Option<&str>) -> Result<(), Failure> {
    let mut answer = client.get(&["v1", "capabilities"]).await?;
    let mut capabilities = match answer.get_mut("capabilities").map(Value::take) {
        Some(Value::Array(capabilities)) => capabilities,
        _ => return Err(Failure::unexpected("the daemon's answer lists no capabilities")),
    };
    if let Some(name) = name {
        if let Some(one) = capabilities.iter().find(|one| one["id"] == name) {
            output.document(one);
            show(output, one);
            return Ok(());
        }
        capabilities.retain(|one| connector(one) == name);
        if capabilities.is_empty() {
            return Err(unknown(client, name).await);
        }
    }
    output.document(&json!({ "capabilities": capabilities }));
    if capabilities.is_empty() {
        output.note(format!(
            "nothing can be called; see what can be installed with: {}",
            client.command("list")
        ));
        return Ok(());
    }
    let rows: Vec<[String; 3]> = capabilities
        .iter()
        .map(|one| {
            [
                text(&one["id"]).to_owned(),
                text(&one["version"]).to_owned(),
                cell(text(&one["description"]), 80),
            ]
        })
        .collect();
    output.table(["ID", "VERSION", "WHAT IT DOES"], &rows);
    output.note(format!(
        "next: {} shows the input; {} calls it",
        client.command("capabilities ID"),
        client.command("call ID")
    ));
    Ok(())
}

/// Why nothing can be called of `name`: a connector, or a capability of one.
async fn unknown(client: &Client, name: &str) -> Failure {
    let failure =
        Failure::new(Exit::NotFound, format!("no active connector {name:?}, and no capability of that id"))
            .with_hint(format!(
                "see what can be called with: {}; what can be installed with: {}",
                client.command("capabilities"),
                client.command("list")
            ));
    let owner = name.rsplit_once('.').map_or(name, |(connector, _)| connector);
    explained(client, owner, failure).await
}

/// Says of a failure to find what a connector offers why that connector does not
/// answer, where that is known.
pub(super) async fn explained(client: &Client, key: &str, failure: Failure) -> Failure {
    let Ok(connector) = client.connector(key).await else { return failure };
    match Standing::of(&connector).obstacle(client, key) {
        Some((what, hint)) => Failure { message: what, ..failure }.with_hint(hint),
        None => failure.with_hint(format!(
            "see what {key} offers with: {}",
            client.command(&format!("capabilities {key}"))
        )),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn connector(capability: &Value) -> &str {
    text(&capability["id"]).rsplit_once('.').map_or("", |(connector, _)| connector)
}

fn show(output: Output, one: &Value) {
    output.line(text(&one["id"]));
    output.line(format!("  {}", text(&one["description"])));
    output.line(format!("version    {} sha256:{}", text(&one["version"]), text(&one["releaseDigest"])));
    let hints: Vec<&str> = [
        ("readOnly", "reads only"),
        ("destructive", "may delete or overwrite"),
        ("idempotent", "repeatable"),
        ("openWorld", "reaches outside"),
    ]
    .into_iter()
    .filter(|(name, _)| one["annotations"][*name] == true)
    .map(|(_, words)| words)
    .collect();
    if !hints.is_empty() {
        output.line(format!("says       {}", hints.join(", ")));
    }
    for (name, label) in [("inputSchema", "input"), ("outputSchema", "output")] {
        if let Some(schema) = one.get(name) {
            output.line(format!("{label}\n{}", serde_json::to_string_pretty(schema).unwrap_or_default()));
        }
    }
}
