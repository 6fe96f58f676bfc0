-- Nobody knows whether the effect happened: never expires, never purged.
UPDATE semel_claim
   SET status = 2, lease_expires_at = NULL, expires_at = 'infinity'
 WHERE scope = CAST(:scope AS bytea) AND key = CAST(:key AS bytea)
   AND owner = CAST(:owner AS bytea) AND status = 0
RETURNING token
