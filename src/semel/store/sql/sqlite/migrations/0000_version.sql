CREATE TABLE IF NOT EXISTS semel_version (
    version INTEGER PRIMARY KEY,
    applied_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)
) STRICT;
