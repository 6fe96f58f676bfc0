"""Claims in databases: programs written once, dialects of SQL, the schema (see `programs`)."""
