-- All claims of a process at once; :owners and :leases are JSON arrays, the
-- owners in hexadecimal. The partial index keeps this to the claims in progress.
UPDATE semel_claim AS c
   SET lease_expires_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + a.lease
  FROM (SELECT o.value AS owner, l.value AS lease
          FROM json_each(:owners) AS o JOIN json_each(:leases) AS l ON o.key = l.key) AS a
 WHERE c.status = 0 AND hex(c.owner) = a.owner
RETURNING owner
