-- Authorization: what accounts hold, and attempts that are still open.
-- {key} as in 0001_market.sql.

CREATE TABLE authorization_projections (
    account {key} NOT NULL,
    connector_key {key} NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (account, connector_key)
);

-- The revision of an account's truth that was last applied.
CREATE TABLE authorization_revisions (
    account {key} PRIMARY KEY,
    revision BIGINT NOT NULL CHECK (revision >= 0)
);

-- 1 while an authorization attempt that the operation began is open.
ALTER TABLE operations ADD COLUMN session_open BIGINT NOT NULL DEFAULT 0;

CREATE INDEX operations_session_open ON operations (owner, operation_id) WHERE session_open = 1;
