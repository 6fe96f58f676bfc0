-- The row stays, without its answer, so that the fencing token can only grow.
UPDATE semel_claim
   SET status = 3, lease_expires_at = NULL,
       expires_at = coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp())
                    + make_interval(secs => CAST(:retention AS float8))
 WHERE scope = CAST(:scope AS bytea) AND key = CAST(:key AS bytea)
   AND owner = CAST(:owner AS bytea) AND status = 0
RETURNING token
