//! A connector as this device knows it.

use serde::{Deserialize, Serialize};

use super::{
    authorization::Authorization, compatibility::Compatibility, id::ConnectorKey, installation::Installation,
    release::Release, revision::Revision,
};

/// A stored connector (spec A.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// Identifies it.
    pub key: ConnectorKey,
    /// What the catalog offers now; not what is installed.
    pub release: Release,
    /// What is installed, and what is being done about it.
    pub installation: Installation,
    /// The device's own authorization; meaningful for local connectors.
    pub authorization: Authorization,
    /// Whether the offered release runs here.
    pub compatibility: Compatibility,
    /// When it last changed.
    pub revision: Revision,
}

impl Connector {
    /// A connector that a catalog lists for the first time.
    #[must_use]
    pub fn listed(release: Release, compatibility: Compatibility, revision: Revision) -> Self {
        let authorization = Authorization::initial(release.manifest.authorization_kind);
        Self {
            key: release.connector_key.clone(),
            release,
            installation: Installation::NotInstalled,
            authorization,
            compatibility,
            revision,
        }
    }

    /// Replaces what the catalog offers. Authorization follows the new kind: this
    /// is a migration, not a user's transition. What is installed stays.
    pub fn offer(&mut self, release: Release, compatibility: Compatibility) {
        self.authorization = self.authorization.clone().migrated_to(release.manifest.authorization_kind);
        self.release = release;
        self.compatibility = compatibility;
    }
}
