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
