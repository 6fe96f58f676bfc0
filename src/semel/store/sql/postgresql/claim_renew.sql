-- All claims of a process at once. A locked row is being settled or is frozen:
-- it is passed over, so that it can not hold up the others.
WITH asked AS (
    SELECT * FROM unnest(CAST(:scopes AS bytea[]), CAST(:keys AS bytea[]),
                         CAST(:owners AS bytea[]), CAST(:leases AS float8[])) AS a(scope, key, owner, lease)
), mine AS (
    SELECT c.scope, c.key, a.lease
      FROM semel_claim AS c JOIN asked AS a USING (scope, key)
     WHERE c.owner = a.owner AND c.status = 0
       FOR UPDATE OF c SKIP LOCKED
)
UPDATE semel_claim AS c
   SET lease_expires_at = coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp())
                          + make_interval(secs => mine.lease)
  FROM mine
 WHERE c.scope = mine.scope AND c.key = mine.key
RETURNING c.owner
