//! `portcullis capabilities`.

use serde_json::{Value, json};

use super::{
    client::Client,
    exit::{Exit, Failure},
    output::{Output, headline},
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
            return Err(Failure::new(
                Exit::NotFound,
                format!("no active connector {name:?}, and no capability of that id"),
            )
            .with_hint("see what there is with: portcullis capabilities; install with: portcullis install"));
        }
    }
    output.document(&json!({ "capabilities": capabilities }));
    if capabilities.is_empty() {
        output.note("nothing can be called; install something with: portcullis install");
        return Ok(());
    }
    let rows: Vec<[String; 3]> = capabilities
        .iter()
        .map(|one| {
            [
                text(&one["id"]).to_owned(),
                text(&one["version"]).to_owned(),
                headline(text(&one["description"]), 80),
            ]
        })
        .collect();
    output.table(["ID", "VERSION", "WHAT IT DOES"], &rows);
    output.note("next: portcullis capabilities ID shows the input; portcullis call ID calls it");
    Ok(())
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
