-- What programs that share a store have in common: keys, and what a job needs.

-- The key of the digests and seals of all programs. It has one row, or none yet.
CREATE TABLE shared_key (id BIGINT PRIMARY KEY, secret BLOB NOT NULL);

-- needs is the digest of a tool's definition, which may be empty, a space, and a name of the tool.
ALTER TABLE job ADD COLUMN needs TEXT NOT NULL DEFAULT '';

UPDATE job SET needs = ' ' || tool;

CREATE INDEX job_needs ON job (needs) WHERE state = 'queued';
