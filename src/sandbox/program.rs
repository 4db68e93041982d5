//! A linked component with what it said of itself: all that a call needs.

use std::{collections::HashMap, sync::Arc};

use super::{bindings::ConnectorPre, cache::Loaded, instance::InstanceState, schemas::Schema};
use crate::domain::capability::Capability;

/// A capability with its schemas, compiled.
pub(crate) struct Callable {
    /// As described.
    pub(crate) capability: Capability,
    /// The input's schema.
    pub(crate) input: Schema,
    /// The structured answer's schema.
    pub(crate) output: Option<Schema>,
}

/// What a route runs.
pub(crate) struct Program {
    /// Ready to be instantiated.
    pub(crate) pre: ConnectorPre<InstanceState>,
    /// By name.
    pub(crate) capabilities: HashMap<String, Callable>,
    /// Keeps the compiled code findable for other routes of the same component.
    pub(crate) _loaded: Arc<Loaded>,
}
