package store

// migrations lists the steps from an empty database to the tables of this version. A step that was ever released is not
// changed: another one follows it. The words are those of SQLite; a Dialect has others for some of them. Times are
// microseconds since 1970, in UTC. The tables of the log, and how they grew, follow from the list of its columns.
func migrations(log *layout) [][]string {
	return log.grow([][]string{append(log.tables(),
		// The end of the chain, and where it was cut.
		`CREATE TABLE audit_head (
			id BIGINT PRIMARY KEY, seq BIGINT NOT NULL, hash BLOB NOT NULL, cut_seq BIGINT NOT NULL, cut_hash BLOB NOT NULL,
			epoch BIGINT NOT NULL, mac BLOB NOT NULL)`,
		// Sums for each day, so that questions about many calls read few rows. They follow from the log.
		`CREATE TABLE audit_day (
			day BIGINT NOT NULL, kind BIGINT NOT NULL, n BIGINT NOT NULL, took BIGINT NOT NULL, longest BIGINT NOT NULL,
			bytes_in BIGINT NOT NULL, bytes_out BIGINT NOT NULL, first_seq BIGINT NOT NULL, last_seq BIGINT NOT NULL,
			PRIMARY KEY (day, kind))`,
		`CREATE TABLE audit_took (
			day BIGINT NOT NULL, kind BIGINT NOT NULL, bucket BIGINT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (day, kind, bucket))`,
		`CREATE TABLE audit_path (
			day BIGINT NOT NULL, kind BIGINT NOT NULL, mode TEXT NOT NULL, path TEXT NOT NULL, n BIGINT NOT NULL,
			PRIMARY KEY (day, kind, mode, path))`,
		// Calls that have begun and may change something. Who finds one whose program is gone knows that nobody
		// knows what came of it.
		`CREATE TABLE audit_open (id TEXT PRIMARY KEY, owner TEXT NOT NULL, at BIGINT NOT NULL, record TEXT NOT NULL)`,
	), {
		// The state of a session is base with the patches of later versions merged in.
		`CREATE TABLE session (
			caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, base_version BIGINT NOT NULL, base_size BIGINT NOT NULL,
			tail BIGINT NOT NULL, changed_at BIGINT NOT NULL, PRIMARY KEY (caller, name))`,
		`CREATE TABLE session_base (caller TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, ` +
			`PRIMARY KEY (caller, name))`,
		`CREATE TABLE session_patch (
			caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, at BIGINT NOT NULL, patches TEXT NOT NULL,
			PRIMARY KEY (caller, name, version))`,
		`CREATE TABLE lease (
			id TEXT PRIMARY KEY, tool TEXT NOT NULL, tier BIGINT NOT NULL, issued_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
			used_at BIGINT, revoked_at BIGINT)`,
		`CREATE INDEX lease_end ON lease (expires_at)`,
		`CREATE TABLE outcome (
			scope BLOB PRIMARY KEY, input BLOB NOT NULL, owner TEXT NOT NULL, at BIGINT NOT NULL, expires_at BIGINT NOT NULL, result TEXT)`,
		`CREATE INDEX outcome_end ON outcome (expires_at)`,
		`CREATE TABLE asset (
			sha256 TEXT PRIMARY KEY, size BIGINT NOT NULL, media_type TEXT NOT NULL, added_at BIGINT NOT NULL, used_at BIGINT NOT NULL,
			times BIGINT NOT NULL)`,
	}, marks(), callers(), programs()})
}

// marks is the step that makes earlier versions of sessions readable.
func marks() []string {
	return []string{
		// The state before the oldest version that is remembered: all later ones can be made again from it. What was
		// forgotten before there were marks left no such state, so the base is the first mark.
		`CREATE TABLE session_mark (
			caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (caller, name))`,
		`INSERT INTO session_mark (caller, name, version, state)
			SELECT s.caller, s.name, s.base_version, b.state FROM session s JOIN session_base b ON b.caller = s.caller AND b.name = s.name`,
		`DELETE FROM session_patch WHERE EXISTS (SELECT 1 FROM session s WHERE s.caller = session_patch.caller
			AND s.name = session_patch.name AND s.base_version >= session_patch.version)`,
	}
}

// callers is the step that tells callers apart: their tokens, their leases, their assets and their jobs.
func callers() []string {
	return []string{
		// id is the digest of the token; roles and tools are lists in JSON. listed 1: it counts only while the config
		// lists the caller. expires_at NULL: never.
		`CREATE TABLE token (
			id TEXT PRIMARY KEY, caller TEXT NOT NULL, roles TEXT NOT NULL, tools TEXT NOT NULL, listed BIGINT NOT NULL,
			note TEXT NOT NULL, issued_at BIGINT NOT NULL, expires_at BIGINT, revoked_at BIGINT)`,
		`CREATE INDEX token_caller ON token (caller)`,
		// caller '': any caller that has the lease.
		`ALTER TABLE lease ADD COLUMN caller TEXT NOT NULL DEFAULT ''`,
		// Whose calls brought an asset, and what they said of it: they may fetch it.
		`CREATE TABLE asset_caller (
			sha256 TEXT NOT NULL, caller TEXT NOT NULL, asset_id TEXT NOT NULL, media_type TEXT NOT NULL, at BIGINT NOT NULL,
			PRIMARY KEY (sha256, caller))`,
		// call and result are JSON. owner is the program that runs the job, seen_at when it last said so; again: it
		// does no harm when it runs twice.
		`CREATE TABLE job (
			id TEXT PRIMARY KEY, caller TEXT NOT NULL, tool TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL,
			made_at BIGINT NOT NULL, began_at BIGINT, seen_at BIGINT, ended_at BIGINT, attempts BIGINT NOT NULL, again BIGINT NOT NULL,
			stop BIGINT NOT NULL, lease TEXT NOT NULL, call TEXT NOT NULL, result TEXT)`,
		`CREATE INDEX job_state ON job (state, made_at, caller)`,
		`CREATE INDEX job_caller ON job (caller, made_at)`,
		`CREATE INDEX job_end ON job (ended_at)`,
		`CREATE TABLE job_event (job TEXT NOT NULL, seq BIGINT NOT NULL, event TEXT NOT NULL, PRIMARY KEY (job, seq))`,
	}
}

// programs is the step that tells programs apart by locks in place of process numbers.
func programs() []string {
	return []string{
		// What the last transaction of each program was, where a COMMIT may fail without telling whether it happened.
		`CREATE TABLE program (id BIGINT PRIMARY KEY, mark TEXT NOT NULL, at BIGINT NOT NULL)`,
		// When lost was said of a call: from then on its key is remembered like that of a call with an outcome.
		`ALTER TABLE outcome ADD COLUMN lost_at BIGINT`,
	}
}
