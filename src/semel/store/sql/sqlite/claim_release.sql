-- The row stays, without its answer, so that the fencing token can only grow.
UPDATE semel_claim
   SET status = 3, lease_expires_at = NULL,
       expires_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :retention
 WHERE scope = :scope AND key = :key AND owner = :owner AND status = 0
RETURNING token
