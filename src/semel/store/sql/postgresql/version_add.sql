INSERT INTO semel_version (version) VALUES (CAST(:version AS integer))
