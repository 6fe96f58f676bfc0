-- Atomic mode, in one round trip with BEGIN and SAVEPOINT: claim a key that has no row.
-- As claim_open, but a row that stands in the way is left alone, and nobody has to read
-- what comes back: the row's place is kept in a setting that ends with the transaction.
WITH fresh AS (
    INSERT INTO semel_claim
           (scope, key, mode, status, fp, raw, recipe, owner, token, lease_expires_at, created_at, expires_at)
    SELECT CAST(:scope AS bytea), CAST(:key AS bytea), 'atomic', 0, CAST(:fp AS bytea),
           CAST(:raw AS bytea), CAST(:recipe AS text), CAST(:owner AS bytea), 1, NULL,
           coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp()), 'infinity'
     WHERE pg_try_advisory_xact_lock(CAST(:lock AS bigint))
       AND set_config('idle_in_transaction_session_timeout', CAST(:idle_timeout AS text), true) IS NOT NULL
       AND set_config('semel.claim', CAST(:proof AS text), true) IS NOT NULL
    ON CONFLICT (scope, key) DO NOTHING
    RETURNING ctid
)
SELECT set_config('semel.place', CAST(ctid AS text), true) FROM fresh
