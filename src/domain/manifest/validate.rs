//! The rules of spec F that the types alone do not enforce.

use std::{collections::BTreeSet, ops::RangeInclusive};

use base64::Engine as _;

use super::{
    super::{error::Error, id::CapabilityName},
    AgentRouting, AuthorizationKind, ComponentLimits, CredentialInjection, CredentialPlacement, Manifest,
    RemoteAuthentication, RemoteStreamableHttp, SCHEMA_VERSION, WORLD_AUTHORIZING_CONNECTOR, WORLD_CONNECTOR,
    WasmComponent,
    implementation::Implementation,
};

const ICON_URL_BYTES: usize = 2048;
const INLINE_ICON_BYTES: usize = 128 * 1024;
const INTERACTION_BYTES: usize = 64 * 1024;
const MIB: u64 = 1 << 20;

impl Manifest {
    /// Checks every rule of a manifest.
    ///
    /// # Errors
    /// [`super::super::error::ErrorCode::InvalidManifest`], naming the field and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        check(self.schema_version == SCHEMA_VERSION, || format!("schemaVersion must be {SCHEMA_VERSION:?}"))?;
        check(!self.display_name.trim().is_empty(), || "displayName must not be blank".into())?;
        icon(&self.icon_url)?;
        if let Some(routing) = &self.agent_routing {
            aliases(routing)?;
        }
        unique("permissions", self.permissions.iter().map(super::Permission::as_str))?;
        if let Some(interaction) = &self.authorization_interaction {
            check(interaction.to_string().len() <= INTERACTION_BYTES, || {
                "authorizationInteraction must be at most 64 KiB".into()
            })?;
        }
        for name in self.examples.keys() {
            CapabilityName::parse(name.as_str())
                .map_err(|_| Error::invalid_manifest(format!("examples: {name:?} is no capability name")))?;
        }
        match &self.implementation {
            Implementation::WasmComponent(component) => self.wasm_component(component),
            Implementation::RemoteStreamableHttp(remote) => self.remote(remote),
        }
    }

    fn wasm_component(&self, component: &WasmComponent) -> Result<(), Error> {
        check(is_safe_relative_path(&component.component), || {
            format!(
                "implementation.component {:?} must be a relative path inside the bundle",
                component.component
            )
        })?;
        check([WORLD_CONNECTOR, WORLD_AUTHORIZING_CONNECTOR].contains(&component.world.as_str()), || {
            format!(
                "implementation.world {:?} is unknown; this host runs {WORLD_CONNECTOR} and {WORLD_AUTHORIZING_CONNECTOR}",
                component.world
            )
        })?;
        limits(&component.limits)?;
        unique("implementation.allowedHosts", component.allowed_hosts.iter().map(super::HostName::as_str))?;
        match &component.credential {
            Some(_) if self.authorization_kind == AuthorizationKind::None => Err(Error::invalid_manifest(
                "implementation.credential needs an authorizationKind other than none",
            )),
            Some(injection) => credential(injection, component),
            None => Ok(()),
        }
    }

    fn remote(&self, remote: &RemoteStreamableHttp) -> Result<(), Error> {
        let endpoint = &remote.endpoint;
        let host = endpoint.host_str().unwrap_or_default();
        check(endpoint.scheme() == "https", || "implementation.endpoint must be https".into())?;
        check(remote.allowed_hosts.iter().any(|allowed| allowed.as_str() == host), || {
            format!("implementation.endpoint's host {host:?} must be one of allowedHosts")
        })?;
        check(
            endpoint.username().is_empty() && endpoint.password().is_none() && endpoint.fragment().is_none(),
            || "implementation.endpoint must have no userinfo and no fragment".into(),
        )?;
        within("implementation.limits.timeoutMs", remote.limits.timeout_ms, 100..=120_000)?;
        within("implementation.limits.responseBytes", remote.limits.response_bytes, 1..=10 * MIB)?;
        let needs_connection = remote.authentication == RemoteAuthentication::Connection;
        check(needs_connection == (self.authorization_kind != AuthorizationKind::None), || {
            "implementation.authentication is connection exactly when authorizationKind is not none".into()
        })?;
        check(self.required_capabilities == ["tools"], || {
            "requiredCapabilities of a remote connector must be exactly [\"tools\"]".into()
        })
    }
}

fn icon(url: &str) -> Result<(), Error> {
    if let Some(data) = url.strip_prefix("data:") {
        let inline = data
            .split_once(";base64,")
            .filter(|(media_type, _)| ["image/png", "image/webp", "image/svg+xml"].contains(media_type));
        let bytes = inline.and_then(|(_, text)| base64::engine::general_purpose::STANDARD.decode(text).ok());
        return check(bytes.is_some_and(|bytes| (1..=INLINE_ICON_BYTES).contains(&bytes.len())), || {
            "iconUrl as a data URL must be a base64 PNG, WebP or SVG of at most 128 KiB".into()
        });
    }
    let parsed = url::Url::parse(url).ok().filter(|parsed| {
        parsed.scheme() == "https"
            // The URL parser reads "https:///x" as host x; a reader would not.
            && url.strip_prefix("https://").is_some_and(|rest| !rest.starts_with(['/', '\\']))
            && parsed.username().is_empty()
            && parsed.password().is_none()
    });
    check(parsed.is_some() && url.trim() == url && url.len() <= ICON_URL_BYTES, || {
        "iconUrl must be an https URL with a host and without userinfo, at most 2048 bytes, or a data URL"
            .into()
    })
}

fn aliases(routing: &AgentRouting) -> Result<(), Error> {
    check((1..=12).contains(&routing.aliases.len()), || "agentRouting.aliases must be 1 to 12 names".into())?;
    for alias in &routing.aliases {
        let allowed = |character: char| {
            character.is_alphanumeric() || is_mark(character) || " -_.+&/()".contains(character)
        };
        let well_formed = !alias.is_empty()
            && alias.trim() == alias
            && alias.chars().count() <= 48
            && alias.chars().all(allowed);
        check(well_formed, || {
            format!(
                "agentRouting alias {alias:?} must be at most 48 letters, digits, spaces and - _ . + & / ( )"
            )
        })?;
    }
    let lower: Vec<String> = routing.aliases.iter().map(|alias| alias.to_lowercase()).collect();
    unique("agentRouting.aliases", lower.iter().map(String::as_str))
}

/// Combining marks of the scripts that write words with them.
fn is_mark(character: char) -> bool {
    matches!(u32::from(character),
        0x0300..=0x036F | 0x0483..=0x0489 | 0x0591..=0x05C7 | 0x0610..=0x061A | 0x064B..=0x065F | 0x0670
        | 0x06D6..=0x06ED | 0x0900..=0x0DFF | 0x0E31..=0x0E4E | 0x0EB1..=0x0ECD | 0x0F18..=0x0FBC
        | 0x102B..=0x109D | 0x17B4..=0x17D3 | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF
        | 0x302A..=0x302F | 0x3099..=0x309A | 0xFE00..=0xFE0F | 0xFE20..=0xFE2F)
}

fn limits(limits: &ComponentLimits) -> Result<(), Error> {
    let ranges: [(&str, Option<u64>, RangeInclusive<u64>); 6] = [
        ("memoryBytes", limits.memory_bytes, 65_536..=4 << 30),
        ("tableElements", limits.table_elements, 1..=1_000_000),
        ("cpuMs", limits.cpu_ms, 1..=120_000),
        ("wallMs", limits.wall_ms, 100..=120_000),
        ("concurrentCalls", limits.concurrent_calls.map(u64::from), 1..=1_000),
        ("responseBytes", limits.response_bytes, 1..=10 * MIB),
    ];
    for (name, value, range) in ranges {
        if let Some(value) = value {
            within(&format!("implementation.limits.{name}"), value, range)?;
        }
    }
    Ok(())
}

fn credential(injection: &CredentialInjection, component: &WasmComponent) -> Result<(), Error> {
    check(!injection.hosts.is_empty(), || {
        "implementation.credential.hosts must name at least one host".into()
    })?;
    for host in &injection.hosts {
        check(component.allowed_hosts.contains(host), || {
            format!("implementation.credential host {host} must be one of allowedHosts")
        })?;
    }
    let token = |text: &str| {
        !text.is_empty()
            && text.len() <= 128
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let (name, prefix) = match &injection.placement {
        CredentialPlacement::Header { name, prefix } => (name, prefix.as_str()),
        CredentialPlacement::Query { name } => (name, ""),
    };
    let plain_prefix = prefix.len() <= 64 && prefix.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    check(token(name) && plain_prefix, || {
        "implementation.credential.placement needs a header or parameter name of letters, digits, - _ and ."
            .into()
    })
}

/// Whether `path` is a relative path, already in its simplest form, that cannot
/// leave its folder on any platform (spec F, safe relative entrypoint).
#[must_use]
pub fn is_safe_relative_path(path: &str) -> bool {
    const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
    let device = |segment: &str| {
        let stem = segment.split('.').next().unwrap_or(segment).to_ascii_lowercase();
        let numbered = (stem.starts_with("com") || stem.starts_with("lpt"))
            && stem.len() == 4
            && matches!(stem.as_bytes()[3], b'1'..=b'9');
        DEVICES.contains(&stem.as_str()) || numbered
    };
    let segment_ok = |segment: &str| {
        !segment.is_empty()
            && segment != "."
            && segment != ".."
            && !segment.ends_with(['.', ' '])
            && !segment.contains(['\\', ':'])
            && !segment.chars().any(char::is_control)
            && !device(segment)
    };
    !path.trim().is_empty() && path.len() <= 1024 && path.split('/').all(segment_ok)
}

fn unique<'a>(field: &str, values: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for value in values {
        check(seen.insert(value), || format!("{field} names {value:?} twice"))?;
    }
    Ok(())
}

fn within(field: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), Error> {
    check(range.contains(&value), || {
        format!("{field} is {value} but must be between {} and {}", range.start(), range.end())
    })
}

fn check(holds: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::invalid_manifest(message())) }
}
