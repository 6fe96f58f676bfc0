-- BEGIN IMMEDIATE holds the file's write lock already.
SELECT :lock
