//! `portcullis list`.

use serde_json::Value;

use super::{
    args::ListOptions,
    client,
    client::Client,
    exit::Failure,
    output::{Output, headline},
    progress::word,
    refresh::has_update,
};
use crate::{api::dto, domain::catalog::CatalogState};

pub(super) async fn run(client: &Client, output: Output, options: ListOptions) -> Result<(), Failure> {
    let mut answer = client.get(&["v1", "connector-market"]).await?;
    if options.installed
        && let Some(Value::Array(connectors)) = answer.get_mut("connectors")
    {
        connectors.retain(|connector| connector["installation"]["state"] != "not_installed");
    }
    output.document(&answer);
    let snapshot: dto::Snapshot = client::parse(answer)?;
    let rows: Vec<[String; 5]> = snapshot.connectors.iter().map(row).collect();
    if rows.is_empty() {
        output.note(if options.installed {
            "nothing is installed; see what there is with: portcullis list"
        } else {
            "the catalog is empty; read it with: portcullis refresh"
        });
        return Ok(());
    }
    output.table(["KEY", "OFFERED", "INSTALLED", "STATE", "WHAT IT DOES"], &rows);
    if snapshot.catalog_state == CatalogState::Stale {
        output.note("the catalog is stale; read it again with: portcullis refresh");
    }
    Ok(())
}

fn row(connector: &dto::Connector) -> [String; 5] {
    let mut installed = connector.installation.installed_version.clone().unwrap_or_else(|| "-".into());
    if has_update(connector) {
        installed.push_str(" (update)");
    }
    let manifest = &connector.release.manifest;
    [
        connector.key.clone(),
        connector.release.version.clone(),
        installed,
        state(connector),
        headline(manifest.description.as_deref().unwrap_or(&manifest.display_name), 60),
    ]
}

/// Installation and runtime in one word or two.
pub(super) fn state(connector: &dto::Connector) -> String {
    let installation = connector.installation.state.replace('_', " ");
    match &connector.runtime {
        Some(runtime) => format!("{installation}, {}", runtime.state),
        None if installation == "not installed" && word(&connector.compatibility.state) != "supported" => {
            word(&connector.compatibility.state)
        }
        None => installation,
    }
}
