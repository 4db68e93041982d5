//! Carrying out intents: claimed, kept by a heartbeat, and ended in one
//! transaction with the observation or the reason why there is none (spec C.11).

use std::{pin::pin, time::Duration};

use super::{
    application::Application,
    authorize::save_projection,
    binding::Binding,
    lease::{Claim, Held, keep},
    plan::{other_release, save_intent},
    snapshot::unknown_connector,
    tx::transaction,
};
use crate::{
    domain::{
        authorization::AuthorizationState,
        connector::Connector,
        convergence::{Convergence, Intent, Observed},
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::{ConnectorKey, OperationId},
        operation::{OperationFailure, OperationScope},
        runtime::{ReconcileRequest, RuntimeReceipt},
    },
    ports::{ConvergenceLease, Tx},
};

/// How long whoever waits for a route sleeps, unless woken.
const POLL: Duration = Duration::from_millis(25);
/// Bytes of an error's text that a convergence keeps.
const LONGEST_ERROR: usize = 512;

/// How an attempt to converge ended.
enum Outcome {
    /// The host did it.
    Observed(Box<RuntimeReceipt>),
    /// The intent is out of date; this one takes its place.
    Replan(Intent),
    /// The account's authorization is no longer good; this intent takes the place.
    Expired(Intent),
    /// The host refused the generation: it is at or below a fence.
    Refused(Error),
}

impl Application {
    /// Connectors of `scope` whose routes are not what they should be, by what is
    /// due first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn due_convergences(
        &self,
        scope: &OperationScope,
        limit: u32,
    ) -> Result<Vec<ConnectorKey>, Error> {
        let due = self.config.store.due_convergences(scope, &self.config.boot_epoch, limit).await?;
        Ok(due.into_iter().map(|row| row.desired.connector_key).collect())
    }

    /// Brings one route to its desired state. Nothing happens when it is there, is
    /// backing off, or is worked on elsewhere.
    ///
    /// # Errors
    /// Why the attempt failed; it is noted in the row, and the row is due again.
    pub async fn converge(&self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        let (store, owner, duration) =
            (&self.config.store, &self.config.worker_id, self.config.lease_duration);
        let claimed = store.claim_convergence(scope, key, &self.config.boot_epoch, owner, duration).await?;
        let Some(row) = claimed else { return Ok(()) };
        let lease = ConvergenceLease {
            scope: scope.clone(),
            connector_key: key.clone(),
            owner: owner.clone(),
            token: row.lease_token,
            desired_generation: row.desired.generation,
        };
        let claim = Held::new(store.clone(), self.tasks.clone(), Claim::Convergence(lease.clone()));
        let outcome = tokio::select! {
            outcome = self.carry_out(&row) => outcome,
            lost = keep(duration, || store.renew_convergence(&lease, duration)) => Err(lost),
        };
        let mut lease_ended = false;
        let noted = match outcome {
            Ok(Outcome::Observed(receipt)) => {
                let noted = self.note_observed(&lease, &receipt).await;
                lease_ended = noted.is_ok();
                noted
            }
            Ok(Outcome::Replan(intent)) => self.replan(&lease, &intent, None, false).await,
            Ok(Outcome::Expired(intent)) => self.replan(&lease, &intent, None, true).await,
            Ok(Outcome::Refused(error)) => {
                // The same number would be refused for ever: take a higher one,
                // after the same pause as for any other failure.
                let intent = intent_of(&row, true);
                match self.replan(&lease, &intent, Some(failure_of(&error)), false).await {
                    Ok(()) => Err(error),
                    Err(lost) => Err(lost),
                }
            }
            Err(error) if error.find(ErrorCode::LeaseLost).is_some() => Err(error),
            Err(error) => match self.note_failed(&lease, failure_of(&error)).await {
                Ok(()) => {
                    lease_ended = true;
                    Err(error)
                }
                Err(lost) => Err(lost.with_cause(error)),
            },
        };
        if lease_ended {
            claim.ended();
        } else {
            claim.release().await;
        }
        self.runtime_changed.notify_waiters();
        noted
    }

    /// Waits until the route is what it should be, converging it here where nobody
    /// else does. A row that backs off or is worked on elsewhere is awaited; for
    /// how long is the caller's business.
    ///
    /// Nothing that interrupts the waiting says anything about the release, so an
    /// error of the store is one that a repetition may help (spec C.14, hazard 3).
    pub(super) async fn settle(&self, scope: &OperationScope, key: &ConnectorKey) -> Result<(), Error> {
        // Whoever waits has just planned it.
        self.converge(scope, key).await?;
        loop {
            let mut woken = pin!(self.runtime_changed.notified());
            woken.as_mut().enable();
            let row =
                self.config.store.convergence(scope, key).await.map_err(interrupted)?.ok_or_else(|| {
                    Error::unavailable(format!("the intent for {key} is gone; it is planned again"))
                })?;
            if row.is_converged(&self.config.boot_epoch) {
                return Ok(());
            }
            if row.is_due(&self.config.boot_epoch, self.now()) {
                self.converge(scope, key).await?;
            }
            tokio::select! {
                () = &mut woken => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    async fn carry_out(&self, row: &Convergence) -> Result<Outcome, Error> {
        let desired = &row.desired;
        let (key, digest) = (&desired.connector_key, &desired.release_digest);
        let stored = self.config.store.connector(key).await?;
        let connector = stored.ok_or_else(|| unknown_connector(key))?;
        if !connector.installation.targets(digest) {
            return Err(other_release(key));
        }
        let release = self.release_evidence(&connector, digest).await?;
        let (mut connection_version, mut server_revision) = (0, 0);
        if desired.enabled {
            release.validate()?;
            self.inspect_authorization(&desired.scope, &connector, &release).await?;
            let now = self.binding(&desired.scope, &release).await?;
            if !holds(&now, row) {
                let intent = Intent {
                    binding_enabled: now.enabled,
                    connection_id: now.connection_id,
                    authorization_state: now.authorization,
                    ..intent_of(row, false)
                };
                return Ok(Outcome::Replan(intent));
            }
            (connection_version, server_revision) = (now.connection_version, now.server_revision);
        }
        let request = ReconcileRequest {
            operation_id: OperationId::parse(format!(
                "runtime/{}/{key}/{}",
                self.config.boot_epoch, desired.generation
            ))?,
            scope: desired.scope.clone(),
            connection_id: desired.connection_id.clone(),
            release,
            installation: connector.installation,
            authorization: desired.authorization_state,
            connection_version,
            server_revision,
            enabled: desired.enabled,
            generation: self.generation(desired.generation),
        };
        match self.config.host.reconcile(&request).await {
            Ok(receipt) => receipt.verify(&request).map(|()| Outcome::Observed(Box::new(receipt))),
            Err(error) if error.find(ErrorCode::AuthorizationFailed).is_some() => {
                Ok(Outcome::Expired(Intent {
                    binding_enabled: false,
                    authorization_state: AuthorizationState::Expired,
                    ..intent_of(row, false)
                }))
            }
            Err(error) if error.code == ErrorCode::RevisionConflict => Ok(Outcome::Refused(error)),
            Err(cause) => {
                let retryable = cause.retryable;
                Err(Error::new(ErrorCode::InstallFailed, format!("the runtime of {key} did not start"))
                    .with_retryable(retryable)
                    .with_cause(cause))
            }
        }
    }

    async fn note_observed(&self, lease: &ConvergenceLease, receipt: &RuntimeReceipt) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let row = claimed(tx, lease).await?;
            let observed = Observed {
                desired_generation: row.desired.generation,
                boot_epoch: self.config.boot_epoch.clone(),
                enabled: row.desired.enabled,
                connection_id: row.desired.connection_id.clone(),
                release_digest: row.desired.release_digest,
                readiness: receipt.readiness.clone(),
                summary: receipt.summary.clone(),
                observed_at: now,
            };
            tx.save_convergence_leased(&row.observed_as(observed, now), lease).await?;
            stamp(tx, &lease.connector_key).await?;
        })
    }

    async fn note_failed(&self, lease: &ConvergenceLease, failure: OperationFailure) -> Result<(), Error> {
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let row = claimed(tx, lease).await?;
            tx.save_convergence_leased(&row.backed_off(failure.clone(), now), lease).await?;
            stamp(tx, &lease.connector_key).await?;
        })
    }

    /// Puts another intent in the place of the one that was claimed, with the
    /// pause and the reason where there is one. An authorization that is no longer
    /// good is noted in the account too, or the next plan would start it again.
    async fn replan(
        &self,
        lease: &ConvergenceLease,
        intent: &Intent,
        failure: Option<OperationFailure>,
        expired: bool,
    ) -> Result<(), Error> {
        let (scope, key) = (&lease.scope, &lease.connector_key);
        let now = self.now();
        transaction!(self.config.store, |tx| {
            let before = claimed(tx, lease).await?;
            let connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            save_intent(tx, scope, &connector, intent, now).await?;
            if let (Some(failure), Some(mut planned)) = (&failure, tx.convergence(scope, key).await?) {
                planned.attempt = before.attempt;
                tx.save_convergence(&planned.backed_off(failure.clone(), now)).await?;
            }
            if expired
                && let Some(account) = &scope.account_id
                && let Some(mut projection) = tx.authorization_projection(account, key).await?
            {
                projection.state = AuthorizationState::Expired;
                projection.failure_code = None;
                projection.updated_at = now;
                save_projection(tx, &projection).await?;
            }
            stamp(tx, key).await?;
        })?;
        self.intent_saved.notify_one();
        Ok(())
    }
}

/// The row, if it is still this lease's.
async fn claimed(tx: &mut dyn Tx, lease: &ConvergenceLease) -> Result<Convergence, Error> {
    let row = tx.convergence(&lease.scope, &lease.connector_key).await?;
    let ours = row
        .filter(|row| row.lease_token == lease.token && row.desired.generation == lease.desired_generation);
    ours.ok_or_else(|| {
        Error::new(
            ErrorCode::LeaseLost,
            format!("the runtime of {} is planned anew or worked on elsewhere", lease.connector_key),
        )
    })
}

/// Stamps and announces the connector of a changed row.
pub(super) async fn stamp(tx: &mut dyn Tx, key: &ConnectorKey) -> Result<(), Error> {
    let revision = tx.advance_revision();
    if let Some(connector) = tx.connector(key).await? {
        tx.save_connector(&Connector { revision, ..connector }).await?;
    }
    let connector_key = Some(key.clone());
    tx.enqueue_changed(&ChangedEvent { connector_key, operation_id: None, revision }).await
}

/// Whether what was planned is what the binding says now. The user's switch may
/// keep off what the binding allows.
fn holds(binding: &Binding, row: &Convergence) -> bool {
    binding.enabled
        && binding.connection_id == row.desired.connection_id
        && binding.authorization == row.desired.authorization_state
}

/// The same intent once more.
fn intent_of(row: &Convergence, force: bool) -> Intent {
    let desired = &row.desired;
    Intent {
        binding_enabled: desired.enabled,
        activation: None,
        connection_id: desired.connection_id.clone(),
        release_digest: desired.release_digest,
        authorization_state: desired.authorization_state,
        force,
    }
}

fn failure_of(error: &Error) -> OperationFailure {
    let mut failure = OperationFailure::of(error);
    let cut = failure.message.floor_char_boundary(LONGEST_ERROR);
    failure.message.truncate(cut);
    failure
}

fn interrupted(error: Error) -> Error {
    if error.retryable {
        return error;
    }
    Error::unavailable("the runtime could not be awaited; it is awaited again").with_cause(error)
}
