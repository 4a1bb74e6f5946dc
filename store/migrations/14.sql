-- What the nodes of a fleet sign: a column of the log, and the keys that they have had, each until the next one of its node. Rows are
-- only added.

CREATE TABLE fleet_key (
    node TEXT NOT NULL, nkey TEXT NOT NULL, since_at BIGINT NOT NULL, tenant TEXT NOT NULL DEFAULT '', PRIMARY KEY (node, since_at));

INSERT INTO fleet_key (node, nkey, since_at) SELECT id, nkey, joined_at FROM fleet_node;
