-- Versions that may read and write, and tenants.

-- The oldest versions that may read and write a store of a version; 0: none but its own. Each program has its own.
ALTER TABLE toolpost_schema ADD COLUMN reads BIGINT NOT NULL DEFAULT 0;

ALTER TABLE toolpost_schema ADD COLUMN writes BIGINT NOT NULL DEFAULT 0;

ALTER TABLE program ADD COLUMN version BIGINT NOT NULL DEFAULT 0;

-- Whose each row is. There is one tenant today: ''.
ALTER TABLE audit ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_kind ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_head ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_day ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_took ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_path ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_open ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE session_base ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE session_patch ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE session_mark ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE lease ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE outcome ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE asset ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE asset_caller ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE job_event ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE pin ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE pin_change ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE plan ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE plan_tool ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE approval ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_anchor ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE shared_key ADD COLUMN tenant TEXT NOT NULL DEFAULT '';

-- What is missing from the buckets of quotas, in parts of tokens, at a time of the database's clock; and what programs have
-- taken from them and not yet reported as used.
CREATE TABLE quota (bucket BLOB PRIMARY KEY, missing BIGINT NOT NULL, at BIGINT NOT NULL, tenant TEXT NOT NULL DEFAULT '');

CREATE TABLE quota_share (
    bucket BLOB NOT NULL, owner TEXT NOT NULL, held BIGINT NOT NULL, until_at BIGINT NOT NULL, tenant TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (bucket, owner));
