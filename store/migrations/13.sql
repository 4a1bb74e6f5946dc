-- expands
-- The first call of an idempotency key: another machine may know what became of it.

ALTER TABLE outcome ADD COLUMN call TEXT NOT NULL DEFAULT '';
