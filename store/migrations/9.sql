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
