CREATE TABLE semel_claim (
    scope bytea NOT NULL,              -- SHA-256 of the scope
    key bytea NOT NULL,                -- SHA-256 of the idempotency key
    mode text NOT NULL,                -- atomic, joined, leased
    status smallint NOT NULL,          -- 0 in progress, 1 completed, 2 in doubt, 3 released
    fp bytea NOT NULL,                 -- fingerprint of the request
    raw bytea NOT NULL,                -- digest of the request's bytes
    recipe text NOT NULL,              -- how the fingerprint was made
    owner bytea NOT NULL,              -- random, new for every acquire
    token bigint NOT NULL,             -- fencing token, grows with every acquire
    lease_expires_at timestamptz,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    answer_status smallint,
    headers bytea,
    body bytea,
    PRIMARY KEY (scope, key)
);
CREATE INDEX semel_claim_expires_at ON semel_claim (expires_at);
