//! Identifiers. Each meaning has a type of its own; a value of it has been
//! checked once, where it came in.

use std::{borrow::Borrow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};

use super::{digest::Sha256Digest, error::Error};

/// Declares a checked string type: what it is, its check, what the refusal says.
macro_rules! string_id {
    ($( $(#[$doc:meta])* $name:ident, $check:expr, $rule:literal; )*) => { $(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks `text`.
            ///
            /// # Errors
            /// [`super::error::ErrorCode::InvalidRequest`] with the rule that was broken.
            pub fn parse(text: impl Into<String>) -> Result<Self, Error> {
                let text = text.into();
                let check: fn(&str) -> bool = $check;
                if check(&text) { Ok(Self(text)) } else { Err(Error::invalid_request($rule)) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::parse(text)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    )* };
}

string_id! {
    /// Identifies a connector: 1 to 128 of `a-z`, `0-9`, and inside also `.`, `_`, `-` (spec F).
    ConnectorKey, is_connector_key,
        "a connector key is 1 to 128 characters of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends";
    /// Identifies a release.
    ReleaseId, is_present_short, "a release id is 1 to 256 printable characters";
    /// Identifies an operation.
    OperationId, is_present_short, "an operation id is 1 to 256 printable characters";
    /// The caller's own id for a command, which makes repeating it harmless.
    ClientRequestId, is_present_short, "clientRequestId is required: 1 to 256 printable characters";
    /// An account.
    AccountId, is_present_short, "an account id is 1 to 256 printable characters";
    /// A connection of an account (spec B.4).
    ConnectionId, is_connection_id,
        "a connection id is 1 to 191 letters, digits, '.', '_' and '-', starting with a letter or digit";
    /// A provider's own id of an authorization attempt.
    AuthorizationSessionId, is_present_short,
        "an authorization session id is 1 to 256 printable characters";
    /// One process that executes operations.
    WorkerId, is_present_short, "a worker id is 1 to 256 printable characters";
    /// One start of one daemon; random, never reused.
    BootEpoch, is_present_short, "a boot epoch is 1 to 256 printable characters";
    /// A node: one data directory. Keeps runtime convergence apart where daemons share a database.
    NodeId, is_present_short, "a node id is 1 to 256 printable characters";
    /// The name of a capability within its connector.
    CapabilityName, is_capability_name,
        "a capability name is 1 to 64 characters of a-z, 0-9, '_' and '-', starting with a letter";
    /// Identifies one call of a capability in logs and errors.
    RequestId, is_present_short, "a request id is 1 to 256 printable characters";
}

impl ConnectionId {
    /// The connection of a connector that needs no account: `device-<key>` (spec B.4).
    #[must_use]
    pub fn device(key: &ConnectorKey) -> Self {
        Self(format!("device-{key}"))
    }

    /// The connection of an account that holds no credential of its own:
    /// `account-` and 16 bytes of SHA-256 over account, NUL, key (spec B.4).
    #[must_use]
    pub fn account(account: Option<&AccountId>, key: &ConnectorKey) -> Self {
        let account = account.map_or("signed-out", AccountId::as_str);
        let digest = Sha256Digest::of(format!("{account}\0{key}").as_bytes());
        Self(format!("account-{}", hex::encode(&digest.as_bytes()[..16])))
    }
}

/// A capability as callers name it: `<connector key>.<capability name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityId {
    /// The connector that offers it.
    pub connector: ConnectorKey,
    /// Its name there.
    pub name: CapabilityName,
}

impl fmt::Display for CapabilityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.connector, self.name)
    }
}

impl FromStr for CapabilityId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (connector, name) = text
            .rsplit_once('.')
            .ok_or_else(|| Error::invalid_request("a capability id is <connector key>.<capability name>"))?;
        Ok(Self { connector: connector.parse()?, name: name.parse()? })
    }
}

impl Serialize for CapabilityId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CapabilityId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_connector_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=128).contains(&bytes.len())
        && bytes.iter().all(|&byte| is_lower_alphanumeric(byte) || b"._-".contains(&byte))
        && bytes.first().is_some_and(|&byte| is_lower_alphanumeric(byte))
        && bytes.last().is_some_and(|&byte| is_lower_alphanumeric(byte))
}

fn is_connection_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=191).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
}

fn is_capability_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.iter().all(|&byte| is_lower_alphanumeric(byte) || b"_-".contains(&byte))
}

fn is_present_short(text: &str) -> bool {
    !text.trim().is_empty() && text.trim() == text && text.len() <= 256 && !text.chars().any(char::is_control)
}
