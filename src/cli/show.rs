//! `portcullis show`, and the permissions that `install` shows as well.

use super::{
    client, client::Client, exit::Failure, list::state, output::Output, progress::word, refresh::has_update,
    report::size,
};
use crate::{api::dto, domain::manifest::CredentialPlacement};

pub(super) async fn run(client: &Client, output: Output, key: &str) -> Result<(), Failure> {
    let answer = client.get(&["v1", "connector-market", "connectors", key]).await?;
    output.document(&answer);
    let connector: dto::Connector = client::parse(answer)?;
    overview(output, &connector);
    permissions(output, &connector.release);
    next(output, &connector);
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
    let failures =
        [&installation.failure_code, connector.runtime.as_ref().map_or(&None, |one| &one.failure_code)];
    for failure in failures.into_iter().flatten() {
        output.line(format!("  failure      {failure}"));
    }
    output.line(format!(
        "authorization  {} ({})",
        word(&connector.authorization.state),
        word(&manifest.authorization_kind)
    ));
}

/// What the release asks for: enforced, not only shown.
pub(super) fn permissions(output: Output, release: &dto::Release) {
    for line in permission_lines(release) {
        output.line(line);
    }
}

/// As [`permissions`], for whoever prints elsewhere.
pub(super) fn permission_lines(release: &dto::Release) -> Vec<String> {
    let access = &release.manifest.access;
    let list = |names: &[String], none: &str| {
        if names.is_empty() { none.to_owned() } else { names.join(", ") }
    };
    let mut lines = vec![
        format!("permissions    {}", list(&release.manifest.permissions, "none")),
        format!("  hosts        {}", list(&access.allowed_hosts, "none: it reaches no network")),
    ];
    lines.push(match &access.credential {
        None => "  credential   none".to_owned(),
        Some(credential) => {
            let place = match &credential.placement {
                CredentialPlacement::Header { name, .. } => format!("the header {name}"),
                CredentialPlacement::Query { name } => format!("the parameter {name}"),
            };
            format!("  credential   put by the host into {place}, for {}", credential.hosts.join(", "))
        }
    });
    let limits = &access.limits;
    let asked: Vec<String> = [
        limits.memory_bytes.map(|count| format!("{} memory", size(count))),
        limits.cpu_ms.map(|ms| format!("{ms} ms CPU")),
        limits.wall_ms.map(|ms| format!("{ms} ms in all")),
        limits.concurrent_calls.map(|count| format!("{count} calls at once")),
        limits.response_bytes.map(|count| format!("{} answer", size(count))),
        limits.table_elements.map(|count| format!("{count} table elements")),
    ]
    .into_iter()
    .flatten()
    .collect();
    lines.push(format!("  limits       {}", list(&asked, "the host's defaults")));
    lines
}

fn next(output: Output, connector: &dto::Connector) {
    let key = &connector.key;
    match connector.installation.state.as_str() {
        "not_installed" => output.note(format!("next: portcullis install {key}")),
        "installed" if has_update(connector) => {
            output.note(format!("next: portcullis install {key} updates it"));
        }
        "installed" => output.note(format!("next: portcullis capabilities {key}")),
        _ => {}
    }
}
