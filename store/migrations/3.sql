-- Makes earlier versions of sessions readable.

-- The state before the oldest version that is remembered: all later ones can be made again from it. What was
-- forgotten before there were marks left no such state, so the base is the first mark.
CREATE TABLE session_mark (
    caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (caller, name));

INSERT INTO session_mark (caller, name, version, state)
    SELECT s.caller, s.name, s.base_version, b.state FROM session s JOIN session_base b ON b.caller = s.caller AND b.name = s.name;

DELETE FROM session_patch WHERE EXISTS (SELECT 1 FROM session s WHERE s.caller = session_patch.caller
    AND s.name = session_patch.name AND s.base_version >= session_patch.version);
