-- The first call of an idempotency key: another machine may know what it came to.
-- expands

ALTER TABLE outcome ADD COLUMN call TEXT NOT NULL DEFAULT '';
