-- expands
-- The shares of the calls of a tool that further definitions of it get, in percent.

CREATE TABLE fleet_share (
    source TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT NOT NULL, percent BIGINT NOT NULL, tenant TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (source, tool, digest));
