-- expands
-- A fleet: what nodes join with, and the nodes. labels are a JSON list.

CREATE TABLE fleet_ticket (
    digest TEXT PRIMARY KEY, role TEXT NOT NULL, labels TEXT NOT NULL, uses BIGINT NOT NULL, expires_at BIGINT NOT NULL,
    tenant TEXT NOT NULL DEFAULT '');

CREATE TABLE fleet_node (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, labels TEXT NOT NULL, nkey TEXT NOT NULL, address TEXT NOT NULL,
    joined_at BIGINT NOT NULL, evicted_at BIGINT, tenant TEXT NOT NULL DEFAULT '');

CREATE UNIQUE INDEX fleet_node_name ON fleet_node (name) WHERE evicted_at IS NULL;
