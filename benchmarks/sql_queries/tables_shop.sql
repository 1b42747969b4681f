CREATE TABLE users AS SELECT i AS user_id, ['free', 'pro', 'team'][1 + i % 3] AS plan, ['FR', 'DE', 'JP', 'BR'][1 + (i * 7) % 4] AS country,
  CAST(16 + (i * 31) % 60 AS DOUBLE) AS age, DATE '2025-01-01' + CAST((i * 17) % 300 AS INTEGER) AS signup FROM range(400) t(i);
CREATE TABLE orders AS SELECT (i * 5) % 400 AS user_id, (i * 3) % 12 AS product_id, CAST((i * 29) % 50 AS DOUBLE) AS amount,
  ['paid', 'open', 'returned'][1 + (i * 11) % 3] AS status, TIMESTAMP '2025-01-01' + INTERVAL (i * 7) HOUR AS ts
FROM range(1100) t(i) WHERE (i * 5) % 400 < 350;
CREATE TABLE events AS SELECT (i * 7) % 390 AS user_id, ['view', 'cart', 'buy'][1 + (i * 5) % 3] AS event,
  ['web', 'ios', 'android'][1 + (i * 7 // 3) % 3] AS device, TIMESTAMP '2025-01-01' + INTERVAL (i * 3) HOUR AS ts FROM range(2500) t(i);
CREATE TABLE products AS SELECT i AS product_id, ['toys', 'books', 'food'][1 + i % 3] AS category, CAST(i AS DOUBLE) AS price FROM range(12) t(i);
CREATE TABLE countries AS SELECT * FROM (VALUES ('FR', 'Europe'), ('DE', 'Europe'), ('JP', 'Asia'), ('BR', 'America')) t(country, continent);
CREATE TABLE baskets AS SELECT i AS user_id, [['gift', 'sale'], ['sale'], ['gift', 'new', 'sale'], []][1 + i % 4] AS tags FROM range(300) t(i);
