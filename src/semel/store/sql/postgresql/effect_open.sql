-- Joined mode, first statement of the effect's transaction. The lock answers rivals
-- in atomic mode at once, who would otherwise wait for the row of our completion. Above READ COMMITTED
-- the row is locked too: a renewal after the snapshot would abort the completion. The
-- transaction's id tells afterwards whether somebody else committed it.
SELECT set_config('idle_in_transaction_session_timeout', CAST(:idle_timeout AS text), true),
       set_config('semel.claim', CAST(:proof AS text), true),
       pg_try_advisory_xact_lock(CAST(:lock AS bigint)),
       (SELECT c.token FROM semel_claim AS c
         WHERE c.scope = CAST(:scope AS bytea) AND c.key = CAST(:key AS bytea)
           AND c.owner = CAST(:owner AS bytea)
           AND current_setting('transaction_isolation') <> 'read committed'
           FOR UPDATE),
       CAST(pg_current_xact_id() AS text)
