//! The market as a whole: its snapshot, its catalog, its refresh.

use std::sync::Arc;

use axum::{
    extract::{Query, Request, State, rejection::QueryRejection},
    response::Response,
};
use http::StatusCode;
use serde::Deserialize;

use super::{ApiError, ApiState, body, dto};
use crate::domain::{catalog::CatalogPageQuery, error::Error};

pub(super) async fn snapshot(State(state): State<Arc<ApiState>>) -> Result<Response, ApiError> {
    let declared = |error: Error| ApiError::from(error).among(&[400, 503]);
    let market = state.market().map_err(declared)?;
    let snapshot = market.snapshot(&state.scope.scope()).await.map_err(declared)?;
    body::json(StatusCode::OK, &dto::Snapshot::from(snapshot))
}

pub(super) async fn categories(State(state): State<Arc<ApiState>>) -> Result<Response, ApiError> {
    let declared = |error: Error| ApiError::from(error).among(&[503]);
    let categories = state.market().map_err(declared)?.categories().await.map_err(declared)?;
    body::json(StatusCode::OK, &dto::Categories::from(categories))
}

/// What a page request says; checked by [`CatalogPageQuery::parse`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PageParameters {
    #[serde(default)]
    section_id: String,
    #[serde(default = "default_page_size")]
    page_size: i64,
    #[serde(default)]
    page_token: String,
    #[serde(default)]
    installation: String,
}

fn default_page_size() -> i64 {
    20
}

pub(super) async fn catalog(
    State(state): State<Arc<ApiState>>,
    parameters: Result<Query<PageParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let declared = |error: Error| ApiError::from(error).among(&[400, 503]);
    let Query(asked) = parameters.map_err(|rejection| {
        Error::invalid_request(format!("the query is not what this route reads: {}", rejection.body_text()))
    })?;
    let query =
        CatalogPageQuery::parse(&asked.section_id, asked.page_size, &asked.page_token, &asked.installation)?;
    let page = state
        .market()
        .map_err(declared)?
        .catalog_page(&state.scope.scope(), &query)
        .await
        .map_err(declared)?;
    body::json(StatusCode::OK, &dto::Page::from(page))
}

pub(super) async fn refresh(
    State(state): State<Arc<ApiState>>,
    request: Request,
) -> Result<Response, ApiError> {
    let declared = |error: Error| ApiError::from(error).among(&[400, 409, 503]);
    let asked: dto::RefreshBody = body::read(&state, request, body::COMMAND_BYTES).await?;
    let mutation = asked.mutation(state.scope.scope())?;
    let accepted = state.market().map_err(declared)?.refresh_catalog(mutation).await.map_err(declared)?;
    body::json(StatusCode::ACCEPTED, &dto::Mutation::from(accepted))
}
