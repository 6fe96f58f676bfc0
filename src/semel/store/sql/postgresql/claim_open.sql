-- Atomic mode: claim the key inside the transaction that will carry the effect.
-- A row comes back only for the one who holds the lock and found no live claim.
-- A rival sees the lock held, inserts nothing, and never waits. The idle timeout
-- ends the transaction of an owner that stopped talking. The setting semel.claim
-- lives as long as this transaction: it tells the completion that it still runs.
INSERT INTO semel_claim AS c
       (scope, key, mode, status, fp, raw, recipe, owner, token, lease_expires_at, created_at, expires_at)
SELECT CAST(:scope AS bytea), CAST(:key AS bytea), 'atomic', 0, CAST(:fp AS bytea),
       CAST(:raw AS bytea), CAST(:recipe AS text), CAST(:owner AS bytea), 1, NULL,
       coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp()), 'infinity'
 WHERE pg_try_advisory_xact_lock(CAST(:lock AS bigint))
   AND set_config('idle_in_transaction_session_timeout', CAST(:idle_timeout AS text), true) IS NOT NULL
   AND set_config('semel.claim', CAST(:proof AS text), true) IS NOT NULL
ON CONFLICT (scope, key) DO UPDATE
   SET mode = excluded.mode, status = 0, fp = excluded.fp, raw = excluded.raw,
       recipe = excluded.recipe, owner = excluded.owner, token = c.token + 1,
       lease_expires_at = NULL, created_at = excluded.created_at, expires_at = excluded.expires_at,
       answer_status = NULL, headers = NULL, body = NULL
 WHERE c.status = 3
    OR (c.status = 1 AND c.expires_at <= coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp()))
RETURNING token, CAST(ctid AS text)
