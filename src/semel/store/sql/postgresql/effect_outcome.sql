-- Joined mode, where the effect's transaction could not be asked itself: whether the
-- handler had committed it.
SELECT pg_xact_status(CAST(CAST(:transaction AS text) AS xid8)) = 'committed'
