-- Atomic mode, before a row of another mode is taken over.
SELECT pg_try_advisory_xact_lock(CAST(:lock AS bigint))
