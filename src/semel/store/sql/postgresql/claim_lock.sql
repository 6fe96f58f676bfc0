-- Atomic mode, before a row of another mode is taken over. The settings are those of
-- claim_open, which makes none of them where a rival still held the lock.
SELECT pg_try_advisory_xact_lock(CAST(:lock AS bigint))
   AND set_config('idle_in_transaction_session_timeout', CAST(:idle_timeout AS text), true) IS NOT NULL
   AND set_config('semel.claim', CAST(:proof AS text), true) IS NOT NULL
