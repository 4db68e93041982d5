//! Planning: what a route should be, as a durable intent. Every choice about it is
//! made here; [`super::converge`] carries it out.

use super::{
    accept::{ConnectorMutation, verify_revision},
    application::Application,
    snapshot::unknown_connector,
    tx::transaction,
};
use crate::{
    domain::{
        connector::Connector,
        convergence::{ConnectorRuntime, Convergence, Intent},
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::ConnectorKey,
        installation::Installation,
        operation::OperationScope,
        release::Release,
        timestamp::Timestamp,
    },
    ports::Tx,
};

impl Application {
    /// Switches the runtime of an installed connector on or off for good.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for a connector that is hidden, as one that no catalog
    /// lists any more; [`ErrorCode::RevisionConflict`] for a stale revision;
    /// [`ErrorCode::OperationInProgress`] when the connector is not installed.
    pub async fn set_runtime_enabled(
        &self,
        command: ConnectorMutation,
        enabled: bool,
    ) -> Result<(Connector, Option<ConnectorRuntime>), Error> {
        let (scope, key) = (&command.mutation.scope, &command.connector_key);
        // The answer shows the connector: one that cannot be shown is not switched first.
        self.connector(key).await?;
        let fence = Fence { command: Some(&command), activation: Some(enabled), replan: Replan::IfChanged };
        self.plan_installed(scope, key, &fence).await?;
        self.connector_view(scope, key).await
    }

    /// Plans the runtime of the installed release.
    pub(super) async fn plan_runtime(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        replan: Replan,
    ) -> Result<(), Error> {
        self.plan_installed(scope, key, &Fence { command: None, activation: None, replan }).await
    }

    async fn plan_installed(
        &self,
        scope: &OperationScope,
        key: &ConnectorKey,
        fence: &Fence<'_>,
    ) -> Result<(), Error> {
        let stored = self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        let digest = installed_digest(&stored)?;
        let release = self.release_evidence(&stored, &digest).await?;
        let binding = self.binding(scope, &release).await?;
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            if let Some(command) = fence.command {
                verify_revision(tx.revision(), command, &connector)?;
            }
            installed_digest(&connector)?;
            let intent = Intent {
                binding_enabled: binding.enabled,
                activation: fence.activation,
                connection_id: binding.connection_id.clone(),
                release_digest: digest,
                authorization_state: binding.authorization,
                force: fence.replan == Replan::Always,
            };
            if save_intent(tx, scope, &connector, &intent, now).await? {
                let revision = tx.advance_revision();
                connector.revision = revision;
                tx.save_connector(&connector).await?;
                let connector_key = Some(key.clone());
                tx.enqueue_changed(&ChangedEvent { connector_key, operation_id: None, revision }).await?;
            }
        })?;
        self.intent_saved.notify_one();
        Ok(())
    }

    /// The release of an installed or candidate digest: from the evidence, else
    /// what the catalog offers where that is the very same.
    ///
    /// # Errors
    /// [`ErrorCode::Unavailable`], not retryable, when there is none.
    pub(super) async fn release_evidence(
        &self,
        connector: &Connector,
        digest: &Sha256Digest,
    ) -> Result<Release, Error> {
        if let Some(release) = self.config.store.installed_release(&connector.key, digest).await? {
            return Ok(release);
        }
        if connector.release.release_digest == *digest {
            return Ok(connector.release.clone());
        }
        Err(Error::unavailable(format!(
            "the installed release of {} is not known any more; install the connector again",
            connector.key
        ))
        .with_retryable(false))
    }
}

/// Under what a plan is made.
struct Fence<'a> {
    /// The caller's command, whose revision must hold.
    command: Option<&'a ConnectorMutation>,
    /// A new position of the user's switch.
    activation: Option<bool>,
    /// What to do about what is planned already.
    replan: Replan,
}

/// What to do about an intent that is stored already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replan {
    /// Keep it where it says the same.
    IfChanged,
    /// Plan anew: what ran before a fence does not run any more.
    Always,
}

/// Saves an intent, numbered above the connector's revision and so above every
/// fence that was set at it. Answers whether anything changed; then the caller
/// stamps, saves and announces the connector.
///
/// # Errors
/// [`ErrorCode::RevisionConflict`] when the release is not the one that may run.
pub(super) async fn save_intent(
    tx: &mut dyn Tx,
    scope: &OperationScope,
    connector: &Connector,
    intent: &Intent,
    now: Timestamp,
) -> Result<bool, Error> {
    if !connector.installation.targets(&intent.release_digest) {
        return Err(other_release(&connector.key));
    }
    let stored = tx.convergence(scope, &connector.key).await?;
    let revision = connector.revision;
    match Convergence::plan(stored.as_ref(), scope, &connector.key, revision, intent, now)? {
        None => Ok(false),
        Some(planned) => tx.save_convergence(&planned).await.map(|()| true),
    }
}

/// The digest that is installed and at rest.
pub(super) fn installed_digest(connector: &Connector) -> Result<Sha256Digest, Error> {
    match &connector.installation {
        Installation::Installed { installed, .. } => Ok(installed.identity.release_digest),
        other => Err(Error::new(
            ErrorCode::OperationInProgress,
            format!("connector {} is {}, not installed", connector.key, other.name()),
        )),
    }
}

pub(super) fn other_release(key: &ConnectorKey) -> Error {
    Error::new(
        ErrorCode::RevisionConflict,
        format!("the release of {key} that was to run is no longer the one in place; read it and try again"),
    )
}
