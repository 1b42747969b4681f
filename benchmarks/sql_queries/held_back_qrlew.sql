-- variance distinct
SELECT status, VARIANCE(DISTINCT product_id) AS v FROM orders GROUP BY status;
-- left join, arithmetic of columns
SELECT u.plan, SUM(o.amount * 0.2) AS vat FROM users u LEFT JOIN orders o ON u.user_id = o.user_id GROUP BY u.plan;
-- per unit, then aggregate
WITH per AS (SELECT user_id, AVG(amount) AS m FROM orders GROUP BY user_id) SELECT AVG(m) AS mm, STDDEV(m) AS s FROM per;
-- full join, distinct unit
SELECT COUNT(DISTINCT user_id) AS n FROM users FULL OUTER JOIN events USING (user_id);
-- full join
SELECT plan, COUNT(*) AS n FROM users FULL JOIN orders USING (user_id) GROUP BY plan;
-- exp of a column
SELECT SUM(EXP(amount / -50)) AS s FROM orders;
-- case, square
SELECT SUM(CASE WHEN amount > 25 THEN amount ELSE 25 END) AS s, AVG(amount * amount) AS q FROM orders;
-- join on the unit with a condition
SELECT o.status, COUNT(*) AS n FROM orders o JOIN events e ON o.user_id = e.user_id AND e.ts < o.ts GROUP BY o.status;
-- functions in group
SELECT LOWER(plan) AS p, COUNT(*) AS n FROM users WHERE LOWER(country) IN ('fr', 'de') GROUP BY p;
-- union of released
SELECT plan, COUNT(*) AS n FROM users GROUP BY plan UNION SELECT 'all', COUNT(*) FROM users;
-- text functions in where
SELECT SUM(amount) AS s FROM orders WHERE CHAR_LENGTH(status) = 4 AND POSITION('a' IN status) > 0;
-- by unit; refuse
SELECT user_id, SUM(amount) AS s FROM orders GROUP BY user_id;
