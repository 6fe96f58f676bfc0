-- Joined mode, before the effect's transaction is given up: is it still the one that
-- effect_open began, or did the handler end that and begin another?
SELECT coalesce(current_setting('semel.claim', true) = CAST(:proof AS text), false)
