//! What the API needs from below, as small traits, so that it can be tried
//! without a database or an engine.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use serde::Serialize;

use super::Access;
use crate::{
    domain::{
        catalog::{CatalogCategory, CatalogPage, CatalogPageQuery},
        connector::Connector,
        convergence::ConnectorRuntime,
        error::Error,
        id::{ClientRequestId, ConnectorKey, OperationId},
        operation::{Operation, OperationScope},
        revision::Revision,
        snapshot::PublicSnapshot,
    },
    ports::{Clock, IdSource, ImplementationHost},
};

/// A command, as every mutating request carries it.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// The caller's own id of the command.
    pub client_request_id: ClientRequestId,
    /// The global revision that the caller saw.
    pub expected_revision: Revision,
    /// The connector's revision that the caller saw; judged instead of the global one.
    pub expected_connector_revision: Option<Revision>,
    /// For which account; always the daemon's, never the caller's choice.
    pub scope: OperationScope,
}

/// An accepted command.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The connector, where the command is about one.
    pub connector: Option<Connector>,
    /// The operation that carries it out.
    pub operation: Operation,
    /// The revision at which it was accepted.
    pub revision: Revision,
}

/// The connector market, as the API sees it.
#[async_trait]
pub trait Market: Send + Sync {
    /// Everything visible at one revision.
    async fn snapshot(&self, scope: &OperationScope) -> Result<PublicSnapshot, Error>;

    /// The catalog's categories.
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error>;

    /// One page of the catalog.
    async fn catalog_page(&self, query: &CatalogPageQuery) -> Result<CatalogPage, Error>;

    /// One connector, with its runtime where it is installed.
    async fn connector(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error>;

    /// One operation, if `scope` may see it.
    async fn operation(&self, scope: &OperationScope, id: &OperationId) -> Result<Operation, Error>;

    /// Accepts a catalog refresh.
    async fn refresh_catalog(&self, mutation: Mutation) -> Result<Accepted, Error>;

    /// Accepts an installation or update.
    async fn install(&self, key: ConnectorKey, mutation: Mutation) -> Result<Accepted, Error>;

    /// Accepts a removal.
    async fn uninstall(&self, key: ConnectorKey, mutation: Mutation) -> Result<Accepted, Error>;

    /// Turns the user's switch.
    async fn set_runtime_enabled(
        &self,
        key: ConnectorKey,
        mutation: Mutation,
        enabled: bool,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error>;
}

/// Which account the daemon serves now.
pub trait ActiveScope: Send + Sync {
    /// The scope.
    fn scope(&self) -> OperationScope;
}

impl ActiveScope for OperationScope {
    fn scope(&self) -> OperationScope {
        self.clone()
    }
}

/// Whether the daemon can do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Readiness {
    /// Whether it takes calls.
    pub ready: bool,
    /// What it waits for, when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Who knows whether the daemon can do its work.
pub trait Health: Send + Sync {
    /// The verdict, now.
    fn readiness(&self) -> Readiness;
}

/// What the handlers work with.
pub struct ApiState {
    /// The market; none answers every market route with 503.
    pub market: Option<Arc<dyn Market>>,
    /// Who runs connectors.
    pub host: Arc<dyn ImplementationHost>,
    /// The account.
    pub scope: Arc<dyn ActiveScope>,
    /// The verdict on the daemon.
    pub health: Arc<dyn Health>,
    /// The bearer token that every request must show.
    pub token: SecretString,
    /// The names under which the daemon may be addressed.
    pub access: Access,
    /// The time, for deadlines.
    pub clock: Arc<dyn Clock>,
    /// Fresh request ids.
    pub ids: Arc<dyn IdSource>,
}

impl ApiState {
    /// The market.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`] when there is none.
    pub(super) fn market(&self) -> Result<&dyn Market, Error> {
        self.market
            .as_deref()
            .ok_or_else(|| Error::unavailable("the connector market is not configured on this daemon"))
    }
}
