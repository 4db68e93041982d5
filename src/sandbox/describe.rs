//! Asks a component what it can do, and believes nothing that breaks a rule.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    answer,
    bindings::{ConnectorPre, exported},
    call::Guests,
    egress::{Egress, Gate},
    guest_text,
    imports::{CallLog, ProgressReports, StateBuffer},
    instance::InstanceState,
    limits::Limiter,
    meter::Meter,
    program::Callable,
    schemas::{Budget, Schema},
};
use crate::domain::{
    capability::{Annotations, Capability},
    error::{Error, ErrorCode},
    id::CapabilityName,
    manifest::EffectiveLimits,
};

const WALL: Duration = Duration::from_secs(1);
/// How long to wait for an instance.
const SLOT: Duration = Duration::from_secs(10);
const CAPABILITIES: usize = 512;
const TITLE_BYTES: usize = 256;
const DESCRIPTION_BYTES: usize = 16 << 10;

/// Describes a component in an instance of its own, which reaches nothing: no host,
/// no state, no caller.
///
/// # Errors
/// [`ErrorCode::ComponentDescribeFailed`], saying what was wrong.
pub(crate) async fn describe(
    guests: &Arc<Guests>,
    pre: ConnectorPre<InstanceState>,
    limits: &EffectiveLimits,
    connector: Arc<str>,
) -> Result<HashMap<String, Callable>, Error> {
    let slot = tokio::time::timeout(SLOT, Arc::clone(&guests.slots).acquire_owned())
        .await
        .map_err(|_| Error::unavailable("all instances are taken by calls; try again"))?
        .map_err(|_| Error::unavailable("the sandbox is closed"))?;
    let (guests, limits) = (Arc::clone(guests), *limits);
    let runtime = guests.runtime.clone();
    let task = runtime.spawn(async move {
        let _slot = slot;
        let deadline = Instant::now() + WALL;
        let counters = &guests.counters;
        counters.instances.count();
        let gate = Gate::shut(Arc::clone(&connector), Arc::clone(counters));
        let state = InstanceState::new(
            Limiter::new(&limits, &guests.memory),
            Egress::new(Arc::new(gate), None, deadline),
            CallLog::new(connector, "describe".to_owned(), Arc::clone(counters)),
            ProgressReports::new(None, None, Arc::clone(counters)),
            StateBuffer::new(None),
        );
        let mut store = state.into_store(guests.engine.wasmtime());
        let meter = Meter { cpu: limits.cpu().min(WALL), deadline, fenced: None, pace: None };
        let answered = meter
            .run(async {
                let connector = pre.instantiate_async(&mut store).await?;
                connector.portcullis_connector_capabilities().call_describe(&mut store).await
            })
            .await;
        match answered {
            Ok(Ok(Ok(capabilities))) => {
                drop(store);
                // Bounded, but long enough to hold up others on this thread.
                tokio::task::spawn_blocking(|| accept(capabilities))
                    .await
                    .map_err(|cause| wrong("the host failed while it read the schemas").with_cause(cause))?
            }
            Ok(Ok(Err(error))) => Err(failed(&answer::guest_error(error))),
            Ok(Err(trap)) => Err(failed(&answer::failure(&trap, &store.data().limiter))),
            Err(ended) => Err(failed(&ended)),
        }
    });
    // The task ends with the component's second; it needs nobody to end it.
    task.await.map_err(|cause| wrong("the host failed while it asked").with_cause(cause))?
}

fn failed(error: &Error) -> Error {
    wrong(&format!("{} ({})", error.message, error.code))
}

fn wrong(what: &str) -> Error {
    Error::new(
        ErrorCode::ComponentDescribeFailed,
        format!("the connector does not describe itself as it should: {what}"),
    )
}

fn accept(capabilities: Vec<exported::Capability>) -> Result<HashMap<String, Callable>, Error> {
    if !(1..=CAPABILITIES).contains(&capabilities.len()) {
        return Err(wrong(&format!(
            "it names {} capabilities; 1 to {CAPABILITIES} are allowed",
            capabilities.len()
        )));
    }
    let mut budget = Budget::default();
    let mut accepted = HashMap::with_capacity(capabilities.len());
    for one in capabilities {
        let name = CapabilityName::parse(one.name.as_str())
            .map_err(|_| wrong(&format!("{:?} is no capability name", guest_text::plain(&one.name, 100))))?;
        if accepted.contains_key(name.as_str()) {
            return Err(wrong(&format!("it names the capability {name} twice")));
        }
        let callable = callable(name.clone(), one, &mut budget)
            .map_err(|what| wrong(&format!("capability {name}: {what}")))?;
        accepted.insert(name.as_str().to_owned(), callable);
    }
    Ok(accepted)
}

fn callable(
    name: CapabilityName,
    one: exported::Capability,
    budget: &mut Budget,
) -> Result<Callable, String> {
    if one.description.trim().is_empty() || one.description.len() > DESCRIPTION_BYTES {
        return Err(format!("its description must be 1 to {DESCRIPTION_BYTES} bytes"));
    }
    let bad_title = |title: &String| {
        title.trim().is_empty() || title.len() > TITLE_BYTES || title.chars().any(char::is_control)
    };
    if one.title.as_ref().is_some_and(bad_title) {
        return Err(format!("its title must be 1 to {TITLE_BYTES} bytes of one line"));
    }
    let (input_schema, input) =
        Schema::accept(&one.input_schema, budget).map_err(|what| format!("its input schema {what}"))?;
    let (output_schema, output) = match one.output_schema {
        Some(text) => {
            let (schema, output) =
                Schema::accept(&text, budget).map_err(|what| format!("its output schema {what}"))?;
            (Some(schema), Some(output))
        }
        None => (None, None),
    };
    let hints = one.annotations;
    let annotations = Annotations {
        read_only: hints.read_only,
        destructive: hints.destructive,
        idempotent: hints.idempotent,
        open_world: hints.open_world,
    };
    let capability = Capability {
        name,
        title: one.title,
        description: one.description,
        input_schema,
        output_schema,
        annotations,
    };
    Ok(Callable { capability, input, output })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::sandbox::bindings::imported;

    fn capability(name: &str, input: &Value, output: Option<&Value>) -> exported::Capability {
        exported::Capability {
            name: name.to_owned(),
            title: None,
            description: "Does something".to_owned(),
            input_schema: input.to_string(),
            output_schema: output.map(Value::to_string),
            annotations: imported::types::Annotations {
                read_only: false,
                destructive: false,
                idempotent: false,
                open_world: false,
            },
        }
    }

    fn refused(capabilities: Vec<exported::Capability>) -> String {
        let error = accept(capabilities).err().expect("a refusal");
        assert_eq!(error.code, ErrorCode::ComponentDescribeFailed);
        error.message
    }

    #[test]
    fn a_pattern_that_would_take_the_memory_is_named_with_its_capability() {
        let schema = json!({"type": "object", "properties": {"p": {"pattern": "[a-z0]{3000,4000}"}}});
        let any = json!({"type": "object"});
        let message = refused(vec![capability("fine", &any, None), capability("large", &schema, None)]);
        assert!(message.contains("capability large: its input schema has a pattern"), "{message}");
        let message = refused(vec![capability("large", &any, Some(&schema))]);
        assert!(message.contains("capability large: its output schema has a pattern"), "{message}");
    }

    #[test]
    fn capabilities_share_one_budget() {
        let properties: Map<_, _> = (0..60)
            .map(|n| (format!("p{n}"), json!({"pattern": format!("^[a-z]{{1,{}}}$", n + 1)})))
            .collect();
        let schema = json!({"type": "object", "properties": properties});
        let all = |count| (0..count).map(|n| capability(&format!("c{n}"), &schema, None)).collect::<Vec<_>>();
        assert_eq!(accept(all(4)).map(|accepted| accepted.len()).ok(), Some(4));
        let message = refused(all(100));
        assert!(message.contains("capability c8: ") && message.contains("512 patterns"), "{message}");
    }
}
