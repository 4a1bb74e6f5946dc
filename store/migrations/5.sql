-- Tells programs apart by locks in place of process numbers.

-- What the last transaction of each program was, where a COMMIT may fail without telling whether it happened.
CREATE TABLE program (id BIGINT PRIMARY KEY, mark TEXT NOT NULL, at BIGINT NOT NULL);

-- When lost was said of a call: from then on its key is remembered like that of a call with an outcome.
ALTER TABLE outcome ADD COLUMN lost_at BIGINT;
