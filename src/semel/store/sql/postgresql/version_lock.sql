-- One migration at a time; released by COMMIT.
SELECT pg_advisory_xact_lock(CAST(:lock AS bigint))
