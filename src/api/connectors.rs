//! One connector: what it is, and the commands on it.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use http::StatusCode;

use super::{ApiError, ApiState, body, dto, target::Target};
use crate::domain::{
    error::{Error, ErrorCode},
    id::ConnectorKey,
    operation::OperationScope,
};

#[derive(Clone, Copy)]
enum Verb {
    Install,
    Uninstall,
}

const VERBS: [(&str, Verb); 2] = [("install", Verb::Install), ("uninstall", Verb::Uninstall)];
const VERB_NAMES: [&str; 2] = [VERBS[0].0, VERBS[1].0];

pub(super) async fn show(State(state): State<Arc<ApiState>>, target: Target) -> Result<Response, ApiError> {
    let declared = |error: Error| ApiError::from(error).among(&[400, 404, 503]);
    let key = ConnectorKey::parse(target.thing(&VERB_NAMES)?)?;
    let market = state.market().map_err(declared)?;
    let (connector, runtime) = market.connector(&state.scope.scope(), &key).await.map_err(declared)?;
    let installed = market.installed_release(&connector).await.map_err(declared)?;
    body::json(StatusCode::OK, &dto::Connector::new(connector, runtime).with_installed(installed))
}

pub(super) async fn command(
    State(state): State<Arc<ApiState>>,
    target: Target,
    request: Request,
) -> Result<Response, ApiError> {
    let (name, verb) = target.command(&VERBS)?;
    let key = ConnectorKey::parse(name)?;
    let asked: dto::MutationBody = body::read(&state, request, body::COMMAND_BYTES).await?;
    let scope = state.scope.scope();
    let mutation = asked.mutation(key.clone(), scope.clone())?;
    let compared = mutation.expected_connector_revision.is_some().then_some(&key);
    let declared: &[u16] = match verb {
        Verb::Install => &[400, 404, 409, 422, 503],
        Verb::Uninstall => &[400, 404, 409, 503],
    };
    let market = state.market().map_err(|error| ApiError::from(error).among(declared))?;
    let accepted = match verb {
        Verb::Install => market.install(mutation).await,
        Verb::Uninstall => market.uninstall(mutation).await,
    };
    match accepted {
        Ok(accepted) => body::json(StatusCode::ACCEPTED, &dto::Mutation::from(accepted)),
        Err(error) => Err(with_revision(&state, &scope, compared, error, declared).await),
    }
}

pub(super) async fn set_runtime(
    State(state): State<Arc<ApiState>>,
    target: Target,
    request: Request,
) -> Result<Response, ApiError> {
    const DECLARED: &[u16] = &[400, 404, 409, 503];
    let key = ConnectorKey::parse(target.thing(&[])?)?;
    let asked: dto::RuntimeBody = body::read(&state, request, body::COMMAND_BYTES).await?;
    let scope = state.scope.scope();
    let (mutation, enabled) = asked.mutation(key.clone(), scope.clone())?;
    let compared = mutation.expected_connector_revision.is_some().then_some(&key);
    let market = state.market().map_err(|error| ApiError::from(error).among(DECLARED))?;
    match market.set_runtime_enabled(mutation, enabled).await {
        Ok((connector, runtime)) => {
            body::json(StatusCode::ACCEPTED, &dto::Connector::new(connector, runtime))
        }
        Err(error) => Err(with_revision(&state, &scope, compared, error, DECLARED).await),
    }
}

/// A caller whose revision is stale is told the one that it was compared with: the
/// connector's own where the command named that, else the market's.
async fn with_revision(
    state: &ApiState,
    scope: &OperationScope,
    compared: Option<&ConnectorKey>,
    error: Error,
    declared: &[u16],
) -> ApiError {
    let stale = error.code == ErrorCode::RevisionConflict;
    let error = ApiError::from(error).among(declared);
    let Some(market) = stale.then(|| state.market().ok()).flatten() else { return error };
    let current = match compared {
        Some(key) => market.connector(scope, key).await.map(|(connector, _)| connector.revision),
        None => market.snapshot(scope).await.map(|snapshot| snapshot.revision),
    };
    match current {
        Ok(revision) => error.at_revision(revision.0),
        Err(_) => error,
    }
}
