INSERT INTO semel_version (version) VALUES (:version)
