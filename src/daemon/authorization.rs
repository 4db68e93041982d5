//! The authorization of a daemon that has no provider: it refuses, and what needs an
//! authorization stays switched off.

use async_trait::async_trait;

use crate::{
    domain::{authorization::AuthorizationStep, error::Error},
    ports::{AuthorizationProvider, BeginRequest, DisconnectRequest},
};

/// Refuses every attempt; for a host that runs only what needs no authorization.
pub struct NoAuthorization;

#[async_trait]
impl AuthorizationProvider for NoAuthorization {
    async fn begin(&self, request: &BeginRequest<'_>) -> Result<AuthorizationStep, Error> {
        Err(Error::unavailable(format!(
            "this daemon has no authorization provider, so {} cannot be connected",
            request.release.connector_key
        ))
        .with_retryable(false))
    }

    /// Nothing was ever held.
    async fn disconnect(&self, _: &DisconnectRequest) -> Result<(), Error> {
        Ok(())
    }
}
