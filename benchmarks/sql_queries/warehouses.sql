-- count distinct users
SELECT COUNT(DISTINCT user_id) AS users FROM orders;
-- group, order, limit
SELECT status, COUNT(*) AS n FROM orders GROUP BY status ORDER BY n DESC LIMIT 1;
-- date trunc
SELECT DATE_TRUNC('month', ts) AS month, SUM(amount) AS revenue FROM orders GROUP BY month ORDER BY month;
-- share by case
SELECT AVG(CASE WHEN status = 'paid' THEN 1 ELSE 0 END) AS paid FROM orders;
-- clean room join of two parties
SELECT e.device, COUNT(DISTINCT o.user_id) AS buyers FROM events e INNER JOIN orders o ON e.user_id = o.user_id GROUP BY e.device;
-- in subquery on the unit
SELECT COUNT(DISTINCT user_id) AS n FROM events WHERE user_id IN (SELECT user_id FROM orders WHERE amount > 30) AND event = 'view';
-- cte, two levels
WITH spend AS (SELECT user_id, SUM(amount) AS total FROM orders GROUP BY user_id), bands AS (SELECT user_id, CASE WHEN total < 50 THEN 'low' WHEN total < 150 THEN 'mid' ELSE 'high' END AS band FROM spend) SELECT band, COUNT(*) AS n FROM bands GROUP BY band;
-- overlap, intersect; 
SELECT COUNT(*) AS n FROM (SELECT user_id FROM events INTERSECT SELECT user_id FROM orders) AS t;
-- except
SELECT COUNT(*) AS n FROM (SELECT user_id FROM users EXCEPT SELECT user_id FROM orders) AS t;
-- qualify on released
SELECT country, plan, COUNT(*) AS n FROM users GROUP BY country, plan QUALIFY ROW_NUMBER() OVER (PARTITION BY country ORDER BY COUNT(*) DESC, plan) = 1;
-- pivot of released
SELECT * FROM (SELECT country, plan, COUNT(*) AS n FROM users GROUP BY country, plan) PIVOT (SUM(n) FOR plan IN ('free', 'pro'));
-- first event of each user
SELECT event, COUNT(*) AS n FROM (SELECT user_id, event, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts, event) AS place FROM events) AS t WHERE place = 1 GROUP BY event;
-- iff
SELECT IFF(amount > 25, 'high', 'low') AS band, COUNT(*) AS n FROM orders GROUP BY 1; -- duck: SELECT CASE WHEN amount > 25 THEN 'high' ELSE 'low' END AS band, COUNT(*) AS n FROM orders GROUP BY 1
-- rows; refuse
SELECT o.* FROM orders o JOIN events e USING (user_id);
