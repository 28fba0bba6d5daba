-- A stream is what one detector says under one name. A new detector starts a new stream, and with it a new monitor.
CREATE TABLE streams (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model TEXT NOT NULL,
    detector TEXT NOT NULL,
    names TEXT NOT NULL,
    calibrated SMALLINT NOT NULL,
    began DOUBLE PRECISION NOT NULL,
    -- the monitor after the observations up to `sequence`
    sequence BIGINT NOT NULL DEFAULT 0,
    state BYTEA NOT NULL,
    -- the monitor before the first observation that is still stored: replay starts here
    first_sequence BIGINT NOT NULL DEFAULT 0,
    first_reset BIGINT NOT NULL DEFAULT 0,
    first_state BYTEA NOT NULL,
    UNIQUE (model, detector)
);
CREATE TABLE observations (
    sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id UUID NOT NULL UNIQUE,
    stream BIGINT NOT NULL REFERENCES streams (number),
    request TEXT NOT NULL,
    time DOUBLE PRECISION NOT NULL,
    label BIGINT NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    style DOUBLE PRECISION NOT NULL,
    concept DOUBLE PRECISION NOT NULL,
    p_covariate DOUBLE PRECISION NOT NULL,
    p_concept DOUBLE PRECISION NOT NULL,
    p_combined DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('in-distribution', 'covariate', 'concept')),
    truth BIGINT,
    truth_time DOUBLE PRECISION
);
CREATE INDEX observations_of_stream ON observations (stream, sequence);
CREATE INDEX observations_with_truth ON observations (stream, sequence) WHERE truth IS NOT NULL;
CREATE TABLE images (
    id UUID PRIMARY KEY REFERENCES observations (id) ON DELETE CASCADE,
    bytes BYTEA NOT NULL
);
CREATE TABLE resets (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream BIGINT NOT NULL REFERENCES streams (number),
    sequence BIGINT NOT NULL,
    time DOUBLE PRECISION NOT NULL,
    reason TEXT NOT NULL
);
-- for people and for Grafana, which want a time with a zone
CREATE VIEW observations_by_time AS
SELECT to_timestamp(o.time) AS time, s.model, s.detector, o.sequence, o.id, o.request, o.label, o.confidence, o.style,
    o.concept, o.p_covariate, o.p_concept, o.p_combined, o.kind, o.truth, to_timestamp(o.truth_time) AS truth_time
FROM observations o JOIN streams s ON s.number = o.stream;
