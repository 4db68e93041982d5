//! Permissions: what a connector asks for, in words that a person can read.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::{error::Error, id::ConnectorKey};

/// `name` or `name:scope` (spec F, 4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permission(String);

impl Permission {
    /// Checks a permission.
    ///
    /// # Errors
    /// [`super::super::error::ErrorCode::InvalidManifest`] when it breaks the form.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (name, scope) = match text.split_once(':') {
            Some((name, scope)) => (name, Some(scope)),
            None => (text, None),
        };
        let name_ok = is_identifier(name);
        let scope_ok = scope.is_none_or(|scope| scope == "*" || ConnectorKey::parse(scope).is_ok());
        if name_ok && scope_ok {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::invalid_manifest(format!(
                "permission {text:?} must be name or name:scope in lower case, where scope may be *"
            )))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lower-case letter first, then at most 127 of `a-z`, `0-9`, `.`, `_`, `-`.
fn is_identifier(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.as_bytes()[0].is_ascii_lowercase()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte))
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Permission {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
