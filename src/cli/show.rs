//! `portcullis show`.

use super::{
    access, client,
    client::Client,
    exit::Failure,
    output::Output,
    progress::word,
    report::size,
    standing::{Offer, Standing, authorization_warning, lacks_authorization, state},
};
use crate::api::dto;

pub(super) async fn run(client: &Client, output: Output, key: &str) -> Result<(), Failure> {
    let answer = client.get(&["v1", "connector-market", "connectors", key]).await?;
    output.document(&answer);
    let connector: dto::Connector = client::parse(answer)?;
    overview(output, &connector);
    for line in access::lines(&connector) {
        output.line(line);
    }
    if !output.is_json() {
        because(client, output, &connector).await?;
        next(client, output, &connector);
    }
    Ok(())
}

fn failure_code(connector: &dto::Connector) -> Option<&String> {
    let runtime = connector.runtime.as_ref().and_then(|runtime| runtime.failure_code.as_ref());
    connector.installation.failure_code.as_ref().or(runtime)
}

/// The last operation that failed, where the connector bears a failure.
async fn because(client: &Client, output: Output, connector: &dto::Connector) -> Result<(), Failure> {
    if failure_code(connector).is_none() {
        return Ok(());
    }
    let operations = client.snapshot().await?.operations;
    let last = operations
        .iter()
        .filter(|one| one.connector_key.as_ref() == Some(&connector.key) && one.state == "failed")
        .max_by_key(|one| one.updated_at);
    if let Some((operation, failure)) = last.and_then(|one| Some((one, one.failure.as_ref()?))) {
        let kind = word(&operation.kind);
        output.line(format!("last failure   {kind}: {} [{}]", failure.message, failure.code));
        let look = client.command(&format!("operations {}", operation.operation_id));
        output.note(format!("more about it: {look}"));
    } else {
        output.note(format!("what failed may stand in: {}", client.command("operations")));
    }
    Ok(())
}

fn overview(output: Output, connector: &dto::Connector) {
    let (release, installation) = (&connector.release, &connector.installation);
    let manifest = &release.manifest;
    output.line(format!("{} ({})", manifest.display_name, connector.key));
    if let Some(description) = &manifest.description {
        output.line(format!("  {description}"));
    }
    output.line(format!("offered        {} ({})", release.version, word(&release.status)));
    let offer = Offer::of(connector);
    if matches!(offer, Offer::Update | Offer::Downgrade | Offer::OtherBytes) {
        output.line(format!("  would be     {}", offer.describe(connector)));
    }
    output.line(format!("  published    {}", release.published_at));
    output.line(format!("  digest       sha256:{}", release.release_digest));
    output.line(format!(
        "  artifact     sha256:{} ({})",
        release.artifact.sha256,
        size(u64::try_from(release.artifact.size_bytes).unwrap_or(0))
    ));
    output.line(format!("  runs as      {}", word(&manifest.implementation.kind)));
    let fits = match &connector.compatibility.reason {
        Some(reason) => format!("{} ({reason})", word(&connector.compatibility.state)),
        None => word(&connector.compatibility.state),
    };
    output.line(format!("  on this host {fits}"));
    output.line(format!("state          {}", state(connector)));
    if let (Some(version), Some(digest)) =
        (&installation.installed_version, &installation.installed_release_digest)
    {
        output.line(format!("  installed    {version}"));
        output.line(format!("  digest       sha256:{digest}"));
    }
    if let Some(failure) = failure_code(connector) {
        output.line(format!("  failure      {failure}"));
    }
    output.line(format!(
        "authorization  {} ({})",
        word(&connector.authorization.state),
        word(&manifest.authorization_kind)
    ));
    if lacks_authorization(connector) {
        output.line(format!("  {}", authorization_warning(connector)));
    }
}

fn next(client: &Client, output: Output, connector: &dto::Connector) {
    let key = &connector.key;
    let standing = Standing::of(connector);
    let install = |more: &str| client.command(&format!("install {key}{more}"));
    match (standing, Offer::of(connector)) {
        (Standing::NotInstalled, _) => output.note(format!("next: {}", install(""))),
        (Standing::Unsettled, _) => {}
        (_, Offer::Update) => output.note(format!("next: {} updates it", install(""))),
        (_, Offer::Downgrade) => {
            output.note(format!("the catalog is behind; {} goes back to it", install(" --downgrade")));
        }
        (_, Offer::OtherBytes) => {
            output
                .note(format!("a released version should not change; {} takes it", install(" --reinstall")));
        }
        (Standing::Started, _) => {
            output.note(format!("next: {}", client.command(&format!("capabilities {key}"))));
        }
        _ => {}
    }
    if standing == Standing::SwitchedOff
        && let Some((_, hint)) = standing.obstacle(client, key)
    {
        output.note(hint);
    }
}
