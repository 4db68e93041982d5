//! What `bindgen!` makes of `wit/0.1.0`.

/// World `connector`.
pub(crate) mod connector {
    wasmtime::component::bindgen!({
        path: "wit/0.1.0",
        world: "connector",
        imports: {
            "portcullis:connector/state": async,
            "portcullis:connector/client": async,
        },
        exports: { default: async },
    });
}

/// World `authorizing-connector`; shares the types and imports of `connector`.
pub(crate) mod authorizing {
    wasmtime::component::bindgen!({
        path: "wit/0.1.0",
        world: "authorizing-connector",
        with: {
            "portcullis:connector/types": super::connector::portcullis::connector::types,
            "portcullis:connector/log": super::connector::portcullis::connector::log,
            "portcullis:connector/progress": super::connector::portcullis::connector::progress,
            "portcullis:connector/state": super::connector::portcullis::connector::state,
            "portcullis:connector/client": super::connector::portcullis::connector::client,
        },
        exports: { default: async },
    });
}

pub(crate) use authorizing::AuthorizingConnectorPre;
pub(crate) use connector::{
    ConnectorPre, exports::portcullis::connector::capabilities as exported, portcullis::connector as imported,
};
