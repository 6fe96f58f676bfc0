-- Take over exactly the row that was looked at: a claim that counts as absent, or
-- a joined one whose lease is over. SKIP LOCKED: never wait for the row of an
-- owner that froze in the middle of its completion.
WITH t AS (
    SELECT coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp()) AS now
), free AS (
    SELECT c.scope, c.key
      FROM semel_claim AS c, t
     WHERE c.scope = CAST(:scope AS bytea) AND c.key = CAST(:key AS bytea)
       AND c.owner = CAST(:seen_owner AS bytea) AND c.token = CAST(:seen_token AS bigint)
       AND (c.status = 3
            OR (c.status = 1 AND c.expires_at <= t.now)
            OR (c.status = 0 AND c.mode = 'joined' AND c.lease_expires_at <= t.now))
       FOR UPDATE OF c SKIP LOCKED
)
UPDATE semel_claim AS c
   SET mode = CAST(:mode AS text), status = 0, fp = CAST(:fp AS bytea), raw = CAST(:raw AS bytea),
       recipe = CAST(:recipe AS text), owner = CAST(:owner AS bytea), token = c.token + 1,
       lease_expires_at = CASE WHEN CAST(:mode AS text) = 'atomic' THEN NULL
                               ELSE t.now + make_interval(secs => CAST(:lease AS float8)) END,
       created_at = t.now,
       expires_at = CASE WHEN CAST(:mode AS text) = 'atomic' THEN 'infinity'
                         ELSE t.now + make_interval(secs => CAST(:retention AS float8)) END,
       answer_status = NULL, headers = NULL, body = NULL
  FROM free, t
 WHERE c.scope = free.scope AND c.key = free.key
RETURNING c.token, CAST(c.ctid AS text)
