-- Atomic mode: this transaction wrote the row itself, so its place is known, here or in
-- a setting of the transaction. To find
-- it by its key would, at SERIALIZABLE, lock a page of the index against reading,
-- and abort unrelated requests.
-- Division by zero (22012) unless exactly this owner's claim in progress was
-- completed: an update that quietly changes nothing could be followed by COMMIT.
-- The proof fails where the handler committed and began again behind our back.
WITH completed AS (
    UPDATE semel_claim
       SET status = 1, answer_status = CAST(:answer_status AS smallint),
           headers = CAST(:headers AS bytea), body = CAST(:body AS bytea),
           lease_expires_at = NULL,
           expires_at = coalesce(to_timestamp(CAST(:now AS float8)), clock_timestamp())
                        + make_interval(secs => CAST(:retention AS float8))
     WHERE ctid = CAST(coalesce(CAST(:place AS text), nullif(current_setting('semel.place', true), '')) AS tid)
       AND owner = CAST(:owner AS bytea) AND status = 0
       AND CAST(:proof AS text) = current_setting('semel.claim', true)
    RETURNING 1
)
SELECT 1 / (SELECT count(*) FROM completed)
