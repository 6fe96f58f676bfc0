-- The rows are locked and their state is judged under the lock, so that a claim
-- that is being renewed or taken again is never deleted.
DELETE FROM semel_claim
 WHERE ctid = ANY (ARRAY(
    SELECT c.ctid
      FROM semel_claim AS c
     WHERE c.expires_at <= coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp())
       AND (c.status IN (1, 3)
            OR (c.status = 0 AND c.mode = 'joined'
                AND c.lease_expires_at <= coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp())))
     ORDER BY c.expires_at
     LIMIT CAST(:limit AS bigint)
       FOR UPDATE SKIP LOCKED))
RETURNING 1
