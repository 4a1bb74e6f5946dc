-- Several programs that write: lanes, keys, what jobs need, versions, quotas and tenants.

-- Lanes of the audit log, and their anchors.

-- Each row is the head of a lane, the one of lane 0 being the only one before: id is the lane + 1. number is the lane's own
-- numbering of its rows, dense, and seq that of all rows. public is the key that mac is checked with; empty: it is the HMAC of
-- a program that knew no lanes. anchor is the last anchor of this lane, 0: none.
ALTER TABLE audit_head ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_head ADD COLUMN cut_number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_head ADD COLUMN public BLOB NOT NULL DEFAULT '';
ALTER TABLE audit_head ADD COLUMN anchor BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_head ADD COLUMN anchor_hash BLOB NOT NULL DEFAULT '';

UPDATE audit_head SET number = seq, cut_number = cut_seq;

-- The numbers of rows, if transactions overlap.
CREATE SEQUENCE IF NOT EXISTS audit_seq;

-- The chain of anchors: each says how far the lane that added it had come. hash covers the one before.
CREATE TABLE audit_anchor (
    seq BIGINT PRIMARY KEY, kind TEXT NOT NULL, lane BIGINT NOT NULL, about BIGINT NOT NULL, row_seq BIGINT NOT NULL,
    row_number BIGINT NOT NULL, row_hash BLOB NOT NULL, at BIGINT NOT NULL, hash BLOB NOT NULL);

CREATE INDEX audit_anchor_row ON audit_anchor (row_seq);

CREATE INDEX audit_anchor_cut ON audit_anchor (about, seq) WHERE kind = 'cut';

-- The key of the digests and seals of all programs. It has one row, or none yet.
CREATE TABLE shared_key (id BIGINT PRIMARY KEY, secret BLOB NOT NULL);

-- needs is the digest of a tool's definition, which may be empty, a space, and a name of the tool.
ALTER TABLE job ADD COLUMN needs TEXT NOT NULL DEFAULT '';

UPDATE job SET needs = ' ' || tool;

CREATE INDEX job_needs ON job (needs) WHERE state = 'queued';

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
