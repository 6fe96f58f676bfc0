SELECT scope, key, mode, status, token, created_at, lease_expires_at, expires_at,
       answer_status, length(body)
  FROM semel_claim
 ORDER BY created_at DESC, scope, key
 LIMIT :limit
