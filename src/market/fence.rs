//! Fencing the routes of everything installed, before anything is planned anew.

use std::time::Duration;

use super::application::Application;
use crate::domain::{
    connector::Connector, error::Error, installation::Installation, operation::OperationScope,
    runtime::DeactivateRequest,
};

/// How long the instances of one connector may take to go.
const DEADLINE: Duration = Duration::from_secs(5);

impl Application {
    /// Fences the routes of every installed connector in `scope`. One that fails
    /// does not keep the others from being fenced.
    ///
    /// # Errors
    /// [`crate::domain::error::ErrorCode::Unavailable`], naming the connectors that
    /// could not be fenced.
    pub async fn fence_installed(&self, scope: &OperationScope) -> Result<(), Error> {
        let mut unfenced = Vec::new();
        let mut first = None;
        for connector in self.config.store.snapshot().await?.connectors {
            if let Err(error) = self.fence_one(scope, &connector).await {
                unfenced.push(connector.key.to_string());
                first.get_or_insert(error);
            }
        }
        match first {
            None => Ok(()),
            Some(cause) => Err(Error::unavailable(format!(
                "these connectors could not be fenced: {}",
                unfenced.join(", ")
            ))
            .with_cause(cause)),
        }
    }

    async fn fence_one(&self, scope: &OperationScope, connector: &Connector) -> Result<(), Error> {
        let Installation::Installed { installed, .. } = &connector.installation else { return Ok(()) };
        let digest = installed.identity.release_digest;
        // Where the release is not known, its connection is not either: all go.
        let connection_id = match self.release_evidence(connector, &digest).await {
            Ok(release) => self.binding(scope, &release).await.ok().map(|binding| binding.connection_id),
            Err(_) => None,
        };
        let request = DeactivateRequest {
            scope: scope.clone(),
            connection_id,
            connector_key: connector.key.clone(),
            release_digest: Some(digest),
            generation: self.generation_at(connector.revision),
        };
        self.config.host.deactivate(&request, DEADLINE).await
    }
}
