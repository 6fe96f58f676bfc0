SELECT scope, key, mode, status, token,
       CAST(extract(epoch FROM created_at) AS float8),
       CAST(extract(epoch FROM lease_expires_at) AS float8),
       CAST(extract(epoch FROM expires_at) AS float8),
       answer_status, octet_length(body)
  FROM semel_claim
 ORDER BY created_at DESC, scope, key
 LIMIT CAST(:limit AS bigint)
