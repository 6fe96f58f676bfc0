CREATE TABLE semel_claim (
    scope BLOB NOT NULL,               -- SHA-256 of the scope
    key BLOB NOT NULL,                 -- SHA-256 of the idempotency key
    mode TEXT NOT NULL,                -- joined, leased
    status INTEGER NOT NULL,           -- 0 in progress, 1 completed, 2 in doubt, 3 released
    fp BLOB NOT NULL,                  -- fingerprint of the request
    raw BLOB NOT NULL,                 -- digest of the request's bytes
    recipe TEXT NOT NULL,              -- how the fingerprint was made
    owner BLOB NOT NULL,               -- random, new for every acquire
    token INTEGER NOT NULL,            -- fencing token, grows with every acquire
    lease_expires_at REAL,             -- epoch seconds
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    answer_status INTEGER,
    headers BLOB,
    body BLOB,
    PRIMARY KEY (scope, key)
) STRICT;
CREATE INDEX semel_claim_expires_at ON semel_claim (expires_at);
CREATE INDEX semel_claim_in_progress ON semel_claim (owner) WHERE status = 0;
