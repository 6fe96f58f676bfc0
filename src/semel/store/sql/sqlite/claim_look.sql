-- Changes no row.
SELECT mode, status, fp, raw, recipe, owner, token, lease_expires_at,
       answer_status, headers, body, expires_at,
       coalesce(:now, (julianday('now') - 2440587.5) * 86400.0), 0
  FROM semel_claim
 WHERE scope = :scope AND key = :key
