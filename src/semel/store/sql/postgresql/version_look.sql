SELECT coalesce(max(version), 0) FROM semel_version
