-- The sandbox: what connectors keep, and the compiled components this daemon wrote.
-- {key} and {bytes} as in 0001_market.sql.

CREATE TABLE connector_state (
    account {key} NOT NULL,
    connector_key {key} NOT NULL,
    connection_id {key} NOT NULL,
    state_key {key} NOT NULL,
    value {bytes} NOT NULL,
    PRIMARY KEY (account, connector_key, connection_id, state_key)
);

CREATE INDEX connector_state_connector ON connector_state (connector_key);

CREATE TABLE compiled_components (
    component_digest {key} NOT NULL,
    engine_fingerprint {key} NOT NULL,
    file_digest {key} NOT NULL,
    PRIMARY KEY (component_digest, engine_fingerprint)
);
