-- A stream is what one detector says under one name. A new detector starts a new stream, and with it a new monitor.
CREATE TABLE streams (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    model TEXT NOT NULL,
    detector TEXT NOT NULL,
    names TEXT NOT NULL,
    calibrated INTEGER NOT NULL,
    began DOUBLE PRECISION NOT NULL,
    -- the monitor after the observations up to `sequence`
    sequence INTEGER NOT NULL DEFAULT 0,
    state BLOB NOT NULL,
    -- the monitor before the first observation that is still stored: replay starts here
    first_sequence INTEGER NOT NULL DEFAULT 0,
    first_reset INTEGER NOT NULL DEFAULT 0,
    first_state BLOB NOT NULL,
    UNIQUE (model, detector)
);
CREATE TABLE observations (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    stream INTEGER NOT NULL REFERENCES streams (number),
    request TEXT NOT NULL,
    time DOUBLE PRECISION NOT NULL,
    label INTEGER NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    style DOUBLE PRECISION NOT NULL,
    concept DOUBLE PRECISION NOT NULL,
    p_covariate DOUBLE PRECISION NOT NULL,
    p_concept DOUBLE PRECISION NOT NULL,
    p_combined DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('in-distribution', 'covariate', 'concept')),
    truth INTEGER,
    truth_time DOUBLE PRECISION
);
CREATE INDEX observations_of_stream ON observations (stream, sequence);
CREATE INDEX observations_with_truth ON observations (stream, sequence) WHERE truth IS NOT NULL;
CREATE TABLE images (
    id TEXT PRIMARY KEY REFERENCES observations (id) ON DELETE CASCADE,
    bytes BLOB NOT NULL
);
CREATE TABLE resets (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    stream INTEGER NOT NULL REFERENCES streams (number),
    sequence INTEGER NOT NULL,
    time DOUBLE PRECISION NOT NULL,
    reason TEXT NOT NULL
);
