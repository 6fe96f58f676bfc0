-- Joined mode: claim the key in a commit of its own, with a lease.
INSERT INTO semel_claim
       (scope, key, mode, status, fp, raw, recipe, owner, token, lease_expires_at, created_at, expires_at)
SELECT :scope, :key, :mode, 0, :fp, :raw, :recipe, :owner, 1, t.now + :lease, t.now, t.now + :retention
  FROM (SELECT coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) AS now) AS t
 WHERE true
ON CONFLICT (scope, key) DO NOTHING
RETURNING token
