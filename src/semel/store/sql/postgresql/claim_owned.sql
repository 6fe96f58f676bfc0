-- Which of these claims are still their owners', renewed or not.
SELECT c.owner
  FROM semel_claim AS c
  JOIN unnest(CAST(:scopes AS bytea[]), CAST(:keys AS bytea[]), CAST(:owners AS bytea[]))
       AS a(scope, key, owner) USING (scope, key)
 WHERE c.owner = a.owner AND c.status = 0
