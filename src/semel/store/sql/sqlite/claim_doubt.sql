-- Nobody knows whether the effect happened: never expires, never purged.
UPDATE semel_claim
   SET status = 2, lease_expires_at = NULL, expires_at = 9e999
 WHERE scope = :scope AND key = :key AND owner = :owner AND status = 0
RETURNING token
