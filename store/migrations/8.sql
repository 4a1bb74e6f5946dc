-- Calls that wait for an approval, and what was decided about them.

-- again is what a call must be to pick one up without its id; job the job whose call it is; remembered says that it is
-- good for further calls; over_at when it may be forgotten, NULL: never; entry is all of it, JSON.
CREATE TABLE approval (
    id TEXT PRIMARY KEY, caller TEXT NOT NULL, tool TEXT NOT NULL, state TEXT NOT NULL, again TEXT NOT NULL,
    job TEXT NOT NULL, remembered BIGINT NOT NULL, made_at BIGINT NOT NULL, until_at BIGINT NOT NULL, over_at BIGINT,
    entry TEXT NOT NULL);

CREATE INDEX approval_again ON approval (again) WHERE again <> '';

CREATE INDEX approval_job ON approval (job) WHERE job <> '';

CREATE INDEX approval_state ON approval (state, made_at);

CREATE INDEX approval_remembered ON approval (caller, tool) WHERE remembered <> 0;

CREATE INDEX approval_over ON approval (over_at);
