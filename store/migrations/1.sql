-- The tables beside the log, whose own follow from the list of its columns.

-- The end of the chain, and where it was cut.
CREATE TABLE audit_head (
    id BIGINT PRIMARY KEY, seq BIGINT NOT NULL, hash BLOB NOT NULL, cut_seq BIGINT NOT NULL, cut_hash BLOB NOT NULL,
    epoch BIGINT NOT NULL, mac BLOB NOT NULL);

-- Sums for each day, so that questions about many calls read few rows. They follow from the log.
CREATE TABLE audit_day (
    day BIGINT NOT NULL, kind BIGINT NOT NULL, n BIGINT NOT NULL, took BIGINT NOT NULL, longest BIGINT NOT NULL,
    bytes_in BIGINT NOT NULL, bytes_out BIGINT NOT NULL, first_seq BIGINT NOT NULL, last_seq BIGINT NOT NULL,
    PRIMARY KEY (day, kind));

CREATE TABLE audit_took (
    day BIGINT NOT NULL, kind BIGINT NOT NULL, bucket BIGINT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (day, kind, bucket));

CREATE TABLE audit_path (
    day BIGINT NOT NULL, kind BIGINT NOT NULL, mode TEXT NOT NULL, path TEXT NOT NULL, n BIGINT NOT NULL,
    PRIMARY KEY (day, kind, mode, path));

-- Calls that have begun and may change something. Who finds one whose program is gone knows that nobody
-- knows what came of it.
CREATE TABLE audit_open (id TEXT PRIMARY KEY, owner TEXT NOT NULL, at BIGINT NOT NULL, record TEXT NOT NULL);
