-- sessions by lag, interval arithmetic
SELECT COUNT(*) AS sessions FROM (SELECT user_id, ts, LAG(ts) OVER (PARTITION BY user_id ORDER BY ts) AS before FROM events) AS t WHERE before IS NULL OR ts > before + INTERVAL 30 MINUTE;
-- time to first purchase, date parts
SELECT AVG(days) AS wait FROM (SELECT u.user_id, MIN(DATE_DIFF('day', u.signup, CAST(o.ts AS DATE))) AS days FROM users u JOIN orders o ON u.user_id = o.user_id GROUP BY u.user_id) AS t; -- bounds: days=-400:400
-- strftime on a column
SELECT STRFTIME(ts, '%H:00') AS hour, COUNT(*) AS n FROM events GROUP BY hour ORDER BY hour;
-- now, interval arithmetic
SELECT COUNT(*) AS n FROM events WHERE ts > NOW() - INTERVAL 30 DAY; -- duck: SELECT 0 AS n
-- heat map
SELECT EXTRACT(DOW FROM ts) AS weekday, EXTRACT(HOUR FROM ts) AS hour, COUNT(*) AS n FROM events GROUP BY weekday, hour;
-- month over month
SELECT month, n, ROUND(100.0 * (n - LAG(n) OVER (ORDER BY month)) / LAG(n) OVER (ORDER BY month), 1) AS growth FROM (SELECT DATE_TRUNC('month', ts) AS month, COUNT(*) AS n FROM orders GROUP BY 1) AS m ORDER BY month;
-- stickiness, join of released
WITH d AS (SELECT CAST(ts AS DATE) AS day, COUNT(DISTINCT user_id) AS dau FROM events GROUP BY 1), m AS (SELECT COUNT(DISTINCT user_id) AS mau FROM events) SELECT AVG(dau) / MAX(mau) AS stickiness FROM d, m;
-- share of total, round
SELECT p.category, ROUND(SUM(o.amount), 2) AS revenue, SUM(o.amount) / SUM(SUM(o.amount)) OVER () AS share FROM orders o JOIN products p USING (product_id) GROUP BY p.category;
-- percentiles; approx
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY amount) AS p50, PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY amount) AS p95 FROM orders;
-- cohort by months since signup
SELECT DATE_TRUNC('month', u.signup) AS cohort, DATE_DIFF('month', u.signup, CAST(e.ts AS DATE)) AS age, COUNT(DISTINCT u.user_id) AS n FROM users u JOIN events e USING (user_id) WHERE e.ts >= u.signup GROUP BY cohort, age;
-- next event by lead
SELECT event, next_event, COUNT(*) AS n FROM (SELECT user_id, event, LEAD(event) OVER (PARTITION BY user_id ORDER BY ts) AS next_event FROM events) AS t WHERE next_event IS NOT NULL GROUP BY event, next_event;
-- first product of each user
SELECT product_id, COUNT(DISTINCT user_id) AS n FROM (SELECT user_id, FIRST_VALUE(product_id) OVER (PARTITION BY user_id ORDER BY ts) AS product_id FROM orders) AS t GROUP BY product_id;
-- pivot by filter
SELECT device, COUNT(*) FILTER (WHERE event = 'view') AS views, COUNT(*) FILTER (WHERE event = 'buy') AS buys FROM events GROUP BY device ORDER BY device;
-- regexp in where
SELECT device, COUNT(*) AS n FROM events WHERE REGEXP_MATCHES(event, '^(buy|cart)$') GROUP BY device;
-- repeat buyers
SELECT COUNT(*) FILTER (WHERE n > 1) / COUNT(*) AS repeat_rate FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) AS t;
-- quartile over other users; refuse
SELECT quartile, AVG(total) AS a FROM (SELECT user_id, SUM(amount) AS total, NTILE(4) OVER (ORDER BY SUM(amount)) AS quartile FROM orders GROUP BY user_id) AS t GROUP BY quartile;
