CREATE TABLE professors AS SELECT (i * 7) % 150 AS id, ['pencil', 'pen', 'scissors'][1 + (i * 5) % 3] AS item, CAST(1 + (i * 13) % 99 AS DOUBLE) AS quantity,
  DATE '2024-11-01' + CAST(i % 90 AS INTEGER) AS day FROM range(1500) t(i);
CREATE TABLE staff AS SELECT i AS id, ['math', 'law'][1 + i % 2] AS dept FROM range(150) t(i);
CREATE TABLE items AS SELECT * FROM (VALUES ('pencil'), ('pen'), ('scissors'), ('stapler')) t(item);
