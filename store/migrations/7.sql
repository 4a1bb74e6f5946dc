-- Finds the calls that a call made.

CREATE INDEX audit_parent ON audit (parent, seq) WHERE parent <> '';

-- Plans, and what became of each of their tools. owner is the program that runs a plan; call the one that it runs for;
-- request how it is gone on with; patches those of the plans that it replaces.
CREATE TABLE plan (
    id TEXT PRIMARY KEY, caller TEXT NOT NULL, session TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL,
    call TEXT NOT NULL, planner TEXT NOT NULL, prompt TEXT NOT NULL, made_at BIGINT NOT NULL, ended_at BIGINT,
    tools BIGINT NOT NULL, request TEXT NOT NULL, document TEXT NOT NULL, patches TEXT NOT NULL, result TEXT);

CREATE INDEX plan_caller ON plan (caller, made_at);

CREATE INDEX plan_call ON plan (call);

CREATE INDEX plan_state ON plan (state, made_at);

CREATE INDEX plan_end ON plan (ended_at);

CREATE TABLE plan_tool (
    plan TEXT NOT NULL, place BIGINT NOT NULL, state TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (plan, place));
