-- expands
-- What callers have connected with providers. sealed is encrypted with a key that is not in the database, for this caller and this
-- name; empty: the provider accepts it no longer. scopes is a JSON list. claimed_until: a program renews it, by the clock of the database.

CREATE TABLE connection (
    caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, sealed BLOB NOT NULL, scopes TEXT NOT NULL,
    expires_at BIGINT, connected_at BIGINT NOT NULL, used_at BIGINT, claimed_until BIGINT NOT NULL,
    tenant TEXT NOT NULL DEFAULT '', PRIMARY KEY (caller, name));
