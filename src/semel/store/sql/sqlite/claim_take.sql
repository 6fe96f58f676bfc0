-- Take over exactly the row that was looked at: a claim that counts as absent, or
-- a joined one whose lease is over.
UPDATE semel_claim
   SET mode = :mode, status = 0, fp = :fp, raw = :raw, recipe = :recipe, owner = :owner,
       token = token + 1, lease_expires_at = t.now + :lease, created_at = t.now,
       expires_at = t.now + :retention, answer_status = NULL, headers = NULL, body = NULL
  FROM (SELECT coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) AS now) AS t
 WHERE scope = :scope AND key = :key AND owner = :seen_owner AND token = :seen_token
   AND (status = 3
        OR (status = 1 AND expires_at <= t.now)
        OR (status = 0 AND mode = 'joined' AND lease_expires_at <= t.now))
RETURNING token
