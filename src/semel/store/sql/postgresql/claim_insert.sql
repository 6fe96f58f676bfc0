-- Joined mode: claim the key in a commit of its own, with a lease. ON CONFLICT
-- decides a race; NOT EXISTS keeps it from waiting for a row that a frozen owner
-- has completed and not committed, and the lock from waiting for an atomic claim,
-- whose row nobody can see yet.
INSERT INTO semel_claim
       (scope, key, mode, status, fp, raw, recipe, owner, token, lease_expires_at, created_at, expires_at)
SELECT CAST(:scope AS bytea), CAST(:key AS bytea), CAST(:mode AS text), 0, CAST(:fp AS bytea),
       CAST(:raw AS bytea), CAST(:recipe AS text), CAST(:owner AS bytea), 1,
       t.now + make_interval(secs => CAST(:lease AS float8)), t.now,
       t.now + make_interval(secs => CAST(:retention AS float8))
  FROM (SELECT coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp()) AS now) AS t
 WHERE NOT EXISTS (SELECT 1 FROM semel_claim
                    WHERE scope = CAST(:scope AS bytea) AND key = CAST(:key AS bytea))
   AND pg_try_advisory_xact_lock(CAST(:lock AS bigint))
ON CONFLICT (scope, key) DO NOTHING
RETURNING token
