//! What a component imports and exports, held against the contract before anything
//! of it runs.

use wasmtime::component::Component;

use super::{bindings::AuthorizingConnectorPre, guest_text, instance::InstanceState};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        manifest::WORLD_AUTHORIZING_CONNECTOR,
    },
    sandbox::bindings::ConnectorPre,
};

/// Interfaces of WASI 0.2 that a connector may import.
const WASI: [&str; 26] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:http/outgoing-handler",
    "wasi:http/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
];
/// The rest of `wasi:sockets`, linked to refusals as the others of it are.
const SOCKETS: [&str; 3] =
    ["wasi:sockets/tcp-create-socket", "wasi:sockets/udp", "wasi:sockets/udp-create-socket"];
/// Our own interfaces, at exactly the version that was released.
const OURS: [&str; 5] = [
    "portcullis:connector/client@0.1.0",
    "portcullis:connector/log@0.1.0",
    "portcullis:connector/progress@0.1.0",
    "portcullis:connector/state@0.1.0",
    "portcullis:connector/types@0.1.0",
];
const CAPABILITIES: &str = "portcullis:connector/capabilities@0.1.0";
const AUTHORIZATION: &str = "portcullis:connector/authorization@0.1.0";

/// Refuses a component that imports anything outside of the contract or lacks an
/// export of its world.
///
/// # Errors
/// [`ErrorCode::ComponentImportForbidden`] naming the import, or
/// [`ErrorCode::ComponentWorldUnsupported`] naming the export.
pub(crate) fn check(component: &Component, world: &str) -> Result<(), Error> {
    let engine = component.engine();
    let kind = component.component_type();
    for (name, _) in kind.imports(engine) {
        if !may_import(name) {
            return Err(Error::new(
                ErrorCode::ComponentImportForbidden,
                format!(
                    "the component imports {:?}, which a connector may not use",
                    guest_text::plain(name, 200)
                ),
            ));
        }
    }
    let exports = |wanted: &str| kind.exports(engine).any(|(name, _)| name == wanted);
    let wanted: &[&str] =
        if world == WORLD_AUTHORIZING_CONNECTOR { &[CAPABILITIES, AUTHORIZATION] } else { &[CAPABILITIES] };
    match wanted.iter().find(|name| !exports(name)) {
        Some(missing) => Err(Error::new(
            ErrorCode::ComponentWorldUnsupported,
            format!("the component does not export {missing:?}, which its world {world:?} promises"),
        )),
        None => Ok(()),
    }
}

/// Links a component that passed [`check`]; nothing of it runs.
///
/// # Errors
/// As [`check`], where a name is right and its type is not.
pub(crate) fn link(
    linker: &wasmtime::component::Linker<InstanceState>,
    component: &Component,
    world: &str,
) -> Result<ConnectorPre<InstanceState>, Error> {
    let refuse = |code, what: &str, cause: &wasmtime::Error| {
        let reason = guest_text::plain(&format!("{cause:#}"), 500);
        Error::new(code, format!("the component {what}: {reason}"))
    };
    let pre = linker.instantiate_pre(component).map_err(|cause| {
        refuse(ErrorCode::ComponentImportForbidden, "imports what this host does not offer", &cause)
    })?;
    let unsupported = |cause: wasmtime::Error| {
        refuse(ErrorCode::ComponentWorldUnsupported, "exports something else than its world promises", &cause)
    };
    if world == WORLD_AUTHORIZING_CONNECTOR {
        AuthorizingConnectorPre::new(pre.clone()).map_err(unsupported)?;
    }
    ConnectorPre::new(pre).map_err(unsupported)
}

/// Whether a connector may import the interface `name`.
pub(crate) fn may_import(name: &str) -> bool {
    if OURS.contains(&name) {
        return true;
    }
    let Some((interface, version)) = name.split_once('@') else { return false };
    let released = semver::Version::parse(version)
        .is_ok_and(|version| (version.major, version.minor) == (0, 2) && version.pre.is_empty());
    released && (WASI.contains(&interface) || SOCKETS.contains(&interface))
}

#[cfg(test)]
mod tests {
    use super::may_import;

    #[test]
    fn only_released_interfaces_of_the_contract_pass() {
        for name in ["wasi:http/types@0.2.0", "wasi:io/poll@0.2.9", "portcullis:connector/log@0.1.0"] {
            assert!(may_import(name), "{name}");
        }
        for name in [
            "wasi:http/types",
            "wasi:http/types@0.3.0",
            "wasi:http/types@0.2.0-rc.1",
            "wasi:http/incoming-handler@0.2.0",
            "wasi:keyvalue/store@0.2.0",
            "portcullis:connector/log@0.1.1",
            "portcullis:connector/secrets@0.1.0",
            "env",
        ] {
            assert!(!may_import(name), "{name}");
        }
    }
}
