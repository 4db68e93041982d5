//! The installation of one connector on this device, as a state machine.

use serde::{Deserialize, Serialize};

use super::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
    id::ReleaseId,
    release::Release,
    timestamp::Timestamp,
};

/// Names one release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseIdentity {
    /// Its version.
    pub version: semver::Version,
    /// Its id.
    pub release_id: ReleaseId,
    /// Its digest.
    pub release_digest: Sha256Digest,
}

impl From<&Release> for ReleaseIdentity {
    fn from(release: &Release) -> Self {
        Self {
            version: release.version.clone(),
            release_id: release.release_id.clone(),
            release_digest: release.release_digest,
        }
    }
}

/// A release that is in place and committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstalledRelease {
    /// Which release.
    #[serde(flatten)]
    pub identity: ReleaseIdentity,
    /// When it was committed.
    pub installed_at: Timestamp,
}

/// Why an installation is not what it should be. Wire names are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureCode(pub String);

impl FailureCode {
    /// The installed files are not there.
    pub const PHYSICALLY_ABSENT: &'static str = "connector_installation_absent";
    /// The installed files are not what was verified.
    pub const PHYSICALLY_INVALID: &'static str = "connector_installation_invalid";

    /// Whether files have drifted, so that only a repair helps.
    #[must_use]
    pub fn requires_physical_repair(&self) -> bool {
        self.0 == Self::PHYSICALLY_ABSENT || self.0 == Self::PHYSICALLY_INVALID
    }
}

impl From<ErrorCode> for FailureCode {
    fn from(code: ErrorCode) -> Self {
        Self(code.as_str().to_owned())
    }
}

/// Where the installation of a connector stands (spec A.4). Each state carries
/// only what it can have; a transition consumes the state it leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Installation {
    /// Nothing is installed.
    NotInstalled,
    /// A release is being put in place where none works.
    Installing {
        /// What a failed removal left behind, as evidence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        installed: Option<InstalledRelease>,
        /// The release, once its files are there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        candidate: Option<ReleaseIdentity>,
    },
    /// A release is in place.
    Installed {
        /// The release.
        installed: InstalledRelease,
        /// Why the last update failed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure_code: Option<FailureCode>,
    },
    /// A release is in place and another is being put there.
    Updating {
        /// The release that answers meanwhile.
        installed: InstalledRelease,
        /// The new release, once its files are there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        candidate: Option<ReleaseIdentity>,
    },
    /// A release is being removed.
    Uninstalling {
        /// The release.
        installed: InstalledRelease,
    },
    /// Something went wrong.
    Failed {
        /// What.
        failure_code: FailureCode,
        /// The release that was in place, as evidence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        installed: Option<InstalledRelease>,
    },
}

impl Installation {
    /// The state's wire name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotInstalled => "not_installed",
            Self::Installing { .. } => "installing",
            Self::Installed { .. } => "installed",
            Self::Updating { .. } => "updating",
            Self::Uninstalling { .. } => "uninstalling",
            Self::Failed { .. } => "failed",
        }
    }

    /// The release in place, or that was in place.
    #[must_use]
    pub fn installed(&self) -> Option<&InstalledRelease> {
        match self {
            Self::NotInstalled => None,
            Self::Installed { installed, .. }
            | Self::Updating { installed, .. }
            | Self::Uninstalling { installed } => Some(installed),
            Self::Installing { installed, .. } | Self::Failed { installed, .. } => installed.as_ref(),
        }
    }

    /// The release being put in place, once its files are there.
    #[must_use]
    pub fn candidate(&self) -> Option<&ReleaseIdentity> {
        match self {
            Self::Installing { candidate, .. } | Self::Updating { candidate, .. } => candidate.as_ref(),
            _ => None,
        }
    }

    /// What went wrong, if something did.
    #[must_use]
    pub fn failure_code(&self) -> Option<&FailureCode> {
        match self {
            Self::Installed { failure_code, .. } => failure_code.as_ref(),
            Self::Failed { failure_code, .. } => Some(failure_code),
            _ => None,
        }
    }

    /// Whether the files have drifted from what was committed.
    #[must_use]
    pub fn requires_physical_repair(&self) -> bool {
        matches!(self, Self::Failed { failure_code, .. } if failure_code.requires_physical_repair())
    }

    /// Whether a catalog page counts the connector as installed (spec C.3, 4).
    #[must_use]
    pub fn has_installed_artifact(&self) -> bool {
        match self {
            Self::NotInstalled | Self::Installing { .. } => false,
            Self::Failed { installed, .. } => installed.is_some() && !self.requires_physical_repair(),
            Self::Installed { .. } | Self::Updating { .. } | Self::Uninstalling { .. } => true,
        }
    }

    /// Whether `digest` is the release that may run now: the current one of
    /// `installed` or `uninstalling`, the candidate of `installing` or `updating`.
    #[must_use]
    pub fn targets(&self, digest: &Sha256Digest) -> bool {
        match self {
            Self::Installed { installed, .. } | Self::Uninstalling { installed } => {
                installed.identity.release_digest == *digest
            }
            Self::Installing { candidate, .. } | Self::Updating { candidate, .. } => {
                candidate.as_ref().is_some_and(|candidate| candidate.release_digest == *digest)
            }
            Self::NotInstalled | Self::Failed { .. } => false,
        }
    }

    /// Accepts an install or update command (spec C.7). A row that needs physical
    /// repair forgets its evidence first.
    ///
    /// # Errors
    /// [`ErrorCode::OperationInProgress`] when the state forbids it.
    pub fn begin_install(self) -> Result<Self, Error> {
        if self.requires_physical_repair() {
            return Ok(Self::Installing { installed: None, candidate: None });
        }
        match self {
            Self::NotInstalled => Ok(Self::Installing { installed: None, candidate: None }),
            Self::Failed { installed, .. } => Ok(Self::Installing { installed, candidate: None }),
            Self::Installed { installed, .. } => Ok(Self::Updating { installed, candidate: None }),
            other => Err(other.refuse("installing")),
        }
    }

    /// Accepts an uninstall command (spec C.8).
    ///
    /// # Errors
    /// [`ErrorCode::OperationInProgress`] when nothing is installed or the state forbids it.
    pub fn begin_uninstall(self) -> Result<Self, Error> {
        match self {
            Self::Installed { installed, .. } | Self::Failed { installed: Some(installed), .. } => {
                Ok(Self::Uninstalling { installed })
            }
            other => Err(other.refuse("uninstalling")),
        }
    }

    /// Notes that the files of `release` are in place and may be started.
    ///
    /// # Errors
    /// [`ErrorCode::OperationInProgress`] when no installation is under way.
    pub fn with_candidate(self, release: ReleaseIdentity) -> Result<Self, Error> {
        match self {
            Self::Installing { installed, .. } => {
                Ok(Self::Installing { installed, candidate: Some(release) })
            }
            Self::Updating { installed, .. } => Ok(Self::Updating { installed, candidate: Some(release) }),
            other => Err(other.refuse("candidate")),
        }
    }

    /// Promotes the candidate, which must be `digest`.
    ///
    /// # Errors
    /// [`ErrorCode::RevisionConflict`] when the candidate is another or none.
    pub fn promote(self, digest: &Sha256Digest, now: Timestamp) -> Result<Self, Error> {
        match self.candidate() {
            Some(candidate) if candidate.release_digest == *digest => Ok(Self::Installed {
                installed: InstalledRelease { identity: candidate.clone(), installed_at: now },
                failure_code: None,
            }),
            _ => Err(Error::new(
                ErrorCode::RevisionConflict,
                "another release took the place of this one while it was being installed; read the connector and try again",
            )),
        }
    }

    /// Ends a failed install or update: back to what was installed, or `failed`.
    #[must_use]
    pub fn fail_install(self, failure_code: FailureCode) -> Self {
        match self {
            Self::Updating { installed, .. }
            | Self::Installed { installed, .. }
            | Self::Installing { installed: Some(installed), .. } => {
                Self::Installed { installed, failure_code: Some(failure_code) }
            }
            Self::Installing { installed: None, .. } => Self::Failed { failure_code, installed: None },
            other => other,
        }
    }

    /// Ends a failed removal; the evidence stays so that it can be repeated.
    #[must_use]
    pub fn fail_uninstall(self, failure_code: FailureCode) -> Self {
        match self {
            Self::Uninstalling { installed } => Self::Failed { failure_code, installed: Some(installed) },
            other => other,
        }
    }

    /// Ends a removal, which must have been of `digest`.
    ///
    /// # Errors
    /// [`ErrorCode::RevisionConflict`] when the row is no longer being removed or holds another release.
    pub fn finish_uninstall(self, digest: &Sha256Digest) -> Result<Self, Error> {
        match &self {
            Self::Uninstalling { installed } if installed.identity.release_digest == *digest => {
                Ok(Self::NotInstalled)
            }
            _ => Err(Error::new(
                ErrorCode::RevisionConflict,
                "the connector changed while it was being uninstalled; read it and try again",
            )),
        }
    }

    fn refuse(self, to: &str) -> Error {
        Error::new(
            ErrorCode::OperationInProgress,
            format!("the installation cannot go from {} to {to}", self.name()),
        )
    }
}
