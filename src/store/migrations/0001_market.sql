-- The market: its counters, connectors, operations, runtime convergence and outbox.
--
-- One text for SQLite and PostgreSQL. {key} is TEXT compared byte by byte, {bytes}
-- a column of raw bytes; src/store/dialect.rs says what they become. Times are
-- milliseconds since 1970 in UTC, documents are JSON. An absent account, owner or
-- lane is the empty string, so that unique indexes cover it.

CREATE TABLE metadata (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL CHECK (revision >= 0),
    catalog_state TEXT NOT NULL,
    source_revision TEXT NOT NULL,
    event_sequence BIGINT NOT NULL CHECK (event_sequence >= 0)
);

INSERT INTO metadata (id, revision, catalog_state, source_revision, event_sequence)
VALUES (1, 0, 'stale', '', 0);

CREATE TABLE connectors (
    connector_key {key} PRIMARY KEY,
    document TEXT NOT NULL
);

-- Which release of a connector is the installed one.
CREATE TABLE installed_releases (
    connector_key {key} PRIMARY KEY,
    release_digest {key} NOT NULL,
    document TEXT NOT NULL
);

-- Every release whose files an operation received; outlives the operation.
CREATE TABLE release_installations (
    connector_key {key} NOT NULL,
    release_digest {key} NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (connector_key, release_digest)
);

-- The lease is kept in its columns alone, so that claiming and renewing leave the
-- document as it is.
CREATE TABLE operations (
    operation_id {key} PRIMARY KEY,
    client_request_id {key} NOT NULL,
    owner {key} NOT NULL,
    visibility TEXT NOT NULL CHECK (visibility IN ('account', 'system_private')),
    lane {key} NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('accepted', 'running', 'completed', 'failed')),
    lease_owner {key},
    lease_token BIGINT NOT NULL CHECK (lease_token >= 0),
    lease_expires_at BIGINT,
    updated_at BIGINT NOT NULL,
    document TEXT NOT NULL,
    CHECK ((lease_owner IS NULL) = (lease_expires_at IS NULL))
);

CREATE UNIQUE INDEX operations_client_request ON operations (owner, client_request_id);

CREATE UNIQUE INDEX operations_active_lane ON operations (lane)
WHERE state IN ('accepted', 'running');

CREATE INDEX operations_ended ON operations (updated_at, operation_id)
WHERE state IN ('completed', 'failed');

CREATE TABLE convergences (
    node_id {key} NOT NULL,
    account {key} NOT NULL,
    connector_key {key} NOT NULL,
    desired_generation BIGINT NOT NULL CHECK (desired_generation > 0),
    observed_generation BIGINT NOT NULL CHECK (observed_generation >= 0),
    observed_epoch {key} NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    lease_owner {key},
    lease_token BIGINT NOT NULL CHECK (lease_token >= 0),
    lease_expires_at BIGINT,
    document TEXT NOT NULL,
    PRIMARY KEY (node_id, account, connector_key),
    CHECK ((lease_owner IS NULL) = (lease_expires_at IS NULL))
);

CREATE INDEX convergences_next ON convergences (node_id, account, next_attempt_at, connector_key);

-- The sequence comes from metadata: it follows the order of commits and is never
-- given out twice, not even after the row is gone.
CREATE TABLE outbox (
    sequence BIGINT PRIMARY KEY,
    document TEXT NOT NULL,
    published_at BIGINT
);

CREATE INDEX outbox_pending ON outbox (sequence) WHERE published_at IS NULL;

CREATE INDEX outbox_published ON outbox (published_at, sequence) WHERE published_at IS NOT NULL;

CREATE TABLE settings (
    name {key} PRIMARY KEY,
    value TEXT NOT NULL
);
