-- Sessions, leases, remembered outcomes and assets.

-- The state of a session is base with the patches of later versions merged in.
CREATE TABLE session (
    caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, base_version BIGINT NOT NULL, base_size BIGINT NOT NULL,
    tail BIGINT NOT NULL, changed_at BIGINT NOT NULL, PRIMARY KEY (caller, name));

CREATE TABLE session_base (caller TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (caller, name));

CREATE TABLE session_patch (
    caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, at BIGINT NOT NULL, patches TEXT NOT NULL,
    PRIMARY KEY (caller, name, version));

CREATE TABLE lease (
    id TEXT PRIMARY KEY, tool TEXT NOT NULL, tier BIGINT NOT NULL, issued_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
    used_at BIGINT, revoked_at BIGINT);

CREATE INDEX lease_end ON lease (expires_at);

CREATE TABLE outcome (
    scope BLOB PRIMARY KEY, input BLOB NOT NULL, owner TEXT NOT NULL, at BIGINT NOT NULL, expires_at BIGINT NOT NULL, result TEXT);

CREATE INDEX outcome_end ON outcome (expires_at);

CREATE TABLE asset (
    sha256 TEXT PRIMARY KEY, size BIGINT NOT NULL, media_type TEXT NOT NULL, added_at BIGINT NOT NULL, used_at BIGINT NOT NULL,
    times BIGINT NOT NULL);
