-- No row comes back unless this owner's claim in progress was completed.
UPDATE semel_claim
   SET status = 1, answer_status = :answer_status, headers = :headers, body = :body,
       lease_expires_at = NULL,
       expires_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :retention
 WHERE scope = :scope AND key = :key AND owner = :owner AND status = 0
RETURNING token
