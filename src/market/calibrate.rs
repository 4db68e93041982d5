//! Comparing what is called installed with what the disk holds (spec C.13).

use super::{application::Application, plan::Replan, snapshot::unknown_connector, tx::transaction};
use crate::{
    domain::{
        connector::Connector,
        digest::Sha256Digest,
        error::{Error, ErrorCode},
        event::ChangedEvent,
        id::{ConnectorKey, OperationId},
        installation::{FailureCode, Installation},
        operation::OperationScope,
    },
    ports::PhysicalState,
};

impl Application {
    /// The connectors whose files can be compared with what is stored.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn calibration_candidates(&self) -> Result<Vec<ConnectorKey>, Error> {
        let stored = self.config.store.snapshot().await?;
        Ok(stored
            .connectors
            .into_iter()
            .filter(|connector| candidate_digest(&connector.installation).is_some())
            .map(|connector| connector.key)
            .collect())
    }

    /// Compares one connector with its files and stores what was found. Runs and
    /// repairs nothing.
    ///
    /// # Errors
    /// The installer's; [`ErrorCode::InstallFailed`] when it answered about
    /// something else; [`ErrorCode::Unavailable`] when the installed release is not
    /// known any more.
    pub async fn calibrate(&self, key: &ConnectorKey) -> Result<Connector, Error> {
        let stored = self.config.store.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
        let Some(digest) = candidate_digest(&stored.installation) else { return Ok(stored) };
        let release = self.release_evidence(&stored, &digest).await?;
        let seen = self.config.installer.inspect(&release).await?;
        if seen.connector_key != *key || seen.release_digest != digest {
            return Err(Error::new(
                ErrorCode::InstallFailed,
                format!("the installer answered about another release than the one of {key}"),
            ));
        }
        if seen.state == PhysicalState::Indeterminate {
            return Ok(stored);
        }
        let inspection = OperationId::parse(format!("inspect/{}/{key}", self.config.boot_epoch))?;
        transaction!(self.config.store, |tx| {
            let mut connector = tx.connector(key).await?.ok_or_else(|| unknown_connector(key))?;
            let found = (candidate_digest(&connector.installation) == Some(digest))
                .then(|| found(&connector.installation, seen.state))
                .flatten();
            if let Some(installation) = found {
                let revision = tx.advance_revision();
                connector.installation = installation;
                connector.revision = revision;
                tx.save_connector(&connector).await?;
                tx.enqueue_changed(&ChangedEvent {
                    connector_key: Some(key.clone()),
                    operation_id: Some(inspection.clone()),
                    revision,
                })
                .await?;
            }
            connector
        })
    }

    /// Compares one connector with its files and, where they are as they should
    /// be, plans its runtime anew. Answers whether it did.
    ///
    /// # Errors
    /// As [`calibrate`](Self::calibrate) and planning.
    pub async fn prepare_runtime(&self, scope: &OperationScope, key: &ConnectorKey) -> Result<bool, Error> {
        let connector = self.calibrate(key).await?;
        if !matches!(connector.installation, Installation::Installed { .. }) {
            return Ok(false);
        }
        self.plan_runtime(scope, key, Replan::Always).await?;
        Ok(true)
    }
}

/// The digest that the files should have, for a row that can be compared: one
/// that is at rest, or that an earlier comparison found drifted.
fn candidate_digest(installation: &Installation) -> Option<Sha256Digest> {
    let at_rest =
        matches!(installation, Installation::Installed { .. }) || installation.requires_physical_repair();
    installation.installed().filter(|_| at_rest).map(|installed| installed.identity.release_digest)
}

/// What the observation makes of the installation; none when it is that already.
/// The evidence stays, so that files that come back are believed again.
fn found(installation: &Installation, state: PhysicalState) -> Option<Installation> {
    let installed = installation.installed()?.clone();
    let drifted = |code: &str| Installation::Failed {
        failure_code: FailureCode(code.to_owned()),
        installed: Some(installed.clone()),
    };
    let found = match state {
        PhysicalState::Present => {
            Installation::Installed { installed: installed.clone(), failure_code: None }
        }
        PhysicalState::Absent => drifted(FailureCode::PHYSICALLY_ABSENT),
        PhysicalState::Invalid => drifted(FailureCode::PHYSICALLY_INVALID),
        PhysicalState::Indeterminate => return None,
    };
    (found != *installation).then_some(found)
}
