//! `portcullis list`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    args::ListOptions,
    client,
    client::Client,
    exit::Failure,
    output::{Output, cell},
    standing::{Offer, Standing, state},
};
use crate::{
    api::dto,
    domain::{catalog::CatalogState, operation::OperationKind},
};

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
    for (key, version) in unlisted(client, &snapshot).await? {
        output.note(format!(
            "{key} {version} runs, but no catalog lists it any more; remove it with: {}",
            client.command(&format!("uninstall {key}"))
        ));
    }
    let stale = snapshot.catalog_state == CatalogState::Stale;
    if rows.is_empty() {
        output.note(if options.installed {
            format!("nothing is installed; see what there is with: {}", client.command("list"))
        } else if stale && !last_refresh_failed(&snapshot) {
            format!("no catalog was read yet; read it with: {}", client.command("refresh"))
        } else if stale {
            unread(client)
        } else {
            EMPTY.to_owned()
        });
        return Ok(());
    }
    output.table(["KEY", "OFFERED", "INSTALLED", "STATE", "WHAT IT DOES"], &rows);
    for connector in &snapshot.connectors {
        if let (standing @ Standing::SwitchedOff, key) = (Standing::of(connector), &connector.key)
            && let Some((what, hint)) = standing.obstacle(client, key)
        {
            output.note(format!("{what}; {hint}"));
        }
    }
    if stale {
        output.note(unread(client));
    }
    Ok(())
}

/// What runs although the snapshot does not show it: what no catalog lists is hidden.
async fn unlisted(client: &Client, snapshot: &dto::Snapshot) -> Result<BTreeMap<String, String>, Failure> {
    let answer = client.get(&["v1", "routes"]).await?;
    let routes = answer["routes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let running = routes.iter().filter_map(|route| {
        let text = |name: &str| Some(route[name].as_str()?.to_owned());
        Some((text("connectorKey")?, text("version")?))
    });
    Ok(running.filter(|(key, _)| snapshot.connectors.iter().all(|one| one.key != *key)).collect())
}

/// What is said of a catalog without connectors.
pub(super) const EMPTY: &str = "the catalog lists nothing; is serve started with --catalog DIR|URL?";

fn last_refresh_failed(snapshot: &dto::Snapshot) -> bool {
    let refreshes = snapshot.operations.iter().filter(|one| one.kind == OperationKind::RefreshCatalog);
    refreshes.max_by_key(|one| one.updated_at).is_some_and(|last| last.state == "failed")
}

fn unread(client: &Client) -> String {
    format!(
        "the last reading of the catalog failed, this is what was known before; \
         see why with: {}; read it again with: {}",
        client.command("operations"),
        client.command("refresh")
    )
}

fn row(connector: &dto::Connector) -> [String; 5] {
    let installed = match Offer::of(connector) {
        Offer::First => "-".to_owned(),
        offer => offer.describe(connector),
    };
    let manifest = &connector.release.manifest;
    [
        connector.key.clone(),
        connector.release.version.clone(),
        installed,
        state(connector),
        cell(manifest.description.as_deref().unwrap_or(&manifest.display_name), 60),
    ]
}
