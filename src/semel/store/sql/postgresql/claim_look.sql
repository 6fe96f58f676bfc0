-- Changes no row. An atomic claim that is visible although it is in progress was
-- committed behind our back; whether its owner is alive, only its lock can tell.
SELECT c.mode, c.status, c.fp, c.raw, c.recipe, c.owner, c.token,
       CAST(extract(epoch FROM c.lease_expires_at) AS float8),
       c.answer_status, c.headers, c.body,
       CAST(extract(epoch FROM c.expires_at) AS float8),
       CAST(extract(epoch FROM coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp())) AS float8),
       CASE WHEN c.mode = 'atomic' AND c.status = 0 AND CAST(:lock AS bigint) IS NOT NULL
            THEN pg_try_advisory_xact_lock(CAST(:lock AS bigint)) ELSE false END
  FROM semel_claim AS c
 WHERE c.scope = CAST(:scope AS bytea) AND c.key = CAST(:key AS bytea)
