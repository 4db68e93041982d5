//! Whether a component keeps the contract of its world: the WIT in
//! [`wit`], and the interfaces that the sandbox lets a connector import.

use serde::Serialize;
use wit_parser::{Resolve, SourceMap};

use super::{
    component::{ComponentInterface, Functions},
    wit,
};
use crate::{
    domain::{
        error::{Error, ErrorCode},
        manifest::{WORLD_AUTHORIZING_CONNECTOR, WORLD_CONNECTOR},
    },
    sandbox,
};

const PACKAGE: &str = "portcullis:connector/";

/// Why a host would not take a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The host's code for it.
    pub code: ErrorCode,
    /// What is wrong and what to do.
    pub message: String,
}

/// The world that a component looks built for, by what it exports.
///
/// # Errors
/// As [`problems`].
pub fn likely_world(interface: &ComponentInterface) -> Result<Option<&'static str>, Error> {
    for world in [WORLD_AUTHORIZING_CONNECTOR, WORLD_CONNECTOR] {
        if world_interface(world)?.exports.keys().all(|name| interface.exports.contains_key(name)) {
            return Ok(Some(world));
        }
    }
    Ok(None)
}

/// Everything for which a component does not fit `world`; empty when it does.
///
/// # Errors
/// [`ErrorCode::ComponentWorldUnsupported`] for a world that this host does not know.
pub fn problems(interface: &ComponentInterface, world: &str) -> Result<Vec<Problem>, Error> {
    let contract = world_interface(world)?;
    let mut problems = Vec::new();
    for (name, functions) in &interface.imports {
        if let Some(offered) = contract.imports.get(name) {
            differences("import", name, functions, offered, &mut problems);
        } else if !sandbox::may_import(name) {
            problems.push(Problem {
                code: ErrorCode::ComponentImportForbidden,
                message: format!("import {name} is outside the contract; no host offers it to a connector"),
            });
        }
    }
    for (name, required) in &contract.exports {
        match interface.exports.get(name) {
            Some(functions) => {
                differences("export", name, functions, required, &mut problems);
                for function in required.keys().filter(|function| !functions.contains_key(*function)) {
                    problems.push(Problem {
                        code: ErrorCode::ComponentWorldUnsupported,
                        message: format!("export {name} lacks the function {function}"),
                    });
                }
            }
            None => problems.push(Problem {
                code: ErrorCode::ComponentWorldUnsupported,
                message: format!("the component does not export {name}, which {world} promises"),
            }),
        }
    }
    for name in interface.exports.keys() {
        if name.starts_with(PACKAGE) && !contract.exports.contains_key(name) {
            problems.push(Problem {
                code: ErrorCode::ComponentWorldUnsupported,
                message: format!(
                    "the component exports {name}, which {world} does not have; \
                     name the world it was built for in implementation.world"
                ),
            });
        }
    }
    Ok(problems)
}

/// Refuses a component that does not fit `world`, with every reason.
///
/// # Errors
/// [`ErrorCode::ComponentImportForbidden`] or [`ErrorCode::ComponentWorldUnsupported`].
pub fn require(interface: &ComponentInterface, world: &str) -> Result<(), Error> {
    let problems = problems(interface, world)?;
    match problems.first() {
        None => Ok(()),
        Some(first) => {
            let all: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
            Err(Error::new(first.code, all.join("; ")))
        }
    }
}

fn differences(side: &str, name: &str, has: &Functions, contract: &Functions, problems: &mut Vec<Problem>) {
    for (function, signature) in has {
        let message = match contract.get(function) {
            Some(expected) if expected == signature => continue,
            Some(expected) => {
                format!("{side} {name}: {function} is {signature}, but the contract has {expected}")
            }
            None => format!("{side} {name}: the contract has no function {function}"),
        };
        problems.push(Problem { code: ErrorCode::ComponentWorldUnsupported, message });
    }
}

fn world_interface(world: &str) -> Result<ComponentInterface, Error> {
    let unknown = || {
        Error::new(
            ErrorCode::ComponentWorldUnsupported,
            format!(
                "world {world:?} is unknown; this host runs {WORLD_CONNECTOR} and {WORLD_AUTHORIZING_CONNECTOR}"
            ),
        )
    };
    if ![WORLD_CONNECTOR, WORLD_AUTHORIZING_CONNECTOR].contains(&world) {
        return Err(unknown());
    }
    let name = world.trim_start_matches(PACKAGE).split('@').next().unwrap_or_default();
    let mut sources = SourceMap::new();
    for (path, text) in wit::SOURCES {
        sources.push_str(path, text);
    }
    let unreadable = |cause: String| {
        Error::new(ErrorCode::ComponentWorldUnsupported, "the contract's WIT is not readable")
            .with_cause(cause)
    };
    let group = sources.parse().map_err(|(sources, cause)| unreadable(cause.render(&sources)))?;
    let mut resolve = Resolve::new();
    let package = resolve.push_group(group).map_err(|cause| unreadable(cause.to_string()))?;
    let id = resolve.packages[package].worlds.get(name).copied().ok_or_else(unknown)?;
    Ok(ComponentInterface::of_world(&resolve, &resolve.worlds[id]))
}
