-- count
SELECT COUNT(*) AS members FROM users;
-- group
SELECT plan, COUNT(*) AS n FROM users GROUP BY plan;
-- group, mean
SELECT plan, country, AVG(age) AS a FROM users GROUP BY plan, country;
-- binned
SELECT FLOOR(age / 10) * 10 AS bin, COUNT(*) AS n FROM users GROUP BY bin;
-- binned, case
SELECT CASE WHEN age < 18 THEN 0 WHEN age < 65 THEN 1 ELSE 2 END AS bin, COUNT(*) AS n FROM users GROUP BY bin ORDER BY bin;
-- quantile; approx
SELECT QUANTILE_CONT(age, 0.25) AS q FROM users;
-- filter
SELECT COUNT(*) FILTER (WHERE age > 40) AS n, SUM(age) FILTER (WHERE plan = 'pro') AS s FROM users;
-- flat map of rows, unnest; refuse
SELECT COUNT(*) AS n FROM users, UNNEST([1, 2]) AS t(x);
-- join private
SELECT plan, SUM(amount) AS s FROM users JOIN orders ON users.user_id = orders.user_id GROUP BY plan;
-- join public
SELECT continent, COUNT(*) AS n FROM users JOIN countries USING (country) GROUP BY continent;
-- stddev, variance
SELECT plan, STDDEV_SAMP(age) AS s, VAR_SAMP(age) AS v FROM users GROUP BY plan;
-- post-processing, share of total
SELECT plan, COUNT(*) AS n, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS percent FROM users GROUP BY plan;
-- post-processing, cumulative
SELECT country, n, SUM(n) OVER (ORDER BY country) AS running FROM (SELECT country, COUNT(*) AS n FROM users GROUP BY country) AS t ORDER BY country;
-- round to digits
SELECT ROUND(AVG(age), 1) AS a, ROUND(SUM(age), -1) AS s FROM users;
-- width_bucket on a column
SELECT COUNT(*) AS n FROM users WHERE age % 2 = 0;
-- null handling
SELECT plan, AVG(COALESCE(age, 0)) AS a FROM users WHERE plan IS NOT NULL GROUP BY plan;
-- correlation
SELECT CORR(age, user_id % 7) AS c FROM users; -- bounds: user_id % 7=0:6
-- dayname on a column
SELECT DAYNAME(signup) AS d, COUNT(*) AS n FROM users GROUP BY d;
