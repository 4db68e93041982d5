//! `portcullis enable` and `portcullis disable`: the user's switch.

use std::time::{Duration, Instant};

use super::{
    args::SwitchOptions,
    client,
    client::Client,
    exit::{Exit, Failure},
    mutate,
    output::Output,
    standing::{Standing, authorization_warning, state},
};
use crate::{
    api::dto,
    domain::error::{Error, ErrorCode},
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn run(
    client: &Client,
    output: Output,
    options: SwitchOptions,
    enabled: bool,
) -> Result<(), Failure> {
    let key = &options.key;
    let mut connector = accept(client, key, enabled).await?;
    let started = Instant::now();
    while !options.wait.no_wait && !has_settled(client, &connector, enabled).await? {
        if started.elapsed() >= Duration::from_secs(options.wait.timeout) {
            let message =
                format!("the switch of {key} was turned, but it has not settled: {}", state(&connector));
            return Err(Failure::new(Exit::Conflict, message)
                .with_hint(format!("look again with: {}", client.command(&format!("show {key}")))));
        }
        tokio::time::sleep(LOOK).await;
        connector = client.connector(key).await?;
    }
    let standing = Standing::of(&connector);
    if enabled && standing == Standing::Failed {
        let code = connector.runtime.and_then(|runtime| runtime.failure_code).unwrap_or_default();
        return Err(Failure::coded(code, format!("{key} is switched on but does not start"), false)
            .with_hint(format!("see how it stands with: {}", client.command(&format!("show {key}")))));
    }
    if enabled && !options.wait.no_wait && standing != Standing::Started {
        let message = format!("{key} is switched on, but it does not run: {}", state(&connector));
        return Err(Failure::new(Exit::Refused, message)
            .with_hint(format!("see how it stands with: {}", client.command(&format!("show {key}")))));
    }
    output.document(&connector);
    let switched = if enabled { "on" } else { "off" };
    output.line(format!("switched {switched} {key}"));
    if enabled && standing == Standing::Started {
        output.note(format!("next: {}", client.command(&format!("capabilities {key}"))));
    } else if !enabled {
        output.note(format!("switch it on again with: {}", client.command(&format!("enable {key}"))));
    }
    Ok(())
}

/// Whether the switch has done its work. A connector is called stopped as soon as
/// it is to stop; it is off once none of its routes answers.
async fn has_settled(client: &Client, connector: &dto::Connector, enabled: bool) -> Result<bool, Failure> {
    match Standing::of(connector) {
        Standing::Started | Standing::Failed if enabled => return Ok(true),
        Standing::Started | Standing::Starting => return Ok(false),
        _ if enabled => return Ok(true),
        _ => {}
    }
    let answer = client.get(&["v1", "routes"]).await?;
    let mut routes = answer["routes"].as_array().into_iter().flatten();
    Ok(!routes.any(|route| route["connectorKey"] == connector.key.as_str() && route["status"] == "active"))
}

/// Repeated once when only the connector's revision moved on: the switch is to be
/// turned whatever else happened.
async fn accept(client: &Client, key: &str, enabled: bool) -> Result<dto::Connector, Failure> {
    let client_request_id = mutate::client_request_id()?;
    match try_accept(client, key, enabled, &client_request_id).await {
        Err(failure) if failure.is(ErrorCode::RevisionConflict) => {
            try_accept(client, key, enabled, &client_request_id).await
        }
        other => other,
    }
}

async fn try_accept(
    client: &Client,
    key: &str,
    enabled: bool,
    client_request_id: &str,
) -> Result<dto::Connector, Failure> {
    let connector = client.connector(key).await?;
    match Standing::of(&connector) {
        standing @ Standing::NotInstalled => {
            let failure = Failure::from(Error::not_found(format!("{key} is not installed")));
            return Err(match standing.obstacle(client, key) {
                Some((_, hint)) => failure.with_hint(hint),
                None => failure,
            });
        }
        Standing::NotAuthorized if enabled => {
            return Err(Failure::new(
                Exit::Refused,
                format!("{key} cannot be switched on: {}", authorization_warning(&connector)),
            ));
        }
        _ => {}
    }
    let body = dto::RuntimeBody {
        enabled,
        client_request_id: client_request_id.to_owned(),
        expected_revision: connector.revision,
        expected_connector_revision: Some(connector.revision),
    };
    client::parse(client.put(&["v1", "connector-market", "connectors", key, "runtime"], &body).await?)
}
