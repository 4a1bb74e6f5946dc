-- Remembers what the tools of other people's servers said of themselves.

-- id is the digest of the tool's name, since names may have characters that a database does not take; face is what
-- the tool said, in JSON, its name included. approved_at NULL: it is as it was first seen.
CREATE TABLE pin (
    source TEXT NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL, face TEXT NOT NULL, seen_at BIGINT NOT NULL,
    approved_by TEXT NOT NULL, approved_at BIGINT, PRIMARY KEY (source, id));

-- How often pins have changed: by this programs that share the store learn of what others approve.
CREATE TABLE pin_change (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);

INSERT INTO pin_change (id, n) VALUES (1, 0);
