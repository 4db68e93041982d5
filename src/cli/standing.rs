//! Where a connector stands: what the catalog's offer would mean for what is
//! installed, and why a connector does not answer.

use semver::Version;

use super::{client::Client, progress::word};
use crate::{
    api::dto,
    domain::{authorization::AuthorizationState, manifest::AuthorizationKind},
};

/// What installing the offered release would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Nothing is installed.
    First,
    /// This very release is installed.
    Same,
    /// A newer version.
    Update,
    /// An older version.
    Downgrade,
    /// Other bytes under the version that is installed; a released version should never change.
    OtherBytes,
}

impl Offer {
    pub(super) fn of(connector: &dto::Connector) -> Self {
        let installation = &connector.installation;
        let (Some(version), Some(digest)) =
            (&installation.installed_version, &installation.installed_release_digest)
        else {
            return Self::First;
        };
        if *digest == connector.release.release_digest {
            return Self::Same;
        }
        Self::between(version, &connector.release.version)
    }

    fn between(installed: &str, offered: &str) -> Self {
        if installed == offered {
            return Self::OtherBytes;
        }
        match (Version::parse(installed), Version::parse(offered)) {
            (Ok(installed), Ok(offered)) if offered.cmp_precedence(&installed).is_lt() => Self::Downgrade,
            _ => Self::Update,
        }
    }

    /// From what to what, and what that is.
    pub(super) fn describe(self, connector: &dto::Connector) -> String {
        let offered = &connector.release.version;
        let installed = connector.installation.installed_version.as_deref().unwrap_or("-");
        match self {
            Self::First | Self::Same => offered.clone(),
            Self::Update => format!("{installed} → {offered} (update)"),
            Self::Downgrade => format!("{installed} → {offered} (downgrade)"),
            Self::OtherBytes => format!("{installed} (same version, other bytes)"),
        }
    }
}

/// Whether the offered release needs an authorization that nobody has given.
pub(super) fn lacks_authorization(connector: &dto::Connector) -> bool {
    connector.release.manifest.authorization_kind != AuthorizationKind::None
        && connector.authorization.state != AuthorizationState::Connected
}

/// Said before such a connector is installed.
pub(super) fn authorization_warning(connector: &dto::Connector) -> String {
    format!(
        "it will stay switched off until it is authorized ({}), which this version cannot do yet",
        word(&connector.release.manifest.authorization_kind)
    )
}

/// Whether an installed connector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing is installed.
    NotInstalled,
    /// Something is being done to it, or went wrong.
    Unsettled,
    /// It waits for an authorization.
    NotAuthorized,
    /// The user switched it off.
    SwitchedOff,
    /// It is on its way.
    Starting,
    /// It does not start.
    Failed,
    /// It answers.
    Started,
}

impl Standing {
    pub(super) fn of(connector: &dto::Connector) -> Self {
        match connector.installation.state.as_str() {
            "not_installed" => return Self::NotInstalled,
            "installed" => {}
            _ => return Self::Unsettled,
        }
        match connector.runtime.as_ref().map(|runtime| runtime.state.as_str()) {
            Some("started") => Self::Started,
            Some("stopped") if lacks_authorization(connector) => Self::NotAuthorized,
            Some("stopped") => Self::SwitchedOff,
            Some("failed") => Self::Failed,
            _ => Self::Starting,
        }
    }

    /// Why the connector does not answer, and what to do about it; none when it should.
    pub(super) fn obstacle(self, client: &Client, key: &str) -> Option<(String, String)> {
        let show = || format!("see how it stands with: {}", client.command(&format!("show {key}")));
        Some(match self {
            Self::Started => return None,
            Self::NotInstalled => (
                format!("{key} is not installed"),
                format!("install it with: {}", client.command(&format!("install {key}"))),
            ),
            Self::SwitchedOff => (
                format!("{key} is switched off"),
                format!("switch it on with: {}", client.command(&format!("enable {key}"))),
            ),
            Self::NotAuthorized => {
                (format!("{key} is installed but not authorized, which this version cannot do yet"), show())
            }
            Self::Starting => (format!("{key} has not started yet"), show()),
            Self::Failed => (format!("{key} does not start"), show()),
            Self::Unsettled => (format!("{key} is not in place"), show()),
        })
    }
}

/// Installation and runtime in one word or two.
pub(super) fn state(connector: &dto::Connector) -> String {
    let installation = connector.installation.state.replace('_', " ");
    match (Standing::of(connector), &connector.runtime) {
        (Standing::SwitchedOff, _) => "installed, switched off".to_owned(),
        (Standing::NotAuthorized, _) => "installed, not authorized".to_owned(),
        (Standing::NotInstalled, _) if word(&connector.compatibility.state) != "supported" => {
            word(&connector.compatibility.state)
        }
        (_, Some(runtime)) => format!("{installation}, {}", runtime.state),
        (_, None) => installation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_called_what_it_is() {
        assert_eq!(Offer::between("1.4.0", "1.10.0"), Offer::Update);
        assert_eq!(Offer::between("1.10.0", "1.4.0"), Offer::Downgrade);
        assert_eq!(Offer::between("1.0.0", "1.0.0-rc.1"), Offer::Downgrade);
        assert_eq!(Offer::between("1.0.0", "1.0.0"), Offer::OtherBytes);
        // Build metadata says nothing about what is newer.
        assert_eq!(Offer::between("1.0.0+b", "1.0.0+a"), Offer::Update);
    }
}
