-- Tells callers apart: their tokens, their leases, their assets and their jobs.

-- id is the digest of the token; roles and tools are lists in JSON. listed 1: it counts only while the config
-- lists the caller. expires_at NULL: never.
CREATE TABLE token (
    id TEXT PRIMARY KEY, caller TEXT NOT NULL, roles TEXT NOT NULL, tools TEXT NOT NULL, listed BIGINT NOT NULL,
    note TEXT NOT NULL, issued_at BIGINT NOT NULL, expires_at BIGINT, revoked_at BIGINT);

CREATE INDEX token_caller ON token (caller);

-- caller '': any caller that has the lease.
ALTER TABLE lease ADD COLUMN caller TEXT NOT NULL DEFAULT '';

-- Whose calls brought an asset, and what they said of it: they may fetch it.
CREATE TABLE asset_caller (
    sha256 TEXT NOT NULL, caller TEXT NOT NULL, asset_id TEXT NOT NULL, media_type TEXT NOT NULL, at BIGINT NOT NULL,
    PRIMARY KEY (sha256, caller));

-- call and result are JSON. owner is the program that runs the job, seen_at when it last said so; again: it
-- does no harm when it runs twice.
CREATE TABLE job (
    id TEXT PRIMARY KEY, caller TEXT NOT NULL, tool TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL,
    made_at BIGINT NOT NULL, began_at BIGINT, seen_at BIGINT, ended_at BIGINT, attempts BIGINT NOT NULL, again BIGINT NOT NULL,
    stop BIGINT NOT NULL, lease TEXT NOT NULL, call TEXT NOT NULL, result TEXT);

CREATE INDEX job_state ON job (state, made_at, caller);

CREATE INDEX job_caller ON job (caller, made_at);

CREATE INDEX job_end ON job (ended_at);

CREATE TABLE job_event (job TEXT NOT NULL, seq BIGINT NOT NULL, event TEXT NOT NULL, PRIMARY KEY (job, seq));
