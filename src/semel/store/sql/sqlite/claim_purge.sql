-- One statement under the write lock: nothing can be renewed meanwhile.
DELETE FROM semel_claim
 WHERE rowid IN (
    SELECT rowid
      FROM semel_claim
     WHERE expires_at <= coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)
       AND (status IN (1, 3)
            OR (status = 0 AND mode = 'joined'
                AND lease_expires_at <= coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)))
     ORDER BY expires_at
     LIMIT :limit)
RETURNING 1
