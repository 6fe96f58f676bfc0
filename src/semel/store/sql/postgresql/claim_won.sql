-- One row where claim_fresh got the key in this transaction, none where it did not: how
-- many there are is what every driver tells about the last statement of a script.
SELECT 1 WHERE current_setting('semel.place', true) <> ''
