//! What the API needs from below, as small traits, so that it can be tried
//! without a database or an engine.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::Value;

use super::Access;
use crate::{
    daemon::Daemon,
    domain::{
        catalog::{CatalogCategory, CatalogPage, CatalogPageQuery},
        connector::Connector,
        convergence::ConnectorRuntime,
        error::Error,
        id::{ConnectorKey, OperationId},
        operation::{Operation, OperationScope},
        release::Release,
        snapshot::PublicSnapshot,
    },
    market::{Accepted, Application, ConnectorMutation, Mutation},
    ports::{Clock, IdSource, ImplementationHost},
};

/// The connector market, as the API sees it.
#[async_trait]
pub trait Market: Send + Sync {
    /// Everything visible at one revision.
    async fn snapshot(&self, scope: &OperationScope) -> Result<PublicSnapshot, Error>;

    /// The catalog's categories.
    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error>;

    /// One page of the catalog, as `scope` sees it.
    async fn catalog_page(
        &self,
        scope: &OperationScope,
        query: &CatalogPageQuery,
    ) -> Result<CatalogPage, Error>;

    /// One connector, with its runtime where it is installed.
    async fn connector(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error>;

    /// The release in place, where the catalog offers another and the evidence of
    /// what was installed is still there.
    async fn installed_release(&self, _connector: &Connector) -> Result<Option<Release>, Error> {
        Ok(None)
    }

    /// One operation, if `scope` may see it.
    async fn operation(&self, scope: &OperationScope, id: &OperationId) -> Result<Operation, Error>;

    /// Accepts a catalog refresh.
    async fn refresh_catalog(&self, mutation: Mutation) -> Result<Accepted, Error>;

    /// Accepts an installation or update.
    async fn install(&self, command: ConnectorMutation) -> Result<Accepted, Error>;

    /// Accepts a removal.
    async fn uninstall(&self, command: ConnectorMutation) -> Result<Accepted, Error>;

    /// Turns the user's switch.
    async fn set_runtime_enabled(
        &self,
        command: ConnectorMutation,
        enabled: bool,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error>;
}

#[async_trait]
impl Market for Application {
    async fn snapshot(&self, scope: &OperationScope) -> Result<PublicSnapshot, Error> {
        self.snapshot(scope).await
    }

    async fn categories(&self) -> Result<Vec<CatalogCategory>, Error> {
        self.categories().await
    }

    async fn catalog_page(
        &self,
        scope: &OperationScope,
        query: &CatalogPageQuery,
    ) -> Result<CatalogPage, Error> {
        self.catalog_page(scope, query).await
    }

    async fn connector(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error> {
        self.connector_view(scope, key).await
    }

    async fn installed_release(&self, connector: &Connector) -> Result<Option<Release>, Error> {
        self.installed_release(connector).await
    }

    async fn operation(&self, scope: &OperationScope, id: &OperationId) -> Result<Operation, Error> {
        self.operation(scope, id).await
    }

    async fn refresh_catalog(&self, mutation: Mutation) -> Result<Accepted, Error> {
        self.refresh_catalog(mutation).await
    }

    async fn install(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        self.install(command).await
    }

    async fn uninstall(&self, command: ConnectorMutation) -> Result<Accepted, Error> {
        self.uninstall(command).await
    }

    async fn set_runtime_enabled(
        &self,
        command: ConnectorMutation,
        enabled: bool,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error> {
        self.set_runtime_enabled(command, enabled).await
    }
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
#[derive(Clone, Debug, PartialEq)]
pub struct Readiness {
    /// Whether it takes calls.
    pub ready: bool,
    /// The same with its reasons, as the body of the answer.
    pub detail: Value,
}

/// Who knows whether the daemon can do its work.
pub trait Health: Send + Sync {
    /// The verdict, now.
    fn readiness(&self) -> Readiness;
}

impl ActiveScope for Daemon {
    fn scope(&self) -> OperationScope {
        self.scope()
    }
}

impl Health for Daemon {
    fn readiness(&self) -> Readiness {
        let health = self.health();
        Readiness { ready: health.ready, detail: serde_json::to_value(health).unwrap_or_default() }
    }
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
    /// How long a body may take to arrive; [`super::BODY_ARRIVAL`] as a rule.
    pub arrival: Duration,
    /// The time, for deadlines.
    pub clock: Arc<dyn Clock>,
    /// Fresh request ids.
    pub ids: Arc<dyn IdSource>,
}

impl ApiState {
    /// What a daemon that listens on `address` answers with.
    #[must_use]
    pub fn of(daemon: Arc<Daemon>, address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            market: Some(Arc::clone(&daemon.application) as Arc<dyn Market>),
            host: Arc::clone(&daemon.host),
            scope: Arc::clone(&daemon) as Arc<dyn ActiveScope>,
            token: daemon.token.clone(),
            access: Access::new(address, daemon.settings.allowed_hosts.clone()),
            arrival: super::BODY_ARRIVAL,
            clock: Arc::clone(&daemon.clock),
            ids: Arc::clone(&daemon.ids),
            health: daemon,
        })
    }

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
