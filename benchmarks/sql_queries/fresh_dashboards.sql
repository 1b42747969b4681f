-- retention day 7 by self join
SELECT COUNT(DISTINCT a.user_id) AS n FROM events a JOIN events b ON a.user_id = b.user_id AND CAST(b.ts AS DATE) = CAST(a.ts AS DATE) + 7;
-- funnel by min timestamps
SELECT COUNT(*) AS viewed, SUM(CASE WHEN bought > viewed THEN 1 ELSE 0 END) AS bought FROM (SELECT user_id, MIN(CASE WHEN event = 'view' THEN ts END) AS viewed, MIN(CASE WHEN event = 'buy' THEN ts END) AS bought FROM events GROUP BY user_id) AS f WHERE viewed IS NOT NULL;
-- funnel by filter
SELECT COUNT(DISTINCT user_id) FILTER (WHERE event = 'view') AS v, COUNT(DISTINCT user_id) FILTER (WHERE event = 'buy') AS b FROM events;
-- week day names
SELECT DAYNAME(ts) AS d, COUNT(*) AS n FROM events GROUP BY d ORDER BY n DESC;
-- churn: last seen
SELECT COUNT(*) AS n FROM (SELECT user_id, MAX(ts) AS last_seen FROM events GROUP BY user_id) AS t WHERE last_seen < TIMESTAMP '2025-09-01';
-- users per number of orders
SELECT n_orders, COUNT(*) AS people FROM (SELECT user_id, COUNT(*) AS n_orders FROM orders GROUP BY user_id) AS t GROUP BY n_orders ORDER BY n_orders;
-- arpu
SELECT SUM(amount) / COUNT(DISTINCT user_id) AS arpu FROM orders;
-- a/b with confidence
SELECT plan, AVG(age) AS m, STDDEV(age) / SQRT(COUNT(*)) AS se FROM users GROUP BY plan;
-- top category per country
SELECT country, category, n FROM (SELECT u.country, p.category, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY u.country ORDER BY COUNT(*) DESC) AS r FROM orders o JOIN users u USING (user_id) JOIN products p USING (product_id) GROUP BY u.country, p.category) AS t WHERE r = 1;
-- year over year with self join of released
WITH m AS (SELECT EXTRACT(MONTH FROM ts) AS month, SUM(amount) AS s FROM orders GROUP BY 1) SELECT a.month, a.s - b.s AS change FROM m a JOIN m b ON a.month = b.month + 1 AND a.month < 12 ORDER BY a.month;
-- last_value
SELECT device, COUNT(*) AS n FROM (SELECT DISTINCT user_id, LAST_VALUE(device) OVER (PARTITION BY user_id ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS device FROM events) AS t GROUP BY device;
-- arg_max per unit
SELECT device, COUNT(*) AS n FROM (SELECT user_id, ARG_MAX(device, ts) AS device FROM events GROUP BY user_id) AS t GROUP BY device;
-- date spine with generate_series; approx
SELECT d.day, c.n FROM (SELECT CAST(ts AS DATE) AS day, COUNT(*) AS n FROM events GROUP BY 1) AS c JOIN (SELECT CAST(UNNEST(GENERATE_SERIES(DATE '2025-01-01', DATE '2025-01-10', INTERVAL 1 DAY)) AS DATE) AS day) AS d ON d.day = c.day ORDER BY d.day;
-- percent of rows by nullif
SELECT event, COUNT(*) * 100.0 / NULLIF((SELECT COUNT(*) FROM events), 0) AS pct FROM events GROUP BY event ORDER BY pct DESC;
-- sessions by sum over lag
SELECT COUNT(*) AS sessions FROM (SELECT user_id, ts, CASE WHEN DATE_DIFF('hour', LAG(ts) OVER (PARTITION BY user_id ORDER BY ts), ts) < 300 THEN 0 ELSE 1 END AS is_new FROM events) AS t WHERE is_new = 1;
-- hours between events
SELECT AVG(gap) AS g FROM (SELECT user_id, DATE_DIFF('hour', LAG(ts) OVER (PARTITION BY user_id ORDER BY ts), ts) AS gap FROM events) AS t WHERE gap IS NOT NULL; -- bounds: gap=0:9000
-- hash buckets of the unit
SELECT user_id % 10 AS bucket, COUNT(*) AS n FROM users GROUP BY bucket;
